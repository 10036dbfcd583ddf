// HTTP requests as a connection reads them: head, checks, body, the next one behind it. The first
// byte cuts the rest in pieces; whatever the pieces, the requests must be the same.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "server/http/json_body.h"
#include "server/http/request_checks.h"
#include "server/http/request_parser.h"

namespace invar::server {
namespace {

constexpr uint64_t kMaxBody = 4096;

struct Fixture {
  Fixture() {
    lifecycle.set_ready();
    add_probe_routes(router, lifecycle);
    for (const char* path : {"/v1/messages", "/v1/models/{id}"}) {
      Route route;
      route.method = std::string(path).ends_with('}') ? "GET" : "POST";
      route.path = path;
      route.handler = [](Request, std::shared_ptr<ResponseWriter>) {};
      router.add(std::move(route));
    }
    policy.router = &router;
    policy.keys = keys.get();
    policy.lifecycle = &lifecycle;
    policy.max_body_bytes = kMaxBody;
    policy.origin.check_host = true;
    policy.origin.cors_origins = {"https://app.example", "localhost"};
  }
  Lifecycle lifecycle;
  Router router;
  std::unique_ptr<KeyStore> keys = *KeyStore::open({});
  CheckPolicy policy;
};

// What a connection would make of `bytes` that come `step` at a time: one line a request.
std::string outcome(const Fixture& fixture, std::string_view bytes, size_t step) {
  std::string in, story;
  const auto more = [&] {
    if (bytes.empty()) return false;
    in += bytes.substr(0, step);
    bytes.remove_prefix(std::min(step, bytes.size()));
    return true;
  };
  for (;;) {
    HeadParser parser;
    HeadParser::State state = parser.parse(in);
    while (state == HeadParser::State::kIncomplete && more()) state = parser.parse(in);
    if (state == HeadParser::State::kIncomplete) return story;
    if (state == HeadParser::State::kError) return story + parser.error().code;
    in.erase(0, parser.head_size());
    const RequestHead head = parser.take();
    const HeadVerdict verdict = check_head(fixture.policy, head);
    story += head.method + " " + verdict.match.path + " " + verdict.match.path_id;
    if (verdict.error) return story + verdict.error->code;
    BodyParser body(head, kMaxBody);
    for (;;) {
      size_t consumed = 0;
      const BodyParser::State body_state = body.parse(in, consumed);
      INVAR_CHECK(consumed <= in.size(), "%zu of %zu", consumed, in.size());
      in.erase(0, consumed);
      if (body_state == BodyParser::State::kError) return story + body.error().code;
      if (body_state == BodyParser::State::kComplete) break;
      if (!more()) return story;
    }
    INVAR_CHECK(body.body().size() <= kMaxBody, "a body of %zu", body.body().size());
    Json json;
    parse_json_body(body.body(), json);
    story += " " + body.body() + "\n";
    if (!head.keep_alive) return story;
  }
}

}  // namespace
}  // namespace invar::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const invar::server::Fixture fixture;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::string whole = invar::server::outcome(fixture, bytes, bytes.size() + 1);
  const std::string pieces = invar::server::outcome(fixture, bytes, size_t{1} + data[0] % 64);
  INVAR_CHECK(whole == pieces, "pieces of %d change a request", 1 + data[0] % 64);
  return 0;
}
