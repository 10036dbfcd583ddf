// Values of XML tool calls: text that becomes JSON by the tool's schema (specs/chat.md section 5).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "invar/invar.h"

namespace invar::server {

class XmlValues {
 public:
  explicit XmlValues(const std::vector<ToolFunction>& tools);

  // `text` stands between the tags of parameter `key`, with one line feed at each end that is not
  // part of it. What the schema does not know, or does not fit, is a string.
  std::string value_json(std::string_view function, std::string_view key,
                         std::string_view text) const;

 private:
  std::vector<std::pair<std::string, Json>> properties_;  // by function: its schema's `properties`
};

}  // namespace invar::server
