// The frame around values: reasoning, choices, free text up to a trigger, and tool calls.
#include "constraint/compile.h"

#include <algorithm>

#include "base/check.h"
#include "base/json.h"
#include "constraint/schema_compiler.h"

namespace invar {
namespace {

constexpr size_t kMaxChoices = 256;
constexpr size_t kMaxTools = 128;
constexpr size_t kMaxToolBytes = 256 << 10;
constexpr std::string_view kXmlClosing = "\n</parameter>\n";

// The largest string of a schema, for who has to make it smaller.
struct LargestText {
  std::string keyword, path;  // of the schema that has the keyword
  size_t num_bytes = 0;
};

void find_largest(const Json& json, const std::string& path, LargestText& largest) {
  if (json.is_array())
    for (size_t i = 0; i < json.items().size(); ++i)
      find_largest(json.items()[i], path + format("/%zu", i), largest);
  if (!json.is_object()) return;
  for (const auto& [key, value] : json.members()) {
    if (value.is_string() && value.as_string().size() > largest.num_bytes)
      largest = {key.substr(0, 64), path, value.as_string().size()};
    find_largest(value, path + "/" + pointer_token(key.substr(0, 64)), largest);
  }
}

class ConstraintCompiler {
 public:
  ConstraintCompiler(const ConstraintSpec& spec, const TokenTrie& trie)
      : spec_(spec), trie_(trie), schemas_(builder_) {}

  Result<Grammar> compile();
  std::vector<std::string> take_warnings() { return std::move(warnings_); }

 private:
  Result<void> check() const;
  Result<Json> parse_schema(const std::string& text, size_t max_bytes) const;
  StateId add_reasoning(StateId from);
  void add_search(StateId from, std::string_view text, StateId to, bool may_end);
  Result<void> add_reply(StateId from);
  Result<void> add_calls(StateId from, std::string_view begin);
  Result<void> add_call(const ToolFunction& tool, StateId from, StateId to);
  Result<void> add_xml_call(const SchemaReader& reader, const ToolFunction& tool, StateId from,
                            StateId to);
  Result<void> add_auto(StateId from);

  const ConstraintSpec& spec_;
  const TokenTrie& trie_;
  GrammarBuilder builder_;
  SchemaCompiler schemas_;
  StateId end_ = 0;  // the reply is complete and nothing may follow
  std::vector<std::string> warnings_;
};

Result<void> ConstraintCompiler::check() const {
  const int num_forms = (spec_.json_schema.empty() ? 0 : 1) + (spec_.any_json_object ? 1 : 0) +
                        (spec_.choices.empty() ? 0 : 1);
  const bool has_tools = spec_.tool_use != ConstraintSpec::ToolUse::kNone;
  if (num_forms > 1)
    return invalid_argument("a reply can have one of json_schema, any_json_object and choices");
  if (num_forms == 0 && !has_tools) return invalid_argument("the constraint says nothing");
  if (spec_.choices.size() > kMaxChoices)
    return invalid_argument("%zu choices, the limit is %zu", spec_.choices.size(), kMaxChoices);
  for (const std::string& choice : spec_.choices)
    if (choice.empty() || choice.size() > kMaxSchemaBytes)
      return invalid_argument("a choice must have between 1 and %zu bytes", kMaxSchemaBytes);
  if (!has_tools) return {};
  if (spec_.tools.empty())
    return invalid_argument("a tool call is asked for and there are no tools");
  if (spec_.tools.size() > kMaxTools)
    return invalid_argument("%zu tools, the limit is %zu", spec_.tools.size(), kMaxTools);
  size_t num_bytes = 0;
  for (const ToolFunction& tool : spec_.tools) {
    num_bytes += tool.name.size() + tool.parameters_json.size();
    const bool is_name = !tool.name.empty() && tool.name.size() <= 128 &&
                         std::all_of(tool.name.begin(), tool.name.end(), [](char c) {
                           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                  (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
                         });
    if (!is_name)
      return invalid_argument("the tool name %s is not 1 to 128 of A-Z a-z 0-9 _ . -",
                              json_quote(tool.name.substr(0, 140)).c_str());
  }
  if (num_bytes > kMaxToolBytes)
    return invalid_argument("tools have %zu bytes, the limit is %zu", num_bytes, kMaxToolBytes);
  return {};
}

Result<Json> ConstraintCompiler::parse_schema(const std::string& text, size_t max_bytes) const {
  JsonLimits limits;
  limits.max_depth = kMaxSchemaDepth;
  Result<Json> json = Json::parse(text, limits);
  if (text.size() > max_bytes) {
    LargestText largest;
    if (json) find_largest(*json, "#", largest);
    const std::string where = largest.num_bytes > max_bytes / 2
                                  ? format("; '%s' at %s alone has %zu", largest.keyword.c_str(),
                                           largest.path.c_str(), largest.num_bytes)
                                  : "";
    return resource_exhausted("schema too complex: it has %zu bytes, the limit is %zu%s",
                              text.size(), max_bytes, where.c_str());
  }
  if (!json) return with_context("the schema", json.error());
  return json;
}

// Free text until `text` has appeared.
void ConstraintCompiler::add_search(StateId from, std::string_view text, StateId to, bool may_end) {
  const std::vector<StateId> states = builder_.search(from, text, to);
  for (const StateId state : states) {
    builder_.free_text(state);
    if (may_end) builder_.accept(state);
  }
  // Where the text is a special token of the vocabulary it comes as that.
  if (const int32_t id = trie_.find_special(text); id >= 0)
    for (const StateId state : states) builder_.marker(state, id, to);
}

// Where the reply proper begins.
StateId ConstraintCompiler::add_reasoning(StateId from) {
  if (spec_.reasoning == ConstraintSpec::Reasoning::kNone) return from;
  const StateId inside = builder_.add_state(), closed = builder_.add_state();
  const StateId line = builder_.add_state(), reply = builder_.add_state();
  add_search(inside, spec_.reasoning_end, closed, false);
  builder_.empty(closed, reply);
  builder_.byte(closed, '\n', line);
  builder_.empty(line, reply);
  builder_.byte(line, '\n', reply);
  if (spec_.reasoning == ConstraintSpec::Reasoning::kOpen) {
    builder_.empty(from, inside);
    return reply;
  }
  builder_.empty(from, reply);
  builder_.literal(from, spec_.reasoning_begin, inside);
  if (const int32_t id = trie_.find_special(spec_.reasoning_begin); id >= 0)
    builder_.marker(from, id, inside);
  return reply;
}

Result<void> ConstraintCompiler::add_reply(StateId from) {
  for (const std::string& choice : spec_.choices) builder_.literal(from, choice, end_);
  Json document;
  if (spec_.any_json_object) {
    document = Json::object();
    document.set("type", "object");
  } else if (!spec_.json_schema.empty()) {
    INVAR_TRY(document, parse_schema(spec_.json_schema, kMaxSchemaBytes));
  } else {
    return {};
  }
  const SchemaReader& reader = schemas_.open(document, false);
  return schemas_.add_value(reader, reader.root(), from, end_);
}

Result<void> ConstraintCompiler::add_xml_call(const SchemaReader& reader, const ToolFunction& tool,
                                              StateId from, StateId to) {
  INVAR_TRY(const SchemaNode node, schemas_.object_node(reader, reader.root()));
  INVAR_TRY(const SchemaCompiler::Members members, schemas_.members_of(node));
  StateId at = builder_.add_state();
  builder_.literal(from, "<function=" + tool.name + ">\n", at);
  for (size_t i = 0; i < members.listed.size() && !builder_.is_full(); ++i) {
    const auto& [name, schema] = members.listed[i];
    const StateId value = builder_.add_state(), next = builder_.add_state();
    builder_.literal(at, "<parameter=" + name + ">\n", value);
    INVAR_TRY_VOID(schemas_.add_raw_value(reader, schema, value, kXmlClosing, next));
    if (!members.required[i]) builder_.empty(at, next);
    at = next;
  }
  if (members.extra && members.listed.empty()) {  // free members: names of letters, digits and _.-
    const StateId name = builder_.add_state(), more = builder_.add_state();
    const StateId value = builder_.add_state();
    builder_.literal(at, "<parameter=", name);
    for (const auto& [low, high] :
         {std::pair{'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'_', '_'}, {'-', '.'}}) {
      builder_.bytes(name, low, high, more);
      builder_.bytes(more, low, high, more);
    }
    builder_.literal(more, ">\n", value);
    INVAR_TRY_VOID(schemas_.add_raw_value(reader, *members.extra, value, kXmlClosing, at));
  }
  builder_.literal(at, "</function>", to);
  return {};
}

Result<void> ConstraintCompiler::add_call(const ToolFunction& tool, StateId from, StateId to) {
  Json document = Json::object();
  if (tool.parameters_json.empty()) {
    document.set("type", "object");
    document.set("additionalProperties", false);
  } else {
    Result<Json> parsed = parse_schema(tool.parameters_json, kMaxToolBytes);
    if (!parsed) return with_context("tool " + tool.name, parsed.error());
    document = *std::move(parsed);
  }
  const bool was_relaxed = schemas_.relaxation().has_value();
  const SchemaReader& reader = schemas_.open(document, !tool.strict);
  Result<void> added = spec_.tool_syntax.kind == ToolSyntax::Kind::kXml
                           ? add_xml_call(reader, tool, from, to)
                           : schemas_.add_call(reader, reader.root(), tool.name,
                                               spec_.tool_syntax.arguments_key, from, to);
  if (added) added = schemas_.finish();  // the bodies, so that what is relaxed is this tool's
  if (!added) return with_context("tool " + tool.name, added.error());
  if (schemas_.relaxation() && !was_relaxed)
    warnings_.push_back("tool " + tool.name + ": " + *schemas_.relaxation());
  schemas_.forget_relaxation();
  return {};
}

// Calls from `from` to the end of the reply; `begin` is what is left of the first call's opening.
Result<void> ConstraintCompiler::add_calls(StateId from, std::string_view begin) {
  const ToolSyntax& syntax = spec_.tool_syntax;
  const StateId call = builder_.add_state(), after = builder_.add_state();
  builder_.literal(from, begin, call);
  if (!syntax.optional_marker.empty()) {
    if (const int32_t id = trie_.find_special(syntax.optional_marker); id >= 0) {
      builder_.marker(from, id, call);
    } else {
      builder_.literal(from, syntax.optional_marker + std::string(begin), call);
    }
  }
  for (const ToolFunction& tool : spec_.tools) INVAR_TRY_VOID(add_call(tool, call, after));
  const StateId closed = builder_.add_state();
  builder_.literal(after, syntax.end, closed);
  builder_.empty(closed, end_);
  if (spec_.parallel_tool_calls && syntax.several)
    builder_.literal(closed, syntax.separator + syntax.begin, call);
  return {};
}

// Free text in which the trigger begins a call.
Result<void> ConstraintCompiler::add_auto(StateId from) {
  const ToolSyntax& syntax = spec_.tool_syntax;
  const bool has_form =
      !spec_.json_schema.empty() || spec_.any_json_object || !spec_.choices.empty();
  if (has_form) {  // a conforming text, or calls
    INVAR_TRY_VOID(add_reply(from));
    return add_calls(from, syntax.begin);
  }
  if (!syntax.trigger.empty()) {
    if (!syntax.begin.starts_with(syntax.trigger))
      return invalid_argument("the trigger of tool calls must begin their opening");
    const StateId triggered = builder_.add_state();
    add_search(from, syntax.trigger, triggered, true);
    return add_calls(triggered, std::string_view(syntax.begin).substr(syntax.trigger.size()));
  }
  // Bare JSON: what does not begin with '{' or the marker is text.
  const StateId text = builder_.add_state();
  builder_.free_text(text);
  builder_.accept(text);
  builder_.free_text(from);
  builder_.accept(from);
  builder_.bytes(from, 0, '{' - 1, text);
  builder_.bytes(from, '{' + 1, 255, text);
  builder_.bytes(text, 0, 255, text);
  return add_calls(from, syntax.begin);
}

Result<Grammar> ConstraintCompiler::compile() {
  INVAR_TRY_VOID(check());
  const RuleId root = builder_.add_rule(FrameKind::kRoot);
  end_ = builder_.add_state();
  builder_.accept(end_);
  const StateId reply = builder_.add_state();
  builder_.empty(add_reasoning(builder_.start(root)), reply);
  switch (spec_.tool_use) {
    case ConstraintSpec::ToolUse::kNone:
      INVAR_TRY_VOID(add_reply(reply));
      break;
    case ConstraintSpec::ToolUse::kAuto:
      INVAR_TRY_VOID(add_auto(reply));
      break;
    case ConstraintSpec::ToolUse::kRequired:
      INVAR_TRY_VOID(add_calls(reply, spec_.tool_syntax.begin));
      break;
  }
  INVAR_TRY_VOID(schemas_.finish());
  return builder_.finish(root, trie_.spellable());
}

}  // namespace

Result<std::shared_ptr<const CompiledConstraint>> compile_constraint(
    const ConstraintSpec& spec, std::shared_ptr<const TokenTrie> trie) {
  ConstraintCompiler compiler(spec, *trie);
  INVAR_TRY(Grammar grammar, compiler.compile());
  return std::shared_ptr<const CompiledConstraint>(std::make_shared<CompiledConstraint>(
      std::move(grammar), std::move(trie), compiler.take_warnings()));
}

}  // namespace invar
