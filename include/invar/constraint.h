// What a reply must be: a JSON value of a schema, one of some texts, or tool calls. Engine::compile
// turns a ConstraintSpec into masks for its vocabulary; a request carries the result.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace invar {

class CompiledConstraint;

// What of the tools' schemas is not enforced, one line each (see ToolFunction::strict).
const std::vector<std::string>& constraint_warnings(const CompiledConstraint& constraint);

// How the model's template writes tool calls.
struct ToolSyntax {
  enum class Kind {
    kJson,  // one object {"name": ..., "arguments": {...}}
    kXml,   // <function=NAME> with <parameter=KEY> blocks
  };
  Kind kind = Kind::kJson;
  // Around each call; empty: the bare object is the whole reply (Llama 3.x). In the XML form the
  // line feeds inside are fixed.
  std::string begin = "<tool_call>\n", end = "\n</tool_call>";
  std::string separator = "\n";             // between calls
  std::string arguments_key = "arguments";  // "parameters" for Llama 3.x
  // Starts a call in free text (tool choice auto). Empty: a reply that begins with '{' is a call.
  std::string trigger = "<tool_call>";
  // A token that may stand before a bare call ("<|python_tag|>"); empty: none.
  std::string optional_marker = {};
  bool several = true;  // may write more than one call
};

struct ToolFunction {
  std::string name;
  std::string parameters_json = {};  // an object schema; empty: no parameters
  bool strict = false;               // false: what cannot be enforced accepts any value, and warns
};

struct ConstraintSpec {
  // The reply itself: at most one of these.
  std::string json_schema = {};
  bool any_json_object = false;
  std::vector<std::string> choices = {};  // exactly one of 1 to 256 texts

  enum class ToolUse {
    kNone,
    kAuto,      // free text (or the reply described above), and calls
    kRequired,  // at least one call
  };
  ToolUse tool_use = ToolUse::kNone;
  std::vector<ToolFunction> tools = {};  // those that may be called
  ToolSyntax tool_syntax = {};
  bool parallel_tool_calls = true;

  // Reasoning comes first and is free.
  enum class Reasoning {
    kNone,
    kOptional,  // the reply may begin with reasoning_begin
    kOpen,      // the prompt ends inside: all up to reasoning_end is reasoning
  };
  Reasoning reasoning = Reasoning::kNone;
  std::string reasoning_begin = "<think>", reasoning_end = "</think>";
};

}  // namespace invar
