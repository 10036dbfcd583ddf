// Shows constraints to tests in other languages (tests/constraint/oracle): what compiles, what is
// refused and how, which texts pass, and the masks along a reply. Not a test by itself.
//   constraint_probe [MODEL.gguf]      without a model: a small vocabulary with every byte
// Reads one request a line and answers each with one line, both JSON:
//   {"schema": text, "texts"?: [text...], "replies"?: {"seed", "count", "steps"}, "mask"?: true}
//   {"ms", "error"?, "states"?, "accepted"?: [bool...], "replies"?: [text or null...], "mask"?:
//   hex}
//   {"take": id}    goes on after a request with "mask"
//   {"taken": bool, "mask": hex}
// `replies` are drawn at random; null: not complete within the steps. A mask is hexadecimal, 16
// digits for each 64 ids, the word's highest bit first.
#include <bit>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>
#include <random>

#include "base/json.h"
#include "constraint/byte_vocabulary.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint.h"

namespace invar {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::string hex_of(std::span<const uint64_t> bits) {
  std::string out;
  char word[17];
  for (const uint64_t w : bits) {
    std::snprintf(word, sizeof word, "%016llx", static_cast<unsigned long long>(w));
    out += word;
  }
  return out;
}

// An allowed id: often the end when it may come, now and then a token that closes something, else
// any. -1: none.
int32_t draw(const TokenTrie& trie, std::span<const uint64_t> bits, std::mt19937& rng,
             int64_t step) {
  std::vector<int32_t> allowed, closing;
  int32_t end = -1;
  for (size_t word = 0; word < bits.size(); ++word)
    for (uint64_t left = bits[word]; left != 0; left &= left - 1) {
      const auto id = static_cast<int32_t>(word * 64) + std::countr_zero(left);
      if (trie.is_end(id)) {
        end = id;
        continue;
      }
      allowed.push_back(id);
      if (trie.token_bytes(id).find_first_of("\"}]") != std::string::npos) closing.push_back(id);
    }
  if (end >= 0 && (allowed.empty() || rng() % 2 == 0)) return end;
  const bool hurry = !closing.empty() && rng() % 100 < (step > 40 ? 70u : 25u);
  const auto& from = hurry ? closing : allowed;
  return from.empty() ? -1 : from[rng() % from.size()];
}

// A reply drawn at random, or null: not complete within the steps.
Result<Json> draw_reply(Constraint constraint, const TokenTrie& trie, int64_t num_steps,
                        uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<uint64_t> bits(constraint.num_mask_words());
  std::string text;
  for (int64_t step = 0; step < num_steps; ++step) {
    INVAR_TRY_VOID(constraint.mask(bits));
    const int32_t id = draw(trie, bits, rng, step);
    if (!constraint.accept(id)) return corrupt("id %d is in the mask and not accepted", id);
    if (trie.is_end(id)) return Json(text);
    text += trie.token_bytes(id);
  }
  return Json();
}

int64_t number(const Json& json, const char* key) { return json.find(key)->as_int(); }

void add_mask(Constraint& constraint, Json& answer) {
  std::vector<uint64_t> bits(constraint.num_mask_words());
  const Result<void> masked = constraint.mask(bits);
  answer.set(masked.ok() ? "mask" : "error", masked.ok() ? hex_of(bits) : masked.error().message);
}

Json answer_to(const Json& request, const std::shared_ptr<const TokenTrie>& trie,
               std::optional<Constraint>& current) {
  Json answer = Json::object();
  if (request.find("take") && current) {
    answer.set("taken", current->accept(static_cast<int32_t>(number(request, "take"))));
    add_mask(*current, answer);
    return answer;
  }
  const Clock::time_point start = Clock::now();
  const auto compiled = compile_schema(request.find("schema")->as_string(), trie);
  answer.set("ms", ms_since(start));
  if (!compiled.ok()) {
    answer.set("error", compiled.error().message);
    return answer;
  }
  answer.set("states", static_cast<int64_t>((*compiled)->num_states()));
  if (const Json* texts = request.find("texts")) {
    Json accepted = Json::array();
    for (const Json& text : texts->items())
      accepted.push_back(accepts_text(*compiled, text.as_string()));
    answer.set("accepted", accepted);
  }
  if (const Json* wanted = request.find("replies")) {
    Json replies = Json::array();
    for (int64_t i = 0; i < number(*wanted, "count"); ++i) {
      const auto reply = draw_reply(Constraint(*compiled), *trie, number(*wanted, "steps"),
                                    static_cast<uint32_t>(number(*wanted, "seed") + i));
      if (!reply.ok()) return answer.set("error", reply.error().message), answer;
      replies.push_back(*reply);
    }
    answer.set("replies", replies);
  }
  if (request.find("mask")) {
    current.emplace(*compiled);
    add_mask(*current, answer);
  }
  return answer;
}

int run(int argc, char** argv) {
  std::shared_ptr<const TokenTrie> trie = byte_trie();
  if (argc > 1) {
    const auto checkpoint = Checkpoint::open(argv[1]);
    if (!checkpoint.ok())
      return std::fprintf(stderr, "%s\n", checkpoint.error().message.c_str()), 1;
    const auto tokenizer = Tokenizer::from_checkpoint(**checkpoint);
    if (!tokenizer.ok()) return std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str()), 1;
    trie = TokenTrie::make(**tokenizer, (*tokenizer)->end_ids);
  }
  std::optional<Constraint> current;  // whose masks are asked for
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = Json::parse(line);
    if (!request.ok() || !(request->find("schema") || (request->find("take") && current)))
      return std::fprintf(stderr, "not a request: %s\n", line.substr(0, 200).c_str()), 2;
    std::cout << answer_to(*request, trie, current).dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace invar

int main(int argc, char** argv) { return invar::run(argc, argv); }
