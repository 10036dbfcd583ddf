// What is refused: keywords that cannot be enforced, by name and place, and schemas beyond a limit,
// quickly and by the limit's name. And what the merging of schemas accepts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "constraint/byte_vocabulary.h"

namespace invar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Refused {
  const char* schema;
  const char* keyword;
  const char* place;
};

TEST(Refusals, NameKeywordAndPlace) {
  for (
      const Refused& c : std::initializer_list<Refused>{
          {R"({"not":{}})", "'not'", "at #:"},
          {R"({"properties":{"a":{"not":{}}}})", "'not'", "#/properties/a:"},
          {R"({"if":{}})", "'if'", "#"},
          {R"({"properties":{"a/b~":{"patternProperties":{}}}})", "'patternProperties'",
           "#/properties/a~1b~0"},
          {R"({"type":"array","items":{"uniqueItems":true}})", "'uniqueItems'", "#/items"},
          {R"({"minProperties":1})", "'minProperties'", "#"},
          {R"({"contains":{}})", "'contains'", "#"},
          {R"({"colour":1})", "'colour'", "#"},
          {R"({"type":"string","pattern":"(?<=x)+y"})", "'pattern'", "look-around"},
          {R"({"type":"string","pattern":"(a)\\1"})", "'pattern'", "back reference"},
          {R"({"type":"string","pattern":"\\bx"})", "'pattern'", "word boundary"},
          {R"({"type":"string","pattern":"\\p{L}"})", "'pattern'", "property class"},
          {R"({"type":"string","pattern":"a^b"})", "'pattern'", "anchor"},
          {R"({"type":"string","pattern":"(a"})", "'pattern'", "not closed"},
          {R"({"type":"string","pattern":"a**"})", "'pattern'", "nothing to repeat"},
          {R"({"type":"string","format":"uri"})", "'format'", "#"},
          {R"({"$ref":"#/$defs/missing"})", "'$ref'", "no such place"},
          {R"({"$ref":"https://example.com/s"})", "'$ref'", "within the schema"},
          {R"({"$ref":"#"})", "'$ref'", "circle"},
          {R"({"multipleOf":0.5})", "'multipleOf'", "#"},
          {R"({"multipleOf":1001})", "'multipleOf'", "#"},
          {R"({"minimum":1e300})", "'minimum'", "digits"},
          {R"({"exclusiveMinimum":true})", "'exclusiveMinimum'", "a number"},
          {R"({"items":[{}]})", "'items'", "prefixItems"},
          {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "'oneOf'", "differ"},
          {R"({"oneOf":[{"required":["a"]},{"required":["b"]}]})", "'oneOf'", "differ"},
          {R"({"oneOf":[{"const":{"a":1,"b":2}},{"const":{"b":2,"a":1}}]})", "'oneOf'", "differ"},
          {R"({"oneOf":[{"enum":["a",1]},{"type":"integer"}]})", "'oneOf'", "differ"},
          {R"({"oneOf":[{"properties":{"t":{"const":1,"nullable":true}},"required":["t"]},
                        {"properties":{"t":{"const":2,"nullable":true}},"required":["t"]}]})",
           "'oneOf'", "differ"},
          {R"({"allOf":[{"properties":{"a":{"type":"string"}}},{"properties":{"a":{"minLength":1}}}]})",
           "'properties'", "hold together"},
          {R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]})",
           "'additionalProperties'", "hold together"},
          {R"({"enum":["ab"],"pattern":"a"})", "'enum'", "#"},
          {R"({"required":["b"],"properties":{},"additionalProperties":false})", "'required'",
           "\"b\""},
          {R"({"type":"text"})", "'type'", "#"},
          {R"({"properties":{"a":3}})", "schema at", "#/properties/a"}}) {
    const auto compiled = compile_schema(c.schema);
    ASSERT_FALSE(compiled.ok()) << c.schema;
    EXPECT_EQ(compiled.error().code, ErrorCode::kInvalidArgument) << c.schema;
    EXPECT_THAT(compiled.error().message, AllOf(HasSubstr(c.keyword), HasSubstr(c.place)))
        << c.schema;
  }
}

TEST(Refusals, SchemasWithoutAValue) {
  for (const char* schema :
       {"false", R"({"enum":[]})", R"({"type":"integer","minimum":3,"maximum":2})",
        R"({"type":"string","pattern":"^a$","minLength":2})",
        R"({"type":"string","pattern":"^abc$","maxLength":2})",
        R"({"type":"object","properties":{"a":false},"required":["a"]})",
        R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
        R"({"type":"array","items":false,"minItems":1})",
        R"({"type":"array","minItems":4,"maxItems":3})",
        R"({"anyOf":[{"type":"array","minItems":1,"maxItems":0},{"enum":[]}]})",
        R"({"allOf":[{"type":"string"},{"type":"null"}]})"}) {
    const auto compiled = compile_schema(schema);
    ASSERT_FALSE(compiled.ok()) << schema;
    EXPECT_THAT(compiled.error().message, HasSubstr("no value")) << schema;
  }
}

std::string repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// Refused or not, within two seconds of an idle machine; ten here, since tests share theirs.
TEST(Limits, AreKeptInTime) {
  std::string chain = "{\"$defs\":{";  // each allOf doubles the work of the one before
  std::string choice = chain;
  for (int i = 0; i < 40; ++i) {
    const std::string next = "{\"$ref\":\"#/$defs/d" + std::to_string(i + 1) + "\"}";
    const std::string name = "\"d" + std::to_string(i) + "\":";
    chain += name + "{\"allOf\":[" + next + "," + next + "]},";
    choice += name + "{\"anyOf\":[" + next + "," + next + "]},";
  }
  chain += "\"d40\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/d0\"}";
  choice += "\"d40\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/d0\"}";
  std::string many = "{\"enum\":[0";
  for (int i = 1; i <= 4096; ++i) many += "," + std::to_string(i);
  std::string numbers = "{\"properties\":{\"a0\":{}";
  for (int i = 1; i < 900; ++i)
    numbers += ",\"a" + std::to_string(i) + "\":{\"type\":\"integer\",\"multipleOf\":997}";
  const struct {
    std::string schema;
    const char* limit;
  } cases[] = {
      {repeat("{\"properties\":{\"a\":", 5000) + "{}" + repeat("}}", 5000), "limit"},
      {repeat("{\"items\":", 70) + "{}" + repeat("}", 70), "64"},
      {"{\"title\":\"" + std::string(70'000, 'x') + "\"}", "65536"},
      {"{\"pattern\":\"" + std::string(5000, 'a') + "\"}", "4096"},
      {"{\"properties\":{\"a/b\":{\"pattern\":\"" + std::string(100'000, 'a') + "\"}}}",
       "'pattern' at #/properties/a~1b alone has 100000"},
      {R"({"pattern":"(a{1000}){1000}"})", "states"},
      {R"({"pattern":"((((a{1,100}){1,100}){1,100}){1,100}){1,100}"})", "states"},
      {R"({"pattern":"a{2000}"})", "1000"},
      {R"({"pattern":"(a|b)*a(a|b){30}"})", "states"},
      {"{\"pattern\":\"" + repeat("(", 500) + "a" + repeat(")", 500) + "\"}", "64"},
      {many + "]}", "4096"},
      {R"({"maxLength":65537})", "65536"},
      {R"({"maxItems":4097})", "4096"},
      {chain, "schema too complex"},
      {choice, "schema too complex"},
      {numbers + "}}", "states"},
  };
  for (const auto& c : cases) {
    const auto start = std::chrono::steady_clock::now();
    const auto compiled = compile_schema(c.schema);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    ASSERT_FALSE(compiled.ok()) << c.schema.substr(0, 100);
    EXPECT_THAT(compiled.error().message, HasSubstr(c.limit)) << c.schema.substr(0, 100);
    EXPECT_LT(seconds.count(), 10) << c.schema.substr(0, 100);
  }
}

// Large but within the limits: they compile, and a mask of them is no slower for it.
TEST(Limits, LargeSchemasWork) {
  std::string wide = "{\"properties\":{\"p0\":{}";
  for (int i = 1; i < 1500; ++i) wide += ",\"p" + std::to_string(i) + "\":{\"type\":\"string\"}";
  std::string branches = "{\"anyOf\":[{\"type\":\"null\"}";
  for (int i = 0; i < 200; ++i)
    branches +=
        ",{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"x{" +
        std::to_string(i + 1) + "}y\"}}}";
  for (const std::string& schema :
       {wide + "}}", branches + "]}", repeat("{\"items\":", 60) + "{}" + repeat("}", 60),
        std::string(R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"anyOf":[)"
                    R"({"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}},"b":{"type":"array",)"
                    R"("items":{"anyOf":[{"$ref":"#/$defs/b"},{"$ref":"#/$defs/a"}]}}}})")}) {
    const auto compiled = compile_schema(schema);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    Constraint constraint(*compiled);
    std::vector<uint64_t> bits(constraint.num_mask_words());
    ASSERT_TRUE(constraint.mask(bits).ok());
  }
  // 64 arrays inside one another, and no more; alternatives of one language do not multiply.
  const auto nested = compile_schema(
      R"({"type":"array","items":{"anyOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}})");
  ASSERT_TRUE(nested.ok()) << nested.error().message;
  EXPECT_TRUE(accepts_text(*nested, std::string(64, '[') + std::string(64, ']')));
  EXPECT_FALSE(accepts_text(*nested, std::string(65, '[') + std::string(65, ']')));
}

TEST(Depth, LeavesRoomForWhatMustFollow) {
  // A list whose items need two more levels: the 62nd item may not begin what cannot end.
  const auto compiled = compile_schema(
      R"({"type":"object","properties":{"v":{"type":"array","items":{"type":"array","minItems":1},
          "minItems":1},"next":{"$ref":"#"}},"required":["v"]})");
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  Constraint constraint(*compiled);
  std::vector<uint64_t> bits(constraint.num_mask_words());
  const auto accept_all = [&](std::string_view text) {
    for (const char c : text)
      if (!constraint.accept(static_cast<uint8_t>(c))) return false;
    return true;
  };
  int depth = 0;
  while (accept_all("{\"v\":[[1]],\"next\":")) ++depth;
  EXPECT_EQ(depth, 61);  // and the 62nd object, which ends the chain
  EXPECT_TRUE(constraint.accept('}'));
}

TEST(Merging, TakesWhatCanHoldTogether) {
  const struct {
    const char* schema;
    std::vector<const char*> good, bad;
  } cases[] = {
      {R"({"$defs":{"s":{"type":"string","minLength":2}},"$ref":"#/$defs/s","maxLength":3})",
       {"\"ab\"", "\"abc\""},
       {"\"a\"", "\"abcd\"", "1"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},
                    {"properties":{"b":{"type":"null"}}}]})",
       {R"({"a":1})", R"({"a":1,"b":null})"},
       {R"({"b":null})", R"({"a":1,"c":2})"}},
      {R"({"type":"object","properties":{"a":{},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a":1})", R"({"b":[1]})", R"({"a":1,"b":2})"},
       {"{}", "null"}},
      {R"({"type":["integer","string"],"nullable":true,"minimum":3,"maxLength":1})",
       {"3", "null", "\"a\""},
       {"2", "\"ab\"", "true"}},
      {R"({"enum":[1,2,3,"a","bb"],"minimum":2,"maxLength":1})",
       {"2", "3", "\"a\""},
       {"1", "\"bb\""}},
      {R"({"required":["x"]})", {R"({"x":1})", R"({"x":1,"y":2})"}, {"{}", R"({"y":1})"}},
      {R"({"oneOf":[{"type":"string"},{"type":"object","properties":{"t":{"const":1}},"required":["t"]},
                    {"type":"object","properties":{"t":{"enum":[2,3]}},"required":["t"]}]})",
       {"\"\"", R"({"t":1})", R"({"t":3})"},
       {R"({"t":4})", "1"}},
      {R"({"oneOf":[{"enum":["a",null]},{"type":"array","items":{"type":"null"}}]})",
       {"\"a\"", "null", "[null]"},
       {"\"b\"", "[1]"}},
      {R"({"enum":[{"a":1,"b":2},3],"const":{"b":2,"a":1}})", {R"({"b":2,"a":1})"}, {"3"}},
      {R"({"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":{"type":"integer"}})",
       {R"({"a":"x","b":1})", R"({"aa":1})", R"({"":1,"\"":2})"},
       {R"({"b":1,"a":"x"})", R"({"a":1})", R"({"\u0061":1})"}},
      {R"({"properties":{"a/b":{"type":"null"}},"additionalProperties":{"type":"integer"}})",
       {R"({"a/b":null})", R"({"a/":1})"},
       {R"({"a\/b":1})", R"({"a/b":1})"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.schema);
    const auto compiled = compile_schema(c.schema);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    for (const char* text : c.good) EXPECT_TRUE(accepts_text(*compiled, text)) << text;
    for (const char* text : c.bad) EXPECT_FALSE(accepts_text(*compiled, text)) << text;
  }
}

}  // namespace
}  // namespace invar
