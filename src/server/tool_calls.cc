#include "server/tool_calls.h"

#include <algorithm>

#include "server/response_format.h"

namespace invar::server {
namespace {

constexpr size_t kMaxTools = 128, kMaxToolBytes = 256 << 10, kMaxNameBytes = 128;
constexpr const char* kProbeName = "invar_probe_tool";
constexpr std::string_view kSpace = " \t\r\n";

bool is_tool_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.';
         });
}

void read_tool(Fields& fields, const Json& tool, size_t index, std::vector<ToolFunction>& out) {
  const std::string path = format("tools[%zu]", index);
  const auto fail = [&](const char* code, const std::string& at, const std::string& what) {
    fields.fail(api_error(code, at + " " + what, at));
  };
  const Json* type = tool.find("type");
  if (type == nullptr || !type->is_string())
    return fail("missing_field", path + ".type", "field required");
  if (type->as_string() != "function")
    return fail("invalid_value", path + ".type",
                "must be \"function\", got " + quote_value(type->as_string()));
  const Json* function = tool.find("function");
  if (function == nullptr || !function->is_object())
    return fail("missing_field", path + ".function", "field required, an object");
  const Json* name = function->find("name");
  if (name == nullptr || !name->is_string() || !is_tool_name(name->as_string()))
    return fail("invalid_value", path + ".function.name",
                "must be 1 to 128 letters, digits, '_', '-' or '.'");
  ToolFunction result;
  result.name = name->as_string();
  for (const ToolFunction& other : out)
    if (other.name == result.name)
      return fail("invalid_value", path + ".function.name",
                  quote_value(result.name) + " is there twice");
  const Json* parameters = function->find("parameters");
  if (parameters != nullptr && !parameters->is_null()) {
    if (!parameters->is_object())
      return fail("invalid_type", path + ".function.parameters", "must be an object, a schema");
    if (!parameters->members().empty()) result.parameters_json = parameters->dump();
  }
  const Json* strict = function->find("strict");
  result.strict = strict != nullptr && strict->is_bool() && strict->as_bool();
  out.push_back(std::move(result));
}

// {"type":"function","function":{"name":F}} -> F
std::optional<std::string> named_function(const Json& json) {
  const Json* function = json.find("function");
  const Json* name = function == nullptr ? nullptr : function->find("name");
  if (name == nullptr || !name->is_string()) return std::nullopt;
  return name->as_string();
}

// Leaves in spec.tools those that the choice allows, and sets how they may be used.
void apply_choice(Fields& fields, const Json& choice, ConstraintSpec& spec) {
  constexpr const char* kName = "tool_choice";
  const auto keep = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names)
      if (std::none_of(spec.tools.begin(), spec.tools.end(),
                       [&](const ToolFunction& tool) { return tool.name == name; }))
        return fields.fail("invalid_value", kName,
                           "names " + quote_value(name) + ", which is not among the tools");
    std::erase_if(spec.tools, [&](const ToolFunction& tool) {
      return std::find(names.begin(), names.end(), tool.name) == names.end();
    });
  };
  const auto mode = [&](const std::string& word) {
    if (word == "auto")
      spec.tool_use = ConstraintSpec::ToolUse::kAuto;
    else if (word == "required")
      spec.tool_use = ConstraintSpec::ToolUse::kRequired;
    else
      fields.fail("invalid_value", kName,
                  "must be none, auto, required, a function or "
                  "allowed_tools, got " +
                      quote_value(word));
  };
  if (choice.is_string()) return mode(choice.as_string());
  const Json* type = choice.find("type");
  if (type == nullptr || !type->is_string())
    return fields.fail("invalid_type", kName, "must be a string or an object with a type");
  if (type->as_string() == "function") {
    const std::optional<std::string> name = named_function(choice);
    if (!name) return fields.fail("missing_field", "tool_choice.function.name", "field required");
    spec.tool_use = ConstraintSpec::ToolUse::kRequired;
    spec.parallel_tool_calls = false;
    return keep({*name});
  }
  const Json* allowed = choice.find("allowed_tools");
  if (type->as_string() != "allowed_tools" || allowed == nullptr || !allowed->is_object())
    return fields.fail("invalid_value", kName,
                       "has the unknown type " + quote_value(type->as_string()));
  const Json* word = allowed->find("mode");
  mode(word != nullptr && word->is_string() ? word->as_string() : "auto");
  std::vector<std::string> names;
  if (const Json* tools = allowed->find("tools"); tools != nullptr && tools->is_array())
    for (const Json& tool : tools->items())
      if (const auto name = named_function(tool)) names.push_back(*name);
  if (names.empty())
    return fields.fail("missing_field", "tool_choice.allowed_tools.tools", "must name functions");
  keep(names);
}

// How many bytes at the end of `text` may be the beginning of `marker`.
size_t possible_begin(std::string_view text, std::string_view marker) {
  for (size_t length = std::min(text.size(), marker.size() - 1); length > 0; --length)
    if (text.substr(text.size() - length) == marker.substr(0, length)) return length;
  return 0;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace

ToolSupport probe_tool_support(const Engine& engine) {
  GenerationRequest request;
  request.messages_json = R"([{"role":"user","content":"x"}])";
  request.tools_json =
      format(R"([{"type":"function","function":{"name":"%s","description":"d","parameters":)"
             R"({"type":"object","properties":{"p":{"type":"string"}}}}}])",
             kProbeName);
  ToolSupport support;
  const Result<std::string> prompt = engine.apply_chat_template(request);
  if (!prompt || prompt->find(kProbeName) == std::string::npos) return support;
  support.renders_tools = true;
  const bool is_tagged = prompt->find("<tool_call>") != std::string::npos;
  const bool is_xml = prompt->find("<function=") != std::string::npos;
  if (is_tagged && !is_xml) support.syntax = ToolSyntax{};
  return support;
}

ToolFields read_tools(Fields& fields, const ToolSupport& support, ConstraintSpec& spec,
                      std::vector<Warning>& warnings) {
  ToolFields out;
  const Json* choice = fields.find("tool_choice");
  const Json* tools = fields.array("tools");
  spec.parallel_tool_calls = fields.boolean("parallel_tool_calls", true);
  if (fields.error()) return out;
  const bool is_none = choice != nullptr && choice->is_string() && choice->as_string() == "none";
  if (tools == nullptr || tools->items().empty()) {
    const bool is_auto = choice != nullptr && choice->is_string() && choice->as_string() == "auto";
    if (choice != nullptr && !is_none && !is_auto)
      fields.fail("invalid_value", "tool_choice", "asks for a call, and there are no tools");
    return out;
  }
  if (tools->items().size() > kMaxTools)
    fields.fail("out_of_range", "tools",
                format("may hold at most %zu, got %zu", kMaxTools, tools->items().size()));
  out.tools_json = tools->dump();
  if (out.tools_json.size() > kMaxToolBytes)
    fields.fail("out_of_range", "tools", "may have at most 256 KiB together");
  for (size_t i = 0; i < tools->items().size() && !fields.error(); ++i)
    read_tool(fields, tools->items()[i], i, spec.tools);
  if (is_none) {
    out.tools_json.clear();
    spec.tools.clear();
    return out;
  }
  if (!support.renders_tools || !support.syntax) {
    fields.fail("unsupported_parameter", "tools",
                support.renders_tools
                    ? "is not supported for this model: its call syntax cannot be read yet"
                    : "is not supported by this model: its chat template shows no tools");
    return out;
  }
  spec.tool_syntax = *support.syntax;
  spec.tool_use = ConstraintSpec::ToolUse::kAuto;
  if (choice != nullptr) apply_choice(fields, *choice, spec);
  if (spec.tool_use == ConstraintSpec::ToolUse::kRequired && has_format(spec)) {
    spec.json_schema.clear();
    spec.any_json_object = false;
    spec.choices.clear();
    warnings.push_back({"format_ignored", "response_format", "a tool call was asked for"});
  }
  out.parse = true;
  return out;
}

// ---- The filter

using Kind = ReplyPart::Kind;

std::vector<ReplyPart> ToolCallFilter::push(std::string_view text, size_t begin) {
  if (held_.empty()) held_begin_ = begin;
  held_ += text;
  Parts parts;
  while (step(parts)) {
  }
  return parts;
}

void ToolCallFilter::add(Parts& parts, Kind kind, std::string text, size_t begin) {
  if (text.empty() && kind != Kind::kCallBegin) return;
  if (kind == Kind::kArguments && !parts.empty() && parts.back().kind == kind)
    parts.back().text += text;
  else
    parts.push_back({kind, std::move(text), begin});
}

void ToolCallFilter::drop(size_t num_bytes) {
  held_.erase(0, num_bytes);
  held_begin_ += num_bytes;
}

// Takes what can be decided from held_. False: more text is needed.
bool ToolCallFilter::step(Parts& parts) {
  switch (state_) {
    case State::kContent: {
      const size_t begin = held_.find(syntax_.trigger);
      if (begin == std::string::npos) {
        // White space before a call, and what may become its tag, waits.
        size_t length = held_.size() - possible_begin(held_, syntax_.trigger);
        while (length > 0 && kSpace.find(held_[length - 1]) != std::string_view::npos) --length;
        add(parts, Kind::kContent, held_.substr(0, length), held_begin_);
        drop(length);
        return false;
      }
      std::string before = held_.substr(0, begin);
      before.resize(before.find_last_not_of(kSpace) + 1);
      add(parts, Kind::kContent, std::move(before), held_begin_);
      call_text_ = syntax_.trigger;
      call_begin_ = held_begin_ + begin;
      drop(begin + syntax_.trigger.size());
      state_ = State::kHead;
      return true;
    }
    case State::kHead: {  // { "name": "f", "arguments": up to the value
      size_t at = 0;
      const auto skip = [&] { at = std::min(held_.find_first_not_of(kSpace, at), held_.size()); };
      const auto literal = [&](std::string_view word) {  // 1: there, 0: not yet, -1: something else
        skip();
        const std::string_view rest = std::string_view(held_).substr(at, word.size());
        if (rest == word) return at += word.size(), 1;
        return word.starts_with(rest) ? 0 : -1;
      };
      std::string name;
      const std::string arguments = "\"" + syntax_.arguments_key + "\"";
      for (const std::string_view word :
           {std::string_view("{"), std::string_view("\"name\""), std::string_view(":"),
            std::string_view("\""), std::string_view(","), std::string_view(arguments),
            std::string_view(":")}) {
        const int found = literal(word);
        if (found == 0) return false;
        if (found < 0) return give_up(parts), true;
        if (word == "\"") {
          const size_t end = held_.find('"', at);
          if (end == std::string::npos) return false;
          name = held_.substr(at, end - at);
          at = end + 1;
        }
      }
      skip();
      if (at == held_.size()) return false;
      if (held_[at] != '{') return give_up(parts), true;
      call_text_ += held_.substr(0, at);
      drop(at);
      ++num_calls_;
      add(parts, Kind::kCallBegin, std::move(name));
      depth_ = 0;
      in_string_ = escaped_ = false;
      state_ = State::kArguments;
      return true;
    }
    case State::kArguments: {
      for (size_t i = 0; i < held_.size(); ++i) {
        const char c = held_[i];
        if (in_string_) {
          if (escaped_)
            escaped_ = false;
          else if (c == '\\')
            escaped_ = true;
          else if (c == '"')
            in_string_ = false;
          continue;
        }
        if (c == '"') in_string_ = true;
        if (c == '{' || c == '[') ++depth_;
        if ((c == '}' || c == ']') && --depth_ == 0) {
          add(parts, Kind::kArguments, held_.substr(0, i + 1));
          drop(i + 1);
          state_ = State::kTail;
          return true;
        }
      }
      add(parts, Kind::kArguments, held_);
      drop(held_.size());
      return false;
    }
    case State::kTail: {  // the call's own brace and the end tag
      const std::string_view end_tag = trimmed(syntax_.end);
      const size_t end = held_.find(end_tag);
      if (end == std::string::npos) return false;
      drop(end + end_tag.size());
      state_ = State::kContent;
      return true;
    }
  }
  return false;
}

// It began like a call and is none: it is content.
void ToolCallFilter::give_up(Parts& parts) {
  add(parts, Kind::kContent, std::move(call_text_), call_begin_);
  call_text_.clear();
  state_ = State::kContent;
}

std::vector<ReplyPart> ToolCallFilter::finish() {
  Parts parts;
  if (state_ == State::kHead) {
    add(parts, Kind::kContent, call_text_ + held_, call_begin_);
  } else if (state_ == State::kContent) {
    // Text after the last call counts only when it is more than white space.
    const bool is_space = held_.find_first_not_of(kSpace) == std::string::npos;
    if (!(is_space && num_calls_ > 0)) add(parts, Kind::kContent, held_, held_begin_);
  }
  drop(held_.size());
  return parts;
}

}  // namespace invar::server
