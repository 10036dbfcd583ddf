// Bodies of /v1/messages as chat bodies: what each block becomes, and that errors speak of the
// caller's own fields.
#include "server/messages_request.h"

#include <gtest/gtest.h>

#include "server/tool_calls.h"

namespace invar::server {
namespace {

Json parse(const std::string& text) {
  Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return *json;
}

struct Read {
  MessagesRequest request;
  Json chat;
  std::optional<ApiError> error;

  std::string messages() const { return chat.find("messages")->dump(); }
};

Read read(const std::string& body, bool for_generation = true, ApiOptions options = {}) {
  Read result;
  result.error = read_messages_body(parse(body), options, for_generation, result.request);
  if (!result.error) result.chat = result.request.chat.finish();
  return result;
}

// A body with these messages (and more fields), as chat messages.
std::string messages(const std::string& list, const std::string& more = "") {
  const Read got = read(R"({"max_tokens":9,"messages":)" + list + more + "}");
  EXPECT_FALSE(got.error) << list;
  return got.error ? "" : got.messages();
}

TEST(MessagesRequest, TextAndSystem) {
  EXPECT_EQ(messages(R"([{"role":"user","content":"Hi"}])", R"(,"system":"Be brief.")"),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}])");
  EXPECT_EQ(messages(R"([{"role":"user","content":[{"type":"text","text":"a","cache_control":{}},
                        {"type":"text","text":"b"}]}])",
                     R"(,"system":[{"type":"text","text":"S1"},{"type":"text","text":"S2"}])"),
            R"([{"role":"system","content":"S1\nS2"},{"role":"user","content":"ab"}])");
}

TEST(MessagesRequest, CountingTakesEveryFieldOfThePrompt) {
  const std::string body = R"({"messages":[{"role":"user","content":"Hi"}],"reasoning_effort":"low",
      "add_generation_prompt":false,"chat_template_kwargs":{"a":1},"temperature":0.5})";
  const Read counted = read(body, false);
  ASSERT_FALSE(counted.error);
  for (const char* name : {"reasoning_effort", "add_generation_prompt", "chat_template_kwargs"})
    EXPECT_NE(counted.chat.find(name), nullptr) << name;
  EXPECT_EQ(counted.chat.find("temperature"), nullptr);
  const Read both = read(R"({"messages":[{"role":"assistant","content":"H"}],
                             "continue_final_message":false})",
                         false);
  EXPECT_TRUE(both.chat.find("continue_final_message")->as_bool()) << "a last turn is continued";
}

TEST(MessagesRequest, AttributionIsLeftOut) {
  const std::string user = R"([{"role":"user","content":"Hi"}])";
  const std::string blocks =
      R"(,"system":[{"type":"text","text":"x-anthropic-billing-header: cc=1"},{"type":"text","text":"S"}])";
  EXPECT_EQ(messages(user, blocks),
            R"([{"role":"system","content":"S"},{"role":"user","content":"Hi"}])");
  EXPECT_EQ(messages(user, R"(,"system":"x-anthropic-billing-header: cc=1\nS")"),
            R"([{"role":"system","content":"S"},{"role":"user","content":"Hi"}])");
  EXPECT_EQ(messages(user, R"(,"system":"x-anthropic-billing-header: cc=1")"),
            R"([{"role":"user","content":"Hi"}])");
  const Read kept = read(R"({"max_tokens":9,"messages":)" + user + blocks + "}", true,
                         {.keep_attribution = true});
  EXPECT_EQ(
      kept.messages(),
      R"([{"role":"system","content":"x-anthropic-billing-header: cc=1\nS"},{"role":"user","content":"Hi"}])");
}

TEST(MessagesRequest, AToolLoop) {
  EXPECT_EQ(
      messages(R"([
    {"role":"user","content":"Weather?"},
    {"role":"assistant","content":[
      {"type":"thinking","thinking":"Ask.","signature":""},{"type":"redacted_thinking","data":"x"},
      {"type":"text","text":"I look."},
      {"type":"tool_use","id":"toolu_1","name":"weather","input":{"city":"Oslo"}},
      {"type":"tool_use","id":"toolu_2","name":"ping","input":{}}]},
    {"role":"user","content":[{"type":"text","text":"And now?"},
      {"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"Ra"},{"type":"text","text":"in"}]},
      {"type":"tool_result","tool_use_id":"toolu_2","is_error":true}]}])"),
      R"([{"role":"user","content":"Weather?"},)"
      R"({"role":"assistant","content":"I look.","reasoning_content":"Ask.","tool_calls":[)"
      R"({"id":"toolu_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}},)"
      R"({"id":"toolu_2","type":"function","function":{"name":"ping","arguments":"{}"}}]},)"
      R"({"role":"tool","content":"Rain","tool_call_id":"toolu_1"},)"
      R"({"role":"tool","content":"error","tool_call_id":"toolu_2"},)"
      R"({"role":"user","content":"And now?"}])");
}

TEST(MessagesRequest, ResultsAloneMakeNoUserMessage) {
  EXPECT_EQ(
      messages(R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"t",
                 "content":[{"type":"image","source":{}}]}]}])"),
      R"([{"role":"tool","content":"[image omitted: this model reads text only]","tool_call_id":"t"}])");
}

TEST(MessagesRequest, NeighboursOfOneRoleAreOne) {
  EXPECT_EQ(messages(R"([{"role":"user","content":"a"},{"role":"user","content":"b"},
                        {"role":"assistant","content":"c"},{"role":"assistant","content":[
                          {"type":"text","text":"d"},{"type":"text","text":"e"}]},
                        {"role":"user","content":""}])"),
            R"([{"role":"user","content":"a\n\nb"},{"role":"assistant","content":"c\n\nde"},)"
            R"({"role":"user","content":""}])");
}

TEST(MessagesRequest, SystemInTheMiddle) {
  const std::string expected =
      R"([{"role":"user","content":"a"},{"role":"system","content":"S"},{"role":"assistant","content":"b"},)"
      R"({"role":"user","content":"c"}])";
  EXPECT_EQ(messages(R"([{"role":"user","content":"a"},{"role":"system","content":"S"},
                        {"role":"assistant","content":"b"},{"role":"user","content":"c"}])"),
            expected);
  EXPECT_EQ(messages(R"([{"role":"user","content":[{"type":"text","text":"a"},
                          {"type":"mid_conv_system","content":[{"type":"text","text":"S"}]}]},
                        {"role":"assistant","content":"b"},{"role":"user","content":"c"}])"),
            expected);
}

TEST(MessagesRequest, ALastAssistantMessageIsContinued) {
  const Read prefill = read(R"({"max_tokens":9,"messages":[{"role":"user","content":"a"},
                                {"role":"assistant","content":"The"}]})");
  EXPECT_TRUE(prefill.chat.find("continue_final_message")->as_bool());
  EXPECT_EQ(prefill.request.chat.caller_path("continue_final_message"), "messages");
  const Read other = read(R"({"max_tokens":9,"messages":[{"role":"user","content":"a"}]})");
  EXPECT_EQ(other.chat.find("continue_final_message"), nullptr);
}

TEST(MessagesRequest, RefusalsNameTheField) {
  const std::string user = R"("messages":[{"role":"user","content":"x"}])";
  const struct {
    std::string body;
    const char *param, *code;
  } cases[] = {
      {R"({"messages":[]})", "max_tokens", "missing_field"},
      {R"({"max_tokens":1})", "messages", "missing_field"},
      {R"({"max_tokens":1,"messages":[]})", "messages", "invalid_value"},
      {R"({"max_tokens":-1,"messages":[]})", "max_tokens", "out_of_range"},
      {R"({"max_tokens":1,"messages":[{"role":"tool","content":"x"}]})", "messages[0].role",
       "invalid_value"},
      {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]})",
       "messages[0].content[0].type", "unsupported_content"},
      {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_use","id":"a","name":"b"}]}]})",
       "messages[0].content[0].type", "invalid_value"},
      {R"({"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":"x"}]}]})",
       "messages[0].content[0].input", "invalid_type"},
      {R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result"}]}]})",
       "messages[0].content[0].tool_use_id", "missing_field"},
      {R"({"max_tokens":1,"system":7,)" + user + "}", "system", "invalid_type"},
      {R"({"max_tokens":1,"system":[{"type":"image"}],)" + user + "}", "system[0].type",
       "unsupported_content"},
      {R"({"max_tokens":1,"container":"c",)" + user + "}", "container", "unsupported_parameter"},
      {R"({"max_tokens":1,"mcp_servers":[{}],)" + user + "}", "mcp_servers",
       "unsupported_parameter"},
      {R"({"max_tokens":1,"thinking":{"type":"enabled"},)" + user + "}", "thinking.budget_tokens",
       "missing_field"},
      {R"({"max_tokens":1,"thinking":{"type":"enabled","budget_tokens":0},)" + user + "}",
       "thinking.budget_tokens", "out_of_range"},
      {R"({"max_tokens":1,"thinking":{"type":"hard"},)" + user + "}", "thinking.type",
       "invalid_value"},
      {R"({"max_tokens":1,"output_config":{"format":{"type":"text"}},)" + user + "}",
       "output_config.format.type", "invalid_value"},
      {R"({"max_tokens":1,"tools":[{"name":"f"}],)" + user + "}", "tools[0].input_schema",
       "missing_field"},
      {R"({"max_tokens":1,"tool_choice":{"type":"tool"},)" + user + "}", "tool_choice.name",
       "missing_field"},
      {R"({"max_tokens":1,"tool_choice":{"type":"most"},)" + user + "}", "tool_choice.type",
       "invalid_value"},
      {R"({"max_tokens":1,"n":2,)" + user + "}", "n", "unsupported_parameter"},
      {R"({"max_tokens":1,"stop_sequences":["a"],"stop":"b",)" + user + "}", "stop_sequences",
       "invalid_value"},
  };
  for (const auto& c : cases) {
    const Read got = read(c.body);
    ASSERT_TRUE(got.error) << c.body;
    EXPECT_EQ(got.error->param, c.param) << c.body;
    EXPECT_EQ(got.error->code, c.code) << c.body;
    EXPECT_TRUE(got.error->message.starts_with(c.param + std::string(": "))) << got.error->message;
  }
  EXPECT_EQ(read("{}").error->message, "max_tokens: field required");
}

TEST(MessagesRequest, ToolsAndChoices) {
  const Read got = read(R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],"tools":[
    {"type":"bash_20250124","name":"bash"},
    {"name":"f","description":"F","input_schema":{"type":"object"},"cache_control":{},"strict":true},
    {"type":"custom","name":"g","input_schema":{"type":"object"}}],
    "tool_choice":{"type":"any","disable_parallel_tool_use":true}})");
  ASSERT_FALSE(got.error) << got.error->message;
  EXPECT_EQ(
      got.chat.find("tools")->dump(),
      R"([{"type":"function","function":{"name":"f","description":"F","parameters":{"type":"object"},"strict":true}},)"
      R"({"type":"function","function":{"name":"g","parameters":{"type":"object"}}}])");
  EXPECT_EQ(got.chat.find("tool_choice")->as_string(), "required");
  EXPECT_FALSE(got.chat.find("parallel_tool_calls")->as_bool());
  ASSERT_EQ(got.request.warnings.size(), 1u);
  EXPECT_EQ(got.request.warnings[0].code, "tool_dropped");
  EXPECT_EQ(got.request.warnings[0].param, "tools[0]");

  Read bad = read(R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],"tools":[
    {"type":"bash_20250124","name":"bash"},{"name":"f","input_schema":7}],
    "tool_choice":{"type":"tool","name":"f"}})");
  EXPECT_EQ(bad.chat.find("tool_choice")->dump(), R"({"type":"function","function":{"name":"f"}})");
  Fields fields(bad.chat);
  ConstraintSpec spec;
  std::vector<Warning> warnings;
  read_tools(fields, {.renders_tools = true, .syntax = ToolSyntax{}}, spec, warnings);
  ASSERT_TRUE(fields.error());
  const ApiError error = in_messages_words(bad.request.chat.in_callers_terms(*fields.error()));
  EXPECT_EQ(error.message, "tools[1].input_schema: must be an object, a schema");
}

TEST(MessagesRequest, FieldsByOtherNames) {
  const Read got = read(R"({"max_tokens":0,"messages":[{"role":"user","content":"x"}],
    "stop_sequences":["a"],"temperature":0.5,"top_k":4,"seed":3,"stream":true,
    "thinking":{"type":"enabled","budget_tokens":64,"display":"omitted"},
    "output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}},
    "metadata":{"user_id":"u"},"context_management":{"edits":[]},"mcp_servers":[],"service_tier":"auto"})");
  ASSERT_FALSE(got.error) << got.error->message;
  EXPECT_EQ(got.chat.find("max_completion_tokens"), nullptr);
  EXPECT_TRUE(got.request.only_prompt);
  EXPECT_EQ(got.chat.find("stop")->dump(), R"(["a"])");
  EXPECT_EQ(got.chat.find("thinking_budget")->as_int(), 64);
  EXPECT_EQ(got.chat.find("chat_template_kwargs")->dump(), R"({"enable_thinking":true})");
  EXPECT_EQ(got.chat.find("reasoning_effort")->as_string(), "low");
  EXPECT_EQ(got.chat.find("response_format")->dump(),
            R"({"type":"json_schema","json_schema":{"schema":{"type":"object"}}})");
  EXPECT_EQ(got.chat.find("seed")->as_int(), 3);
  EXPECT_TRUE(got.request.hides_thinking);
  EXPECT_EQ(got.chat.find("metadata"), nullptr);
  ASSERT_EQ(got.request.warnings.size(), 1u);
  EXPECT_EQ(got.request.warnings[0].param, "context_management");
  EXPECT_EQ(got.request.chat.caller_path("stop"), "stop_sequences");
  EXPECT_EQ(got.request.chat.caller_path("thinking_budget"), "thinking.budget_tokens");
}

TEST(MessagesRequest, CountingNeedsNoLimitAndNoSampling) {
  const Read got = read(R"({"messages":[{"role":"user","content":"x"}],"temperature":"hot",
                            "model":"m","thinking":{"type":"disabled"}})",
                        false);
  ASSERT_FALSE(got.error) << got.error->message;
  EXPECT_EQ(got.chat.find("temperature"), nullptr);
  EXPECT_EQ(got.chat.find("model")->as_string(), "m");
  EXPECT_EQ(got.chat.find("chat_template_kwargs")->dump(), R"({"enable_thinking":false})");
}

TEST(MessagesRequest, ContextErrorsHaveTheWordsThatAgentsLookFor) {
  ApiError error = api_error("context_length_exceeded", "This model's ...", "messages");
  error.num_prompt_tokens = 300;
  error.context = 256;
  EXPECT_EQ(in_messages_words(error).message, "prompt is too long: 300 tokens > 256 maximum");
}

}  // namespace
}  // namespace invar::server
