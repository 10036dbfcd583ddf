#include "server/page_route.h"

namespace invar::server {
namespace {

constexpr std::string_view kHtml = "text/html; charset=utf-8";
constexpr const char* kPolicy = "default-src 'self'; frame-ancestors 'none'";

constexpr std::string_view kMissingPage = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Invar</title>
</head>
<body>
<h1>Invar is running</h1>
<p>This build has no web page: Node.js 18 or newer and npm, which bundle it, were not there, or their
packages could not be installed. To get it, install them and build again:</p>
<pre>apt-get install nodejs npm
cmake -DINVAR_PAGE=ON build/release
cmake --build build/release</pre>
<p>The API does not need it:</p>
<pre>curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \
  -d '{"messages":[{"role":"user","content":"Hello!"}]}'</pre>
</body>
</html>
)";

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

// The router takes "/llm" and "/llm/" for the same, a browser does not: what is relative to the one
// is beside the other.
std::string with_base(std::string_view html, std::string_view prefix) {
  static constexpr std::string_view kHead = "<head>";
  const size_t head = html.find(kHead);
  if (prefix.empty() || head == std::string_view::npos) return std::string(html);
  std::string out(html.substr(0, head + kHead.size()));
  out += "\n<base href=\"" + escape_html(prefix) + "/\">";
  return out += html.substr(head + kHead.size());
}

void add_asset(Router& router, std::string_view path, std::string_view type, std::string bytes) {
  Route route;
  route.path = path;
  route.open = true;
  route.inline_handler = true;
  route.handler = [type = std::string(type), bytes = std::move(bytes)](
                      const Request&, std::shared_ptr<ResponseWriter> response) {
    Response page;
    page.content_type = type;
    page.body = bytes;
    page.headers = {{"Content-Security-Policy", kPolicy}, {"Referrer-Policy", "no-referrer"}};
    response->send(std::move(page));
  };
  router.add(std::move(route));
}

}  // namespace

void add_page_routes(Router& router, std::span<const PageAsset> assets,
                     std::string_view api_prefix) {
  while (api_prefix.ends_with('/')) api_prefix.remove_suffix(1);
  if (assets.empty()) add_asset(router, "/", kHtml, std::string(kMissingPage));
  for (const PageAsset& asset : assets)
    add_asset(router, asset.path, asset.content_type,
              asset.content_type == kHtml ? with_base(asset.bytes, api_prefix)
                                          : std::string(asset.bytes));
}

}  // namespace invar::server
