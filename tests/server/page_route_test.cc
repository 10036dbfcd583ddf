// The page's routes: open, with the headers that keep scripts of others out, and with or without
// the assets that Node.js bundles. What the page does is tested in a browser (tests/page).
#include "server/page_route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http/exchange.h"

namespace invar::server {
namespace {

constexpr PageAsset kAssets[] = {
    {"/", "text/html; charset=utf-8", "<html><head><title>T</title></head></html>"},
    {"/app.js", "text/javascript; charset=utf-8", "start(\"<head>\")"},
};

Response get(const Router& router, const char* path, const char* method = "GET") {
  const Router::Match match = router.find(method, path);
  if (match.route == nullptr) return {.status = 404};
  EXPECT_TRUE(match.route->open && match.route->inline_handler && !match.route->needs_engine);
  const auto exchange = std::make_shared<Exchange>(ApiStyle::kOpenAi, "", StreamLimits{}, [] {});
  match.route->handler({}, Exchange::writer(exchange));
  return *exchange->take().response;
}

TEST(PageRouteTest, ServesAssetsWithTheirTypesAndPolicy) {
  Router router;
  add_page_routes(router, kAssets, "");
  const Response page = get(router, "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_EQ(page.body, kAssets[0].bytes);
  const std::string* policy = find_header(page.headers, "Content-Security-Policy");
  ASSERT_NE(policy, nullptr);
  EXPECT_EQ(*policy, "default-src 'self'; frame-ancestors 'none'");
  EXPECT_EQ(get(router, "/app.js").content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(get(router, "/", "HEAD").status, 200);  // how Claude Code begins
  EXPECT_EQ(get(router, "/app.js", "POST").status, 404);
  EXPECT_EQ(get(router, "/other.js").status, 404);
}

TEST(PageRouteTest, AssetsAreFoundBelowAPrefix) {
  for (const char* prefix : {"/llm", "/llm/"}) {
    Router router(prefix);
    add_page_routes(router, kAssets, prefix);
    EXPECT_EQ(get(router, "/llm").body,
              "<html><head>\n<base href=\"/llm/\"><title>T</title></head></html>");
    EXPECT_EQ(get(router, "/llm/app.js").body, kAssets[1].bytes);
    EXPECT_EQ(get(router, "/app.js").status, 404);
  }
  Router router("/a\"b");
  add_page_routes(router, kAssets, "/a\"b");
  EXPECT_THAT(get(router, "/a\"b").body, testing::HasSubstr("<base href=\"/a&quot;b/\">"));
}

TEST(PageRouteTest, WithoutAssetsItSaysHowToGetThePage) {
  Router router;
  add_page_routes(router, {}, "");
  const Response page = get(router, "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.body, testing::HasSubstr("nodejs npm"));
  // The policy forbids them, and would leave them without effect.
  EXPECT_THAT(page.body, testing::Not(testing::HasSubstr("<script")));
  EXPECT_THAT(page.body, testing::Not(testing::HasSubstr("style=")));
  EXPECT_EQ(get(router, "/app.js").status, 404);
}

// Whatever this build has: all of the page, or nothing.
TEST(PageRouteTest, EmbeddedAssetsAreWhole) {
  const std::span<const PageAsset> assets = page_assets();
  if (assets.empty()) GTEST_SKIP() << "built without Node.js";
  std::vector<std::string> paths;
  for (const PageAsset& asset : assets) {
    paths.emplace_back(asset.path);
    EXPECT_FALSE(asset.bytes.empty()) << asset.path;
  }
  EXPECT_THAT(paths,
              testing::ElementsAre("/", "/app.js", "/app.css", "/icon.svg", "/licenses.txt"));
  const std::string_view html = assets[0].bytes;
  for (const char* name : {"\"app.js\"", "\"app.css\"", "\"icon.svg\""})
    EXPECT_NE(html.find(name), std::string_view::npos) << name;
}

}  // namespace
}  // namespace invar::server
