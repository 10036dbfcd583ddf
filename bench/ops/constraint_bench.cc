// Times masks with the vocabulary of a real checkpoint; not a test.
//   constraint_bench MODEL.gguf
// For each schema: random replies (half of the tokens the longest allowed of some), the time of
// mask() and accept() for each token of the first reply (caches empty) and of the later ones.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <random>

#include "constraint/compile.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint.h"

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Named {
  const char* name;
  const char* schema;
};
constexpr Named kSchemas[] = {
    {"any object", R"({"type":"object"})"},
    {"person",
     R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,
        "maximum":150},"email":{"type":"string","format":"email"},"tags":{"type":"array",
        "items":{"type":"string"}}},"required":["name","age","email","tags"]})"},
    {"limited strings",
     R"({"type":"object","properties":{"title":{"type":"string","maxLength":60},"body":{"type":"string",
        "minLength":20,"maxLength":400},"code":{"type":"string","pattern":"^[A-Z]{3}-[0-9]{4}$"}},
        "required":["title","body","code"]})"},
    {"array of enums",
     R"({"type":"array","items":{"type":"object","properties":{"kind":{"enum":["open","closed","new"]},
        "score":{"type":"number","minimum":0,"maximum":1},"text":{"type":"string"}},
        "required":["kind","score","text"]},"minItems":3,"maxItems":10})"},
    {"extra keys",
     R"({"type":"object","properties":{"id":{"type":"integer"}},"required":["id"],
        "additionalProperties":{"type":"string"}})"},
    {"recursive tree",
     R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"v":{"type":"string"},"kids":
        {"type":"array","items":{"$ref":"#/$defs/t"}}},"required":["v","kids"]}}})"},
    {"words (pattern)", R"({"type":"string","pattern":"^[a-z ]{1,300}$"})"},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: constraint_bench MODEL.gguf\n"), 2;
  const auto checkpoint = invar::Checkpoint::open(argv[1]);
  if (!checkpoint.ok()) return std::fprintf(stderr, "%s\n", checkpoint.error().message.c_str()), 1;
  const auto tokenizer = invar::Tokenizer::from_checkpoint(**checkpoint);
  if (!tokenizer.ok()) return std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str()), 1;
  auto start = Clock::now();
  const auto trie = invar::TokenTrie::make(**tokenizer, (*tokenizer)->end_ids);
  std::printf("%d tokens, %zu nodes, tree made in %.1f ms\n", trie->vocab_size(),
              trie->nodes().size(), ms_since(start));
  start = Clock::now();
  (void)trie->string_walk(invar::kStringBody);
  std::printf("one walk through the inside of a string: %.2f ms\n", ms_since(start));
  std::printf("%-16s %8s %8s | first reply %6s %8s %8s | later %6s %8s %8s\n", "schema", "compile",
              "states", "tokens", "mean ms", "max ms", "tokens", "mean ms", "max ms");
  for (const Named& named : kSchemas) {
    invar::ConstraintSpec spec;
    spec.json_schema = named.schema;
    start = Clock::now();
    const auto compiled = invar::compile_constraint(spec, trie);
    const double compile_ms = ms_since(start);
    if (!compiled.ok()) return std::fprintf(stderr, "%s\n", compiled.error().message.c_str()), 1;
    std::mt19937 rng(1);
    double sum[2] = {}, most[2] = {};
    int count[2] = {};
    for (int reply = 0; reply < 6; ++reply) {
      invar::Constraint constraint(*compiled);
      std::vector<uint64_t> bits(constraint.num_mask_words());
      for (int step = 0; step < 200 && !constraint.is_finished(); ++step) {
        start = Clock::now();
        if (!constraint.mask(bits).ok()) return 1;
        double ms = ms_since(start);
        // Of some random allowed ids the one with most bytes, or one that closes something.
        int32_t chosen = -1;
        size_t best = 0;
        for (int tries = 0; tries < 2000 && (chosen < 0 || tries < 100); ++tries) {
          const auto from = static_cast<size_t>(rng()) % bits.size();
          if (bits[from] == 0) continue;
          uint64_t word = bits[from];
          for (uint32_t skip = rng() % static_cast<uint32_t>(std::popcount(word)); skip > 0; --skip)
            word &= word - 1;
          const auto id = static_cast<int32_t>(from * 64) + std::countr_zero(word);
          const std::string& bytes = trie->token_bytes(id);
          const bool closes = bytes.find_first_of("\"}]") != std::string::npos;
          const size_t worth = bytes.size() + (closes && step % 12 == 11 ? 100 : 0);
          if (chosen < 0 || worth > best) chosen = id, best = worth;
        }
        for (size_t i = 0; chosen < 0 && i < bits.size(); ++i)
          if (bits[i]) chosen = static_cast<int32_t>(i * 64) + std::countr_zero(bits[i]);
        if (chosen < 0) return std::fprintf(stderr, "an empty mask\n"), 1;
        start = Clock::now();
        if (!constraint.accept(chosen)) return std::fprintf(stderr, "not accepted\n"), 1;
        ms += ms_since(start);
        const int which = reply > 0;
        sum[which] += ms;
        most[which] = std::max(most[which], ms);
        ++count[which];
      }
    }
    std::printf("%-16s %8.2f %8zu | %18d %8.4f %8.3f | %12d %8.4f %8.3f\n", named.name, compile_ms,
                (*compiled)->num_states(), count[0], sum[0] / std::max(count[0], 1), most[0],
                count[1], sum[1] / std::max(count[1], 1), most[1]);
  }
  return 0;
}
