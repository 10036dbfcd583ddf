#include "packed_cache_folder.h"

#include <cstdlib>

namespace invar::cli {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string packed_cache_folder(const std::string& given) {
  const std::string chosen = given.empty() ? environment("INVAR_PACKED_CACHE") : given;
  if (chosen == "off") return "";
  if (!chosen.empty()) return chosen;
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/invar/packed";
  if (const std::string home = environment("HOME"); !home.empty())
    return home + "/.cache/invar/packed";
  return "";
}

}  // namespace invar::cli
