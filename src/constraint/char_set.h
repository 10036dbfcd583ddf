// CharSet: a set of Unicode code points as sorted ranges. Surrogates are never in one: no string
// that can be written as UTF-8 holds them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace invar {

class CharSet {
 public:
  struct Range {
    uint32_t low, high;
    bool operator==(const Range&) const = default;
  };
  static constexpr uint32_t kMaxCodePoint = 0x10FFFF;

  CharSet() = default;
  static CharSet all();
  static CharSet of(std::initializer_list<Range> ranges);

  void add(uint32_t low, uint32_t high) { ranges_.push_back({low, high}); }
  void add(const CharSet& other);
  void normalise();  // after the last add
  CharSet complement() const;

  const std::vector<Range>& ranges() const { return ranges_; }  // sorted, apart, once normalised
  bool is_empty() const { return ranges_.empty(); }

 private:
  std::vector<Range> ranges_;
};

}  // namespace invar
