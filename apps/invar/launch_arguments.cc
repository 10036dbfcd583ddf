#include "launch_arguments.h"

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "words.h"

namespace invar::cli {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr const char* kConfig = "--config";

using Arity = FlagRecord::Arity;

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// Whether the word after a flag whose value may be left out is that value.
bool is_value_of(const FlagRecord& flag, const std::string& word) {
  const std::vector<std::string> words = split(flag.value, '|');
  return contains(words, word) || (contains(words, "on") && parse_switch(word));
}

// Kubernetes tells a pod of a Service named invar with INVAR_PORT=tcp://10.0.0.1:8080: the address
// of the Service, which nobody meant for us.
bool is_service_link(const std::string& variable, std::string_view value) {
  return variable == "INVAR_PORT" && value.starts_with("tcp://");
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// A name as it was given, and what it stands for.
struct Found {
  const FlagRecord* flag = nullptr;
  bool negated = false;
};

class Reader {
 public:
  Reader(const std::vector<FlagRecord>& flags, LaunchArguments& out) : flags_(flags), out_(out) {}

  Result<void> read_arguments(const std::vector<std::string>& arguments);
  Result<void> read_environment(const Environment& environment);
  Result<void> read_config(const std::string& path);
  void finish();

 private:
  using Values = std::map<std::string, std::string>;

  Found find(const std::string& name) const;
  Result<Found> find_or_fail(const std::string& name, const std::string& given) const;
  // `given` is how messages call it: "--port", "INVAR_PORT", "server.conf:3: port".
  Result<void> set(const Found& found, const std::string& given,
                   const std::optional<std::string>& value, Values& values);

  const std::vector<FlagRecord>& flags_;
  LaunchArguments& out_;
  Values from_config_, from_environment_;
  std::map<std::string, std::string> given_;  // primary name -> how it was given, for warnings
};

Found Reader::find(const std::string& name) const {
  for (const FlagRecord& flag : flags_) {
    if (contains(flag.names, name) || contains(flag.shorts, name)) return {&flag, false};
    if (contains(flag.negatives, name)) return {&flag, true};
  }
  for (const FlagRecord& flag : flags_)
    if (flag.arity != Arity::kOne)
      for (const std::string& known : flag.names)
        if (name == "--no-" + known.substr(2)) return {&flag, true};
  // llama-server takes underscores for dashes.
  if (name.starts_with("--") && name.find('_') != std::string::npos) {
    std::string dashed = name;
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    return find(dashed);
  }
  return {};
}

Result<Found> Reader::find_or_fail(const std::string& name, const std::string& given) const {
  const Found found = find(name);
  if (found.flag != nullptr) return found;
  std::vector<std::string> known = {"--help", "--version"};
  for (const FlagRecord& flag : flags_) {
    known.insert(known.end(), flag.names.begin(), flag.names.end());
    known.insert(known.end(), flag.negatives.begin(), flag.negatives.end());
    known.insert(known.end(), flag.shorts.begin(), flag.shorts.end());
  }
  const std::string guess = nearest(name, known);
  return invalid_argument("%s%s; --help lists the flags", given.c_str(),
                          guess.empty() ? "" : ("; did you mean " + guess + "?").c_str());
}

Result<void> Reader::set(const Found& found, const std::string& given,
                         const std::optional<std::string>& value, Values& values) {
  const FlagRecord& flag = *found.flag;
  std::string text;
  if (flag.arity == Arity::kOne) {
    if (!value) return invalid_argument("%s needs a value", given.c_str());
    text = *value;
  } else if (flag.arity == Arity::kOptional) {
    text = found.negated ? "off" : value.value_or("on");
  } else {
    const std::optional<bool> on = value ? parse_switch(*value) : true;
    if (!on)
      return invalid_argument("%s: '%s' is neither on nor off", given.c_str(), value->c_str());
    text = *on != found.negated ? "true" : "false";
  }
  if (flag.check)
    if (const std::string fault = flag.check(text); !fault.empty())
      return invalid_argument("%s: %s", given.c_str(), fault.c_str());
  if (flag.flag_class == FlagClass::kRefused && !is_one_of(text, flag.neutral))
    return invalid_argument("%s is refused: %s", given.c_str(), flag.help.c_str());
  values[flag.names.front()] = text;
  given_.try_emplace(flag.names.front(), given);
  return {};
}

Result<void> Reader::read_arguments(const std::vector<std::string>& arguments) {
  bool only_words = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (only_words || argument.size() < 2 || argument[0] != '-') {
      out_.words.push_back(argument);
      continue;
    }
    if (argument == "--") {
      only_words = true;
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    if (name == "--help" || name == "-h") {
      if (value && *value != "json" && *value != "text")
        return invalid_argument("--help: '%s' is neither text nor json", value->c_str());
      out_.help = value == "json" ? LaunchArguments::Help::kJson : LaunchArguments::Help::kText;
      return {};
    }
    if (argument == "--version") {
      out_.version = true;
      return {};
    }
    INVAR_TRY(const Found found, find_or_fail(name, "unknown flag " + name));
    if (!value && i + 1 < arguments.size()) {
      const std::string& next = arguments[i + 1];
      // A name of ours is no value: "--model --port 1" lacks one. "-1" is.
      const bool is_flag = next.starts_with("--") && find(next.substr(0, next.find('='))).flag;
      const bool is_value =
          found.flag->arity == Arity::kOne || (found.flag->arity == Arity::kOptional &&
                                               !found.negated && is_value_of(*found.flag, next));
      if (is_value && !is_flag) {
        value = next;
        ++i;
      }
    }
    INVAR_TRY_VOID(set(found, name, value, out_.values));
  }
  return {};
}

Result<void> Reader::read_environment(const Environment& environment) {
  for (const FlagRecord& flag : flags_) {
    std::vector<std::string> names = flag.names;
    names.insert(names.end(), flag.negatives.begin(), flag.negatives.end());
    for (const std::string& name : names) {
      const std::string variable = variable_of(name);
      const char* value = environment(variable);
      if (value == nullptr) continue;
      if (is_service_link(variable, value)) {
        out_.warnings.push_back("the variable " + variable + " is '" + value +
                                "', as Kubernetes sets it for a Service named invar: not read");
        continue;
      }
      const Found found{&flag, contains(flag.negatives, name)};
      INVAR_TRY_VOID(set(found, "the variable " + variable, std::string(value), from_environment_));
      break;
    }
  }
  return {};
}

Result<void> Reader::read_config(const std::string& path) {
  const Result<std::string> text = read_file(path, kMaxConfigBytes);
  if (!text) return invalid_argument("%s: %s", kConfig, text.error().message.c_str());
  int line_number = 0;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    const std::string line = trimmed(text->substr(begin, end - begin));
    begin = end + 1;
    ++line_number;
    if (line.empty() || line[0] == '#') continue;
    const std::string where = format("%s:%d: ", path.c_str(), line_number);
    const size_t equals = line.find('=');
    if (equals == std::string::npos)
      return invalid_argument("%s'%s' is not key = value", where.c_str(), line.c_str());
    std::string key = trimmed(line.substr(0, equals));
    if (key.starts_with("--")) key.erase(0, 2);
    INVAR_TRY(const Found found, find_or_fail("--" + key, where + "unknown key '" + key + "'"));
    if (found.flag->names.front() == kConfig)
      return invalid_argument("%sa file of settings cannot name another one", where.c_str());
    INVAR_TRY_VOID(set(found, where + key, trimmed(line.substr(equals + 1)), from_config_));
  }
  return {};
}

void Reader::finish() {
  out_.values.merge(from_environment_);  // those that are there already stay
  out_.values.merge(from_config_);
  for (const FlagRecord& flag : flags_) {
    const auto value = out_.values.find(flag.names.front());
    if (value == out_.values.end()) continue;
    if (!flag.without_effect.empty() && !is_one_of(value->second, flag.neutral))
      out_.warnings.push_back(given_[value->first] + " has no effect: " + flag.without_effect);
    if (!flag.has_target) out_.values.erase(value);
  }
}

}  // namespace

std::vector<std::string> LaunchArguments::plain() const {
  std::vector<std::string> arguments;
  for (const auto& [name, value] : values) {
    // "--name=" would take the next one for its value.
    arguments.push_back(value.empty() ? name : name + "=" + value);
    if (value.empty()) arguments.push_back(value);
  }
  arguments.insert(arguments.end(), words.begin(), words.end());
  return arguments;
}

std::optional<std::string> find_value(const std::string& name,
                                      const std::vector<std::string>& arguments,
                                      const Environment& environment) {
  for (size_t i = arguments.size(); i-- > 0;) {
    if (arguments[i].starts_with(name + "=")) return arguments[i].substr(name.size() + 1);
    if (arguments[i] == name && i + 1 < arguments.size()) return arguments[i + 1];
  }
  if (const char* variable = environment(variable_of(name))) return variable;
  return std::nullopt;
}

Result<void> read_launch_arguments(const std::vector<FlagRecord>& flags,
                                   const std::vector<std::string>& arguments,
                                   const Environment& environment, LaunchArguments& out) {
  Reader reader(flags, out);
  INVAR_TRY_VOID(reader.read_arguments(arguments));
  if (out.help != LaunchArguments::Help::kNone || out.version) return {};
  INVAR_TRY_VOID(reader.read_environment(environment));
  std::string config;
  if (const auto found = out.values.find(kConfig); found != out.values.end())
    config = found->second;
  else if (const char* variable = environment(variable_of(kConfig)))
    config = variable;
  if (!config.empty()) INVAR_TRY_VOID(reader.read_config(config));
  reader.finish();
  return {};
}

}  // namespace invar::cli
