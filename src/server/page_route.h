// GET / and what the page loads: the web page of web/, which the build embeds
// (cmake/InvarPage.cmake). Open without a key: the page asks for one and sends it itself.
#pragma once

#include <span>
#include <string_view>

#include "server/http/router.h"

namespace invar::server {

struct PageAsset {
  std::string_view path, content_type, bytes;
};

// Made by the build, "/" first. Empty when Node.js was not there.
std::span<const PageAsset> page_assets();

// Without assets, "/" says how to get the page. `api_prefix` as given to the router: the page finds
// its assets and the API below it. `assets` outlive the server.
void add_page_routes(Router& router, std::span<const PageAsset> assets,
                     std::string_view api_prefix);

}  // namespace invar::server
