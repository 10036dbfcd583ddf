// Json: an ordered document tree with limits, and typed reading of fields that names what is wrong.
// Parsing is nlohmann's SAX parser; the tree is ours because objects must keep the order of their
// keys (chat templates print tool schemas byte for byte), find a key among 250,000 in O(1)
// (tokenizer.json) and refuse what hostile input is made of: depth, node count, repeated keys.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/keyed_hash.h"
#include "base/result.h"

namespace invar {

struct JsonLimits {
  size_t max_depth = 64;
  size_t max_nodes = 1'000'000;
};

// Copies share their contents until one of them is changed. Several threads may read a document and
// its copies; who changes one must be the only thread that uses or drops any of them.
class Json {
 public:
  enum class Kind { kNull, kBool, kInt, kDouble, kString, kArray, kObject };
  using Member = std::pair<std::string, Json>;

  Json() = default;  // null
  Json(bool value);
  Json(int value);
  Json(int64_t value);
  Json(double value);
  Json(std::string value);
  Json(std::string_view value);
  Json(const char* value);
  static Json array();
  static Json object();

  // Strict JSON, UTF-8 checked, no repeated keys. The error has line/column, or the limit passed.
  // Integers that fit int64 are kInt, every other number is kDouble; numbers that overflow a double
  // are an error.
  static Result<Json> parse(std::string_view text, const JsonLimits& limits = {});

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_int() const { return kind_ == Kind::kInt; }
  bool is_number() const { return kind_ == Kind::kInt || kind_ == Kind::kDouble; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }
  const char* kind_name() const;  // "null", "a boolean", "an integer", "a string", ... for messages

  // Only for the matching kind.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;  // kInt or kDouble
  const std::string& as_string() const;
  const std::vector<Json>& items() const;  // array
  std::vector<Json>& items();
  const std::vector<Member>& members() const;  // object, in order

  // Object member or nullptr (also when this is no object).
  const Json* find(std::string_view key) const;
  // Adds a member or replaces its value in place.
  void set(std::string_view key, Json value);
  void push_back(Json value);

  // required<T>("hidden_size"): the member as T, or kInvalidArgument naming key, expected kind and
  // what was found. optional: `fallback` when the member is absent or null; a member of the wrong
  // kind stays an error. T: bool, int, int64_t, double, std::string.
  template <typename T>
  Result<T> required(std::string_view key) const;
  template <typename T>
  Result<T> optional(std::string_view key, T fallback) const;

  // Compact: {"a":1,"b":[true,null]}; indent >= 0 puts each member on a line. Non-ASCII stays
  // UTF-8.
  std::string dump(int indent = -1) const;

  bool operator==(const Json& other) const;

 private:
  struct Object {
    std::vector<Member> members;
    // Built once an object has more than 16 members.
    std::unordered_map<std::string, size_t, KeyedHash, std::equal_to<>> index;
  };
  Kind kind_ = Kind::kNull;
  bool bool_ = false;
  int64_t int_ = 0;
  double double_ = 0;
  // Shared, copied on write: copying a document or a member is cheap.
  std::shared_ptr<std::string> string_;
  std::shared_ptr<std::vector<Json>> array_;
  std::shared_ptr<Object> object_;
};

// "text" with quotes and escapes, as it stands in a JSON document; bytes that are no UTF-8 become
// U+FFFD, because a document must be valid whatever a message in it quotes.
std::string json_quote(std::string_view text);

}  // namespace invar
