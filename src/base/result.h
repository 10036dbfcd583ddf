// Helpers around the public Result<T>: printf-style error makers and the propagation macros.
#pragma once

#include "invar/result.h"

namespace invar {

#define INVAR_PRINTF(format_index, first_arg) \
  __attribute__((format(printf, format_index, first_arg)))

std::string format(const char* fmt, ...) INVAR_PRINTF(1, 2);

Error invalid_argument(const char* fmt, ...) INVAR_PRINTF(1, 2);
Error not_found(const char* fmt, ...) INVAR_PRINTF(1, 2);
Error unsupported(const char* fmt, ...) INVAR_PRINTF(1, 2);
Error corrupt(const char* fmt, ...) INVAR_PRINTF(1, 2);
Error io_error(const char* fmt, ...) INVAR_PRINTF(1, 2);
Error resource_exhausted(const char* fmt, ...) INVAR_PRINTF(1, 2);
Error cancelled(const char* fmt, ...) INVAR_PRINTF(1, 2);
Error unavailable(const char* fmt, ...) INVAR_PRINTF(1, 2);

// The same error with where it happened in front: "model.gguf: <message>".
Error with_context(const std::string& where, Error error);

#define INVAR_CONCAT_(a, b) a##b
#define INVAR_CONCAT(a, b) INVAR_CONCAT_(a, b)

// INVAR_TRY(auto file, open_file(path)); assigns the value, or returns the error to our caller.
#define INVAR_TRY(target, expression) \
  INVAR_TRY_(target, expression, INVAR_CONCAT(invar_try_, __COUNTER__))
#define INVAR_TRY_(target, expression, result) \
  auto result = (expression);                  \
  if (!result.ok()) return result.error();     \
  target = *std::move(result)

// The same for Result<void>.
#define INVAR_TRY_VOID(expression) \
  INVAR_TRY_VOID_(expression, INVAR_CONCAT(invar_try_, __COUNTER__))
#define INVAR_TRY_VOID_(expression, result) \
  if (auto result = (expression); !result.ok()) return result.error()

}  // namespace invar
