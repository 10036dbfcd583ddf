// A JSON object that was cut: what of it is whole, for answers that must hold an object.
#pragma once

#include <string_view>

#include "base/json.h"

namespace invar::server {

// The object that `text` is. When it is a part of one: with the members and elements that are
// complete, and `is_whole` false. When it is none: an empty object.
Json parse_partial_object(std::string_view text, bool& is_whole);

}  // namespace invar::server
