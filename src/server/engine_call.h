// EngineCall: what a handler that needs the model gets, and how such a route is added.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "server/generation_fields.h"
#include "server/http/router.h"
#include "server/model_routes.h"

namespace invar::server {

struct EngineCall {
  Engine& engine;
  const ChatModel& model;
  const ApiOptions& options;
  const Request& http;
};
using EngineHandler = std::function<void(const EngineCall&, std::shared_ptr<ResponseWriter>)>;

// A POST route. `generates`: it makes tokens, so it is counted, queued and refused as such.
// `served` and `options` outlive the router.
inline void add_engine_route(Router& router, const char* path, bool generates,
                             const ServedModel& served, const ApiOptions& options,
                             EngineHandler handler) {
  Route route;
  route.method = "POST";
  route.path = path;
  route.needs_engine = true;
  route.generates = generates;
  route.handler = [&served, &options, handler = std::move(handler)](
                      const Request& http, std::shared_ptr<ResponseWriter> writer) {
    handler({*served.engine(), served.chat_model(), options, http}, std::move(writer));
  };
  router.add(std::move(route));
}

}  // namespace invar::server
