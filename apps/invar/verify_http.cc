// Requests of `invar verify` to a server, whole and as streams, over libcurl.
#include <algorithm>
#include <chrono>
#include <thread>

#include "curl_setup.h"
#include "verify_target.h"

namespace invar::cli {
namespace {

constexpr size_t kMaxAnswerBytes = 64 << 20;
constexpr long kStallSeconds = 120;
constexpr std::chrono::seconds kMaxWaitForRoom{120};

// One a thread, so that connections are used again.
CURL* thread_curl() {
  init_curl();
  struct Handle {
    CURL* curl = curl_easy_init();
    ~Handle() { curl_easy_cleanup(curl); }
  };
  thread_local Handle handle;
  curl_easy_reset(handle.curl);
  return handle.curl;
}

struct Sink {
  std::string* body = nullptr;
  CURL* curl = nullptr;
  const std::function<bool(std::string_view)>* on_data = nullptr;
  bool went_away = false;
};

size_t take_data(char* data, size_t size, size_t count, void* user) {
  auto& sink = *static_cast<Sink*>(user);
  const std::string_view bytes(data, size * count);
  long status = 0;
  curl_easy_getinfo(sink.curl, CURLINFO_RESPONSE_CODE, &status);
  if (*sink.on_data && status == 200) {
    sink.went_away = !(*sink.on_data)(bytes);
    return sink.went_away ? 0 : bytes.size();
  }
  if (sink.body->size() + bytes.size() > kMaxAnswerBytes) return 0;
  *sink.body += bytes;
  return bytes.size();
}

// The message of an error body, or its beginning.
std::string error_text(const std::string& body) {
  const Result<Json> json = Json::parse(body);
  if (json) {
    const Json* error = json->find("error");
    const Json* message = error == nullptr ? nullptr : error->find("message");
    if (message != nullptr && message->is_string()) return message->as_string();
  }
  return body.substr(0, 200);
}

std::string text_of(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

int64_t whole_of(const Json* json, std::string_view key) {
  const Json* value = json == nullptr ? nullptr : json->find(key);
  return value != nullptr && value->is_int() ? value->as_int() : 0;
}

void add_logprobs(const Json& choice, ChoiceOutcome& out) {
  const Json* logprobs = choice.find("logprobs");
  if (logprobs == nullptr) return;
  if (const Json* content = logprobs->find("content"); content != nullptr && content->is_array()) {
    for (const Json& entry : content->items())
      if (const Json* value = entry.find("logprob"); value != nullptr && value->is_number())
        out.logprobs.push_back(value->as_double());
  }
  if (const Json* values = logprobs->find("token_logprobs");
      values != nullptr && values->is_array()) {
    for (const Json& value : values->items())
      out.logprobs.push_back(value.is_number() ? value.as_double() : 0);
  }
}

// A whole answer's choice, or a chunk's, is appended to what is there.
void add_choice(const Json& choice, Outcome& outcome) {
  const int64_t index = whole_of(&choice, "index");
  if (index < 0 || index >= static_cast<int64_t>(outcome.choices.size())) return;
  ChoiceOutcome& out = outcome.choices[static_cast<size_t>(index)];
  for (const char* key : {"message", "delta"}) {
    if (const Json* part = choice.find(key); part != nullptr)
      out.text += text_of(*part, "reasoning_content") + text_of(*part, "content");
  }
  out.text += text_of(choice, "text");
  if (const std::string reason = text_of(choice, "finish_reason"); !reason.empty())
    out.finish_reason = reason;
  if (const Json* ids = choice.find("token_ids"); ids != nullptr && ids->is_array())
    for (const Json& id : ids->items())
      if (id.is_int()) out.ids.push_back(static_cast<int32_t>(id.as_int()));
  add_logprobs(choice, out);
}

void add_answer(const Json& json, Outcome& outcome) {
  if (const Json* choices = json.find("choices"); choices != nullptr && choices->is_array())
    for (const Json& choice : choices->items()) add_choice(choice, outcome);
  if (const Json* usage = json.find("usage"); usage != nullptr)
    outcome.num_prompt_tokens =
        std::max(outcome.num_prompt_tokens, whole_of(usage, "prompt_tokens"));
  const Json* invar = json.find("invar");
  if (invar == nullptr || !invar->is_object()) return;
  outcome.arithmetic_id = text_of(*invar, "arithmetic_id");
  outcome.model_sha = text_of(*invar, "model_sha");
  outcome.seed = static_cast<uint64_t>(whole_of(invar, "seed"));
  outcome.num_cached_tokens = whole_of(invar, "cached_tokens");
  const Json* shas = invar->find("token_sha");
  if (shas == nullptr || !shas->is_array()) return;
  for (size_t i = 0; i < shas->items().size() && i < outcome.choices.size(); ++i)
    if (shas->items()[i].is_string()) outcome.choices[i].token_sha = shas->items()[i].as_string();
}

// Server-sent events, cut at their blank lines. `event` returns false to stop.
class EventReader {
 public:
  explicit EventReader(std::function<bool(const std::string&)> event) : event_(std::move(event)) {}
  bool take(std::string_view bytes) {
    buffer_ += bytes;
    for (size_t end; (end = buffer_.find('\n')) != std::string::npos;) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (line.ends_with('\r')) line.pop_back();
      if (line.starts_with("data:") && !event_(line.substr(line.find_first_not_of(' ', 5))))
        return false;
    }
    return true;
  }

 private:
  std::function<bool(const std::string&)> event_;
  std::string buffer_;
};

}  // namespace

HttpTarget::HttpTarget(std::string url, std::string key)
    : url_(std::move(url)), key_(std::move(key)) {
  while (url_.ends_with('/')) url_.pop_back();
  if (url_.ends_with("/v1")) url_.resize(url_.size() - 3);
}

Result<HttpTarget::Answer> HttpTarget::send(const std::string& path, const Json* body,
                                            const std::function<bool(std::string_view)>& on_data) {
  const std::string text = body == nullptr ? "" : body->dump();
  const std::string url = url_ + path;
  const auto give_up = std::chrono::steady_clock::now() + kMaxWaitForRoom;
  for (;;) {
    CURL* curl = thread_curl();
    CurlHeaders headers;
    headers.add("Content-Type: application/json");
    headers.add("Expect:");
    if (!key_.empty()) headers.add("Authorization: Bearer " + key_);
    Answer answer;
    Sink sink{&answer.body, curl, &on_data};
    char why[CURL_ERROR_SIZE] = "";
    set_up_curl(curl, url, headers, kStallSeconds, why);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &sink);
    if (body != nullptr) {
      curl_easy_setopt(curl, CURLOPT_POSTFIELDS, text.c_str());
      curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(text.size()));
    }
    const CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
    if (code != CURLE_OK && !sink.went_away)
      return unavailable("%s: %s", url.c_str(), *why != '\0' ? why : curl_easy_strerror(code));
    const bool no_room = answer.status == 503 || answer.status == 429;
    if (!no_room || std::chrono::steady_clock::now() >= give_up) return answer;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

Result<Json> HttpTarget::send_json(const std::string& path, const Json* body) {
  INVAR_TRY(const Answer answer, send(path, body, {}));
  if (answer.status != 200)
    return unavailable("%s%s answered %ld: %s", url_.c_str(), path.c_str(), answer.status,
                       error_text(answer.body).c_str());
  Result<Json> json = Json::parse(answer.body);
  if (!json) return with_context(url_ + path, json.error());
  return json;
}

Result<TextFacts> HttpTarget::connect() {
  TextFacts facts;
  // A server that loads its model lists it already, without its window; send() waits for the 200.
  INVAR_TRY(const Answer health, send("/health", nullptr, {}));
  if (health.status == 503)
    return unavailable("%s/health answers 503: %s", url_.c_str(), error_text(health.body).c_str());
  INVAR_TRY(const Json models, send_json("/v1/models", nullptr));
  const Json* list = models.find("data");
  if (list == nullptr || !list->is_array() || list->items().empty())
    return unavailable("%s/v1/models lists no model", url_.c_str());
  const Json& first = list->items().front();
  model_ = text_of(first, "id");
  facts.context = whole_of(&first, "max_model_len");
  if (facts.context == 0) {
    facts.context = 1024;
    left_out_.push_back("prompts over 700 tokens: /v1/models says no max_model_len");
  }
  if (facts.context < kMinVerifyContext)
    return unavailable("the server's context has %ld positions, the requests need %ld",
                       long{facts.context}, long{kMinVerifyContext});

  Json text = Json::object();
  text.set("content", sample_text());
  if (const Result<Json> answer = send_json("/tokenize", &text)) {
    if (const Json* ids = answer->find("tokens"); ids != nullptr && ids->is_array())
      for (const Json& id : ids->items())
        if (id.is_int()) facts.ids.push_back(static_cast<int32_t>(id.as_int()));
  }
  if (facts.ids.empty())
    left_out_.push_back("logit_bias: /tokenize gives no token ids");
  else
    facts.tokens_per_word = static_cast<double>(facts.ids.size()) / sample_words();

  VerifyRequest probe;
  probe.max_tokens = 1;
  probe.messages = {{"user", "a"}, {"assistant", "b"}, {"user", "c"}};
  if (const Result<Outcome> answer = ask(probe, {}); !answer) {
    facts.has_chat = false;
    left_out_.push_back("chat: " + answer.error().message);
    probe.messages.clear();
    probe.prompt = "a";
    INVAR_TRY(const Outcome raw, ask(probe, {}));
    (void)raw;
  }
  probe.schema = R"({"type":"integer"})";
  if (const Result<Outcome> answer = ask(probe, {}); !answer) {
    facts.has_schemas = false;
    left_out_.push_back("schemas: " + answer.error().message);
  }
  return facts;
}

Result<Outcome> HttpTarget::ask(const VerifyRequest& request, const AskOptions& options) {
  Json body = request.body();
  body.set("model", model_);
  body.set("cache_prompt", options.use_cache);
  body.set("return_token_ids", true);
  const char* path = request.is_chat() ? "/v1/chat/completions" : "/v1/completions";
  Outcome outcome;
  outcome.choices.resize(static_cast<size_t>(request.num_choices));
  const bool stream = options.stream || options.cut_after >= 0;
  if (!stream) {
    INVAR_TRY(const Json json, send_json(path, &body));
    add_answer(json, outcome);
  } else {
    body.set("stream", true);
    bool ended = false;
    int num_events = 0;
    std::string fault;
    EventReader reader([&](const std::string& data) {
      if (data == "[DONE]") {
        ended = true;
        return true;
      }
      const Result<Json> json = Json::parse(data);
      if (!json) {
        fault = json.error().message;
        return false;
      }
      if (json->find("error") != nullptr) fault = error_text(data);
      add_answer(*json, outcome);
      outcome.was_cut = options.cut_after >= 0 && ++num_events > options.cut_after;
      return fault.empty() && !outcome.was_cut;
    });
    INVAR_TRY(const Answer answer,
              send(path, &body, [&](std::string_view bytes) { return reader.take(bytes); }));
    if (answer.status != 200)
      return unavailable("%s%s answered %ld: %s", url_.c_str(), path, answer.status,
                         error_text(answer.body).c_str());
    if (!fault.empty())
      return unavailable("%s%s: the stream says: %s", url_.c_str(), path, fault.c_str());
    if (!ended && !outcome.was_cut)
      return unavailable("%s%s: the stream ended without [DONE]", url_.c_str(), path);
  }
  if (outcome.was_cut) {
    // A beginning has no hash, whatever had come of it.
    for (ChoiceOutcome& choice : outcome.choices) choice.token_sha.clear();
    return outcome;
  }
  for (const ChoiceOutcome& choice : outcome.choices)
    if (choice.token_sha.empty())
      return unavailable("%s%s: no invar.token_sha in the answer; is it an Invar server?",
                         url_.c_str(), path);
  return outcome;
}

}  // namespace invar::cli
