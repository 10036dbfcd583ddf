// response_format and its relatives (specs/api.md section 7) as a ConstraintSpec.
#pragma once

#include "invar/constraint.h"
#include "server/fields.h"

namespace invar::server {

// Several forms at once, and forms that are not built, are errors in `fields`.
void read_response_format(Fields& fields, ConstraintSpec& spec);

// Whether `spec` restricts the reply itself.
bool has_format(const ConstraintSpec& spec);

// An error of Engine::compile_constraint() for the schema at `param`.
ApiError constraint_api_error(const Error& error, const std::string& param);

}  // namespace invar::server
