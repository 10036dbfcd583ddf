#include "server/tool_calls.h"

#include <algorithm>

#include "server/response_format.h"

namespace invar::server {
namespace {

constexpr size_t kMaxTools = 128, kMaxToolBytes = 256 << 10, kMaxNameBytes = 128;
constexpr const char* kProbeName = "invar_probe_tool";

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

// Rendered as a call that the model made, a tool call shows how this model writes them.
std::optional<ToolSyntax> syntax_of_call(std::string_view rendered) {
  const bool is_tagged = rendered.find("<tool_call>") != std::string_view::npos;
  ToolSyntax syntax;
  if (rendered.find(format("<function=%s>", kProbeName)) != std::string_view::npos) {
    syntax.kind = ToolSyntax::Kind::kXml;
    return is_tagged ? std::optional(syntax) : std::nullopt;
  }
  const size_t call = rendered.find(format("{\"name\": \"%s\"", kProbeName));
  if (call == std::string_view::npos) return std::nullopt;
  if (is_tagged) return syntax;
  if (rendered[call - 1] != '\n' && rendered[call - 1] != '>') return std::nullopt;
  syntax.begin = syntax.end = syntax.separator = syntax.trigger = "";
  if (rendered.find("\"parameters\": {", call) != std::string_view::npos)
    syntax.arguments_key = "parameters";
  syntax.several = false;
  return syntax;
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
  // Without the tools, so that only the call itself has the name.
  request.tools_json.clear();
  request.messages_json = format(
      R"([{"role":"user","content":"x"},{"role":"assistant","content":"","tool_calls":[{"id":"i",)"
      R"("type":"function","function":{"name":"%s","arguments":"{\"p\":\"v\"}"}}]}])",
      kProbeName);
  request.add_generation_prompt = false;
  if (const Result<std::string> call = engine.apply_chat_template(request))
    support.syntax = syntax_of_call(*call);
  if (support.syntax && support.syntax->trigger.empty()) {
    constexpr const char* kMarker = "<|python_tag|>";
    const Result<std::vector<int32_t>> ids = engine.tokenize(kMarker, true, false);
    if (ids && ids->size() == 1) support.syntax->optional_marker = kMarker;
  }
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
  out.syntax = spec.tool_syntax = *support.syntax;
  out.tools = spec.tools;
  spec.tool_use = ConstraintSpec::ToolUse::kAuto;
  if (choice != nullptr) apply_choice(fields, *choice, spec);
  if (spec.tool_use == ConstraintSpec::ToolUse::kRequired && has_format(spec)) {
    spec.json_schema.clear();
    spec.any_json_object = false;
    spec.choices.clear();
    warn(warnings, {"format_ignored", "response_format", "a tool call was asked for"});
  }
  // Where nothing tells a call from an answer that begins with a brace, only strict tools make it
  // one before it is whole.
  const bool is_strict = std::any_of(spec.tools.begin(), spec.tools.end(),
                                     [](const ToolFunction& tool) { return tool.strict; });
  if (spec.tool_use == ConstraintSpec::ToolUse::kAuto && spec.tool_syntax.trigger.empty() &&
      !is_strict)
    spec.tool_use = ConstraintSpec::ToolUse::kNone;
  return out;
}

}  // namespace invar::server
