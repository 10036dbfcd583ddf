// Json against hostile and odd input: limits, order of keys, numbers, copies, messages.
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace invar {
namespace {

using testing::HasSubstr;

std::string error_of(std::string_view text, const JsonLimits& limits = {}) {
  const Result<Json> json = Json::parse(text, limits);
  return json.ok() ? "parsed: " + json->dump() : json.error().message;
}

std::string repeated(std::string_view text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST(Json, KeepsOrderAndKinds) {
  const Result<Json> json =
      Json::parse(R"( {"z": 1, "a": -2.5, "m": [true, false, null], "s": "é\n", "o": {}} )");
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(json->dump(), R"({"z":1,"a":-2.5,"m":[true,false,null],"s":"é\n","o":{}})");
  EXPECT_EQ(json->dump(1),
            "{\n \"z\": 1,\n \"a\": -2.5,\n \"m\": [\n  true,\n  false,\n  null\n ],\n"
            " \"s\": \"é\\n\",\n \"o\": {}\n}");
  EXPECT_TRUE(json->find("z")->is_int());
  EXPECT_EQ(json->find("a")->kind(), Json::Kind::kDouble);
  EXPECT_EQ(json->find("nope"), nullptr);
  EXPECT_EQ(json->find("m")->find("x"), nullptr);
}

TEST(Json, Numbers) {
  EXPECT_EQ(Json::parse("9223372036854775807")->as_int(), INT64_MAX);
  EXPECT_EQ(Json::parse("-9223372036854775808")->as_int(), INT64_MIN);
  EXPECT_EQ(Json::parse("9223372036854775808")->kind(), Json::Kind::kDouble);
  EXPECT_EQ(Json::parse("9223372036854775808")->as_double(), 9223372036854775808.0);
  EXPECT_EQ(Json::parse("-9223372036854775809")->kind(), Json::Kind::kDouble);
  EXPECT_EQ(Json::parse("123456789012345678901234567890")->as_double(),
            123456789012345678901234567890.0);
  EXPECT_EQ(Json::parse("1.0")->dump(), "1.0");
  EXPECT_EQ(Json::parse("1e2")->dump(), "100.0");
  EXPECT_EQ(Json::parse("0.1")->as_double(), 0.1);
  EXPECT_TRUE(std::signbit(Json::parse("-0.0")->as_double()));
  EXPECT_EQ(Json::parse("5e-324")->as_double(), 5e-324);
  EXPECT_EQ(Json::parse("1e-400")->as_double(), 0.0);
  EXPECT_THAT(error_of("1e400"), HasSubstr("number overflow"));
  EXPECT_THAT(error_of("[-1e999]"), HasSubstr("number overflow"));
  EXPECT_FALSE(Json::parse(repeated("9", 400)).ok());  // overflows a double
  for (const char* bad : {"01", "1.", ".5", "+1", "0x10", "1e", "NaN", "Infinity", "-", "1_000"})
    EXPECT_THAT(error_of(bad), HasSubstr("bad JSON")) << bad;
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* bad : {"",
                          " ",
                          "{",
                          "[",
                          "[1,]",
                          "{\"a\":1,}",
                          "{a:1}",
                          "'a'",
                          "[1 2]",
                          "nul",
                          "true false",
                          "// c\n1",
                          "\"\n\"",
                          "\"\\x41\"",
                          "\"\\u12\"",
                          "\"\\ud800\"",
                          "\"\\udc00\"",
                          "\"\xff\"",
                          "\"\xc0\xaf\"",
                          "\"\xed\xa0\x80\"",
                          "\"\xf4\x90\x80\x80\"",
                          "{\"a\":1}x",
                          "]"})
    EXPECT_THAT(error_of(bad), HasSubstr("bad JSON")) << bad;
  EXPECT_THAT(error_of("[1,\n2,\n x]"), HasSubstr("line 3"));
  // NUL and bytes after it are part of the text.
  EXPECT_THAT(error_of(std::string_view("1\0x", 3)), HasSubstr("bad JSON"));
  EXPECT_EQ(Json::parse("\"a\\u0000b\"")->as_string(), std::string("a\0b", 3));
  EXPECT_EQ(Json::parse("\"\\ud83d\\ude00\"")->as_string(), "😀");
}

TEST(Json, MessagesStayShort) {
  EXPECT_LT(error_of("\"" + repeated("ü", 100'000)).size(), 300u);
  EXPECT_LT(error_of("[1, " + repeated("x", 100'000)).size(), 300u);
  EXPECT_LT(error_of(repeated("9", 100'000)).size(), 300u);
  const std::string key = "\"" + repeated("é", 100'000) + "\":1";
  EXPECT_LT(error_of("{" + key + "," + key + "}").size(), 300u);
}

TEST(Json, RefusesRepeatedKeys) {
  EXPECT_THAT(error_of(R"({"a":1,"b":2,"a":3})"), HasSubstr("'a' stands twice"));
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += "\"k" + std::to_string(i) + "\":1,";
  EXPECT_THAT(error_of(many + "\"k57\":2}"), HasSubstr("'k57' stands twice"));
  EXPECT_EQ(error_of(R"({"a":{"a":1},"b":{"a":1}})"), R"(parsed: {"a":{"a":1},"b":{"a":1}})");
}

TEST(Json, LimitsAreKept) {
  EXPECT_TRUE(Json::parse(repeated("[", 64) + repeated("]", 64)).ok());
  EXPECT_THAT(error_of(repeated("[", 65) + repeated("]", 65)), HasSubstr("deeper than 64"));
  EXPECT_THAT(error_of(repeated("[", 1'000'000)), HasSubstr("deeper than 64"));
  EXPECT_THAT(error_of(repeated("{\"a\":", 1'000'000)), HasSubstr("deeper than 64"));
  JsonLimits limits;
  limits.max_nodes = 10;
  EXPECT_TRUE(Json::parse("[1,2,3,4,5,6,7,8,9]", limits).ok());
  EXPECT_THAT(error_of("[1,2,3,4,5,6,7,8,9,10]", limits), HasSubstr("more than 10 values"));
  EXPECT_THAT(error_of("[[],[],[],[],[],[],[],[],[],[]]", limits),
              HasSubstr("more than 10 values"));
  // Memory stays in proportion to the text also when the limit is never reached: the parser stops.
  EXPECT_THAT(error_of("[" + repeated("1,", 2'000'000) + "1]"),
              HasSubstr("more than 1000000 values"));
}

TEST(Json, ManyKeysAreFoundFast) {
  Json object = Json::object();
  for (int i = 0; i < 100'000; ++i) object.set("key" + std::to_string(i), i);
  for (int i = 0; i < 100'000; i += 7)
    ASSERT_EQ(object.find("key" + std::to_string(i))->as_int(), i);
  object.set("key5", "new");
  EXPECT_EQ(object.find("key5")->as_string(), "new");
  EXPECT_EQ(object.members()[5].first, "key5");
  EXPECT_EQ(object.members().size(), 100'000u);
}

TEST(Json, CopiesAreIndependent) {
  Json a = *Json::parse(R"({"list":[1,{"x":1}],"o":{"k":1}})");
  Json b = a;
  b.set("o", 5);
  Json list = *a.find("list");
  list.push_back(3);
  list.items()[0] = Json("changed");
  EXPECT_EQ(a.dump(), R"({"list":[1,{"x":1}],"o":{"k":1}})");
  EXPECT_EQ(b.dump(), R"({"list":[1,{"x":1}],"o":5})");
  EXPECT_EQ(list.dump(), R"(["changed",{"x":1},3])");
  // A value may be put into a copy of itself.
  a.set("self", a);
  EXPECT_EQ(a.find("self")->dump(), R"({"list":[1,{"x":1}],"o":{"k":1}})");
  Json array = Json::array();
  array.push_back(1);
  array.push_back(array);
  EXPECT_EQ(array.dump(), "[1,[1]]");
  // A member of an object may be written back into it.
  Json many = Json::object();
  for (int i = 0; i < 40; ++i) many.set("k" + std::to_string(i), i);
  for (int i = 40; i < 80; ++i) many.set("k" + std::to_string(i), *many.find("k0"));
  EXPECT_EQ(many.find("k79")->as_int(), 0);
}

TEST(Json, TypedFieldsNameTheProblem) {
  const Json json =
      *Json::parse(R"({"i":5,"big":3000000000,"d":1.5,"s":"x","b":true,"n":null,"l":[]})");
  EXPECT_EQ(*json.required<int>("i"), 5);
  EXPECT_EQ(*json.required<double>("i"), 5.0);
  EXPECT_EQ(*json.required<int64_t>("big"), 3'000'000'000);
  EXPECT_EQ(json.required<int>("big").error().message, "'big' is 3000000000, out of range");
  EXPECT_EQ(json.required<int>("zz").error().message, "'zz' is missing");
  EXPECT_EQ(json.required<int>("d").error().message, "'d' is a number, expected an integer");
  EXPECT_EQ(json.required<bool>("s").error().message, "'s' is a string, expected a boolean");
  EXPECT_EQ(json.required<std::string>("l").error().message, "'l' is an array, expected a string");
  EXPECT_EQ(json.required<std::string>("n").error().message, "'n' is null, expected a string");
  EXPECT_EQ(*json.optional<int>("n", 7), 7);
  EXPECT_EQ(*json.optional<int>("zz", 7), 7);
  EXPECT_FALSE(json.optional<int>("s", 7).ok());
  EXPECT_FALSE(Json(5).required<int>("a").ok());
}

TEST(Json, QuotesWhatMustBeQuoted) {
  EXPECT_EQ(json_quote("a\"\\\b\f\n\r\t\x01\x7f/é"), "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\x7f/é\"");
  EXPECT_EQ(Json(std::string("\0", 1)).dump(), "\"\\u0000\"");
}

TEST(Json, Equality) {
  EXPECT_TRUE(*Json::parse("[1,{\"a\":null}]") == *Json::parse("[1.0,{\"a\":null}]"));
  EXPECT_FALSE(*Json::parse("{\"a\":1}") == *Json::parse("{\"a\":2}"));
  EXPECT_FALSE(Json(true) == Json(1));
  EXPECT_FALSE(*Json::parse("9223372036854775807") == *Json::parse("9223372036854775806"));
}

}  // namespace
}  // namespace invar
