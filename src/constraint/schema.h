// JSON Schema, as far as it is enforced (specs/api.md section 7.3), read into plain alternatives:
// $ref, allOf, anyOf and oneOf are resolved here, so that the compiler sees nodes of simple
// keywords only. A keyword that cannot be enforced exactly is an error that names it and its place;
// nothing is ignored save annotations.
//
// Errors: kInvalidArgument for what is unsupported or wrong, kResourceExhausted for a limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "constraint/number_rules.h"

namespace invar {

inline constexpr size_t kMaxSchemaBytes = 64 << 10;
inline constexpr size_t kMaxSchemaDepth = 64;
inline constexpr size_t kMaxEnumValues = 4096;
inline constexpr size_t kMaxAlternatives = 256;  // of one value
inline constexpr int64_t kMaxItemsLimit = 4096;
inline constexpr int64_t kMaxLengthLimit = 65536;
inline constexpr int64_t kMaxMultipleOf = 1000;
inline constexpr int64_t kMaxSchemaWork = 200'000;  // keywords and members read, repeats included

enum SchemaType : uint8_t {
  kTypeNull = 1,
  kTypeBoolean = 2,
  kTypeInteger = 4,
  kTypeFraction = 8,  // numbers that are no integers; "number" is both
  kTypeString = 16,
  kTypeArray = 32,
  kTypeObject = 64,
  kTypeAny = 127,
};

// A schema inside a document: "#/properties/a" says where.
struct SchemaRef {
  Json json;  // shares the document's contents
  std::string path;
};

struct SchemaNode {
  std::string path;
  bool has_type = false;
  uint8_t types = kTypeAny;
  std::optional<std::vector<Json>> values;  // enum, const
  // Objects.
  std::vector<std::pair<std::string, SchemaRef>> properties;
  bool has_properties = false;
  std::vector<std::string> required;
  std::optional<SchemaRef> additional;
  // Arrays.
  std::vector<SchemaRef> prefix_items;
  std::optional<SchemaRef> items;
  int64_t min_items = 0;
  std::optional<int64_t> max_items;
  // Strings.
  int64_t min_length = 0;
  std::optional<int64_t> max_length;
  std::vector<std::string> patterns, formats;
  std::string pattern_path, format_path;
  // Numbers.
  std::optional<NumberBound> low, high;
  int64_t multiple_of = 1;

  // The types that the compiler writes: those named, else those that the keywords speak of.
  uint8_t written_types() const;
};

// A member's name as a JSON pointer writes it.
std::string pointer_token(std::string_view key);
// The one bit of a value's type; 1.0 is an integer.
uint8_t type_of(const Json& value);
// An annotation only: has no effect on what is valid.
bool is_annotation(std::string_view keyword);
// `true`, or an object with annotations only.
bool accepts_everything(const Json& schema);

class SchemaReader {
 public:
  explicit SchemaReader(Json root) : root_(std::move(root)) {}

  SchemaRef root() const { return {root_, "#"}; }
  // The schema that a chain of bare references ends at.
  Result<SchemaRef> follow(SchemaRef ref) const;
  // Alternatives, any of which may hold; none: nothing is valid.
  Result<std::vector<SchemaNode>> read(const SchemaRef& ref) const { return read(ref, 0); }

 private:
  Result<std::vector<SchemaNode>> read(const SchemaRef& ref, size_t depth) const;
  Result<SchemaRef> resolve(const std::string& pointer, const std::string& path) const;

  Json root_;
  mutable int64_t work_ = 0;  // keywords and members read so far
};

}  // namespace invar
