// Where system messages end up, by what the template can show.
#include "server/message_layout.h"

#include <gtest/gtest.h>

namespace invar::server {
namespace {

Json parse(const char* text) { return *Json::parse(text); }

constexpr const char* kConversation = R"([
  {"role":"system","content":"A"}, {"role":"developer","content":[{"type":"text","text":"B"}]},
  {"role":"user","content":"q"}, {"role":"system","content":"C"},
  {"role":"assistant","content":"r"}, {"role":"system","content":"D"},
  {"role":"user","content":"s"}])";

std::string dump(const Json& json) { return json.dump(); }

TEST(MessageLayout, ATemplateThatShowsThemAnywhere) {
  ChatModel model;
  model.system_anywhere = true;
  std::vector<Warning> warnings;
  const Json laid_out = lay_out_messages(parse(kConversation), model, warnings);
  EXPECT_EQ(dump(laid_out), dump(parse(R"([
    {"role":"system","content":"A\n\nB"}, {"role":"user","content":"q"},
    {"role":"system","content":"C"}, {"role":"assistant","content":"r"},
    {"role":"system","content":"D"}, {"role":"user","content":"s"}])")));
  EXPECT_TRUE(warnings.empty());
}

TEST(MessageLayout, ATemplateThatShowsThemFirst) {
  std::vector<Warning> warnings;
  const Json laid_out = lay_out_messages(parse(kConversation), ChatModel{}, warnings);
  EXPECT_EQ(dump(laid_out), dump(parse(R"([
    {"role":"system","content":"A\n\nB\n\nC"}, {"role":"user","content":"q"},
    {"role":"assistant","content":"r"}, {"role":"user","content":"[system] D"},
    {"role":"user","content":"s"}])")));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].code, "system_moved");
}

TEST(MessageLayout, ATemplateWhoseRolesAlternate) {
  ChatModel model;
  model.same_role_twice = false;
  std::vector<Warning> warnings;
  const Json laid_out = lay_out_messages(parse(kConversation), model, warnings);
  EXPECT_EQ(dump(laid_out), dump(parse(R"([
    {"role":"system","content":"A\n\nB\n\nC"}, {"role":"user","content":"q"},
    {"role":"assistant","content":"r"}, {"role":"user","content":"[system] D\n\ns"}])")));
}

TEST(MessageLayout, PartsBecomeText) {
  ChatModel model;
  model.system_anywhere = true;
  std::vector<Warning> warnings;
  const Json laid_out = lay_out_messages(parse(R"([
    {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"assistant","name":"x","content":[{"type":"output_text","text":"c"},
                                              {"type":"refusal","refusal":"d"}]}])"),
                                         model, warnings);
  EXPECT_EQ(dump(laid_out), dump(parse(R"([{"role":"user","content":"ab"},
    {"role":"assistant","name":"x","content":"cd"}])")));
}

TEST(MessageLayout, NullMeansAbsent) {
  ChatModel model;
  model.system_anywhere = true;
  std::vector<Warning> warnings;
  const Json laid_out = lay_out_messages(
      parse(R"([{"role":"assistant","content":"a","refusal":null,"tool_calls":null}])"), model,
      warnings);
  EXPECT_EQ(dump(laid_out), dump(parse(R"([{"role":"assistant","content":"a"}])")));
}

TEST(MessageLayout, NullIsNoCall) {
  ChatModel model;
  model.same_role_twice = false;
  std::vector<Warning> warnings;
  const char* text = R"([{"role":"user","content":"q"},
    {"role":"assistant","content":"a","tool_calls":null},
    {"role":"assistant","content":"b"}, {"role":"assistant","content":"c"}])";
  EXPECT_EQ(dump(lay_out_messages(parse(text), model, warnings)), dump(parse(R"([
    {"role":"user","content":"q"},
    {"role":"assistant","content":"a\n\nb\n\nc"}])")));
}

TEST(MessageLayout, CallsAndResultsStayApart) {
  ChatModel model;
  model.same_role_twice = false;
  std::vector<Warning> warnings;
  const char* text = R"([{"role":"user","content":"q"},
    {"role":"assistant","content":null,"tool_calls":[{"id":"a"}]},
    {"role":"tool","tool_call_id":"a","content":"1"},
    {"role":"tool","tool_call_id":"b","content":"2"}])";
  EXPECT_EQ(dump(lay_out_messages(parse(text), model, warnings)), dump(parse(text)));
}

}  // namespace
}  // namespace invar::server
