#include "server/http/request_parser.h"

#include <algorithm>

#include "base/check.h"

namespace invar::server {
namespace {

constexpr size_t kMaxMethod = 32;
constexpr size_t kMaxChunkLine = 256;  // size and extensions
constexpr size_t kMaxChunkDigits = 8;
constexpr size_t kMaxTrailers = 8192;

ApiError malformed(std::string message) {
  return api_error("malformed_request", std::move(message));
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Whether a comma list has the word.
bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (equal_ignoring_case(trimmed(list.substr(0, comma)), word)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// Name, address or [address], with or without port. Only what is safe to compare and to quote.
bool is_host(std::string_view text) {
  return text.size() <= 255 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  std::string_view(".-_~:[]%").find(c) != std::string_view::npos;
         });
}

}  // namespace

// ---- Head
// ----------------------------------------------------------------------------------------

HeadParser::State HeadParser::fail(ApiError error) {
  error_ = std::move(error);
  return State::kError;
}

HeadParser::State HeadParser::parse(std::string_view bytes) {
  if (error_) return State::kError;
  if (head_size_ > 0) return State::kComplete;
  // One empty line before a request is left over from clients that end bodies with CR LF.
  if (begin_ == 0 && bytes.starts_with("\r\n")) begin_ = scanned_ = line_begin_ = 2;
  if (begin_ == 0 && bytes == "\r") return State::kIncomplete;
  for (; scanned_ < bytes.size(); ++scanned_) {
    const size_t line_size = scanned_ - line_begin_;
    if (headers_begin_ == 0 && line_size > limits_.max_request_line &&
        !(line_size == limits_.max_request_line + 1 && bytes[scanned_] == '\n'))
      return fail(api_error("uri_too_long", format("the request line is longer than %zu bytes",
                                                   limits_.max_request_line)));
    if (headers_begin_ != 0 && scanned_ - headers_begin_ >= limits_.max_header_bytes + 2)
      return fail(api_error("headers_too_large", format("the headers are larger than %zu bytes",
                                                        limits_.max_header_bytes)));
    if (bytes[scanned_] != '\n') continue;
    if (line_size == 0 || bytes[scanned_ - 1] != '\r')
      return fail(malformed("a line of the request head must end with CR LF"));
    if (headers_begin_ == 0) {
      headers_begin_ = scanned_ + 1;
    } else if (line_size == 1) {
      head_size_ = ++scanned_;
      return read_head(bytes);
    }
    line_begin_ = scanned_ + 1;
  }
  return State::kIncomplete;
}

HeadParser::State HeadParser::read_head(std::string_view bytes) {
  if (!read_request_line(bytes.substr(begin_, headers_begin_ - 2 - begin_))) return State::kError;
  std::string_view rest = bytes.substr(headers_begin_, head_size_ - 2 - headers_begin_);
  while (!rest.empty()) {
    const size_t end = rest.find("\r\n");
    if (head_.headers.size() == limits_.max_headers)
      return fail(api_error("headers_too_large",
                            format("there are more than %zu headers", limits_.max_headers)));
    if (!read_header_line(rest.substr(0, end))) return State::kError;
    rest.remove_prefix(end + 2);
  }
  return read_framing() ? State::kComplete : State::kError;
}

bool HeadParser::read_request_line(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || first > kMaxMethod ||
      !is_token(line.substr(0, first))) {
    fail(malformed("the request line is not METHOD TARGET HTTP/1.1"));
    return false;
  }
  const std::string_view version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    if (version.starts_with("HTTP/")) {
      fail(api_error("http_version", "this server speaks HTTP/1.1 and HTTP/1.0"));
    } else {
      fail(malformed("the request line is not METHOD TARGET HTTP/1.1"));
    }
    return false;
  }
  head_.http_1_0 = version == "HTTP/1.0";
  head_.method = line.substr(0, first);
  std::string_view target = line.substr(first + 1, last - first - 1);
  // Visible ASCII only; '#' never reaches a server.
  if (target.empty() || !std::all_of(target.begin(), target.end(),
                                     [](char c) { return c > 0x20 && c < 0x7F && c != '#'; })) {
    fail(malformed("the request target has characters that do not belong there"));
    return false;
  }
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() <= scheme.size() ||
        !equal_ignoring_case(target.substr(0, scheme.size()), scheme))
      continue;
    target.remove_prefix(scheme.size());
    const size_t slash = std::min(target.find_first_of("/?"), target.size());
    head_.host = target.substr(0, slash);
    target.remove_prefix(slash);
    if (head_.host.empty() || !is_host(head_.host)) {
      fail(malformed("the host of the request target is none"));
      return false;
    }
    break;
  }
  const size_t question = std::min(target.find('?'), target.size());
  head_.path = target.substr(0, question);
  if (question < target.size()) head_.query = target.substr(question + 1);
  if (head_.path.empty() && !head_.host.empty()) head_.path = "/";
  if (head_.path != "*" && !head_.path.starts_with('/')) {
    fail(malformed("the request target is no path"));
    return false;
  }
  return true;
}

bool HeadParser::read_header_line(std::string_view line) {
  if (line.front() == ' ' || line.front() == '\t') {
    fail(malformed("a header line that begins with a space (folding) is not accepted"));
    return false;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) {
    fail(malformed("a header line is not NAME: VALUE"));
    return false;
  }
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (!std::all_of(value.begin(), value.end(), [](char c) {
        const auto byte = static_cast<uint8_t>(c);
        return byte == '\t' || (byte >= 0x20 && byte != 0x7F);
      })) {
    fail(malformed("a header value has control characters"));
    return false;
  }
  head_.headers.push_back({std::string(line.substr(0, colon)), std::string(value)});
  return true;
}

// Where the body ends, and what else of the headers concerns the connection.
bool HeadParser::read_framing() {
  const auto refuse = [this](ApiError error) {
    fail(std::move(error));
    return false;
  };
  int num_lengths = 0, num_encodings = 0, num_hosts = 0;
  head_.keep_alive = !head_.http_1_0;
  const std::string target_host = std::move(head_.host);
  head_.host.clear();
  for (const Header& header : head_.headers) {
    if (equal_ignoring_case(header.name, "Content-Length")) {
      ++num_lengths;
      if (!is_digits(header.value)) return refuse(malformed("Content-Length is no number"));
      head_.content_length = UINT64_MAX;
      if (header.value.size() <= 18) head_.content_length = std::stoull(header.value);
    } else if (equal_ignoring_case(header.name, "Transfer-Encoding")) {
      ++num_encodings;
      if (!equal_ignoring_case(header.value, "chunked"))
        return refuse(malformed("the only Transfer-Encoding is chunked"));
      head_.chunked = true;
    } else if (equal_ignoring_case(header.name, "Host")) {
      ++num_hosts;
      if (!is_host(header.value)) return refuse(malformed("Host is no host name"));
      head_.host = header.value;
    } else if (equal_ignoring_case(header.name, "Connection")) {
      if (has_word(header.value, "close")) head_.keep_alive = false;
    } else if (equal_ignoring_case(header.name, "Expect")) {
      if (!equal_ignoring_case(header.value, "100-continue"))
        return refuse(api_error("expectation_failed", "the only Expect is 100-continue"));
      head_.expects_continue = !head_.http_1_0;
    }
  }
  if (num_lengths > 1) return refuse(malformed("there is more than one Content-Length"));
  if (num_encodings > 1) return refuse(malformed("there is more than one Transfer-Encoding"));
  if (num_lengths > 0 && num_encodings > 0)
    return refuse(malformed("Content-Length and Transfer-Encoding exclude each other"));
  if (num_encodings > 0 && head_.http_1_0)
    return refuse(malformed("HTTP/1.0 has no Transfer-Encoding"));
  if (num_hosts > 1) return refuse(malformed("there is more than one Host"));
  if (num_hosts == 0 && !head_.http_1_0) return refuse(malformed("HTTP/1.1 needs a Host header"));
  if (!target_host.empty()) head_.host = target_host;
  return true;
}

// ---- Body
// ----------------------------------------------------------------------------------------

BodyParser::BodyParser(const RequestHead& head, uint64_t max_bytes)
    : chunked_(head.chunked),
      max_bytes_(max_bytes),
      left_(head.chunked ? 0 : head.content_length) {}

BodyParser::State BodyParser::fail(ApiError error) {
  error_ = std::move(error);
  return State::kError;
}

BodyParser::State BodyParser::too_large() {
  return fail(api_error("body_too_large", format("the body is larger than %llu bytes",
                                                 static_cast<unsigned long long>(max_bytes_))));
}

BodyParser::State BodyParser::parse(std::string_view bytes, size_t& consumed) {
  consumed = 0;
  if (error_) return State::kError;
  return chunked_ ? parse_chunks(bytes, consumed) : parse_length(bytes, consumed);
}

BodyParser::State BodyParser::parse_length(std::string_view bytes, size_t& consumed) {
  if (left_ > 0 && body_.empty() && left_ > max_bytes_) return too_large();
  const size_t count = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
  // Room for all of it once a part has come: no copies while it grows, and nothing for a client
  // that only says that much will come.
  if (body_.size() >= 65536 && body_.capacity() < body_.size() + left_)
    body_.reserve(static_cast<size_t>(body_.size() + left_));
  body_ += bytes.substr(0, count);
  left_ -= count;
  consumed = count;
  return left_ == 0 ? State::kComplete : State::kIncomplete;
}

BodyParser::State BodyParser::parse_chunks(std::string_view bytes, size_t& consumed) {
  for (;;) {
    const std::string_view rest = bytes.substr(consumed);
    if (step_ == Step::kDone) return State::kComplete;
    if (step_ == Step::kData) {
      const size_t count = static_cast<size_t>(std::min<uint64_t>(left_, rest.size()));
      body_ += rest.substr(0, count);
      left_ -= count;
      consumed += count;
      if (left_ > 0) return State::kIncomplete;
      step_ = Step::kDataEnd;
      continue;
    }
    if (step_ == Step::kDataEnd) {
      if (!std::string_view("\r\n").starts_with(rest.substr(0, 2)))
        return fail(malformed("a chunk is longer than its size says"));
      if (rest.size() < 2) return State::kIncomplete;
      consumed += 2;
      step_ = Step::kSize;
      continue;
    }
    // A line: a chunk's size, or a trailer.
    const size_t line_feed = rest.find('\n');
    if (line_feed == std::string_view::npos) {
      if (rest.size() > (step_ == Step::kSize ? kMaxChunkLine : kMaxTrailers))
        return fail(malformed("a line of the chunked body is too long"));
      return State::kIncomplete;
    }
    if (line_feed == 0 || rest[line_feed - 1] != '\r')
      return fail(malformed("a line of the chunked body must end with CR LF"));
    const std::string_view line = rest.substr(0, line_feed - 1);
    if (line.find('\r') != std::string_view::npos)
      return fail(malformed("a line of the chunked body has a CR inside"));
    consumed += line_feed + 1;
    if (step_ == Step::kTrailer) {
      trailer_bytes_ += line.size() + 2;
      if (trailer_bytes_ > kMaxTrailers) return fail(malformed("the trailers are too large"));
      if (line.empty()) step_ = Step::kDone;  // trailers have no effect
      continue;
    }
    if (line.size() > kMaxChunkLine)
      return fail(malformed("a line of the chunked body is too long"));
    const std::string_view digits = line.substr(0, line.find_first_of("; \t"));
    // White space is allowed only before an extension, which has no effect.
    const std::string_view extension = trimmed(line.substr(digits.size()));
    uint64_t size = 0;
    bool is_size = !digits.empty() && digits.size() <= kMaxChunkDigits &&
                   (extension.empty() ? digits.size() == line.size() : extension.front() == ';');
    for (const char c : digits) {
      const char low = static_cast<char>(c | 0x20);
      const int digit = c >= '0' && c <= '9'       ? c - '0'
                        : low >= 'a' && low <= 'f' ? low - 'a' + 10
                                                   : -1;
      if (digit < 0) is_size = false;
      size = size * 16 + static_cast<uint64_t>(std::max(digit, 0));
    }
    if (!is_size) return fail(malformed("a chunk's size is no hexadecimal number"));
    if (size > max_bytes_ || body_.size() + size > max_bytes_) return too_large();
    left_ = size;
    step_ = size == 0 ? Step::kTrailer : Step::kData;
  }
}

}  // namespace invar::server
