// Bytes that go out: error bodies in both shapes, heads, events, ids.
#include <gtest/gtest.h>

#include <set>

#include "base/json.h"
#include "server/http/json_body.h"
#include "server/http/request_id.h"
#include "server/http/response_head.h"
#include "server/http/sse.h"

namespace invar::server {
namespace {

TEST(ErrorBody, BothShapes) {
  const ApiError error =
      api_error("out_of_range", "temperature must be between 0 and 5, got 9", "temperature");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error_json(ApiStyle::kOpenAi, error, "req_1"),
            R"({"error":{"message":"temperature must be between 0 and 5, got 9","type":)"
            R"("invalid_request_error","param":"temperature","code":"out_of_range"}})");
  EXPECT_EQ(error_json(ApiStyle::kMessages, error, "req_1"),
            R"({"type":"error","error":{"type":"invalid_request_error","message":"temperature )"
            R"(must be between 0 and 5, got 9"},"request_id":"req_1"})");
  EXPECT_EQ(
      error_json(ApiStyle::kOpenAi, api_error("draining", "x"), ""),
      R"({"error":{"message":"x","type":"overloaded_error","param":null,"code":"draining"}})");
  EXPECT_EQ(api_error("body_too_large", "").messages_type, "request_too_large");
  EXPECT_EQ(api_style("/v1/messages"), ApiStyle::kMessages);
  EXPECT_EQ(api_style("/v1/messages/count_tokens"), ApiStyle::kMessages);
  EXPECT_EQ(api_style("/v1/messagesx"), ApiStyle::kOpenAi);
}

TEST(ErrorBody, MessagesAreCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "\xC3\xA4";
  const Result<Json> body =
      Json::parse(error_json(ApiStyle::kOpenAi, api_error("invalid_value", text), ""));
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(body->find("error")->find("message")->as_string().size(), 1000u);
  EXPECT_EQ(quote_value("a\x1b[1m"), "'a\\x1b[1m'");
  EXPECT_EQ(quote_value(std::string(81, 'x')), "'" + std::string(80, 'x') + "...'");
}

TEST(ErrorBody, Headers) {
  ApiError error = api_error("queue_full", "wait");
  error.retry_after_ms = 1500;
  error.should_retry = false;
  const Response response = error_response(ApiStyle::kOpenAi, error, "r");
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(*find_header(response.headers, "retry-after"), "2");
  EXPECT_EQ(*find_header(response.headers, "retry-after-ms"), "1500");
  EXPECT_EQ(*find_header(response.headers, "x-should-retry"), "false");
  error.retry_after_ms = 600'000;
  EXPECT_EQ(*find_header(error_response(ApiStyle::kOpenAi, error, "r").headers, "retry-after"),
            "60");
  const Response unauthorized =
      error_response(ApiStyle::kOpenAi, api_error("invalid_api_key", "x"), "r");
  EXPECT_EQ(*find_header(unauthorized.headers, "WWW-Authenticate"), "Bearer");
}

TEST(ResponseHead, NothingCanBeSplitIntoIt) {
  ResponseFraming framing;
  framing.content_length = 2;
  const std::string head = response_head(200, "application/json", "req_1",
                                         {{"A", "b\r\nX: y"}, {"C\n", "d"}, {"E", "f"}}, framing);
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  for (const char* line :
       {"\r\nServer: invar\r\n", "\r\nX-Request-Id: req_1\r\n", "\r\nrequest-id: req_1\r\n",
        "\r\nX-Content-Type-Options: nosniff\r\n", "\r\nCache-Control: no-store\r\n",
        "\r\nContent-Length: 2\r\n", "\r\nContent-Type: application/json\r\n", "\r\nE: f\r\n"})
    EXPECT_NE(head.find(line), std::string::npos) << line;
  EXPECT_EQ(head.find("X: y"), std::string::npos);
  EXPECT_EQ(head.find("C\n"), std::string::npos);
  EXPECT_EQ(chunk("0123456789abcdefX"), "11\r\n0123456789abcdefX\r\n");
  EXPECT_EQ(chunk(""), "0\r\n\r\n");
}

TEST(ErrorResponse, OverloadSaysWhenToComeBack) {
  const auto seconds = [](const ApiError& error) {
    const Response response = error_response(ApiStyle::kOpenAi, error, "r");
    const std::string* found = find_header(response.headers, "Retry-After");
    return found == nullptr ? "" : *found;
  };
  EXPECT_EQ(seconds(api_error("no_memory", "m")), "1");
  EXPECT_EQ(seconds(api_error("key_limit", "m")), "1");
  EXPECT_EQ(seconds(api_error("engine_error", "m")), "");
  ApiError later = api_error("draining", "m");
  later.retry_after_ms = 4500;
  EXPECT_EQ(seconds(later), "5");
}

TEST(Sse, Framing) {
  EXPECT_EQ(sse_data("{}"), "data: {}\n\n");
  EXPECT_EQ(sse_event("ping", "{}"), "event: ping\ndata: {}\n\n");
  const ApiError error = api_error("draining", "the end");
  EXPECT_EQ(
      sse_head(ApiStyle::kOpenAi, "r", {}).error_event(error, 0),
      "data: {\"error\":{\"message\":\"the end\",\"type\":\"overloaded_error\",\"param\":null,"
      "\"code\":\"draining\"}}\n\n");
  EXPECT_EQ(sse_head(ApiStyle::kMessages, "r", {}).error_event(error, 0),
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
            "\"message\":\"the end\"},\"request_id\":\"r\"}\n\n");
}

TEST(RequestId, OwnOrNew) {
  EXPECT_EQ(request_id_or_new("My.id_1-x"), "My.id_1-x");
  EXPECT_EQ(request_id_or_new(std::string(128, 'a')), std::string(128, 'a'));
  for (const std::string& bad : {std::string(), std::string(129, 'a'), std::string("a b"),
                                 std::string("a\r\nX: y"), std::string("\xC3\xA4")})
    EXPECT_TRUE(request_id_or_new(bad).starts_with("req_")) << bad;
  std::set<std::string> ids;
  std::set<char> letters;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = new_id("call_");
    EXPECT_EQ(id.size(), 5u + 24u);
    ids.insert(id);
    letters.insert(id.begin() + 5, id.end());
  }
  EXPECT_EQ(ids.size(), 1000u);
  EXPECT_EQ(letters.size(), 62u);
}

TEST(JsonBody, ReportedCaseBadBodies) {
  Json json;
  const std::string open(200'000, '['), closed = open + std::string(200'000, ']');
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("\"x\""), open, closed,
        std::string("{\"a\":\"\xC3\x28\"}"), std::string(R"({"temperature":1e999})"),
        std::string(R"({"a":1,"a":2})"), std::string("{} x"), std::string("null")}) {
    const std::optional<ApiError> error = parse_json_body(body, json);
    ASSERT_TRUE(error) << body.substr(0, 50);
    EXPECT_EQ(error->code, "invalid_json");
    EXPECT_EQ(error->status, 400);
  }
  EXPECT_FALSE(parse_json_body(R"({"messages":1})", json));
  EXPECT_EQ(json.find("messages")->as_int(), 1);
}

}  // namespace
}  // namespace invar::server
