#include "base/result.h"

#include <cstdarg>
#include <cstdio>

namespace invar {
namespace {

std::string vformat(const char* fmt, va_list args) {
  va_list measure;
  va_copy(measure, args);
  const int length = std::vsnprintf(nullptr, 0, fmt, measure);
  va_end(measure);
  std::string text(length > 0 ? static_cast<size_t>(length) : 0, '\0');
  std::vsnprintf(text.data(), text.size() + 1, fmt, args);
  return text;
}

}  // namespace

std::string format(const char* fmt, ...) {
  va_list args;
  va_start(args, fmt);
  std::string text = vformat(fmt, args);
  va_end(args);
  return text;
}

#define INVAR_DEFINE_ERROR_MAKER(name, error_code)          \
  Error name(const char* fmt, ...) {                        \
    va_list args;                                           \
    va_start(args, fmt);                                    \
    Error error{ErrorCode::error_code, vformat(fmt, args)}; \
    va_end(args);                                           \
    return error;                                           \
  }

INVAR_DEFINE_ERROR_MAKER(invalid_argument, kInvalidArgument)
INVAR_DEFINE_ERROR_MAKER(not_found, kNotFound)
INVAR_DEFINE_ERROR_MAKER(unsupported, kUnsupported)
INVAR_DEFINE_ERROR_MAKER(corrupt, kCorrupt)
INVAR_DEFINE_ERROR_MAKER(io_error, kIo)
INVAR_DEFINE_ERROR_MAKER(resource_exhausted, kResourceExhausted)
INVAR_DEFINE_ERROR_MAKER(cancelled, kCancelled)
INVAR_DEFINE_ERROR_MAKER(unavailable, kUnavailable)

#undef INVAR_DEFINE_ERROR_MAKER

Error with_context(const std::string& where, Error error) {
  error.message = where + ": " + error.message;
  return error;
}

}  // namespace invar
