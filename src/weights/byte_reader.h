// ByteReader: little-endian numbers and counted strings from a byte range. Every read is checked
// against what is left, before anything is allocated.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/result.h"
#include "weights/checked.h"

namespace invar {

class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

  // `what` names the field in the error: "the key count".
  template <typename T>
  Result<T> number(const char* what) {
    INVAR_TRY_VOID(need(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  // u64 length, then the bytes.
  Result<std::string_view> string(const char* what, uint64_t max_bytes) {
    INVAR_TRY(const uint64_t size, number<uint64_t>(what));
    INVAR_TRY_VOID(need(size, what));
    if (size > max_bytes)
      return corrupt("%s at byte %llu has %llu bytes, expected at most %llu", what,
                     static_cast<unsigned long long>(position_),
                     static_cast<unsigned long long>(size),
                     static_cast<unsigned long long>(max_bytes));
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + position_, size);
    position_ += size;
    return text;
  }

  // A count of things of at least `min_bytes` each.
  Result<uint64_t> count(const char* what, uint64_t min_bytes, uint64_t max_count) {
    INVAR_TRY(const uint64_t count, number<uint64_t>(what));
    INVAR_TRY_VOID(check_count(count, what, min_bytes, max_count));
    return count;
  }
  Result<void> check_count(uint64_t count, const char* what, uint64_t min_bytes,
                           uint64_t max_count) const {
    if (!(Checked(count) * Checked(min_bytes)).at_most(left()))
      return corrupt("%s is %llu, but only %llu bytes follow it (truncated or damaged file)", what,
                     static_cast<unsigned long long>(count),
                     static_cast<unsigned long long>(left()));
    if (count > max_count)
      return corrupt("%s is %llu, expected at most %llu", what,
                     static_cast<unsigned long long>(count),
                     static_cast<unsigned long long>(max_count));
    return {};
  }

 private:
  Result<void> need(uint64_t size, const char* what) const {
    if (size <= left()) return {};
    return corrupt("%s at byte %llu needs %llu bytes, %llu are left (truncated or damaged file)",
                   what, static_cast<unsigned long long>(position_),
                   static_cast<unsigned long long>(size), static_cast<unsigned long long>(left()));
  }

  std::span<const uint8_t> bytes_;
  uint64_t position_ = 0;  // never past the end
};

}  // namespace invar
