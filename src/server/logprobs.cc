#include "server/logprobs.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "base/utf8.h"
#include "sampling/sampler.h"

namespace invar::server {
namespace {

// JSON has no minus infinity.
double shown(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

std::string valid_text(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const auto prefix = utf8_prefix(bytes);
    text += prefix.state == Utf8Prefix::kCharacter ? bytes.substr(0, prefix.num_bytes)
                                                   : kReplacementChar;
    bytes.remove_prefix(prefix.num_bytes);
  }
  return text;
}

bool is_valid(std::string_view bytes) { return valid_text(bytes) == bytes; }

Json byte_list(std::string_view bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  return list;
}

Json token_json(const std::string& bytes, float logprob) {
  Json json = Json::object();
  json.set("token", valid_text(bytes));
  json.set("logprob", shown(logprob));
  json.set("bytes", byte_list(bytes));
  return json;
}

int64_t num_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

std::vector<TokenEntry> LogprobAligner::deliver(size_t begin, size_t end) {
  std::vector<TokenEntry> delivered;
  while (!entries_.empty() && entries_.front().event.text_begin < end) {
    TokenEntry& entry = entries_.front();
    const bool has_text = entry.event.text_end > entry.event.text_begin;
    if (has_text && entry.event.text_end > begin) delivered.push_back(std::move(entry));
    entries_.pop_front();
  }
  return delivered;
}

Json chat_logprob_json(const Engine& engine, const TokenEntry& entry) {
  Json json = token_json(entry.bytes, entry.event.logprob ? entry.event.logprob->logprob : 0);
  Json top = Json::array();
  for (const TokenLogprob& other : entry.event.top_logprobs)
    top.push_back(token_json(engine.token_bytes(other.id), other.logprob));
  json.set("top_logprobs", std::move(top));
  return json;
}

Result<std::vector<TokenEntry>> score_prompt(Engine& engine, const std::vector<int32_t>& ids,
                                             std::string_view text, int num_top,
                                             const std::stop_token& stop) {
  std::vector<TokenEntry> entries(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    entries[i].event.id = ids[i];
    std::string& bytes = entries[i].bytes;
    bytes = engine.token_bytes(ids[i]);
    // A special token is in the text only when somebody wrote it there.
    if (bytes.empty() && text.starts_with(engine.token_text(ids[i])))
      bytes = engine.token_text(ids[i]);
    text.remove_prefix(std::min(bytes.size(), text.size()));
  }
  if (ids.size() == 1) return entries;
  const auto take = [&](int64_t index, std::span<const float> logits) {
    TokenEvent& next = entries[static_cast<size_t>(index) + 1].event;
    RowLogprobs row = row_logprobs(logits, next.id, num_top);
    next.logprob = row.chosen;
    next.top_logprobs = std::move(row.top);
    return static_cast<size_t>(index) + 2 < ids.size();
  };
  INVAR_TRY_VOID(engine.score(ids, take, stop));
  return entries;
}

std::string CompletionLogprobs::name(int32_t id, const std::string& bytes) const {
  if (tokens_as_ids_) return "token_id:" + std::to_string(id);
  if (is_valid(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) text += format("\\x%02x", static_cast<unsigned char>(c));
  return text;
}

void CompletionLogprobs::add(const TokenEntry& entry) {
  tokens_.push_back(name(entry.event.id, entry.bytes));
  offsets_.push_back(offset_);
  offset_ += num_code_points(entry.bytes);
  if (!entry.event.logprob) {  // nothing stands before it
    values_.push_back(Json());
    return tops_.push_back(Json());
  }
  values_.push_back(shown(entry.event.logprob->logprob));
  Json top = Json::object();
  for (const TokenLogprob& other : entry.event.top_logprobs) {
    const std::string key = name(other.id, engine_.token_bytes(other.id));
    if (top.find(key) == nullptr) top.set(key, shown(other.logprob));  // sorted: the higher stays
  }
  tops_.push_back(std::move(top));
}

Json CompletionLogprobs::take() {
  Json json = Json::object();
  json.set("tokens", std::exchange(tokens_, Json::array()));
  json.set("token_logprobs", std::exchange(values_, Json::array()));
  json.set("top_logprobs", num_top_ > 0 ? std::exchange(tops_, Json::array()) : Json());
  json.set("text_offset", std::exchange(offsets_, Json::array()));
  return json;
}

}  // namespace invar::server
