#include "server/http/router.h"

#include "base/check.h"

namespace invar::server {
namespace {

constexpr std::string_view kId = "{id}";

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

}  // namespace

bool percent_decode(std::string_view text, std::string& out) {
  out.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return false;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return true;
}

Router::Router(std::string api_prefix) : prefix_(std::move(api_prefix)) {
  while (prefix_.ends_with('/')) prefix_.pop_back();
}

void Router::add(Route route) {
  INVAR_CHECK(route.path.starts_with('/') && route.handler, "route '%s'", route.path.c_str());
  if (route.generates && guard_) route.handler = guard_(std::move(route.handler));
  if (route.path.ends_with(kId)) {
    const std::string key = route.path.substr(0, route.path.size() - kId.size());
    by_prefix_[key].push_back(std::move(route));
  } else {
    exact_[route.path].push_back(std::move(route));
  }
}

void Router::add_hint(std::string path, std::string hint) {
  hints_[std::move(path)] = std::move(hint);
}

Router::Match Router::find(std::string_view method, std::string_view path) const {
  Match match;
  if (!path.starts_with(prefix_)) return match;
  path.remove_prefix(prefix_.size());
  if (path.empty()) path = "/";
  if (!path.starts_with('/')) return match;
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  match.path = path;

  const std::vector<Route>* routes = nullptr;
  if (const auto found = exact_.find(path); found != exact_.end()) {
    routes = &found->second;
  } else {
    for (const auto& [key, candidates] : by_prefix_)
      if (path.size() > key.size() && path.starts_with(key) &&
          percent_decode(path.substr(key.size()), match.path_id))
        routes = &candidates;
  }
  if (routes == nullptr) {
    match.path_id.clear();
    if (const auto hint = hints_.find(path); hint != hints_.end()) match.hint = hint->second;
    return match;
  }
  match.known_path = true;
  for (const Route& route : *routes) {
    if (route.method == method || (route.method == "GET" && method == "HEAD")) match.route = &route;
    match.allow += route.method + ", " + (route.method == "GET" ? "HEAD, " : "");
  }
  match.allow += "OPTIONS";
  return match;
}

}  // namespace invar::server
