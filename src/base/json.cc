// Json: an ordered tree filled by nlohmann's SAX parser.
#include "base/json.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/utf8.h"

namespace invar {
namespace {

constexpr size_t kIndexedMembers = 16;

// Numbers as JSON text; doubles in the shortest form that reads back the same, always with a '.' or
// an exponent so that they stay doubles.
std::string number_text(double value) {
  char text[40];
  const auto [end, ec] = std::to_chars(text, text + sizeof text, value);
  std::string out(text, end);
  if (out.find_first_of(".eEn") == std::string::npos) out += ".0";
  return out;
}

}  // namespace

Json::Json(bool value) : kind_(Kind::kBool), bool_(value) {}
Json::Json(int value) : kind_(Kind::kInt), int_(value) {}
Json::Json(int64_t value) : kind_(Kind::kInt), int_(value) {}
Json::Json(double value) : kind_(Kind::kDouble), double_(value) {}
Json::Json(std::string value)
    : kind_(Kind::kString), string_(std::make_shared<std::string>(std::move(value))) {}
Json::Json(std::string_view value) : Json(std::string(value)) {}
Json::Json(const char* value) : Json(std::string(value)) {}

Json Json::array() {
  Json json;
  json.kind_ = Kind::kArray;
  json.array_ = std::make_shared<std::vector<Json>>();
  return json;
}

Json Json::object() {
  Json json;
  json.kind_ = Kind::kObject;
  json.object_ = std::make_shared<Object>();
  return json;
}

const char* Json::kind_name() const {
  switch (kind_) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "a boolean";
    case Kind::kInt:
      return "an integer";
    case Kind::kDouble:
      return "a number";
    case Kind::kString:
      return "a string";
    case Kind::kArray:
      return "an array";
    case Kind::kObject:
      return "an object";
  }
  return "unknown";
}

bool Json::as_bool() const {
  INVAR_CHECK(kind_ == Kind::kBool, "as_bool of %s", kind_name());
  return bool_;
}
int64_t Json::as_int() const {
  INVAR_CHECK(kind_ == Kind::kInt, "as_int of %s", kind_name());
  return int_;
}
double Json::as_double() const {
  INVAR_CHECK(is_number(), "as_double of %s", kind_name());
  return kind_ == Kind::kInt ? static_cast<double>(int_) : double_;
}
const std::string& Json::as_string() const {
  INVAR_CHECK(kind_ == Kind::kString, "as_string of %s", kind_name());
  return *string_;
}
const std::vector<Json>& Json::items() const {
  INVAR_CHECK(kind_ == Kind::kArray, "items of %s", kind_name());
  return *array_;
}
std::vector<Json>& Json::items() {
  INVAR_CHECK(kind_ == Kind::kArray, "items of %s", kind_name());
  if (array_.use_count() > 1) array_ = std::make_shared<std::vector<Json>>(*array_);
  return *array_;
}
const std::vector<Json::Member>& Json::members() const {
  INVAR_CHECK(kind_ == Kind::kObject, "members of %s", kind_name());
  return object_->members;
}

const Json* Json::find(std::string_view key) const {
  if (kind_ != Kind::kObject) return nullptr;
  if (object_->index.empty()) {
    for (const Member& member : object_->members)
      if (member.first == key) return &member.second;
    return nullptr;
  }
  const auto found = object_->index.find(key);
  return found == object_->index.end() ? nullptr : &object_->members[found->second].second;
}

void Json::set(std::string_view key, Json value) {
  INVAR_CHECK(kind_ == Kind::kObject, "set on %s", kind_name());
  if (object_.use_count() > 1) object_ = std::make_shared<Object>(*object_);
  if (const Json* present = find(key)) {
    *const_cast<Json*>(present) = std::move(value);
    return;
  }
  auto& [members, index] = *object_;
  members.emplace_back(std::string(key), std::move(value));
  if (!index.empty()) {
    index.emplace(members.back().first, members.size() - 1);
  } else if (members.size() > kIndexedMembers) {
    for (size_t i = 0; i < members.size(); ++i) index.emplace(members[i].first, i);
  }
}

void Json::push_back(Json value) { items().push_back(std::move(value)); }

// ---- Parsing
// -------------------------------------------------------------------------------------

namespace {

// At most `max_bytes` of the text, cut between characters.
std::string shortened(const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

// Receives nlohmann's SAX events and builds the tree. A false return stops the parser; `error` then
// says why.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TreeBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(INT64_MAX))
      return add(Json(static_cast<double>(value)));
    return add(Json(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (!std::isfinite(value)) return fail("number " + text.substr(0, 40) + " is out of range");
    return add(Json(value));
  }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return fail("binary value"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    if (stack_.back().find(value) != nullptr)
      return fail("key '" + shortened(value, 80) + "' stands twice in one object");
    keys_.back() = std::move(value);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    if (error.empty()) {
      // "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without its prefix,
      // and not with all of a token of many megabytes.
      error = e.what();
      if (const size_t bracket = error.find("] "); bracket != std::string::npos)
        error.erase(0, bracket + 2);
      error = shortened(error, 200);
    }
    return false;
  }

  Json root;
  std::string error;

 private:
  bool fail(std::string why) {
    error = std::move(why);
    return false;
  }

  bool add(Json value) {
    if (++num_nodes_ > limits_.max_nodes)
      return fail("more than " + std::to_string(limits_.max_nodes) + " values");
    if (stack_.empty()) {
      root = std::move(value);
    } else if (stack_.back().is_array()) {
      stack_.back().push_back(std::move(value));
    } else {
      stack_.back().set(keys_.back(), std::move(value));
    }
    return true;
  }

  bool open(Json container) {
    if (stack_.size() >= limits_.max_depth)
      return fail("nested deeper than " + std::to_string(limits_.max_depth));
    stack_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }

  bool close() {
    Json done = std::move(stack_.back());
    stack_.pop_back();
    keys_.pop_back();
    return add(std::move(done));
  }

  JsonLimits limits_;
  size_t num_nodes_ = 0;
  std::vector<Json> stack_;
  std::vector<std::string> keys_;
};

}  // namespace

Result<Json> Json::parse(std::string_view text, const JsonLimits& limits) {
  // nlohmann takes a NUL for the end of the text. JSON has none, not even in strings.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    return invalid_argument("bad JSON: a NUL byte at offset %zu", nul);
  TreeBuilder builder(limits);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder))
    return invalid_argument("bad JSON: %s", builder.error.c_str());
  return std::move(builder.root);
}

// ---- Typed fields
// --------------------------------------------------------------------------------

namespace {

template <typename T>
Result<T> convert(std::string_view key, const Json& value) {
  const auto wrong = [&](const char* expected) {
    return invalid_argument("'%.*s' is %s, expected %s", static_cast<int>(key.size()), key.data(),
                            value.kind_name(), expected);
  };
  if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_bool()) return wrong("a boolean");
    return value.as_bool();
  } else if constexpr (std::is_same_v<T, double>) {
    if (!value.is_number()) return wrong("a number");
    return value.as_double();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!value.is_string()) return wrong("a string");
    return value.as_string();
  } else {
    if (!value.is_int()) return wrong("an integer");
    const int64_t number = value.as_int();
    if (number < std::numeric_limits<T>::min() || number > std::numeric_limits<T>::max())
      return invalid_argument("'%.*s' is %ld, out of range", static_cast<int>(key.size()),
                              key.data(), long{number});
    return static_cast<T>(number);
  }
}

}  // namespace

template <typename T>
Result<T> Json::required(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr)
    return invalid_argument("'%.*s' is missing", static_cast<int>(key.size()), key.data());
  return convert<T>(key, *value);
}

template <typename T>
Result<T> Json::optional(std::string_view key, T fallback) const {
  const Json* value = find(key);
  if (value == nullptr || value->is_null()) return fallback;
  return convert<T>(key, *value);
}

#define INVAR_JSON_FIELD(T)                                     \
  template Result<T> Json::required<T>(std::string_view) const; \
  template Result<T> Json::optional<T>(std::string_view, T) const;
INVAR_JSON_FIELD(bool)
INVAR_JSON_FIELD(int)
INVAR_JSON_FIELD(int64_t)
INVAR_JSON_FIELD(double)
INVAR_JSON_FIELD(std::string)
#undef INVAR_JSON_FIELD

// ---- Writing
// -------------------------------------------------------------------------------------

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (static_cast<uint8_t>(c) >= 0x80) {
      const Utf8Prefix next = utf8_prefix(text.substr(at));
      out +=
          next.state == Utf8Prefix::kCharacter ? text.substr(at, next.num_bytes) : kReplacementChar;
      at += next.num_bytes;
      continue;
    }
    ++at;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<uint8_t>(c) < 0x20)
          out += format("\\u%04x", static_cast<unsigned>(static_cast<uint8_t>(c)));
        else
          out += c;
    }
  }
  return out += '"';
}

namespace {

void dump_to(std::string& out, const Json& json, int indent, int depth) {
  const auto newline = [&](int at) {
    if (indent >= 0) out.append(1, '\n').append(static_cast<size_t>(indent * at), ' ');
  };
  switch (json.kind()) {
    case Json::Kind::kNull:
      out += "null";
      return;
    case Json::Kind::kBool:
      out += json.as_bool() ? "true" : "false";
      return;
    case Json::Kind::kInt:
      out += std::to_string(json.as_int());
      return;
    case Json::Kind::kDouble:
      out += number_text(json.as_double());
      return;
    case Json::Kind::kString:
      out += json_quote(json.as_string());
      return;
    case Json::Kind::kArray: {
      out += '[';
      bool first = true;
      for (const Json& item : json.items()) {
        if (!first) out += ',';
        first = false;
        newline(depth + 1);
        dump_to(out, item, indent, depth + 1);
      }
      if (!first) newline(depth);
      out += ']';
      return;
    }
    case Json::Kind::kObject: {
      out += '{';
      bool first = true;
      for (const auto& [key, value] : json.members()) {
        if (!first) out += ',';
        first = false;
        newline(depth + 1);
        out += json_quote(key);
        out += indent >= 0 ? ": " : ":";
        dump_to(out, value, indent, depth + 1);
      }
      if (!first) newline(depth);
      out += '}';
      return;
    }
  }
}

}  // namespace

std::string Json::dump(int indent) const {
  std::string out;
  dump_to(out, *this, indent, 0);
  return out;
}

bool Json::operator==(const Json& other) const {
  if (is_int() && other.is_int()) return int_ == other.int_;
  if (is_number() && other.is_number()) return as_double() == other.as_double();
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::kBool:
      return bool_ == other.bool_;
    case Kind::kString:
      return *string_ == *other.string_;
    case Kind::kArray:
      return *array_ == *other.array_;
    case Kind::kObject:
      return object_->members == other.object_->members;
    default:
      return true;
  }
}

}  // namespace invar
