#include "packed_cache_folder.h"

#include "environment.h"

namespace invar::cli {

std::string packed_cache_folder(const std::string& given) {
  const std::string chosen = given.empty() ? environment("INVAR_PACKED_CACHE") : given;
  if (chosen == "off") return "";
  if (!chosen.empty()) return chosen;
  return cache_folder("packed");
}

}  // namespace invar::cli
