#include "server/partial_json.h"

#include <string>

namespace invar::server {

Json parse_partial_object(std::string_view text, bool& is_whole) {
  Result<Json> whole = Json::parse(text);
  is_whole = whole.ok() && whole->is_object();
  if (is_whole) return *std::move(whole);

  // Values are complete before a comma and behind a closing bracket. What stands up to the last
  // such place, with the brackets closed that are open there, is an object.
  std::string open, cut;  // closing brackets that are due; the candidate
  bool in_string = false, escaped = false;
  const auto mark = [&](size_t end) {
    cut = std::string(text.substr(0, end));
    cut.append(open.rbegin(), open.rend());
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (escaped)
        escaped = false;
      else if (c == '\\')
        escaped = true;
      else if (c == '"')
        in_string = false;
      continue;
    }
    switch (c) {
      case '"':
        in_string = true;
        break;
      case '{':
      case '[':
        open += c == '{' ? '}' : ']';
        mark(i + 1);
        break;
      case '}':
      case ']':
        if (open.empty()) return Json::object();
        open.pop_back();
        mark(i + 1);
        break;
      case ',':
        mark(i);
        break;
      default:
        break;
    }
  }
  Result<Json> part = Json::parse(cut);
  return part.ok() && part->is_object() ? *std::move(part) : Json::object();
}

}  // namespace invar::server
