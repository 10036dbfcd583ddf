#include "environment.h"

#include <cstdlib>

namespace invar::cli {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string cache_folder(const char* name) {
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/invar/" + name;
  if (const std::string home = environment("HOME"); !home.empty())
    return home + "/.cache/invar/" + name;
  return "";
}

}  // namespace invar::cli
