#include "constraint/constraint_cache.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "constraint/constraint.h"

namespace invar {
namespace {

// Everything of the spec, each text with its length before it, so that no two specs share a key.
std::string key_of(const ConstraintSpec& spec) {
  std::string key;
  const auto add = [&](std::string_view text) {
    key += std::to_string(text.size());
    key += ':';
    key += text;
  };
  const auto add_number = [&](int number) { add(std::to_string(number)); };
  add(spec.json_schema);
  add_number(spec.any_json_object);
  add_number(static_cast<int>(spec.choices.size()));
  for (const std::string& choice : spec.choices) add(choice);
  add_number(static_cast<int>(spec.tool_use));
  for (const ToolFunction& tool : spec.tools) {
    add(tool.name);
    add(tool.parameters_json);
    add_number(tool.strict);
  }
  const ToolSyntax& syntax = spec.tool_syntax;
  add_number(static_cast<int>(syntax.kind));
  for (const std::string& text : {syntax.begin, syntax.end, syntax.separator, syntax.arguments_key,
                                  syntax.trigger, syntax.optional_marker})
    add(text);
  add_number(syntax.several);
  add_number(spec.parallel_tool_calls);
  add_number(static_cast<int>(spec.reasoning));
  add(spec.reasoning_begin);
  add(spec.reasoning_end);
  return key;
}

}  // namespace

Result<ConstraintCache::Compiled> ConstraintCache::get(
    const ConstraintSpec& spec, const std::function<Result<Compiled>()>& compile) {
  std::string key = key_of(spec);
  {
    const std::lock_guard lock(mutex_);
    if (Compiled found = find(key)) return found;
  }
  INVAR_TRY(Compiled compiled, compile());
  const std::lock_guard lock(mutex_);
  if (Compiled found = find(key)) return found;  // somebody else was quicker
  entries_.push_front({std::move(key), compiled});
  trim();
  return compiled;
}

ConstraintCache::Compiled ConstraintCache::find(const std::string& key) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.key == key; });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  trim();
  return entries_.front().compiled;
}

void ConstraintCache::trim() {
  size_t count = 0, num_bytes = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    num_bytes += entry->key.size() + entry->compiled->num_bytes();
    if (++count == 1 || (count <= capacity_ && num_bytes <= max_bytes_)) continue;
    entries_.erase(entry, entries_.end());
    return;
  }
}

}  // namespace invar
