// Schemas that must hold together (allOf, keywords beside $ref), and those that may not (oneOf).
// What can only be said by a new schema is refused.
#pragma once

#include <optional>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "constraint/schema.h"

namespace invar {

// Equal as JSON Schema says: members may stand in any order.
bool contains_value(const std::vector<Json>& values, const Json& value);

// The stricter of two bounds.
void tighten_low(std::optional<NumberBound>& bound, const NumberBound& other);
void tighten_high(std::optional<NumberBound>& bound, const NumberBound& other);

// What both demand, in `node`; false: nothing can satisfy both.
Result<bool> merge_nodes(SchemaNode& node, const SchemaNode& other);

// Whether the branches of a oneOf can be told apart: no value is both.
bool is_disjoint(const SchemaNode& a, const SchemaNode& b);

}  // namespace invar
