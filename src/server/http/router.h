// Router: paths and methods to handlers. Exact and case-sensitive, one trailing slash aside; a path
// may end in "{id}", which takes all that follows, slashes included.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_types.h"

namespace invar::server {

struct Route {
  std::string method = "GET";
  std::string path = {};
  Handler handler = {};
  // Answers without a key: probes, the page and its assets.
  bool open = false;
  // Runs on the I/O thread: it must return at once and never write a stream.
  bool inline_handler = false;
  // Needs a loaded model that takes requests: else 503 before the body is read.
  bool needs_engine = false;
  // Counts as a request that generates: its handler runs behind the guard, if there is one.
  bool generates = false;
};

class Router {
 public:
  // `api_prefix`: "/llm" serves all routes below it, and only there.
  explicit Router(std::string api_prefix = "");

  // For generating routes added later: what stands before their handlers (admission.h).
  using Guard = std::function<Handler(Handler)>;
  void set_guard(Guard guard) { guard_ = std::move(guard); }

  void add(Route route);
  // A path that is often meant to be another: its 404 says `hint`.
  void add_hint(std::string path, std::string hint);

  struct Match {
    const Route* route = nullptr;  // nullptr: see known_path
    bool known_path = false;       // the path exists, the method does not
    std::string path = {};         // without prefix and trailing slash
    std::string path_id = {};
    std::string allow = {};  // value of the Allow header when known_path
    std::string hint = {};
  };
  // HEAD finds GET routes; OPTIONS finds no route, but known_path and allow.
  Match find(std::string_view method, std::string_view path) const;

 private:
  std::string prefix_;
  Guard guard_;
  std::map<std::string, std::vector<Route>, std::less<>> exact_;
  std::map<std::string, std::vector<Route>, std::less<>> by_prefix_;  // "/v1/models/"
  std::map<std::string, std::string, std::less<>> hints_;
};

// "a%20b" -> "a b"; false: a '%' without two hex digits behind it.
bool percent_decode(std::string_view text, std::string& out);

}  // namespace invar::server
