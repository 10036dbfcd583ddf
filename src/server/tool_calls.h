// Tool calls of a request: how this model's template writes them and which of them are allowed
// (specs/api.md section 6). Finding them in a reply is tool_call_filter.h's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "invar/invar.h"
#include "server/fields.h"

namespace invar::server {

// Found by rendering a conversation with a tool, once a model.
struct ToolSupport {
  bool renders_tools = false;        // the template shows tools to the model
  std::optional<ToolSyntax> syntax;  // nothing: one that this server cannot read
};
ToolSupport probe_tool_support(const Engine& engine);

struct ToolFields {
  std::string tools_json;                 // for the template; "" renders none
  std::optional<ToolSyntax> syntax = {};  // of the calls to look for in the reply
  std::vector<ToolFunction> tools = {};   // that the model was shown
};

// Reads tools, tool_choice and parallel_tool_calls, and adds to `spec` what may be called.
ToolFields read_tools(Fields& fields, const ToolSupport& support, ConstraintSpec& spec,
                      std::vector<Warning>& warnings);

}  // namespace invar::server
