// A schema and bytes after it: no crash, limits kept, a mask for every place; and whatever reaches
// an end is JSON. The schema ends at the first zero byte; what follows chooses tokens.
#include <cstdlib>

#include "base/json.h"
#include "constraint/compile.h"
#include "constraint/constraint.h"

namespace {

std::shared_ptr<const invar::TokenTrie> trie() {
  static const auto made = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte)
      tokens.push_back(std::string(1, static_cast<char>(byte)));
    tokens.push_back("");
    for (const char* text : {"{\"", "\":", "\",\"", "\"}", "],[", "[[", "}}", "12", "\n  ",
                             "\xC3\xA9", "\xE4\xB8", "true", "null", "<tool_call>\n"})
      tokens.push_back(text);
    return invar::TokenTrie::make(std::move(tokens), std::vector<int32_t>{256});
  }();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view schema = input.substr(0, input.find('\0'));
  const std::string_view choices = input.substr(std::min(schema.size() + 1, size));
  invar::ConstraintSpec spec;
  const bool is_tool = !choices.empty() && choices[0] == 'T';
  if (is_tool) {
    spec.tool_use = invar::ConstraintSpec::ToolUse::kRequired;
    spec.tool_syntax.kind =
        choices.size() % 2 ? invar::ToolSyntax::Kind::kXml : invar::ToolSyntax::Kind::kJson;
    spec.tools = {{"f", std::string(schema), false}};
  } else {
    spec.json_schema = std::string(schema);
  }
  const auto compiled = invar::compile_constraint(spec, trie());
  if (!compiled.ok()) {
    if (compiled.error().message.empty()) std::abort();
    return 0;
  }
  invar::Constraint constraint(*compiled);
  std::vector<uint64_t> bits(constraint.num_mask_words());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(choices.size(), 64); ++i) {
    if (!constraint.mask(bits).ok()) return 0;  // too much work for one mask
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < (*compiled)->trie().vocab_size(); ++id)
      if (bits[static_cast<size_t>(id) / 64] >> (id % 64) & 1) allowed.push_back(id);
    if (allowed.empty()) std::abort();
    const int32_t id = allowed[static_cast<uint8_t>(choices[i]) % allowed.size()];
    if (!constraint.accept(id)) std::abort();
    if (id == 256) break;
    text += (*compiled)->trie().token_bytes(id);
  }
  if (constraint.is_complete() && !is_tool) {
    const auto value = invar::Json::parse(text);
    // Extra keys may repeat.
    if (!value.ok() && value.error().message.find("twice") == std::string::npos) std::abort();
  }
  return 0;
}
