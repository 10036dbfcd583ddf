#include "server/http/response_head.h"

#include <algorithm>
#include <ctime>

#include "base/result.h"

namespace invar::server {
namespace {

bool is_header_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<uint8_t>(c);
    return (byte >= 0x20 && byte != 0x7F) || byte == '\t';
  });
}

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[40];
  // No locale is ever set, so that names are English.
  std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return text;
}

}  // namespace

const char* reason_phrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

std::string response_head(int status, std::string_view content_type, std::string_view request_id,
                          const std::vector<Header>& extra, const ResponseFraming& framing) {
  std::string head = format("HTTP/1.1 %d %s\r\n", status, reason_phrase(status));
  const auto add = [&](std::string_view name, std::string_view value) {
    if (name.empty() || !is_header_text(name) || !is_header_text(value)) return;
    ((((head += name) += ": ") += value) += "\r\n");
  };
  add("Server", "invar");
  add("Date", http_date());
  if (!content_type.empty()) add("Content-Type", content_type);
  add("X-Request-Id", request_id);
  add("request-id", request_id);
  add("X-Content-Type-Options", "nosniff");
  add("Cache-Control", "no-store");
  for (const Header& header : extra) add(header.name, header.value);
  if (framing.content_length) add("Content-Length", std::to_string(*framing.content_length));
  if (framing.chunked) add("Transfer-Encoding", "chunked");
  if (framing.close) add("Connection", "close");
  return head + "\r\n";
}

std::string chunk(std::string_view bytes) {
  if (bytes.empty()) return "0\r\n\r\n";
  std::string out = format("%zx\r\n", bytes.size());
  return (out += bytes) += "\r\n";
}

}  // namespace invar::server
