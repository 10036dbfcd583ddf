// ConstraintSpec -> CompiledConstraint: the whole reply as one grammar, reasoning and the markup of
// tool calls included. Takes up to about two seconds for the largest schemas that are allowed, so
// it does not belong on the engine's thread.
#pragma once

#include <memory>

#include "base/result.h"
#include "constraint/constraint.h"
#include "invar/constraint.h"

namespace invar {

// Errors: kInvalidArgument names keyword and place; kResourceExhausted: "schema too complex: ...".
Result<std::shared_ptr<const CompiledConstraint>> compile_constraint(
    const ConstraintSpec& spec, std::shared_ptr<const TokenTrie> trie);

}  // namespace invar
