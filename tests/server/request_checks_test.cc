// What a head is refused for, and in which order: with two things wrong the earlier one answers.
#include "server/http/request_checks.h"

#include <gtest/gtest.h>

namespace invar::server {
namespace {

class ChecksTest : public testing::Test {
 protected:
  ChecksTest() {
    lifecycle_.set_ready();
    policy_.router = &router_;
    policy_.lifecycle = &lifecycle_;
    policy_.max_body_bytes = 1000;
    policy_.origin.check_host = true;
    use_keys({});
    add_probe_routes(router_, lifecycle_);
    add("POST", "/v1/chat/completions", true);
    add("POST", "/v1/messages", true);
    add("GET", "/v1/models", false);
    add("GET", "/v1/requests/{id}", false);
    add("DELETE", "/v1/requests/{id}", false);
    router_.add_hint("/completions", "did you mean /v1/completions?");
  }
  void add(const char* method, const char* path, bool needs_engine) {
    Route route;
    route.method = method;
    route.path = path;
    route.needs_engine = needs_engine;
    route.handler = [](Request, std::shared_ptr<ResponseWriter>) {};
    router_.add(std::move(route));
  }
  void use_keys(std::vector<std::string> keys) {
    keys_ = *KeyStore::open({.keys = std::move(keys)});
    policy_.keys = keys_.get();
  }
  static RequestHead head(const char* method, const char* path, std::vector<Header> headers = {}) {
    RequestHead head;
    head.method = method;
    head.path = path;
    head.host = "localhost:8080";
    if (std::string(method) == "POST") {
      head.content_length = 2;
      if (find_header(headers, "Content-Type") == nullptr)
        headers.push_back({"Content-Type", "application/json"});
    }
    head.headers = std::move(headers);
    return head;
  }
  std::string code(const RequestHead& head) {
    const HeadVerdict verdict = check_head(policy_, head);
    return verdict.error ? verdict.error->code : "";
  }
  static std::string value(const std::vector<Header>& headers, const char* name) {
    const std::string* found = find_header(headers, name);
    return found == nullptr ? "-" : *found;
  }

  Lifecycle lifecycle_;
  Router router_;
  std::unique_ptr<KeyStore> keys_;
  CheckPolicy policy_;
};

TEST_F(ChecksTest, Routes) {
  EXPECT_EQ(code(head("POST", "/v1/chat/completions")), "");
  EXPECT_EQ(code(head("POST", "/v1/chat/completions/")), "");
  EXPECT_EQ(code(head("HEAD", "/v1/models")), "");
  for (const char* path :
       {"/v1/chat/completions//", "/V1/models", "/v1/modelsx", "//v1/models", "/v1/../v1/models",
        "/v1%2Fmodels", "/", "*", "/v1/requests", "/v1/requests/", "/v1/requests/%",
        "/v1/requests/%4", "/v1/requests/%zz", "/..%2f..%2fetc/passwd", "/v1/models/\\..\\"})
    EXPECT_EQ(code(head("GET", path)), "route_not_found") << path;
  const HeadVerdict verdict = check_head(policy_, head("POST", "/completions"));
  EXPECT_NE(verdict.error->message.find("/v1/completions"), std::string::npos);
}

TEST_F(ChecksTest, IdsMayHaveSlashes) {
  EXPECT_EQ(check_head(policy_, head("GET", "/v1/requests/a%2Fb/c")).match.path_id, "a/b/c");
  EXPECT_EQ(check_head(policy_, head("DELETE", "/v1/requests/x/")).match.path_id, "x");
}

TEST_F(ChecksTest, ApiPrefix) {
  Router router("/llm/");
  Route route;
  route.path = "/v1/models";
  route.handler = [](Request, std::shared_ptr<ResponseWriter>) {};
  router.add(route);
  EXPECT_NE(router.find("GET", "/llm/v1/models").route, nullptr);
  EXPECT_EQ(router.find("GET", "/v1/models").route, nullptr);
  EXPECT_EQ(router.find("GET", "/llmv1/models").route, nullptr);
}

TEST_F(ChecksTest, Methods) {
  for (const char* method : {"GET", "PUT", "DELETE", "TRACE", "post", "HEAD"}) {
    const HeadVerdict verdict = check_head(policy_, head(method, "/v1/chat/completions"));
    EXPECT_EQ(verdict.error->code, "method_not_allowed") << method;
    EXPECT_EQ(value(verdict.headers, "Allow"), "POST, OPTIONS");
  }
  const HeadVerdict verdict = check_head(policy_, head("POST", "/v1/requests/1"));
  EXPECT_EQ(value(verdict.headers, "Allow"), "GET, HEAD, DELETE, OPTIONS");
}

TEST_F(ChecksTest, KeysOpenRoutesAndTheHostCheck) {
  use_keys({"secret"});
  EXPECT_EQ(code(head("GET", "/v1/models")), "invalid_api_key");
  EXPECT_EQ(code(head("GET", "/v1/models", {{"x-api-key", "Secret"}})), "invalid_api_key");
  EXPECT_EQ(code(head("GET", "/v1/models", {{"x-api-key", "secret"}})), "");
  EXPECT_EQ(code(head("GET", "/health")), "");
  EXPECT_EQ(code(head("OPTIONS", "/v1/models")), "");
  RequestHead rebound = head("GET", "/v1/models", {{"Authorization", "Bearer secret"}});
  rebound.host = "evil.example";
  EXPECT_EQ(code(rebound), "");
}

TEST_F(ChecksTest, Host) {
  policy_.origin.allowed_hosts = {"Box.lan"};
  const auto with_host = [&](const char* host) {
    RequestHead request = head("GET", "/v1/models");
    request.host = host;
    return code(request);
  };
  for (const char* host :
       {"localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]", "[::1]:80", "box.lan:3"})
    EXPECT_EQ(with_host(host), "") << host;
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
                           "127.0.0.2", "", ":80", "[::2]", "xlocalhost", "::1"})
    EXPECT_EQ(with_host(host), "host_not_allowed") << host;
  policy_.origin.check_host = false;
  EXPECT_EQ(with_host("evil.example"), "");
}

TEST_F(ChecksTest, OriginsWithoutAList) {
  for (const char* origin : {"http://evil.example", "null", "http://localhost:3000", "", "file://",
                             "http://localhost:8080.evil.example", "http://localhost"}) {
    EXPECT_EQ(code(head("POST", "/v1/messages", {{"Origin", origin}})), "origin_not_allowed")
        << origin;
    EXPECT_EQ(code(head("DELETE", "/v1/requests/1", {{"Origin", origin}})), "origin_not_allowed");
    EXPECT_EQ(code(head("OPTIONS", "/v1/messages", {{"Origin", origin}})), "origin_not_allowed");
    const HeadVerdict verdict =
        check_head(policy_, head("GET", "/v1/models", {{"Origin", origin}}));
    EXPECT_FALSE(verdict.error);
    EXPECT_EQ(value(verdict.headers, "Access-Control-Allow-Origin"), "-");
  }
  EXPECT_EQ(code(head("POST", "/v1/messages", {{"Origin", "http://localhost:8080"}})), "");
  EXPECT_EQ(code(head("POST", "/v1/messages", {{"Origin", "https://LOCALHOST:8080"}})), "");
}

TEST_F(ChecksTest, ListedOrigins) {
  policy_.origin.cors_origins = {"https://app.example", "localhost"};
  for (const char* origin :
       {"https://app.example", "http://localhost:3000", "https://[::1]:9", "http://127.0.0.1"}) {
    const HeadVerdict verdict =
        check_head(policy_, head("POST", "/v1/messages", {{"Origin", origin}}));
    EXPECT_FALSE(verdict.error) << origin;
    EXPECT_EQ(value(verdict.headers, "Access-Control-Allow-Origin"), origin);
    EXPECT_EQ(value(verdict.headers, "Vary"), "Origin");
    EXPECT_EQ(value(verdict.headers, "Access-Control-Allow-Credentials"), "-");
  }
  for (const char* origin : {"http://app.example", "https://app.example:8443",
                             "https://app.example.evil.example", "http://localhost.evil.example"})
    EXPECT_EQ(code(head("POST", "/v1/messages", {{"Origin", origin}})), "origin_not_allowed");
  // Refusals can be read by the page too.
  use_keys({"secret"});
  const HeadVerdict verdict =
      check_head(policy_, head("POST", "/v1/messages", {{"Origin", "https://app.example"}}));
  EXPECT_EQ(verdict.error->code, "invalid_api_key");
  EXPECT_EQ(value(verdict.headers, "Access-Control-Allow-Origin"), "https://app.example");
  policy_.origin.cors_origins = {"*"};
  EXPECT_EQ(value(check_head(policy_, head("GET", "/health", {{"Origin", "http://x"}})).headers,
                  "Access-Control-Allow-Origin"),
            "*");
}

TEST_F(ChecksTest, Preflight) {
  policy_.origin.cors_origins = {"https://app.example"};
  const HeadVerdict verdict = check_head(policy_, head("OPTIONS", "/v1/messages",
                                                       {{"Origin", "https://app.example"},
                                                        {"Access-Control-Request-Method", "POST"},
                                                        {"Access-Control-Request-Headers",
                                                         "x-api-key, content-type,b\xC3\xA4"
                                                         "d, " +
                                                             std::string(65, 'x')}}));
  EXPECT_TRUE(verdict.preflight);
  EXPECT_EQ(value(verdict.headers, "Access-Control-Allow-Headers"), "x-api-key, content-type");
  EXPECT_EQ(value(verdict.headers, "Access-Control-Allow-Methods"), "GET, POST, DELETE, OPTIONS");
  EXPECT_EQ(value(verdict.headers, "Access-Control-Max-Age"), "600");
  EXPECT_TRUE(check_cors_origin("https://a.b:1").ok());
  for (const char* entry : {"a.b", "https://", "https://a/", "ftp://a", "", "https://a b"})
    EXPECT_FALSE(check_cors_origin(entry).ok()) << entry;
}

TEST_F(ChecksTest, ContentTypes) {
  const auto with_type = [&](const char* type) {
    return code(head("POST", "/v1/messages", {{"Content-Type", type}}));
  };
  for (const char* type : {"application/json", "Application/JSON; charset=utf-8",
                           "application/vnd.api+json", "application/json ;x"})
    EXPECT_EQ(with_type(type), "") << type;
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "application/jsonx",
                           "application/+json", "json", "", "text/json", "application/xml"})
    EXPECT_EQ(with_type(type), "unsupported_media_type") << type;
  RequestHead request = head("POST", "/v1/messages");
  request.headers.clear();
  EXPECT_EQ(code(request), "unsupported_media_type");
  request.content_length = 0;  // no body: the JSON check says what is missing
  EXPECT_EQ(code(request), "");
}

TEST_F(ChecksTest, EncodingAndSize) {
  EXPECT_EQ(code(head("POST", "/v1/messages", {{"Content-Encoding", "gzip"}})),
            "unsupported_encoding");
  EXPECT_EQ(code(head("POST", "/v1/messages", {{"Content-Encoding", "Identity"}})), "");
  RequestHead request = head("POST", "/v1/messages");
  request.content_length = 1000;
  EXPECT_EQ(code(request), "");
  request.content_length = 1001;
  EXPECT_EQ(code(request), "body_too_large");
}

TEST_F(ChecksTest, OrderOfChecks) {
  use_keys({"secret"});
  lifecycle_.set_draining();
  RequestHead request = head("PUT", "/nowhere",
                             {{"Origin", "http://evil.example"},
                              {"Content-Type", "text/plain"},
                              {"Content-Encoding", "gzip"}});
  request.content_length = 5000;
  EXPECT_EQ(code(request), "route_not_found");
  request.path = "/v1/messages";
  EXPECT_EQ(code(request), "method_not_allowed");
  request.method = "POST";
  EXPECT_EQ(code(request), "invalid_api_key");
  use_keys({});
  request.host = "evil.example";
  EXPECT_EQ(code(request), "host_not_allowed");
  request.host = "localhost";
  EXPECT_EQ(code(request), "origin_not_allowed");
  request.headers.erase(request.headers.begin());
  EXPECT_EQ(code(request), "unsupported_media_type");
  request.headers[0].value = "application/json";
  EXPECT_EQ(code(request), "unsupported_encoding");
  request.headers.pop_back();
  EXPECT_EQ(code(request), "body_too_large");
  request.content_length = 2;
  EXPECT_EQ(code(request), "draining");
}

TEST(LifecycleTest, WhatIsAnsweredWhen) {
  Lifecycle lifecycle;
  EXPECT_EQ(lifecycle.refusal()->code, "model_loading");
  lifecycle.set_loading("packing", 0.42);
  lifecycle.set_loading("packing", 0.4);
  const Response loading = lifecycle.readiness();
  EXPECT_EQ(loading.status, 503);
  EXPECT_EQ(loading.body,
            R"({"status":"loading","phase":"packing","progress":0.42,"error":{"message":"model is )"
            R"(loading","type":"overloaded_error","param":null,"code":"model_loading"}})");
  EXPECT_EQ(*find_header(loading.headers, "Retry-After"), "5");
  EXPECT_EQ(lifecycle.liveness().status, 200);
  lifecycle.set_ready();
  EXPECT_FALSE(lifecycle.refusal());
  EXPECT_EQ(lifecycle.readiness().body, R"({"status":"ok"})");
  lifecycle.set_stuck(true);
  EXPECT_EQ(lifecycle.readiness().status, 503);
  EXPECT_EQ(lifecycle.liveness().status, 500);
  EXPECT_EQ(lifecycle.liveness().body, R"({"status":"stuck"})");
  lifecycle.set_stuck(false);
  lifecycle.set_draining();
  EXPECT_EQ(lifecycle.refusal()->code, "draining");
  EXPECT_NE(lifecycle.readiness().body.find(R"({"status":"draining","error":)"), std::string::npos);
  EXPECT_EQ(lifecycle.liveness().status, 200);
  lifecycle.set_device_lost();
  EXPECT_EQ(lifecycle.refusal()->code, "device_lost");
}

}  // namespace
}  // namespace invar::server
