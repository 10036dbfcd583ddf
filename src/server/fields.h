// Fields: reads the members of a request body, each once, checked against its kind and range. The
// first thing that is wrong stays; readers after it give their fallback, so that a route reads all
// it wants and looks at error() once. Null means absent, everywhere.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/http/error_body.h"

namespace invar::server {

// What a request said that had no effect, for the "warnings" of its answer.
struct Warning {
  std::string code, param, message;
};
// Of one request so many are told; warn() keeps no more.
inline constexpr size_t kMaxWarnings = 32;
void warn(std::vector<Warning>& warnings, Warning warning);
Json warnings_json(const std::vector<Warning>& warnings);

class Fields {
 public:
  // `object` outlives this. `path` is what stands before a member's name in errors ("tools[0].").
  explicit Fields(const Json& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  const std::optional<ApiError>& error() const { return error_; }
  void fail(ApiError error);
  // "temperature must be ..." at `name`, with one of error_body.cc's codes.
  void fail(std::string_view code, std::string_view name, std::string_view what);
  std::string path_of(std::string_view name) const { return path_ + std::string(name); }

  // The member, or nullptr. It counts as known from now on.
  const Json* find(std::string_view name);
  // The first of several names for one thing that is present; "" when none is.
  std::string_view first_of(std::initializer_list<std::string_view> names);
  // Names that are taken without effect and without a warning.
  void ignore(std::initializer_list<std::string_view> names);
  // A field of a feature that is not built: only a value that asks for nothing passes (absent,
  // false, 0, an empty array, object or string, or `neutral`).
  void not_built(std::string_view name, std::optional<double> neutral = {});

  bool boolean(std::string_view name, bool fallback);
  // 64 and 64.0 are integers, 64.5 is none.
  int64_t integer(std::string_view name, int64_t low, int64_t high, int64_t fallback);
  double number(std::string_view name, double low, double high, double fallback);
  std::string text(std::string_view name, std::string fallback);
  std::optional<std::string> text(std::string_view name);
  const Json* array(std::string_view name);   // nullptr: absent, or not an array (then error())
  const Json* object(std::string_view name);  // likewise

  // Members that nobody asked for: one warning each, as long as it is told, or an error when
  // `strict`.
  void finish(bool strict, std::vector<Warning>& warnings);

 private:
  void wrong_kind(std::string_view name, std::string_view wanted, const Json& found);
  static bool whole(const Json& value, int64_t& out);

  const Json& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
  std::optional<ApiError> error_;
};

}  // namespace invar::server
