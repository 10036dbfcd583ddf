#include "server/responses_tools.h"

#include <algorithm>

namespace invar::server {
namespace {

bool is_hosted(std::string_view type) {
  static constexpr std::string_view kTypes[] = {
      "file_search", "code_interpreter", "image_generation",         "mcp", "local_shell", "shell",
      "apply_patch", "tool_search",      "programmatic_tool_calling"};
  return type.starts_with("web_search") || type.starts_with("computer") ||
         std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

std::string_view text_of(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  return value != nullptr && value->is_string() ? std::string_view(value->as_string())
                                                : std::string_view();
}

// One free text is one string argument.
Json custom_parameters() {
  Json input = Json::object();
  input.set("type", "string");
  Json properties = Json::object();
  properties.set("input", std::move(input));
  Json required = Json::array();
  required.push_back("input");
  Json schema = Json::object();
  schema.set("type", "object");
  schema.set("properties", std::move(properties));
  schema.set("required", std::move(required));
  schema.set("additionalProperties", false);
  return schema;
}

class Reader {
 public:
  Reader(Fields& fields, bool strict, ChatBody& chat, std::vector<Warning>& warnings)
      : fields_(fields), strict_(strict), chat_(chat), warnings_(warnings) {}

  ResponsesTools read() {
    if (const Json* tools = fields_.array("tools"))
      for (size_t i = 0; i < tools->items().size() && !fields_.error(); ++i)
        read_tool(tools->items()[i], format("tools[%zu]", i), "");
    if (const Json* choice = fields_.find("tool_choice")) read_choice(*choice);
    return std::move(out_);
  }

 private:
  void fail(std::string_view code, const std::string& path, const std::string& what) {
    fields_.fail(api_error(code, path + " " + what, path));
  }

  void read_tool(const Json& tool, const std::string& path, std::string_view name_space) {
    const std::string_view type = text_of(tool, "type");
    if (type.empty()) return fail("missing_field", path + ".type", "field required");
    if (type == "namespace" && name_space.empty()) return read_namespace(tool, path);
    if (is_hosted(type)) return drop(type, path);
    if (type != "function" && type != "custom")
      return fail("invalid_value", path + ".type",
                  "must be function, custom or namespace, got " + quote_value(type));
    const std::string_view name = text_of(tool, "name");
    if (name.empty()) return fail("missing_field", path + ".name", "field required, a string");

    const std::string rendered = rendered_tool_name(name_space, name);
    Json function = Json::object();
    function.set("name", rendered);
    if (const std::string_view text = text_of(tool, "description"); !text.empty())
      function.set("description", text);
    if (type == "custom") {
      function.set("parameters", custom_parameters());
      const Json* grammar = tool.find("format");
      if (grammar != nullptr && text_of(*grammar, "type") == "grammar")
        warn(warnings_, {"grammar_unenforced", path + ".format",
                         "the grammar of " + quote_value(name) + " is not enforced"});
    } else {
      if (const Json* schema = tool.find("parameters"); schema != nullptr && !schema->is_null())
        function.set("parameters", *schema);
      const Json* strict = tool.find("strict");
      if (strict != nullptr && strict->is_bool() && strict->as_bool()) function.set("strict", true);
    }
    chat_.add_tool(std::move(function), path, "parameters");
    const bool is_bare = name_space.empty() || rendered == name;
    out_.tools[rendered] = {std::string(name), is_bare ? "" : std::string(name_space),
                            type == "custom"};
    if (name_space.empty()) out_.tools_echo.push_back(tool);
  }

  void read_namespace(const Json& tool, const std::string& path) {
    const std::string_view name = text_of(tool, "name");
    if (name.empty()) return fail("missing_field", path + ".name", "field required, a string");
    const Json* inner = tool.find("tools");
    if (inner == nullptr || !inner->is_array())
      return fail("missing_field", path + ".tools", "field required, an array");
    for (size_t i = 0; i < inner->items().size() && !fields_.error(); ++i)
      read_tool(inner->items()[i], path + format(".tools[%zu]", i), name);
    out_.tools_echo.push_back(tool);
  }

  void drop(std::string_view type, const std::string& path) {
    if (strict_)
      return fail("unsupported_parameter", path + ".type",
                  "is " + quote_value(type) + ", a hosted tool that this server does not have");
    warn(warnings_, {"tool_dropped", path, quote_value(type) + " is not available here"});
  }

  // {"type": "function" | "custom", "name", "namespace"?} as chat names a function.
  std::optional<Json> function_reference(const Json& choice, const std::string& path) {
    const std::string_view type = text_of(choice, "type");
    if (is_hosted(type)) {
      fail("invalid_value", path,
           "names " + quote_value(type) + ", a tool that this server does not have");
      return std::nullopt;
    }
    const std::string_view name = text_of(choice, "name");
    if ((type != "function" && type != "custom") || name.empty()) {
      fail("invalid_value", path, "must have the type function or custom, and a name");
      return std::nullopt;
    }
    Json function = Json::object();
    function.set("name", rendered_tool_name(text_of(choice, "namespace"), name));
    Json json = Json::object();
    json.set("type", "function");
    json.set("function", std::move(function));
    return json;
  }

  void read_choice(const Json& choice) {
    constexpr const char* kName = "tool_choice";
    out_.choice_echo = choice;
    chat_.rename("tool_choice.function", kName);
    chat_.rename("tool_choice.allowed_tools", kName);
    if (!choice.is_object()) return chat_.set(kName, choice, kName);
    if (text_of(choice, "type") != "allowed_tools") {
      if (auto reference = function_reference(choice, kName))
        chat_.set(kName, *std::move(reference), kName);
      return;
    }
    Json names = Json::array();
    if (const Json* list = choice.find("tools"); list != nullptr && list->is_array()) {
      for (size_t i = 0; i < list->items().size(); ++i) {
        auto reference = function_reference(list->items()[i], format("tool_choice.tools[%zu]", i));
        if (!reference) return;
        names.push_back(*std::move(reference));
      }
    }
    Json allowed = Json::object();
    if (const Json* mode = choice.find("mode")) allowed.set("mode", *mode);
    allowed.set("tools", std::move(names));
    Json json = Json::object();
    json.set("type", "allowed_tools");
    json.set("allowed_tools", std::move(allowed));
    chat_.set(kName, std::move(json), kName);
  }

  Fields& fields_;
  const bool strict_;
  ChatBody& chat_;
  std::vector<Warning>& warnings_;
  ResponsesTools out_;
};

}  // namespace

std::string rendered_tool_name(std::string_view name_space, std::string_view name) {
  if (name_space.empty() || name_space == "functions") return std::string(name);
  return std::string(name_space) + "__" + std::string(name);
}

ResponsesTools read_responses_tools(Fields& fields, bool strict, ChatBody& chat,
                                    std::vector<Warning>& warnings) {
  return Reader(fields, strict, chat, warnings).read();
}

}  // namespace invar::server
