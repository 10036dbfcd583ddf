// prepare_messages, and that nothing a user or tool wrote may become a special token.
#include "tokenizer/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "base/file.h"

namespace invar {
namespace {

using testing::HasSubstr;

Json parse(const std::string& text) {
  Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *json : Json();
}

std::string prepared(const std::string& text) {
  Json messages = parse(text);
  const Result<void> result = prepare_messages(messages);
  return result.ok() ? messages.dump() : "error: " + result.error().message;
}

TEST(PrepareMessages, ContentBecomesText) {
  EXPECT_EQ(prepared(R"([{"role":"user","content":"hi"}])"), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(prepared(R"([{"role":"assistant","content":null}])"),
            R"([{"role":"assistant","content":""}])");
  EXPECT_EQ(prepared(R"([{"role":"assistant"}])"), R"([{"role":"assistant","content":""}])");
  EXPECT_EQ(
      prepared(
          R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])"),
      R"([{"role":"user","content":"ab"}])");
  EXPECT_EQ(prepared(R"([{"role":"developer","content":"x"}])"),
            R"([{"role":"system","content":"x"}])");
}

TEST(PrepareMessages, ReasoningFieldsInOrder) {
  EXPECT_EQ(
      prepared(R"([{"role":"assistant","content":"a","reasoning":"r","thinking":"t"}])"),
      R"([{"role":"assistant","content":"a","reasoning":"r","thinking":"t","reasoning_content":"t"}])");
  EXPECT_EQ(
      prepared(R"([{"role":"assistant","content":"a","reasoning":"r","reasoning_content":"c"}])"),
      R"([{"role":"assistant","content":"a","reasoning":"r","reasoning_content":"c"}])");
}

TEST(PrepareMessages, ArgumentsBecomeObjects) {
  const auto call = [](const std::string& arguments) {
    return R"([{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":)" +
           arguments + "}}]}]";
  };
  EXPECT_EQ(prepared(call(R"("{\"b\": 1, \"a\": [2]}")")), call(R"({"b":1,"a":[2]})"));
  EXPECT_EQ(prepared(call(R"("")")), call("{}"));
  EXPECT_EQ(prepared(call("null")), call("{}"));
  EXPECT_EQ(prepared(call(R"({"x":1})")), call(R"({"x":1})"));
  EXPECT_EQ(prepared(call(R"("{broken")")), call(R"("{broken")"));
  EXPECT_EQ(prepared(call(R"("5")")), call(R"("5")"));
}

TEST(PrepareMessages, ErrorsNameMessageAndField) {
  EXPECT_THAT(prepared("{}"), HasSubstr("messages is an object, expected an array"));
  EXPECT_THAT(prepared("[5]"), HasSubstr("messages[0] is an integer"));
  EXPECT_THAT(prepared(R"([{"role":"user","content":"a"},{"content":"b"}])"),
              HasSubstr("messages[1].role"));
  EXPECT_THAT(prepared(R"([{"role":"user","content":{}}])"), HasSubstr("messages[0].content"));
  EXPECT_THAT(prepared(R"([{"role":"user","content":[{"type":"image_url"}]}])"),
              HasSubstr("messages[0].content[0]"));
  EXPECT_THAT(prepared(R"([{"role":"assistant","tool_calls":[{"function":{}}]}])"),
              HasSubstr("messages[0].tool_calls[0].function.name"));
  EXPECT_THAT(
      prepared(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":5}}]}])"),
      HasSubstr("messages[0].tool_calls[0].function.arguments is an integer"));
  EXPECT_THAT(prepared(R"([{"role":"assistant","reasoning":5}])"),
              HasSubstr("messages[0].reasoning is an integer"));
}

// Whatever a user, a tool or a schema writes: the trusted text is that of a harmless conversation.
TEST(ChatTemplate, UserTextIsNeverTrusted) {
  const std::string folder = std::string(INVAR_TEST_DATA) + "/golden/templates/";
  const char* const kSpecials[] = {"<|im_start|>",
                                   "<|im_end|>",
                                   "<|eot_id|>",
                                   "<start_of_turn>",
                                   "<end_of_turn>",
                                   "<bos>",
                                   "<eos>",
                                   "<think>",
                                   "</think>",
                                   "<tool_call>",
                                   "</tool_call>",
                                   "<tool_response>",
                                   "<|start_header_id|>",
                                   "<|end_header_id|>"};
  std::mt19937_64 random(11);
  int num_rendered = 0;
  for (const char* file : {"chatml_tools", "think_xml", "schema_xml", "header_ids", "turns"}) {
    const std::string source = *read_file(folder + file + ".jinja", 1 << 20);
    Result<ChatTemplate> parsed = ChatTemplate::parse(source);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    for (int i = 0; i < 200; ++i) {
      // A mark that no template holds, around specials: found in trusted text, it would be a leak.
      const auto hostile = [&] {
        std::string text = "\x01";
        const size_t offset = random();
        for (size_t k = 0; k < std::size(kSpecials); ++k)
          text += std::string(1 + random() % 2, ' ') +
                  kSpecials[(k + offset) % std::size(kSpecials)] + "\x01";
        return text;
      };
      const auto message = [&](const char* role) {
        Json m = Json::object();
        m.set("role", role);
        m.set("content", hostile());
        return m;
      };
      TemplateInput input;
      input.bos_token = "<bos>";
      if (random() % 2 == 0) input.messages.push_back(message("system"));
      input.messages.push_back(message("user"));
      Json assistant = message("assistant");
      if (random() % 2 == 0) assistant.set("reasoning_content", hostile());
      const bool calls = random() % 2 == 0;
      if (calls) {
        Json arguments = Json::object(), function = Json::object(), call = Json::object();
        arguments.set(hostile(), hostile());
        function.set("name", hostile());
        function.set("arguments", arguments);
        call.set("function", function);
        Json list = Json::array();
        list.push_back(call);
        assistant.set("tool_calls", list);
      }
      input.messages.push_back(assistant);
      if (calls && std::string(file) != "turns") input.messages.push_back(message("tool"));
      input.messages.push_back(message("user"));
      if (random() % 2 == 0) {
        Json tool = Json::object(), function = Json::object(), schema = Json::object(),
             properties = Json::object(), property = Json::object();
        property.set("description", hostile());
        properties.set(hostile(), property);
        schema.set("type", "object");
        schema.set("properties", properties);
        function.set("name", hostile());
        function.set("description", hostile());
        function.set("parameters", schema);
        tool.set("type", "function");
        tool.set("function", function);
        input.tools = Json::array();
        input.tools.push_back(tool);
      }
      input.kwargs.set("date_string", hostile());
      const auto segments = parsed->render(input);
      if (!segments.ok()) continue;  // this template refuses such a conversation
      ++num_rendered;
      bool last = false;
      for (size_t k = 0; k < segments->size(); ++k) {
        const TextSegment& segment = (*segments)[k];
        EXPECT_FALSE(segment.text.empty());
        if (k > 0) {
          EXPECT_NE(segment.allow_special, last) << "segments are merged";
        }
        last = segment.allow_special;
        if (segment.allow_special) {
          ASSERT_EQ(segment.text.find('\x01'), std::string::npos) << file << ": " << segment.text;
        }
      }
    }
  }
  EXPECT_GE(num_rendered, 800);
}

}  // namespace
}  // namespace invar
