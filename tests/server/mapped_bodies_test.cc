// Bodies of Responses and Messages with a value of the wrong kind anywhere: never a crash, and an
// error that begins with the field it speaks of.
#include <gtest/gtest.h>

#include "server/messages_request.h"
#include "server/responses_request.h"

namespace invar::server {
namespace {

Json parse(const char* text) {
  Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return *json;
}

int count_values(const Json& json) {
  int count = 1;
  if (json.is_array())
    for (const Json& item : json.items()) count += count_values(item);
  if (json.is_object())
    for (const auto& [name, value] : json.members()) count += count_values(value);
  return count;
}

// `json` with its value number `index`, in order of appearance, replaced.
Json replaced(const Json& json, int& index, const Json& by) {
  if (index-- == 0) return by;
  if (json.is_array()) {
    Json list = Json::array();
    for (const Json& item : json.items()) list.push_back(replaced(item, index, by));
    return list;
  }
  if (!json.is_object()) return json;
  Json object = Json::object();
  for (const auto& [name, value] : json.members()) object.set(name, replaced(value, index, by));
  return object;
}

template <typename Read>
void replace_everything(const Json& body, const Read& read) {
  ASSERT_FALSE(read(body));
  int num_errors = 0;
  for (const char* text :
       {"null", "true", "7", "-1.5", "\"x\"", "[]", "{}", "[7]", "[{}]", "[[]]", "{\"type\":7}"})
    for (int i = 1; i < count_values(body); ++i) {
      int index = i;
      const Json other = replaced(body, index, parse(text));
      const std::optional<ApiError> error = read(other);
      if (!error) continue;
      ++num_errors;
      EXPECT_EQ(error->status, 400);
      EXPECT_FALSE(error->param.empty()) << other.dump();
      EXPECT_TRUE(error->message.starts_with(error->param)) << error->message;
    }
  EXPECT_GT(num_errors, 200);
}

TEST(MappedBodies, ResponsesWithAnyValueOfAnotherKind) {
  const Json body = parse(R"({"model":"m","instructions":"I","stream":true,"max_output_tokens":5,
    "input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},
      {"type":"reasoning","content":[{"type":"reasoning_text","text":"r"}],"summary":[]},
      {"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]},
      {"type":"function_call","call_id":"c","name":"f","namespace":"n","arguments":"{}"},
      {"type":"custom_tool_call","call_id":"d","name":"p","input":"x"},
      {"type":"function_call_output","call_id":"c","output":[{"type":"input_image"}]},
      {"type":"custom_tool_call_output","call_id":"d","output":"o"},{"type":"web_search_call"}],
    "tools":[{"type":"function","name":"f","description":"d","parameters":{},"strict":true},
      {"type":"custom","name":"p","format":{"type":"grammar","syntax":"lark","definition":"d"}},
      {"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"f"}]}],
    "tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]},
    "parallel_tool_calls":true,"text":{"format":{"type":"json_schema","name":"n","schema":{}},
    "verbosity":"low"},"reasoning":{"effort":"low","summary":"auto"},"top_logprobs":1,
    "include":["message.output_text.logprobs"],"store":false,"metadata":{"a":"b"},"user":"u",
    "safety_identifier":"s","prompt_cache_key":"k","truncation":"auto","background":false})");
  replace_everything(body, [](const Json& json) {
    ResponsesRequest request;
    std::optional<ApiError> error = read_responses_body(json, {}, request);
    if (!error) request.chat.finish();
    return error;
  });
}

TEST(MappedBodies, MessagesWithAnyValueOfAnotherKind) {
  const Json body = parse(R"({"model":"m","max_tokens":5,"stream":true,
    "system":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}}],
    "messages":[{"role":"user","content":"a"},{"role":"system","content":"s"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":""},
        {"type":"redacted_thinking","data":"x"},{"type":"text","text":"b"},
        {"type":"tool_use","id":"i","name":"f","input":{"a":1}},{"type":"server_tool_use","id":"j"}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"i","is_error":true,
         "content":[{"type":"text","text":"c"},{"type":"image","source":{}}]},
        {"type":"text","text":"d"},{"type":"mid_conv_system","content":[{"type":"text","text":"e"}]}]}],
    "tools":[{"name":"f","description":"d","input_schema":{},"strict":true},{"type":"bash_1","name":"b"}],
    "tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true},
    "thinking":{"type":"enabled","budget_tokens":3,"display":"omitted"},
    "output_config":{"effort":"low","format":{"type":"json_schema","schema":{}}},
    "stop_sequences":["x"],"metadata":{"user_id":"u"},"context_management":{},"container":null})");
  replace_everything(body, [](const Json& json) {
    MessagesRequest request;
    std::optional<ApiError> error = read_messages_body(json, {}, true, request);
    if (!error) request.chat.finish();
    return error;
  });
}

}  // namespace
}  // namespace invar::server
