// From the flags of `invar serve` to the options of its parts.
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "base/log_options.h"
#include "serve_flags.h"
#include "server/admission.h"
#include "server/generation_fields.h"
#include "server/http/auth.h"
#include "server/http/http_server.h"
#include "server/metrics.h"

namespace invar::cli {

// Errors: kIo for a host that does not resolve, else a flag or combination that cannot work.
Result<server::ServerOptions> server_options(const ServeFlags& flags, bool has_keys);

// As requests may call the model at `path`, the first name is primary.
std::vector<std::string> served_names(const ServeFlags& flags, const std::string& path);

// `is_private`: only this machine's users get in, and without a key.
server::ApiOptions api_options(const ServeFlags& flags, const std::vector<std::string>& names,
                               server::KeyStore& keys, bool is_private);

server::MetricsOptions metrics_options(const ServeFlags& flags);

server::AdmissionLimits admission_limits(const ServeFlags& flags);

LogOptions log_options(const LogFlags& flags, bool is_terminal);
LogLevel log_level(const LogFlags& flags);

// EngineOptions::prefix_cache_bytes.
int64_t prefix_cache_bytes(const ServeFlags& flags);
EngineOptions engine_options(const ServeFlags& flags, const std::string& path);

}  // namespace invar::cli
