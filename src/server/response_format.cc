#include "server/response_format.h"

#include <algorithm>

namespace invar::server {
namespace {

constexpr size_t kMaxChoices = 256;

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

bool is_schema(const Json* json) {
  return json != nullptr && (json->is_object() || json->is_bool());
}

void read_choices(Fields& fields, std::string_view name, const Json& list, ConstraintSpec& spec) {
  if (!list.is_array() || list.items().empty() || list.items().size() > kMaxChoices)
    return fields.fail("invalid_value", name, "must be an array of 1 to 256 strings");
  for (const Json& entry : list.items()) {
    if (!entry.is_string()) return fields.fail("invalid_type", name, "must hold strings only");
    spec.choices.push_back(entry.as_string());
  }
}

// {"type": "text" | "json_object" | "json_schema", ...}, in OpenAI's form and in llama.cpp's.
void read_typed(Fields& fields, const Json& format, ConstraintSpec& spec) {
  const Json* type = format.find("type");
  if (type == nullptr || !type->is_string())
    return fields.fail("missing_field", "response_format.type", "field required");
  const std::string& kind = type->as_string();
  if (kind == "text") return;
  if (kind != "json_object" && kind != "json_schema")
    return fields.fail("invalid_value", "response_format.type",
                       "must be text, json_object or json_schema, got " + quote_value(kind));
  const Json* schema = format.find("schema");
  if (const Json* wrapped = format.find("json_schema"); wrapped != nullptr && !wrapped->is_null()) {
    const Json* name = wrapped->find("name");
    if (name != nullptr && (!name->is_string() || !is_name(name->as_string())))
      return fields.fail("invalid_value", "response_format.json_schema.name",
                         "must be 1 to 64 letters, digits, '_' or '-'");
    schema = wrapped->find("schema");
  }
  if (is_schema(schema)) {
    spec.json_schema = schema->dump();
  } else if (kind == "json_object" && schema == nullptr) {
    spec.any_json_object = true;
  } else {
    fields.fail("missing_field", "response_format.json_schema.schema",
                "must be an object, the schema of the reply");
  }
}

}  // namespace

void read_response_format(Fields& fields, ConstraintSpec& spec) {
  int num_forms = 0;
  if (const Json* format = fields.object("response_format")) {
    read_typed(fields, *format, spec);
    num_forms += has_format(spec) ? 1 : 0;
  }
  if (const Json* schema = fields.find("json_schema")) {
    ++num_forms;
    if (is_schema(schema))
      spec.json_schema = schema->dump();
    else
      fields.fail("invalid_type", "json_schema", "must be an object");
  }
  if (const Json* choices = fields.find("guided_choice")) {
    ++num_forms;
    read_choices(fields, "guided_choice", *choices, spec);
  }
  if (const Json* object = fields.object("structured_outputs")) {
    for (const auto& [key, value] : object->members()) {
      ++num_forms;
      if (key == "choice")
        read_choices(fields, "structured_outputs.choice", value, spec);
      else if (key == "json" && is_schema(&value))
        spec.json_schema = value.dump();
      else
        fields.fail("unsupported_parameter", "structured_outputs." + key, "is not supported");
    }
  }
  fields.not_built("structural_tag");
  if (num_forms > 1)
    fields.fail("invalid_value", "response_format",
                "and other forms of structured output cannot be combined");
}

bool has_format(const ConstraintSpec& spec) {
  return !spec.json_schema.empty() || spec.any_json_object || !spec.choices.empty();
}

std::optional<ApiError> add_constraint(const Engine& engine, const ConstraintSpec& spec,
                                       GenerationFields& generation) {
  Result<std::shared_ptr<const CompiledConstraint>> compiled = engine.compile_constraint(spec);
  if (compiled) {
    for (const std::string& warning : constraint_warnings(**compiled))
      warn(generation.warnings, {"tool_schema_relaxed", "tools", warning});
    generation.request.constraint = *std::move(compiled);
    return std::nullopt;
  }
  const Error& error = compiled.error();
  return api_error(
      error.code == ErrorCode::kResourceExhausted ? "schema_too_complex" : "unsupported_schema",
      error.message, has_format(spec) ? "response_format" : "tools");
}

}  // namespace invar::server
