// HTTP/1.1 requests from bytes: the head, then the body. Strict where two readers could disagree
// about where a request ends (request smuggling): one framing header, no folded lines, CR LF only.
// No sockets and no clock, so that a fuzzer can drive it (tests/fuzz/fuzz_http_request.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_types.h"

namespace invar::server {

struct HeadLimits {
  size_t max_request_line = 8192;   // bytes without its CR LF
  size_t max_header_bytes = 32768;  // all header lines with their CR LF
  size_t max_headers = 100;
};

struct RequestHead {
  std::string method = {};
  std::string path = {};   // as sent, before '?'
  std::string query = {};  // after '?'
  bool http_1_0 = false;
  bool keep_alive = true;
  bool expects_continue = false;
  bool chunked = false;
  uint64_t content_length = 0;  // UINT64_MAX: more than we count
  std::string host = {};
  std::vector<Header> headers = {};

  bool has_body() const { return chunked || content_length > 0; }
};

// Finds the end of a head in bytes that grow, and reads it. One object a request.
class HeadParser {
 public:
  explicit HeadParser(const HeadLimits& limits = {}) : limits_(limits) {}

  enum class State { kIncomplete, kComplete, kError };
  // `bytes` is everything since the request began; it may only grow between calls.
  State parse(std::string_view bytes);

  bool started() const { return scanned_ > begin_; }  // a byte of the request line has come
  size_t head_size() const { return head_size_; }     // when kComplete
  const RequestHead& head() const { return head_; }
  RequestHead take() { return std::move(head_); }
  const ApiError& error() const { return *error_; }  // when kError

 private:
  State fail(ApiError error);
  State read_head(std::string_view bytes);
  bool read_request_line(std::string_view line);
  bool read_header_line(std::string_view line);
  bool read_framing();

  HeadLimits limits_;
  size_t begin_ = 0;          // where the request line begins (an empty line may precede it)
  size_t scanned_ = 0;        // bytes looked at
  size_t line_begin_ = 0;     // of the line that is being scanned
  size_t headers_begin_ = 0;  // 0: the request line is incomplete
  size_t head_size_ = 0;
  RequestHead head_;
  std::optional<ApiError> error_;
};

// Takes a body out of the bytes that follow a head.
class BodyParser {
 public:
  BodyParser(const RequestHead& head, uint64_t max_bytes);

  enum class State { kIncomplete, kComplete, kError };
  // Adds what it can to body(); `consumed` is how much of `bytes` was used. Pass the rest again
  // with more behind it.
  State parse(std::string_view bytes, size_t& consumed);

  std::string& body() { return body_; }
  const ApiError& error() const { return *error_; }  // when kError

 private:
  enum class Step { kSize, kData, kDataEnd, kTrailer, kDone };
  State fail(ApiError error);
  State too_large();
  State parse_length(std::string_view bytes, size_t& consumed);
  State parse_chunks(std::string_view bytes, size_t& consumed);

  bool chunked_;
  uint64_t max_bytes_;
  uint64_t left_ = 0;  // of the body, or of the chunk
  Step step_ = Step::kSize;
  size_t trailer_bytes_ = 0;
  std::string body_;
  std::optional<ApiError> error_;
};

}  // namespace invar::server
