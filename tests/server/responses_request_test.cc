// Bodies of /v1/responses as chat bodies: what each item and tool becomes, and that errors speak of
// the caller's own fields.
#include "server/responses_request.h"

#include <gtest/gtest.h>

#include "server/response_format.h"
#include "server/tool_calls.h"

namespace invar::server {
namespace {

Json parse(const std::string& text) {
  Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return *json;
}

struct Read {
  ResponsesRequest request;
  Json chat;
  std::optional<ApiError> error;

  std::string messages() const { return chat.find("messages")->dump(); }
  std::vector<std::string> warning_codes() const {
    std::vector<std::string> codes;
    for (const Warning& warning : request.warnings) codes.push_back(warning.code);
    return codes;
  }
};

Read read(const std::string& body, ApiOptions options = {}) {
  Read result;
  result.error = read_responses_body(parse(body), options, result.request);
  if (!result.error) result.chat = result.request.chat.finish();
  return result;
}

// The error that reading the tools of the chat body gives, in the caller's terms.
ApiError tools_error(Read& read) {
  Fields fields(read.chat);
  ConstraintSpec spec;
  std::vector<Warning> warnings;
  read_tools(fields, {.renders_tools = true, .syntax = ToolSyntax{}}, spec, warnings);
  if (!fields.error()) return {};
  return read.request.chat.in_callers_terms(*fields.error());
}

TEST(ResponsesRequest, TextBecomesOneMessage) {
  EXPECT_EQ(read(R"({"input":"Hi"})").messages(), R"([{"role":"user","content":"Hi"}])");
  EXPECT_EQ(read(R"({"input":"Hi","instructions":"Be brief."})").messages(),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}])");
  for (const char* empty :
       {R"({"input":""})", R"({"input":[]})", R"({"input":"","instructions":""})"})
    EXPECT_EQ(read(empty).messages(), R"([{"role":"user","content":""}])");
}

TEST(ResponsesRequest, ItemsOfOneTurnAreOneMessage) {
  const Read got = read(R"({"input":[
    {"role":"developer","content":[{"type":"input_text","text":"Rules."}]},
    {"type":"message","role":"user","content":[{"type":"input_text","text":"Weather "},
                                               {"type":"input_text","text":"in Oslo?"}]},
    {"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":null,
     "content":[{"type":"reasoning_text","text":"Ask."}]},
    {"type":"message","id":"msg_1","role":"assistant","status":"completed",
     "content":[{"type":"output_text","text":"I look.","annotations":[]}]},
    {"type":"function_call","id":"fc_1","call_id":"call_1","name":"weather","arguments":"{\"city\":\"Oslo\"}"},
    {"type":"function_call","id":"fc_2","call_id":"call_2","name":"look","namespace":"mcp__maps","arguments":"{}"},
    {"type":"function_call_output","call_id":"call_1","output":"Rain"},
    {"type":"function_call_output","call_id":"call_2","output":[{"type":"input_text","text":"A"},
                                                               {"type":"input_image","image_url":"x"}]},
    {"type":"message","role":"assistant","content":"It rains."}]})");
  ASSERT_FALSE(got.error) << got.error->message;
  EXPECT_EQ(
      got.messages(),
      R"([{"role":"developer","content":"Rules."},{"role":"user","content":"Weather in Oslo?"},)"
      R"({"role":"assistant","content":"I look.","reasoning_content":"Ask.","tool_calls":[)"
      R"({"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}},)"
      R"({"id":"call_2","type":"function","function":{"name":"mcp__maps__look","arguments":"{}"}}]},)"
      R"({"role":"tool","content":"Rain","tool_call_id":"call_1"},)"
      R"({"role":"tool","content":"A[image omitted: this model reads text only]","tool_call_id":"call_2"},)"
      R"({"role":"assistant","content":"It rains."}])");
  EXPECT_EQ(got.warning_codes(), std::vector<std::string>{"image_omitted"});
  EXPECT_EQ(got.request.warnings[0].param, "input[7].output[1]");
}

TEST(ResponsesRequest, TurnsDoNotRunTogether) {
  // Two messages, and reasoning behind a message, belong to different turns.
  EXPECT_EQ(read(R"({"input":[{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},
                     {"type":"reasoning","content":[{"type":"reasoning_text","text":"r"}]},
                     {"type":"custom_tool_call","call_id":"c","name":"patch","input":"x\"y"}]})")
                .messages(),
            R"([{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},)"
            R"({"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[)"
            R"({"id":"c","type":"function","function":{"name":"patch","arguments":)"
            R"("{\"input\":\"x\\\"y\"}"}}]}])");
}

TEST(ResponsesRequest, ItemsThatCannotBeShownAreDropped) {
  const Read got = read(R"({"input":[{"type":"web_search_call","id":"ws"},
      {"type":"reasoning","encrypted_content":"gAAA","summary":[]},
      {"type":"mcp_list_tools"},{"type":"compaction"},{"role":"user","content":"x"}]})");
  ASSERT_FALSE(got.error);
  EXPECT_EQ(got.messages(), R"([{"role":"user","content":"x"}])");
  EXPECT_EQ(got.warning_codes(), std::vector<std::string>(4, "item_dropped"));
  EXPECT_EQ(got.request.warnings[1].param, "input[1]");
}

TEST(ResponsesRequest, RefusalsNameTheField) {
  const struct {
    const char *body, *param, *code;
  } cases[] = {
      {R"({})", "input", "missing_field"},
      {R"({"input":7})", "input", "invalid_type"},
      {R"({"input":[7]})", "input[0]", "invalid_type"},
      {R"({"input":[{"content":"x"}]})", "input[0].type", "missing_field"},
      {R"({"input":[{"role":"critic","content":"x"}]})", "input[0].role", "invalid_value"},
      {R"({"input":[{"role":"user"}]})", "input[0].content", "missing_field"},
      {R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})",
       "input[0].content[0].type", "unsupported_content"},
      {R"({"input":[{"role":"user","content":[{"type":"input_text"}]}]})",
       "input[0].content[0].text", "missing_field"},
      {R"({"input":[{"type":"item_reference","id":"x"}]})", "input[0].type", "unsupported_content"},
      {R"({"input":[{"type":"poem"}]})", "input[0].type", "unsupported_content"},
      {R"({"input":[{"type":"function_call","name":"f","arguments":"{}"}]})", "input[0].call_id",
       "missing_field"},
      {R"({"input":[{"type":"function_call_output","call_id":"c"}]})", "input[0].output",
       "missing_field"},
      {R"({"input":"x","previous_response_id":"resp_1"})", "previous_response_id",
       "unsupported_parameter"},
      {R"({"input":"x","conversation":{"id":"c"}})", "conversation", "unsupported_parameter"},
      {R"({"input":"x","prompt":{"id":"p"}})", "prompt", "unsupported_parameter"},
      {R"({"input":"x","background":true})", "background", "unsupported_parameter"},
      {R"({"input":"x","max_output_tokens":0})", "max_output_tokens", "out_of_range"},
      {R"({"input":"x","messages":[]})", "messages", "unsupported_parameter"},
      {R"({"input":"x","response_format":{"type":"json_object"}})", "response_format",
       "unsupported_parameter"},
      {R"({"input":"x","n":2})", "n", "unsupported_parameter"},
      {R"({"input":"x","top_logprobs":3})", "top_logprobs", "invalid_value"},
      {R"({"input":"x","top_logprobs":21})", "top_logprobs", "out_of_range"},
      {R"({"input":"x","include":[1]})", "include[0]", "invalid_type"},
      {R"({"input":"x","truncation":"middle"})", "truncation", "invalid_value"},
      {R"({"input":"x","metadata":{"a":1}})", "metadata.a", "invalid_type"},
      {R"({"input":"x","tools":[{"type":"function"}]})", "tools[0].name", "missing_field"},
      {R"({"input":"x","tools":[{"type":"oracle","name":"o"}]})", "tools[0].type", "invalid_value"},
      {R"({"input":"x","tools":[{"type":"namespace","name":"n"}]})", "tools[0].tools",
       "missing_field"},
      {R"({"input":"x","tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}})",
       "tool_choice", "invalid_value"},
  };
  for (const auto& c : cases) {
    const Read got = read(c.body);
    ASSERT_TRUE(got.error) << c.body;
    EXPECT_EQ(got.error->param, c.param) << c.body;
    EXPECT_EQ(got.error->code, c.code) << c.body;
    EXPECT_TRUE(got.error->message.starts_with(c.param)) << got.error->message;
    EXPECT_EQ(got.error->status, 400);
  }
}

TEST(ResponsesRequest, ToolsOfAllKinds) {
  const Read got = read(R"({"input":"x","tool_choice":"required","tools":[
    {"type":"function","name":"f","description":"F","parameters":{"type":"object"},"strict":false},
    {"type":"web_search"},
    {"type":"custom","name":"patch","description":"P","format":{"type":"grammar","syntax":"lark","definition":"s"}},
    {"type":"namespace","name":"mcp__a","description":"A","tools":[
       {"type":"function","name":"look","parameters":{"type":"object"},"strict":true}]},
    {"type":"namespace","name":"functions","tools":[{"type":"function","name":"bare"}]}]})");
  ASSERT_FALSE(got.error) << got.error->message;
  EXPECT_EQ(
      got.chat.find("tools")->dump(),
      R"([{"type":"function","function":{"name":"f","description":"F","parameters":{"type":"object"}}},)"
      R"({"type":"function","function":{"name":"patch","description":"P","parameters":{"type":"object",)"
      R"("properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}},)"
      R"({"type":"function","function":{"name":"mcp__a__look","parameters":{"type":"object"},"strict":true}},)"
      R"({"type":"function","function":{"name":"bare"}}])");
  EXPECT_EQ(got.chat.find("tool_choice")->dump(), R"("required")");
  EXPECT_EQ(got.warning_codes(), (std::vector<std::string>{"tool_dropped", "grammar_unenforced"}));
  EXPECT_EQ(got.request.warnings[0].param, "tools[1]");

  const CallerTools& tools = got.request.tools.tools;
  EXPECT_TRUE(tools.at("patch").is_custom);
  EXPECT_EQ(tools.at("mcp__a__look").name, "look");
  EXPECT_EQ(tools.at("mcp__a__look").name_space, "mcp__a");
  EXPECT_EQ(tools.at("bare").name, "bare");
  EXPECT_EQ(tools.at("bare").name_space, "");
  EXPECT_EQ(got.request.tools.tools_echo.items().size(), 4u);
}

TEST(ResponsesRequest, ToolChoices) {
  const std::string tools =
      R"("tools":[{"type":"function","name":"f"},{"type":"custom","name":"p"},
         {"type":"namespace","name":"a","tools":[{"type":"function","name":"g"}]}])";
  const auto choice = [&](const std::string& json) {
    const Read got = read(R"({"input":"x",)" + tools + R"(,"tool_choice":)" + json + "}");
    EXPECT_FALSE(got.error) << json;
    return got.chat.find("tool_choice")->dump();
  };
  EXPECT_EQ(choice(R"({"type":"function","name":"f"})"),
            R"({"type":"function","function":{"name":"f"}})");
  EXPECT_EQ(choice(R"({"type":"custom","name":"p"})"),
            R"({"type":"function","function":{"name":"p"}})");
  EXPECT_EQ(choice(R"({"type":"function","name":"g","namespace":"a"})"),
            R"({"type":"function","function":{"name":"a__g"}})");
  EXPECT_EQ(
      choice(
          R"({"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"}]})"),
      R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[)"
      R"({"type":"function","function":{"name":"f"}}]}})");
}

TEST(ResponsesRequest, ErrorsOfTheChatReaderSpeakOfTheCallersTools) {
  Read twice =
      read(R"({"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"a__f"},
      {"type":"namespace","name":"a","tools":[{"type":"function","name":"f"}]}]})");
  EXPECT_EQ(tools_error(twice).param, "tools[2].tools[0].name");
  Read schema = read(R"({"input":"x","tools":[{"type":"web_search"},
      {"type":"function","name":"f","parameters":7}]})");
  const ApiError error = tools_error(schema);
  EXPECT_EQ(error.param, "tools[1].parameters");
  EXPECT_EQ(error.message, "tools[1].parameters must be an object, a schema");
  Read dropped = read(R"({"input":"x","tools":[{"type":"web_search"}],"tool_choice":"required"})");
  EXPECT_EQ(tools_error(dropped).param, "tool_choice");
  Read unknown = read(R"({"input":"x","tools":[{"type":"function","name":"f"}],
                          "tool_choice":{"type":"function","name":"g"}})");
  EXPECT_EQ(tools_error(unknown).param, "tool_choice");
}

TEST(ResponsesRequest, HostedToolsAreRefusedWhenStrict) {
  const Read got =
      read(R"({"input":"x","tools":[{"type":"mcp","server_label":"s"}]})", {.strict_fields = true});
  ASSERT_TRUE(got.error);
  EXPECT_EQ(got.error->param, "tools[0].type");
}

TEST(ResponsesRequest, FieldsByOtherNames) {
  const Read got =
      read(R"({"input":"x","max_output_tokens":9,"temperature":0,"seed":4,"stream":true,
    "text":{"verbosity":"low","format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true}},
    "reasoning":{"effort":"high","summary":"auto"},"include":["message.output_text.logprobs","file_search_call.results"],
    "top_logprobs":2,"store":true,"truncation":"auto","prompt_cache_key":"k","foo":1,
    "return_token_ids":true,"stream_options":{"include_obfuscation":false}})");
  ASSERT_FALSE(got.error) << got.error->message;
  Json chat = got.chat;
  EXPECT_EQ(chat.find("max_completion_tokens")->as_int(), 9);
  EXPECT_EQ(
      chat.find("response_format")->dump(),
      R"({"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"strict":true}})");
  EXPECT_EQ(chat.find("reasoning_effort")->as_string(), "high");
  EXPECT_EQ(chat.find("chat_template_kwargs")->dump(), R"({"verbosity":"low"})");
  EXPECT_TRUE(chat.find("logprobs")->as_bool());
  EXPECT_EQ(chat.find("top_logprobs")->as_int(), 2);
  EXPECT_EQ(chat.find("temperature")->as_int(), 0);
  EXPECT_EQ(chat.find("seed")->as_int(), 4);
  EXPECT_TRUE(chat.find("stream")->as_bool());
  EXPECT_NE(chat.find("foo"), nullptr);  // the chat reader finds it unknown
  for (const char* name : {"input", "store", "truncation", "prompt_cache_key", "stream_options",
                           "return_token_ids", "include", "text", "reasoning"})
    EXPECT_EQ(chat.find(name), nullptr) << name;
  EXPECT_EQ(got.warning_codes(), std::vector<std::string>(4, "ignored_field"));
  const ChatBody& names = got.request.chat;
  EXPECT_EQ(names.caller_path("max_tokens"), "max_output_tokens");
  EXPECT_EQ(names.caller_path("response_format.json_schema.schema#/properties/a"),
            "text.format.schema#/properties/a");
  EXPECT_EQ(names.caller_path("messages[0].content"), "input.content");
  EXPECT_EQ(names.caller_path("seed"), "seed");
}

}  // namespace
}  // namespace invar::server
