// Merging of very long words (a run of one letter, base64, text without spaces in SentencePiece).
// A heap of millions of entries misses the cache at every level; here the positions of each rank
// stand in a list of their own. Lists mostly fill from left to right, so leftmost-first costs
// nothing, and the heap holds only the ranks that occur.
#include <algorithm>
#include <queue>
#include <unordered_map>

#include "tokenizer/bpe_symbols.h"

namespace invar {

std::string byte_token_text(uint8_t byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + '>';
}

namespace {

template <typename T>
using MinHeap = std::priority_queue<T, std::vector<T>, std::greater<>>;

// The positions that wait for one rank.
struct Bucket {
  std::vector<uint32_t> positions;
  size_t next = 0;
  bool sorted = true;
  bool open = false;    // being worked on; what comes now goes to `late`
  bool queued = false;  // its rank is in the heap of ranks
  MinHeap<uint32_t> late;

  bool empty() const { return next == positions.size() && late.empty(); }
  void start() {
    if (!sorted) std::sort(positions.begin(), positions.end());
    sorted = open = true;
  }
  uint32_t pop() {
    if (late.empty() || (next < positions.size() && positions[next] <= late.top()))
      return positions[next++];
    const uint32_t position = late.top();
    late.pop();
    return position;
  }
};

class Buckets {
 public:
  void push(uint32_t rank, uint32_t position) {
    if (rank != last_rank_ || last_ == nullptr) {
      last_rank_ = rank;
      last_ = &buckets_[rank];  // references into an unordered_map stay valid
    }
    Bucket& bucket = *last_;
    if (bucket.open) {
      bucket.late.push(position);
    } else {
      if (!bucket.positions.empty() && position < bucket.positions.back()) bucket.sorted = false;
      bucket.positions.push_back(position);
    }
    if (!bucket.queued) ranks_.push(rank);
    bucket.queued = true;
  }
  bool empty() const { return ranks_.empty(); }
  uint32_t lowest_rank() const { return ranks_.top(); }
  Bucket& lowest() { return buckets_[ranks_.top()]; }
  void drop_lowest() {  // it is empty
    lowest() = Bucket();
    ranks_.pop();
  }

 private:
  std::unordered_map<uint32_t, Bucket> buckets_;
  MinHeap<uint32_t> ranks_;
  uint32_t last_rank_ = 0;
  Bucket* last_ = nullptr;
};

}  // namespace

void merge_long_word(const FindMerge& find_merge, std::vector<uint32_t>& sizes,
                     std::vector<int32_t>& ids) {
  const size_t end = sizes.size();
  Buckets buckets;
  // Long words repeat themselves, and a merge depends on the two ids only: a small table in front.
  struct Known {
    int32_t left = kNoSymbol, right = kNoSymbol;
    Merge merge;
  };
  std::vector<Known> known(1024);
  const auto merge_at = [&](size_t begin) {
    const size_t right = begin + sizes[begin];
    if (right == end) return Merge{};
    const auto find = [&] {
      return find_merge(static_cast<uint32_t>(begin), sizes[begin], ids[begin], sizes[right],
                        ids[right]);
    };
    if (ids[begin] < 0 || ids[right] < 0) return find();
    Known& entry =
        known[(static_cast<uint32_t>(ids[begin]) * 31u + static_cast<uint32_t>(ids[right])) %
              known.size()];
    if (entry.left != ids[begin] || entry.right != ids[right])
      entry = {ids[begin], ids[right], find()};
    return entry.merge;
  };
  const auto push = [&](size_t begin) {
    const Merge merge = merge_at(begin);
    if (merge.rank != Merge::kNone) buckets.push(merge.rank, static_cast<uint32_t>(begin));
    return merge.rank;
  };
  for (size_t begin = 0; begin < end; begin += sizes[begin]) push(begin);
  while (!buckets.empty()) {
    const uint32_t rank = buckets.lowest_rank();
    Bucket& bucket = buckets.lowest();
    bucket.start();
    uint32_t lowest_new = Merge::kNone;
    while (!bucket.empty() && lowest_new >= rank) {
      const size_t begin = bucket.pop();
      if (ids[begin] == kNoSymbol) continue;
      const Merge merge = merge_at(begin);
      if (merge.rank != rank) continue;  // stale: a neighbour has changed since
      const size_t right = begin + sizes[begin];
      const uint32_t size = sizes[begin] + sizes[right];
      ids[right] = kNoSymbol;
      ids[begin] = merge.id;
      sizes[begin] = sizes[begin + size - 1] = size;
      lowest_new = push(begin);
      if (begin > 0) lowest_new = std::min(lowest_new, push(begin - sizes[begin - 1]));
    }
    if (bucket.empty()) {
      // New ranks may have come above it in the heap; it is dropped when it is the lowest again.
      if (buckets.lowest_rank() == rank) buckets.drop_lowest();
    }
  }
}

}  // namespace invar
