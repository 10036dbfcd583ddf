// Arguments of calls on their way to the client: the text of a custom tool out of its JSON, however
// that is cut, and what is whole of an object that a limit cut.
#include <gtest/gtest.h>

#include "server/custom_input.h"
#include "server/partial_json.h"

namespace invar::server {
namespace {

std::string unwrapped(const std::string& json, size_t piece_bytes) {
  CustomInput input;
  std::string text;
  for (size_t i = 0; i < json.size(); i += piece_bytes)
    text += input.push(json.substr(i, piece_bytes));
  return text + input.finish();
}

TEST(CustomInput, IsTheStringHoweverItIsCut) {
  const struct {
    const char *json, *text;
  } cases[] = {
      {R"({"input":"ls -l"})", "ls -l"},
      {R"( { "input" : "" } )", ""},
      {R"({"input":"a\"b\\c\/d\n\té"})", "a\"b\\c/d\n\té"},
      {R"({"input":"\u00e9\ud83d\ude00!"})", "é😀!"},
      {R"({"input":"\ud83dx\ude00\ud83d\ud83d\n\ud83d"})",
       "\xEF\xBF\xBDx\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\n\xEF\xBF\xBD"},
      {R"({"input":"cut he)", "cut he"},       // by a limit
      {R"({"input":"cut \u00)", "cut "},       // inside an escape
      {R"({"inp)", R"({"inp)"},                // before it began
      {R"({"text":"x"})", R"({"text":"x"})"},  // as written
      {R"({"input":7})", R"({"input":7})"},
  };
  for (const auto& c : cases)
    for (const size_t piece_bytes : {1, 2, 3, 100})
      EXPECT_EQ(unwrapped(c.json, piece_bytes), c.text) << c.json << " by " << piece_bytes;
}

TEST(PartialObject, KeepsWhatIsWhole) {
  const struct {
    const char *text, *object;
    bool is_whole;
  } cases[] = {
      {R"({"a":1,"b":[1,2]})", R"({"a":1,"b":[1,2]})", true},
      {R"({"a":1,"b":"xy)", R"({"a":1})", false},
      {R"({"a":{"b":[1,2,3)", R"({"a":{"b":[1,2]}})", false},
      {R"({"a":"},]\"","b":{)", R"({"a":"},]\"","b":{}})", false},
      {R"({"a)", "{}", false},
      {"", "{}", false},
      {"[1,2]", "{}", false},
      {"}", "{}", false},
      {"no object", "{}", false},
  };
  for (const auto& c : cases) {
    bool is_whole = !c.is_whole;
    EXPECT_EQ(parse_partial_object(c.text, is_whole).dump(), c.object) << c.text;
    EXPECT_EQ(is_whole, c.is_whole) << c.text;
  }
}

}  // namespace
}  // namespace invar::server
