#include "engine/state_cuts.h"

#include <algorithm>
#include <set>

#include "backend/backend.h"

namespace invar {
namespace {

constexpr int64_t kLeastBetween = 4096;
constexpr int64_t kMostBetween = 4;  // cuts in between

}  // namespace

std::vector<int64_t> choose_state_cuts(std::span<const int32_t> ids, const Tokenizer& tokenizer) {
  const auto size = static_cast<int64_t>(ids.size());
  const auto is_useful = [&](int64_t cut) { return cut >= kLeastStateTokens && cut < size; };
  std::vector<int64_t> cuts;
  const auto add = [&](int64_t cut) {
    if (is_useful(cut)) cuts.push_back(cut);
  };
  std::set<int32_t> seen;
  bool has_second = false;
  int64_t last = 0;
  for (int64_t i = 0; i < size; ++i) {
    const int32_t id = ids[static_cast<size_t>(i)];
    if (tokenizer.token_kind(id) != TokenKind::kSpecial) continue;
    last = i;
    if (!has_second && !seen.insert(id).second) {
      has_second = true;
      add(i);
    }
  }
  add(last);
  if (cuts.empty()) add((size - 1) / kPagePositions * kPagePositions);
  const int64_t between =
      (std::max(kLeastBetween, size / (kMostBetween + 1)) + kPagePositions - 1) / kPagePositions *
      kPagePositions;
  for (int64_t cut = between; cut < size; cut += between) add(cut);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

}  // namespace invar
