// What the mix is: a third greedy; short, middling and long prompts; three shared beginnings and
// conversations that go on from an earlier request's, for the prefix cache; and every field that
// has to do with sampling, in all combinations that chance brings.
#include "verify_requests.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace invar::cli {
namespace {

// Plain ASCII, so that the smallest vocabularies can write it.
constexpr std::string_view kWords[] = {
    "river",  "stone",  "because", "cold",  "seven",  "the",   "a",      "of",
    "and",    "window", "letter",  "green", "walks",  "under", "slowly", "bridge",
    "market", "return", "value",   "list",  "number", "while", "sun",    "old",
    "ship",   "sings",  "answer",  "not",   "every",  "is",    "to",     "in",
    "engine", "light",  "paper",   "count", "why",    "how",   "name",   "city"};

constexpr const char* kSchemas[] = {
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":20},"age":{"type":"integer"}},"required":["name","age"],"additionalProperties":false})",
    R"({"enum":["red","green","blue"]})",
    R"({"type":"array","items":{"type":"integer"},"maxItems":4})",
    R"({"type":"object","properties":{"ok":{"type":"boolean"},"score":{"type":"number"}},"required":["ok"],"additionalProperties":false})",
};

constexpr const char* kStops[] = {"e", " the", ".", "\n", " a", "is", "ing", ","};

constexpr int kNumPrefixes = 3;
constexpr int64_t kLongestPrompt = 800;  // tokens
constexpr int64_t kTemplateRoom = 96;    // tokens that a chat template may add

class RequestMaker {
 public:
  RequestMaker(uint64_t seed, const TextFacts& facts) : random_(seed), facts_(facts) {
    const auto words_of = [&](int64_t tokens) {
      return std::max<int64_t>(
          1, static_cast<int64_t>(static_cast<double>(tokens) / (1.1 * facts.tokens_per_word)));
    };
    longest_reply_ = std::min<int64_t>(96, facts.context / 8);
    const int64_t room =
        std::min(kLongestPrompt, facts.context - kTemplateRoom - longest_reply_ - 8);
    most_words_ = words_of(room);
    // The longest is more than a page of the cache, where the context has room for that.
    for (int i = 0; i < kNumPrefixes; ++i) prefixes_[i] = words(most_words_ * (i + 1) / 5);
  }

  VerifyRequest next(int index) {
    VerifyRequest request;
    request.index = index;
    add_prompt(request);
    add_sampling(request);
    request.max_tokens = random_.chance(6)
                             ? longest_reply_
                             : random_.between(1, std::max<int64_t>(1, longest_reply_ / 3));
    request.ignore_end = random_.chance(40);
    if (random_.chance(25)) {
      const int64_t count = random_.between(1, 3);
      for (int64_t i = 0; i < count; ++i) request.stop.push_back(kStops[random_.below(8)]);
    }
    if (random_.chance(15)) request.num_choices = static_cast<int>(random_.between(2, 4));
    request.logprobs = random_.chance(60);
    if (facts_.has_schemas && random_.chance(12)) {
      request.schema = kSchemas[random_.below(4)];
      request.ignore_end = false;
      request.stop.clear();
      request.sampling.logit_bias.clear();  // it may forbid what the schema demands
      request.max_tokens = longest_reply_;
    }
    made_.push_back(request);
    return request;
  }

 private:
  std::string words(int64_t count) {
    std::string text;
    for (int64_t i = 0; i < count; ++i) {
      if (i > 0) text += random_.chance(8) ? ", " : " ";
      text += kWords[static_cast<size_t>(random_.below(std::size(kWords)))];
    }
    return text + ".";
  }

  // Words of a request's own: mostly few.
  int64_t length() {
    const int64_t kind = random_.below(10);
    if (kind < 6) return random_.between(1, std::max<int64_t>(1, most_words_ / 12));
    if (kind < 9) return random_.between(1, std::max<int64_t>(1, most_words_ / 4));
    return random_.between(1, most_words_);
  }

  int64_t num_words(const VerifyRequest& request) const {
    int64_t count = std::count(request.prompt.begin(), request.prompt.end(), ' ') + 1;
    for (const ChatMessage& message : request.messages)
      count += std::count(message.content.begin(), message.content.end(), ' ') + 4;
    return count;
  }

  void add_prompt(VerifyRequest& request) {
    const int64_t kind = random_.below(10);
    const bool chat = facts_.has_chat && random_.chance(70);
    if (kind < 2 && chat && !made_.empty()) {
      // The next turn of an earlier conversation.
      const VerifyRequest& earlier =
          made_[static_cast<size_t>(random_.below(static_cast<int64_t>(made_.size())))];
      if (earlier.is_chat()) {
        request.messages = earlier.messages;
        request.messages.push_back({"assistant", words(random_.between(1, 8))});
        request.messages.push_back({"user", words(random_.between(1, 8))});
        if (num_words(request) <= most_words_) return;
        request.messages.clear();
      }
    }
    std::string own, prefix;
    if (kind < 6) {
      prefix = prefixes_[static_cast<size_t>(random_.below(kNumPrefixes))];
      own = words(std::min(length(), std::max<int64_t>(1, most_words_ / 3)));
    } else {
      own = words(length());
    }
    if (!chat) {
      request.prompt = prefix.empty() ? own : prefix + " " + own;
    } else if (!prefix.empty() && random_.chance(50)) {
      request.messages = {{"user", prefix + " " + own}};
    } else {
      // Some templates know no system message: the beginning is a turn of its own.
      if (!prefix.empty()) request.messages = {{"user", prefix}, {"assistant", "yes."}};
      request.messages.push_back({"user", own});
    }
  }

  void add_sampling(VerifyRequest& request) {
    SamplingParams& s = request.sampling;
    s.seed = static_cast<uint64_t>(random_.below(int64_t{1} << 48));
    if (!random_.chance(33)) {
      s.temperature = 0.25f * static_cast<float>(random_.between(1, 6));
      if (random_.chance(30)) s.top_k = static_cast<int>(random_.between(1, 60));
      if (random_.chance(40)) s.top_p = 0.125f * static_cast<float>(random_.between(2, 7));
      if (random_.chance(20)) s.min_p = 0.0625f * static_cast<float>(random_.between(1, 4));
      request.has_seed = !random_.chance(20);
    }
    if (random_.chance(20))
      s.repetition_penalty = 1 + 0.125f * static_cast<float>(random_.between(1, 6));
    if (random_.chance(15)) s.presence_penalty = 0.25f * static_cast<float>(random_.between(-4, 6));
    if (random_.chance(15)) s.frequency_penalty = 0.25f * static_cast<float>(random_.between(1, 6));
    if (!facts_.ids.empty() && random_.chance(20)) {
      const int64_t count = random_.between(1, 6);
      for (int64_t i = 0; i < count; ++i) {
        const int32_t id =
            facts_.ids[static_cast<size_t>(random_.below(static_cast<int64_t>(facts_.ids.size())))];
        const bool known = std::any_of(s.logit_bias.begin(), s.logit_bias.end(),
                                       [&](const auto& entry) { return entry.first == id; });
        const float bias =
            random_.chance(30) ? -100.0f : 0.5f * static_cast<float>(random_.between(-12, 12));
        if (!known) s.logit_bias.emplace_back(id, bias);
      }
    }
  }

  VerifyRandom random_;
  const TextFacts& facts_;
  int64_t most_words_ = 0, longest_reply_ = 0;
  std::array<std::string, kNumPrefixes> prefixes_;
  std::vector<VerifyRequest> made_;
};

bool has_penalty(const SamplingParams& s) {
  return s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0;
}

}  // namespace

uint64_t VerifyRandom::bits() {
  // SplitMix64 (Steele, Lea, Flood 2014).
  state_ += 0x9E3779B97F4A7C15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::string sample_text() {
  std::string text;
  for (const std::string_view word : kWords) text += (text.empty() ? "" : " ") + std::string(word);
  return text + ".";
}

int sample_words() { return static_cast<int>(std::size(kWords)); }

std::vector<VerifyRequest> make_verify_requests(uint64_t seed, int count, const TextFacts& facts) {
  RequestMaker maker(seed, facts);
  std::vector<VerifyRequest> requests;
  for (int i = 0; i < count; ++i) requests.push_back(maker.next(i));
  return requests;
}

std::string VerifyRequest::describe() const {
  std::string text = is_chat() ? "chat" : "raw text";
  text += sampling.temperature > 0 ? format(", temperature %g", double{sampling.temperature})
                                   : std::string(", greedy");
  if (sampling.top_k > 0) text += format(", top_k %d", sampling.top_k);
  if (sampling.top_p < 1) text += format(", top_p %g", double{sampling.top_p});
  if (sampling.min_p > 0) text += format(", min_p %g", double{sampling.min_p});
  if (has_penalty(sampling)) text += ", penalties";
  if (!sampling.logit_bias.empty()) text += ", logit_bias";
  if (!stop.empty()) text += ", stop strings";
  if (!schema.empty()) text += ", schema";
  if (num_choices > 1) text += format(", %d choices", num_choices);
  return text + format(", at most %lld tokens", static_cast<long long>(max_tokens));
}

Json VerifyRequest::body() const {
  Json json = Json::object();
  if (is_chat()) {
    Json list = Json::array();
    for (const ChatMessage& message : messages) {
      Json entry = Json::object();
      entry.set("role", message.role);
      entry.set("content", message.content);
      list.push_back(std::move(entry));
    }
    json.set("messages", std::move(list));
  } else {
    json.set("prompt", prompt);
  }
  json.set("max_tokens", max_tokens);
  // Everything that the checkpoint's own defaults would fill in otherwise.
  json.set("temperature", double{sampling.temperature});
  json.set("top_k", sampling.top_k);
  json.set("top_p", double{sampling.top_p});
  json.set("min_p", double{sampling.min_p});
  json.set("repetition_penalty", double{sampling.repetition_penalty});
  json.set("presence_penalty", double{sampling.presence_penalty});
  json.set("frequency_penalty", double{sampling.frequency_penalty});
  if (has_seed) json.set("seed", static_cast<int64_t>(sampling.seed));
  if (!sampling.logit_bias.empty()) {
    Json biases = Json::object();
    for (const auto& [id, bias] : sampling.logit_bias) biases.set(std::to_string(id), double{bias});
    json.set("logit_bias", std::move(biases));
  }
  if (!stop.empty()) {
    Json list = Json::array();
    for (const std::string& text : stop) list.push_back(text);
    json.set("stop", std::move(list));
  }
  if (ignore_end) json.set("ignore_eos", true);
  if (num_choices > 1) json.set("n", num_choices);
  if (logprobs) json.set("logprobs", is_chat() ? Json(true) : Json(0));
  if (!schema.empty()) {
    Json wrapped = Json::object();
    wrapped.set("name", "reply");
    wrapped.set("schema", Json::parse(schema).value());
    Json response_format = Json::object();
    response_format.set("type", "json_schema");
    response_format.set("json_schema", std::move(wrapped));
    json.set("response_format", std::move(response_format));
  }
  return json;
}

GenerationRequest VerifyRequest::native() const {
  GenerationRequest request;
  request.messages = messages;
  if (!is_chat()) request.prompt = prompt;
  request.sampling = sampling;
  request.max_tokens = max_tokens;
  request.stop = stop;
  request.ignore_end = ignore_end;
  if (logprobs) request.top_logprobs = 0;
  return request;
}

RequestMix mix_of(const std::vector<VerifyRequest>& requests) {
  RequestMix mix;
  for (const VerifyRequest& request : requests) {
    ++(request.sampling.temperature > 0 ? mix.sampled : mix.greedy);
    ++(request.is_chat() ? mix.chat : mix.raw);
    mix.penalties += has_penalty(request.sampling);
    mix.biases += !request.sampling.logit_bias.empty();
    mix.stops += !request.stop.empty();
    mix.schemas += !request.schema.empty();
    mix.several += request.num_choices > 1;
    mix.logprobs += request.logprobs;
  }
  return mix;
}

}  // namespace invar::cli
