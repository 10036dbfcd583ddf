#include "server/http/lifecycle.h"

#include <cmath>

#include "base/json.h"
#include "server/http/router.h"

namespace invar::server {
namespace {

constexpr int64_t kRetryAfterMs = 5000;

ApiError not_now(const char* code, const char* message) {
  ApiError error = api_error(code, message);
  error.retry_after_ms = kRetryAfterMs;
  return error;
}

}  // namespace

void Lifecycle::set_loading(const char* phase, double progress) {
  phase_ = phase;
  double before = progress_;
  while (progress > before && !progress_.compare_exchange_weak(before, progress)) {
  }
}

std::optional<ApiError> Lifecycle::refusal() const {
  if (device_lost_) return not_now("device_lost", "the device is lost; the server is ending");
  if (draining_) return not_now("draining", "the server is shutting down");
  if (!ready_) return not_now("model_loading", "model is loading");
  return std::nullopt;
}

Response Lifecycle::readiness() const {
  std::optional<ApiError> error = refusal();
  const char* status = device_lost_ ? "device_lost" : draining_ ? "draining" : "loading";
  if (!error && stuck_) {
    error = not_now("engine_error", "the engine makes no progress");
    error->status = 503;
    status = "stuck";
  }
  if (!error) return json_response(R"({"status":"ok"})");
  Response response = error_response(ApiStyle::kOpenAi, *error, "");
  Json body = Json::object();
  body.set("status", status);
  if (error->code == "model_loading") {
    body.set("phase", phase_.load());
    body.set("progress", std::round(progress_ * 1000) / 1000);
  }
  // The same error object as elsewhere, beside the status word.
  const Result<Json> full = Json::parse(response.body);
  if (full) body.set("error", *full->find("error"));
  response.body = body.dump();
  return response;
}

Response Lifecycle::liveness() const {
  Response response = json_response(R"({"status":"ok"})");
  if (stuck_) {
    response.status = 500;
    response.body = R"({"status":"stuck"})";
  }
  return response;
}

void add_probe_routes(Router& router, const Lifecycle& lifecycle) {
  const auto add = [&](const char* path, Response (Lifecycle::*answer)() const) {
    Route route;
    route.path = path;
    route.open = true;
    route.inline_handler = true;
    route.handler = [&lifecycle, answer](const Request&, std::shared_ptr<ResponseWriter> response) {
      response->send((lifecycle.*answer)());
    };
    router.add(std::move(route));
  };
  for (const char* path : {"/health", "/v1/health", "/ready", "/readyz", "/v2/health/ready"})
    add(path, &Lifecycle::readiness);
  for (const char* path : {"/livez", "/v2/health/live"}) add(path, &Lifecycle::liveness);
}

}  // namespace invar::server
