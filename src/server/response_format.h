// response_format and its relatives (specs/api.md section 7) as a ConstraintSpec.
#pragma once

#include "invar/invar.h"
#include "server/generation_fields.h"

namespace invar::server {

// Several forms at once, and forms that are not built, are errors in `fields`.
void read_response_format(Fields& fields, ConstraintSpec& spec);

// Whether `spec` restricts the reply itself.
bool has_format(const ConstraintSpec& spec);

// Compiles `spec` into generation.request. The format is to blame before the tools: those relax
// what cannot be enforced unless they are strict.
std::optional<ApiError> add_constraint(const Engine& engine, const ConstraintSpec& spec,
                                       GenerationFields& generation);

}  // namespace invar::server
