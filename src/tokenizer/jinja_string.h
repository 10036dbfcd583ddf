// Str: the strings of our Jinja interpreter. UTF-8, immutable, cheap to copy, and each byte knows
// whether it came from the template (trusted: may become a special token) or from a request.
// What the language does with strings stands in jinja_methods.cc and jinja_filters.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace invar::jinja {

// Base of everything a Value can point to.
struct Object {
  virtual ~Object() = default;
};

struct StrData : Object {
  std::string text;
  // Provenance as alternating runs: bytes [0, cuts[0]) have `first_trusted`, the next run the
  // opposite, and so on to the end of the text. Almost always there is one run and no cut.
  bool first_trusted = false;
  std::vector<size_t> cuts;
  int64_t length = 0;  // code points
};

class Str {
 public:
  Str();
  Str(std::string text, bool trusted);
  explicit Str(std::shared_ptr<const StrData> data) : data_(std::move(data)) {}

  const std::string& text() const { return data_->text; }
  size_t num_bytes() const { return data_->text.size(); }
  bool empty() const { return data_->text.empty(); }
  int64_t length() const { return data_->length; }  // code points
  bool is_ascii() const { return static_cast<size_t>(data_->length) == data_->text.size(); }
  const std::shared_ptr<const StrData>& data() const { return data_; }

  bool all_trusted() const { return data_->first_trusted && data_->cuts.empty(); }
  // Bytes [begin, end); both are boundaries of code points.
  Str bytes(size_t begin, size_t end) const;
  // Byte where code point `index` begins; num_bytes() from length() on.
  size_t offset_of(int64_t index) const;

  // Calls f(text, trusted) for each run of [begin, end).
  template <typename F>
  void for_each_run(size_t begin, size_t end, F f) const {
    const std::vector<size_t>& cuts = data_->cuts;
    size_t i =
        static_cast<size_t>(std::upper_bound(cuts.begin(), cuts.end(), begin) - cuts.begin());
    for (size_t at = begin; at < end; ++i) {
      const size_t stop = i < cuts.size() ? std::min(cuts[i], end) : end;
      f(std::string_view(data_->text).substr(at, stop - at), data_->first_trusted ^ (i % 2 == 1));
      at = stop;
    }
  }

 private:
  std::shared_ptr<const StrData> data_;
};

// Appends runs and makes a Str of them.
class StrBuilder {
 public:
  void append(std::string_view text, bool trusted);
  void append(const Str& str) { append(str, 0, str.num_bytes()); }
  void append(const Str& str, size_t begin, size_t end);
  size_t num_bytes() const { return text_.size(); }
  const std::string& text() const { return text_; }
  // Cuts the text back to `num_bytes`, so that a part can be taken back.
  void truncate(size_t num_bytes);
  Str build();  // leaves the builder empty

 private:
  std::string text_;
  bool first_trusted_ = false, last_trusted_ = false;
  std::vector<size_t> cuts_;
};

// ---- UTF-8
// ---------------------------------------------------------------------------------------

// Number of bytes that do not continue a character.
int64_t count_code_points(std::string_view text);
// Byte length of the character at `at`: 1 for a stray byte, never past the end.
size_t char_size(std::string_view text, size_t at);
uint32_t decode_char(std::string_view text, size_t at);  // U+FFFD for a stray byte
void append_utf8(std::string& out, uint32_t code_point);
// Where the first invalid byte stands, or npos.
size_t find_invalid_utf8(std::string_view text);

bool is_space(uint32_t code_point);  // Python's str.isspace()
// First byte that is no white space, and the end of the last character that is none.
size_t skip_space(std::string_view text, size_t begin = 0);
size_t rskip_space(std::string_view text, size_t end);

// One code point to one code point; characters whose case changes their number stay.
uint32_t to_upper(uint32_t code_point);
uint32_t to_lower(uint32_t code_point);

}  // namespace invar::jinja
