// Template source -> syntax tree. Everything that can be known without data is checked here:
// syntax, filters, tests, statements, nesting.
#pragma once

#include "tokenizer/jinja_ast.h"

namespace invar::jinja {

Result<Template> parse_template(std::string_view source);

// Tables of jinja_filters.cc and jinja_tests.cc; null: no such name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);

}  // namespace invar::jinja
