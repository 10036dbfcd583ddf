// Numbers and patterns by themselves: counted through, and against PCRE2.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "constraint/byte_vocabulary.h"
#include "constraint/pattern.h"
#include "tokenizer/regex.h"

namespace invar {
namespace {

TEST(Integers, AreThoseOfTheRange) {
  struct Case {
    const char* schema;
    int64_t low, high, multiple;
  };
  for (const Case& c : std::initializer_list<Case>{
           {R"({"type":"integer","minimum":-12,"maximum":105})", -12, 105, 1},
           {R"({"type":"integer","exclusiveMinimum":7,"exclusiveMaximum":1000})", 8, 999, 1},
           {R"({"type":"integer","minimum":-2000,"maximum":-99})", -2000, -99, 1},
           {R"({"type":"integer","minimum":-1.5,"maximum":2.5})", -1, 2, 1},
           {R"({"type":"integer","minimum":2.5})", 3, 1'000'000, 1},
           {R"({"type":"integer","maximum":-2.5})", -1'000'000, -3, 1},
           {R"({"type":"integer","multipleOf":7,"minimum":-30})", -30, 1'000'000, 7},
           {R"({"type":"number","multipleOf":10,"maximum":99})", -1'000'000, 99, 10},
           {R"({"type":"integer"})", -1'000'000, 1'000'000, 1}}) {
    SCOPED_TRACE(c.schema);
    const auto compiled = compile_schema(c.schema);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    for (int64_t x = -2500; x <= 2500; ++x)
      ASSERT_EQ(accepts_text(*compiled, std::to_string(x)),
                x >= c.low && x <= c.high && x % c.multiple == 0)
          << x;
    for (const char* text : {"", "-", "-0", "00", "01", "1.0", "1e1", " 1", "+1", "1 "})
      ASSERT_FALSE(accepts_text(*compiled, text)) << text;
  }
  const auto all = compile_schema(R"({"type":"integer"})");
  for (const char* text : {"9223372036854775807", "-9223372036854775808", "1000000000000000000"})
    EXPECT_TRUE(accepts_text(*all, text)) << text;
  for (const char* text : {"9223372036854775808", "-9223372036854775809", "10000000000000000000"})
    EXPECT_FALSE(accepts_text(*all, text)) << text;
}

TEST(Numbers, AreThoseOfTheRange) {
  std::mt19937 rng(3);
  for (int run = 0; run < 60; ++run) {
    double low = std::round((static_cast<double>(rng() % 20000) - 10000) * 10) / 1000;
    double high = low + static_cast<double>(rng() % 30000) / 1000;
    const bool no_low = run % 5 == 1, no_high = run % 5 == 2;
    const bool low_open = rng() % 2 == 0, high_open = rng() % 2 == 0;
    Json schema = Json::object();
    schema.set("type", "number");
    if (!no_low) schema.set(low_open ? "exclusiveMinimum" : "minimum", low);
    if (!no_high) schema.set(high_open ? "exclusiveMaximum" : "maximum", high);
    SCOPED_TRACE(schema.dump());
    const auto compiled = compile_schema(schema.dump());
    if (!compiled.ok()) {
      ASSERT_TRUE(low == high && (low_open || high_open)) << compiled.error().message;
      continue;
    }
    for (int i = 0; i < 2000; ++i) {
      const int digits = static_cast<int>(rng() % 5);
      const double scale = std::pow(10, digits);
      const double near = rng() % 2 ? low : high;
      const double spread = (static_cast<double>(rng() % 2001) - 1000) / (rng() % 3 ? 1000 : 20);
      char text[64];
      std::snprintf(text, sizeof text, "%.*f", digits, std::round((near + spread) * scale) / scale);
      const double x = std::strtod(text, nullptr);
      if (text[0] == '-' && x == 0) continue;  // no negative zero
      const bool in_range = (no_low || (low_open ? x > low : x >= low)) &&
                            (no_high || (high_open ? x < high : x <= high));
      ASSERT_EQ(accepts_text(*compiled, text), in_range) << text;
    }
  }
}

TEST(Patterns, MatchWhatPcreMatches) {
  const char* patterns[] = {"",
                            "^$",
                            "a",
                            "^a",
                            "a$",
                            "^a$",
                            "ab|ba",
                            "^(ab|b)*a?$",
                            "^[a-b]{2,3}$",
                            "^a{2}$",
                            "b{2,}",
                            "^[^a]+$",
                            "^.$",
                            "\\d",
                            "^\\D*$",

                            "\\s$",
                            "^(a|b|ab)+c?$",
                            "^(?:a(b(c)?)?)$",
                            "^a+?b*?$",
                            "[\\]\\-a]",
                            "^[a\\-c]$",
                            "\\.",
                            "^\\u00e9\\x41$",
                            "^(a*)*$",
                            "a{,2}",
                            "^{$",
                            "^(|a)b$",
                            "(a|b)*a(a|b){3}$",
                            "^[\\d\\s]+$",
                            "^\u00e9|c$",
                            "^[\u00e0-\u00ff]b$",
                            "^a.c$",
                            "^((a{1,2}b){1,2}c?){2}$"};
  std::mt19937 rng(5);
  const char* pieces[] = {"a", "b", "c",      "1", " ", "-",   ".",
                          "]", "{", "\u00e9", "A", "_", ",2}", "\u4e2d"};
  for (const char* pattern : patterns) {
    SCOPED_TRACE(pattern);
    Json schema = Json::object();
    schema.set("type", "string");
    schema.set("pattern", pattern);
    const auto compiled = compile_schema(schema.dump());
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    std::string for_pcre = pattern;  // PCRE spells \u otherwise
    for (size_t at; (at = for_pcre.find("\\u00e9")) != std::string::npos;)
      for_pcre.replace(at, 6, "\u00e9");
    const auto regex = Regex::compile(for_pcre);
    ASSERT_TRUE(regex.ok()) << regex.error().message;
    for (int i = 0; i < 400; ++i) {
      std::string text;
      for (uint32_t n = rng() % 7; n > 0; --n)
        text += pieces[rng() % (i % 2 ? 3 : std::size(pieces))];
      size_t begin = 0, end = 0;
      ASSERT_EQ(accepts_text(*compiled, json_quote(text)), regex->find(text, 0, begin, end))
          << text;
    }
  }
}

// Engines disagree about letters and digits beyond ASCII: we write none where they do.
TEST(Patterns, ClassesHoldWhatAllEnginesAgreeOn) {
  const struct {
    const char* pattern;
    std::vector<const char*> good, bad;
  } cases[] = {
      {"^\\\\w$", {"a", "_", "7"}, {"\u4e2d", "\u00e9", "-"}},
      {"^\\\\W$", {"-", " ", "\u2014", "\U0001F60A"}, {"a", "\u4e2d", "\u00e9", "\u0663"}},
      {"^\\\\d$", {"0", "9"}, {"\u0663", "a"}},
      {"^\\\\D$", {"a", "\u4e2d", "\u00e9"}, {"0", "\u0663", "\uff11"}},
      {"^\\\\S$", {"a", "\u4e2d"}, {" ", "\u3000", "\u0085", "\ufeff"}},
      {"^\\\\s$", {" ", "\u3000"}, {"a", "\u0085", "\ufeff", "\x1c"}},
      {"^[^\\\\s]$", {"a", "\u4e2d"}, {" ", "\u0085", "\ufeff", "\x1c"}},
      {"^[^\\\\d]$", {"a", "\u4e2d"}, {"0", "\u0663"}},
      {"^[^\\\\w]$", {"-", "\u2014"}, {"a", "\u4e2d", "\u00e9"}},
      {"^[^\\\\W]$", {"a", "_"}, {"-", "\u4e2d", "\u00e9"}},
      {"^[^\\\\S]$", {" ", "\u3000"}, {"a", "\u0085", "\ufeff"}},
  };
  for (const auto& c : cases) {
    const auto compiled = compile_schema(std::string(R"({"pattern":")") + c.pattern + "\"}");
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    for (const char* text : c.good)
      EXPECT_TRUE(accepts_text(*compiled, json_quote(text))) << c.pattern << text;
    for (const char* text : c.bad)
      EXPECT_FALSE(accepts_text(*compiled, json_quote(text))) << c.pattern << text;
  }
}

// What follows a match decides nothing, so it needs no states.
TEST(Patterns, LongRepeatsWithoutAnAnchorAtTheEndStaySmall) {
  const auto compiled = compile_schema(R"({"pattern":"pull|push|\\$\\w{1,255}"})");
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  EXPECT_LT((*compiled)->num_states(), 500u);
  for (const char* text : {"a push", "x$y", "$name and more"})
    EXPECT_TRUE(accepts_text(*compiled, json_quote(text))) << text;
  for (const char* text : {"pus", "$", "$-"})
    EXPECT_FALSE(accepts_text(*compiled, json_quote(text))) << text;
}

TEST(Patterns, WithLengths) {
  const auto compiled =
      compile_schema(R"({"type":"string","pattern":"^(a|bcd)*$","minLength":2,"maxLength":4})");
  ASSERT_TRUE(compiled.ok());
  for (const char* text : {"aa", "bcd", "abcd", "bcda", "aaaa"})
    EXPECT_TRUE(accepts_text(*compiled, json_quote(text))) << text;
  for (const char* text : {"", "a", "aaaaa", "aabcd", "bc"})
    EXPECT_FALSE(accepts_text(*compiled, json_quote(text))) << text;
  // After "aa" a 'b' would need two more characters: never offered.
  Constraint constraint(*compiled);
  for (const char c : std::string_view("\"aa")) ASSERT_TRUE(constraint.accept(c));
  EXPECT_FALSE(constraint.accept('b'));
  EXPECT_TRUE(constraint.accept('a'));
}

TEST(Formats, TakeGoodAndRefuseBad) {
  struct Case {
    const char* format;
    std::vector<const char*> good, bad;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"date",
            {"2024-02-29", "2000-02-29", "0001-12-31", "1999-04-30"},
            {"2023-02-29", "1900-02-29", "2024-04-31", "0000-01-01", "2024-13-01", "24-01-01"}},
           {"time", {"23:59:59Z", "00:00:00.123+05:30"}, {"24:00:00Z", "12:00:60Z", "12:00:00"}},
           {"date-time",
            {"2024-02-29T12:00:00Z"},
            {"2024-02-29 12:00:00Z", "2023-02-29T12:00:00Z"}},
           {"duration",
            {"P1Y2M3DT4H5M6S", "P2W", "PT1S", "P1M"},
            {"P", "PT", "P1Y3D", "1D", "P1W1D"}},
           {"uuid", {"123e4567-e89b-12d3-a456-426614174000"}, {"123e4567e89b12d3a456426614174000"}},
           {"email", {"a.b@example.com"}, {"a@", "@b", "a b@c", ".a@b"}},
           {"hostname", {"a.b-c.d", "localhost"}, {"-a", "a..b", "a-", "a_b"}},
           {"ipv4", {"0.0.0.0", "255.249.199.99"}, {"256.0.0.1", "1.2.3", "01.2.3.4"}},
           {"ipv6",
            {"::", "::1", "1::", "1:2:3:4:5:6:7:8", "1::8", "1:2:3:4:5:6:7::", "fe80::a:b"},
            {":", ":::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", "12345::"}}}) {
    SCOPED_TRACE(c.format);
    Json schema = Json::object();
    schema.set("type", "string");
    schema.set("format", c.format);
    const auto compiled = compile_schema(schema.dump());
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    for (const char* text : c.good) EXPECT_TRUE(accepts_text(*compiled, json_quote(text))) << text;
    for (const char* text : c.bad) EXPECT_FALSE(accepts_text(*compiled, json_quote(text))) << text;
  }
}

}  // namespace
}  // namespace invar
