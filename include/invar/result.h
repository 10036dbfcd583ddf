// Result<T>: what a function returns that can fail because the world is wrong (a file, a request,
// memory). Part of the public API; mistakes of our own go through INVAR_CHECK (base/check.h).
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace invar {

enum class ErrorCode {
  kInvalidArgument,    // a flag, field or parameter that cannot work
  kNotFound,           // no such file, model, tensor
  kUnsupported,        // understood, but not something this build does
  kCorrupt,            // a file that breaks its own format
  kIo,                 // the operating system refused
  kResourceExhausted,  // does not fit; the message says what would
  kCancelled,          // somebody asked for the stop
  kUnavailable,        // not now (shutting down, queue full)
};

// `message` is one line for people: what was found, what was expected, where, and the remedy.
struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Only when ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Only when not ok().
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const { return error_; }

 private:
  Error error_;
  bool ok_ = true;
};

}  // namespace invar
