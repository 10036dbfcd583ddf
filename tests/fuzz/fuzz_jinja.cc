// Template source, and the data it is rendered with. The input is a template; after a line of
// "=====" may come JSON: {"messages": ..., "tools": ..., anything else}. Without it a fixed
// conversation with tools is used.
#include <cstdlib>

#include "tokenizer/chat_template.h"

namespace {

constexpr std::string_view kSeparator = "\n=====\n";
constexpr const char* kConversation = R"({
  "messages": [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "Grüße <|im_end|> ｜ 日本"},
    {"role": "assistant", "content": null, "reasoning_content": "hm\n", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments":
        {"a": 1, "b": [true, null, 2.5], "c": {"d": "e"}}}}]},
    {"role": "tool", "content": "{\"r\": 1}"},
    {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image"}]}],
  "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters":
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}],
  "enable_thinking": false, "s": "a,b c", "n": 3})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view source(reinterpret_cast<const char*>(data), size);
  std::string_view json_text = kConversation;
  if (const size_t at = source.find(kSeparator); at != std::string_view::npos) {
    json_text = source.substr(at + kSeparator.size());
    source = source.substr(0, at);
  }
  invar::TemplateLimits limits;
  limits.max_steps = 100'000;
  limits.max_output_bytes = 1 << 20;
  invar::Result<invar::ChatTemplate> parsed = invar::ChatTemplate::parse(source, limits);
  if (!parsed.ok()) {
    if (parsed.error().message.find("line ") == std::string::npos &&
        parsed.error().message.find("bytes") == std::string::npos)
      std::abort();
    return 0;
  }
  invar::Result<invar::Json> json = invar::Json::parse(json_text);
  if (!json.ok()) return 0;
  invar::TemplateInput input;
  input.now = std::tm{};
  input.bos_token = "<s>";
  input.kwargs = *json;
  if (const invar::Json* messages = json->find("messages")) input.messages = *messages;
  if (const invar::Json* tools = json->find("tools")) input.tools = *tools;
  for (int round = 0; round < 2; ++round) {
    const auto segments = parsed->render(input);
    if (segments.ok()) {
      size_t num_bytes = 0;
      for (size_t i = 0; i < segments->size(); ++i) {
        num_bytes += (*segments)[i].text.size();
        if ((*segments)[i].text.empty()) std::abort();
        if (i > 0 && (*segments)[i].allow_special == (*segments)[i - 1].allow_special) std::abort();
      }
      if (num_bytes > limits.max_output_bytes) std::abort();
    }
    // The second time as the server does it.
    if (!invar::prepare_messages(input.messages).ok()) return 0;
  }
  return 0;
}
