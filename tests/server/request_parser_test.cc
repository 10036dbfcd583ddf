// Heads and bodies: every limit at the limit and one past it, and what must not be understood in
// two ways. Each input goes in at once and byte by byte.
#include "server/http/request_parser.h"

#include <gtest/gtest.h>

namespace invar::server {
namespace {

// "" when accepted, "incomplete", or the error's code.
std::string head_outcome(const std::string& bytes, RequestHead* head = nullptr) {
  std::string outcomes[2];
  for (const size_t step : {bytes.size(), size_t{1}}) {
    HeadParser parser;
    HeadParser::State state = HeadParser::State::kIncomplete;
    for (size_t end = std::min(step, bytes.size());; end = std::min(end + step, bytes.size())) {
      state = parser.parse(std::string_view(bytes).substr(0, end));
      if (state != HeadParser::State::kIncomplete || end == bytes.size()) break;
    }
    std::string& outcome = outcomes[step == 1 ? 1 : 0];
    outcome = state == HeadParser::State::kError        ? parser.error().code
              : state == HeadParser::State::kIncomplete ? "incomplete"
                                                        : "";
    if (state == HeadParser::State::kComplete && head != nullptr) *head = parser.take();
  }
  EXPECT_EQ(outcomes[0], outcomes[1]) << bytes.substr(0, 200);
  return outcomes[0];
}

std::string head_with(const std::string& lines) {
  return "POST /x HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n";
}

TEST(RequestHead, Plain) {
  RequestHead head;
  ASSERT_EQ(head_outcome("POST /v1/x?a=b&c HTTP/1.1\r\nHost: localhost:80\r\nX-A:  b c \t\r\n"
                         "Content-Length: 12\r\n\r\n",
                         &head),
            "");
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.path, "/v1/x");
  EXPECT_EQ(head.query, "a=b&c");
  EXPECT_EQ(head.host, "localhost:80");
  EXPECT_EQ(*find_header(head.headers, "x-a"), "b c");
  EXPECT_EQ(head.content_length, 12u);
  EXPECT_TRUE(head.keep_alive);
  EXPECT_FALSE(head.chunked);
}

TEST(RequestHead, KeepAlive) {
  RequestHead head;
  ASSERT_EQ(head_outcome("GET / HTTP/1.0\r\n\r\n", &head), "");
  EXPECT_FALSE(head.keep_alive);
  ASSERT_EQ(head_outcome(head_with("Connection: x , CLOSE\r\n"), &head), "");
  EXPECT_FALSE(head.keep_alive);
  ASSERT_EQ(head_outcome(head_with("Connection: closed\r\n"), &head), "");
  EXPECT_TRUE(head.keep_alive);
}

TEST(RequestHead, AbsoluteTargetNamesTheHost) {
  RequestHead head;
  ASSERT_EQ(head_outcome("GET http://evil.example/a?b HTTP/1.1\r\nHost: localhost\r\n\r\n", &head),
            "");
  EXPECT_EQ(head.host, "evil.example");
  EXPECT_EQ(head.path, "/a");
  ASSERT_EQ(head_outcome("GET http://h HTTP/1.1\r\nHost: a\r\n\r\n", &head), "");
  EXPECT_EQ(head.path, "/");
}

TEST(RequestHead, OneEmptyLineBeforeIsLeftOver) {
  EXPECT_EQ(head_outcome("\r\nGET / HTTP/1.0\r\n\r\n"), "");
  EXPECT_EQ(head_outcome("\r\n\r\nGET / HTTP/1.0\r\n\r\n"), "malformed_request");
}

TEST(RequestHead, RequestLineLimit) {
  const std::string fixed = "GET / HTTP/1.1";
  const std::string rest = "\r\nHost: a\r\n\r\n";
  const auto line = [&](size_t size) {
    return "GET /" + std::string(size - fixed.size(), 'a') + " HTTP/1.1";
  };
  EXPECT_EQ(head_outcome(line(8192) + rest), "");
  EXPECT_EQ(head_outcome(line(8193) + rest), "uri_too_long");
  EXPECT_EQ(head_outcome(line(8193)), "incomplete");    // its CR may still come
  EXPECT_EQ(head_outcome(line(8194)), "uri_too_long");  // without waiting for the line's end
}

TEST(RequestHead, HeaderBytesLimit) {
  // "Host: a\r\n" has 9 bytes, "X: \r\n" 5.
  const auto head = [&](size_t total) {
    return "GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(total - 14, 'x') + "\r\n\r\n";
  };
  EXPECT_EQ(head_outcome(head(32768)), "");
  EXPECT_EQ(head_outcome(head(32769)), "headers_too_large");
  EXPECT_EQ(head_outcome(head(40000).substr(0, 33000)), "headers_too_large");
}

TEST(RequestHead, HeaderCountLimit) {
  const auto head = [](int count) {
    std::string lines;
    for (int i = 1; i < count; ++i) lines += "A: b\r\n";  // Host is the first one
    return head_with(lines);
  };
  EXPECT_EQ(head_outcome(head(100)), "");
  EXPECT_EQ(head_outcome(head(101)), "headers_too_large");
}

TEST(RequestHead, WhatIsNotHttp) {
  for (const char* bytes : {
           "GET /\r\n\r\n",                                     // HTTP/0.9
           "GET  HTTP/1.1\r\nHost: a\r\n\r\n",                  // no target
           "GET x HTTP/1.1\r\nHost: a\r\n\r\n",                 // no path
           "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",              // a space in it
           "GET /\xC3\xA9 HTTP/1.1\r\nHost: a\r\n\r\n",         // not ASCII
           "GET /#a HTTP/1.1\r\nHost: a\r\n\r\n",               //
           "GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n",         //
           "G@T / HTTP/1.1\r\nHost: a\r\n\r\n",                 //
           " GET / HTTP/1.1\r\nHost: a\r\n\r\n",                //
           "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",                //
           "GET / http/1.1\r\nHost: a\r\n\r\n",                 //
           "GET / HTTP/1.1\nHost: a\n\n",                       // bare LF
           "GET / HTTP/1.1\r\nHost: a\n\r\n",                   //
           "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",               // CR inside
           "GET / HTTP/1.1\r\nHost : a\r\n\r\n",                // space before the colon
           "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",            // no colon
           "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",          // no name
           "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",   // folded
           "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n\tb\r\n\r\n",  //
           "GET / HTTP/1.1\r\n Host: a\r\n\r\n",                //
           "GET / HTTP/1.1\r\nHost: a\r\nX: a\x01\r\n\r\n",     //
           "GET / HTTP/1.1\r\n\r\n",                            // no Host
           "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",      // two
           "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",               //
           "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",               //
       })
    EXPECT_EQ(head_outcome(bytes), "malformed_request") << bytes;
  EXPECT_EQ(head_outcome(std::string("GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", 33)),
            "malformed_request");
  EXPECT_EQ(head_outcome("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "http_version");
  EXPECT_EQ(head_outcome("GET / HTTP/1.2\r\nHost: a\r\n\r\n"), "http_version");
}

TEST(RequestHead, Smuggling) {
  for (const char* lines : {
           "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
           "Transfer-Encoding: chunked\r\ncontent-length: 0\r\n",
           "Content-Length: 5\r\nContent-Length: 5\r\n",
           "Content-Length: 5\r\nContent-Length: 6\r\n",
           "Content-Length: 5, 5\r\n",
           "Content-Length: +5\r\n",
           "Content-Length: -5\r\n",
           "Content-Length: 0x5\r\n",
           "Content-Length: 5 5\r\n",
           "Content-Length: 5;\r\n",
           "Content-Length: 5.0\r\n",
           "Content-Length: \r\n",
           "Content-Length: \xD9\xA5\r\n",
           "Content-Length : 5\r\n",
           "Content-Length\t: 5\r\n",
           " Content-Length: 5\r\n",
           "Content-Length:\r\n 5\r\n",
           "Transfer-Encoding: gzip\r\n",
           "Transfer-Encoding: gzip, chunked\r\n",
           "Transfer-Encoding: chunked, chunked\r\n",
           "Transfer-Encoding: chunked, identity\r\n",
           "Transfer-Encoding: identity\r\n",
           "Transfer-Encoding: xchunked\r\n",
           "Transfer-Encoding: chunked;x\r\n",
           "Transfer-Encoding: \"chunked\"\r\n",
           "Transfer-Encoding: \x0B"
           "chunked\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
           "Transfer-Encoding : chunked\r\n",
           "Transfer-Encoding\r\n: chunked\r\n",
           "Transfer-Encoding:\r\n chunked\r\n",
           "X: a\nTransfer-Encoding: chunked\r\n",
           "X: a\rTransfer-Encoding: chunked\r\n",
       })
    EXPECT_EQ(head_outcome(head_with(lines)), "malformed_request") << lines;
  EXPECT_EQ(head_outcome("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
            "malformed_request");
  RequestHead head;
  ASSERT_EQ(head_outcome(head_with("Transfer-Encoding: Chunked \r\n"), &head), "");
  EXPECT_TRUE(head.chunked);
  ASSERT_EQ(head_outcome(head_with("Content-Length: 99999999999999999999999\r\n"), &head), "");
  EXPECT_EQ(head.content_length, UINT64_MAX);
}

TEST(RequestHead, Expect) {
  RequestHead head;
  ASSERT_EQ(head_outcome(head_with("Expect: 100-Continue\r\n"), &head), "");
  EXPECT_TRUE(head.expects_continue);
  EXPECT_EQ(head_outcome(head_with("Expect: 200-ok\r\n")), "expectation_failed");
}

// The body, or "incomplete", or the error's code in angle brackets.
std::string body_outcome(const RequestHead& head, const std::string& bytes, uint64_t limit,
                         size_t* used = nullptr) {
  std::string outcomes[2];
  for (const size_t step : {bytes.size() + 1, size_t{1}}) {
    BodyParser parser(head, limit);
    std::string pending;
    BodyParser::State state = BodyParser::State::kIncomplete;
    size_t total = 0;
    for (size_t at = 0; at <= bytes.size() && state == BodyParser::State::kIncomplete; at += step) {
      pending += bytes.substr(at, step);
      size_t consumed = 0;
      state = parser.parse(pending, consumed);
      total += consumed;
      pending.erase(0, consumed);
    }
    std::string& outcome = outcomes[step == 1 ? 1 : 0];
    outcome = state == BodyParser::State::kComplete ? parser.body()
              : state == BodyParser::State::kError  ? "<" + parser.error().code + ">"
                                                    : "incomplete";
    if (used != nullptr) *used = total;
  }
  EXPECT_EQ(outcomes[0], outcomes[1]) << bytes;
  return outcomes[0];
}

RequestHead chunked_head() {
  RequestHead head;
  head.chunked = true;
  return head;
}

TEST(RequestBody, Length) {
  RequestHead head;
  head.content_length = 5;
  size_t used = 0;
  EXPECT_EQ(body_outcome(head, "helloGET /", 5, &used), "hello");
  EXPECT_EQ(used, 5u);
  EXPECT_EQ(body_outcome(head, "hell", 5), "incomplete");
  EXPECT_EQ(body_outcome(head, "h", 4), "<body_too_large>");
  head.content_length = UINT64_MAX;
  EXPECT_EQ(body_outcome(head, "he", 1 << 20), "<body_too_large>");
}

TEST(RequestBody, Chunks) {
  size_t used = 0;
  EXPECT_EQ(body_outcome(chunked_head(), "5\r\nhello\r\n0\r\n\r\nGET /", 9, &used), "hello");
  EXPECT_EQ(used, 15u);
  EXPECT_EQ(body_outcome(chunked_head(), "3\r\nhel\r\n2;x=\"y\"\r\nlo\r\n0\r\nA: b\r\n\r\n", 5),
            "hello");
  EXPECT_EQ(body_outcome(chunked_head(), "00A\r\n0123456789\r\n0\r\n\r\n", 10), "0123456789");
  EXPECT_EQ(body_outcome(chunked_head(), "5\r\nhello\r\n", 5), "incomplete");
  EXPECT_EQ(body_outcome(chunked_head(), "3\r\nabc\r\n3\r\nabc\r\n0\r\n\r\n", 5),
            "<body_too_large>");
  EXPECT_EQ(body_outcome(chunked_head(), "6\r\n", 5), "<body_too_large>");
}

TEST(RequestBody, BadChunks) {
  for (const char* bytes :
       {"5\nhello\r\n", "5\r\nhelloX\r\n", "5\r\nhello\n", "x\r\n", "-5\r\n", "+5\r\n", "0x5\r\n",
        " 5\r\n", "5 \r\n", "\r\n", "5 x\r\n", "5\r\r\n", "FFFFFFFFF\r\n", "000000005\r\n",
        "5;a\rb\r\nhello\r\n", "0\r\nA: b\n\r\n"})
    EXPECT_EQ(body_outcome(chunked_head(), bytes, 100), "<malformed_request>") << bytes;
  EXPECT_EQ(body_outcome(chunked_head(), "5;" + std::string(300, 'x'), 100), "<malformed_request>");
  std::string trailers = "0\r\n";
  for (int i = 0; i < 2000; ++i) trailers += "A: b\r\n";
  EXPECT_EQ(body_outcome(chunked_head(), trailers, 100), "<malformed_request>");
}

}  // namespace
}  // namespace invar::server
