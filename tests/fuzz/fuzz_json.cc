// JSON text -> Json: no crash, limits kept, and what is read survives writing and reading again.
#include <cstdlib>

#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  invar::JsonLimits limits;
  limits.max_nodes = 10'000;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const invar::Result<invar::Json> json = invar::Json::parse(text, limits);
  if (!json.ok()) {
    if (json.error().message.empty()) std::abort();
    return 0;
  }
  for (const int indent : {-1, 2}) {
    const std::string written = json->dump(indent);
    const invar::Result<invar::Json> again = invar::Json::parse(written, limits);
    if (!again.ok() || !(*again == *json) || again->dump(indent) != written) std::abort();
  }
  // A changed copy leaves the original alone.
  invar::Json copy = *json;
  if (copy.is_object()) {
    const std::string before = json->dump();
    copy.set("fuzz", 1);
    if (json->dump() != before || copy.find("fuzz") == nullptr) std::abort();
  }
  (void)json->required<int>("a");
  (void)json->optional<std::string>("b", "");
  return 0;
}
