#include "engine/state_cuts.h"

#include <algorithm>

#include "backend/backend.h"

namespace invar {
namespace {

// Computing so few tokens costs no more than the copy and the step that ends at the cut.
constexpr int64_t kLeastTokens = 64;
constexpr int64_t kLeastBetween = 4096;
constexpr int64_t kMostBetween = 4;  // cuts in between

}  // namespace

std::vector<int64_t> choose_state_cuts(std::span<const int32_t> ids, const Tokenizer& tokenizer) {
  const auto size = static_cast<int64_t>(ids.size());
  std::vector<int64_t> cuts;
  const auto last = std::find_if(ids.rbegin(), ids.rend(), [&](int32_t id) {
    return tokenizer.token_kind(id) == TokenKind::kSpecial;
  });
  if (last == ids.rend()) {
    cuts.push_back((size - 1) / kPagePositions * kPagePositions);
  } else {
    cuts.push_back(ids.rend() - last - 1);
    const auto first = std::find(ids.begin(), ids.end(), *last);
    cuts.push_back(std::find(first + 1, ids.end(), *last) - ids.begin());
  }
  const int64_t between =
      std::max(kLeastBetween, size / (kMostBetween + 1)) / kPagePositions * kPagePositions;
  for (int64_t cut = between; cut < size; cut += between) cuts.push_back(cut);
  std::erase_if(cuts, [&](int64_t cut) { return cut < kLeastTokens || cut >= size; });
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

}  // namespace invar
