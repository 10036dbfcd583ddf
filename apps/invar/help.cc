#include "help.h"

#include <algorithm>

#include "base/json.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr size_t kColumn = 30;  // where descriptions begin

size_t help_width() {
  return static_cast<size_t>(std::clamp(stdout_is_terminal() ? terminal_width() : 100, 60, 100));
}

// `text` in lines of at most help_width(), the first beginning at column `used`.
std::string wrap(const std::string& text, size_t used, size_t indent) {
  std::string out;
  size_t column = used;
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find(' ', i), text.size());
    const std::string word = text.substr(i, end - i);
    if (column > indent && column + 1 + word.size() > help_width()) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += " ";
      ++column;
    }
    out += word;
    column += word.size();
    i = end + 1;
  }
  return out;
}

std::string row(std::string name, const std::string& description) {
  std::string line = "  " + std::move(name);
  if (line.size() + 2 > kColumn) {
    line += "\n" + std::string(kColumn, ' ');
  } else {
    line.resize(kColumn, ' ');
  }
  return line + wrap(description, kColumn, kColumn) + "\n";
}

std::string argument_row(const CLI::Option* option) {
  return row(option->get_positional() ? option->get_name(true) : option->get_name(false, true),
             option->get_description());
}

std::string join(const std::vector<std::string>& words) { return CLI::detail::join(words, " "); }

std::string flag_row(const FlagRecord& flag) {
  std::string name = join(flag.names);
  for (const std::vector<std::string>* more : {&flag.shorts, &flag.negatives})
    if (!more->empty()) name += " " + join(*more);
  if (!flag.value.empty()) name += " " + flag.value;
  std::string description = flag.help;
  if (!flag.shown_default.empty()) description += " Default: " + flag.shown_default + ".";
  return row(name, description);
}

// Names only, in a paragraph: what does nothing here needs no line of its own.
std::string foreign_group(const FlagSet& flags, FlagClass flag_class, const char* heading) {
  std::string names;
  for (const FlagRecord& flag : flags.records()) {
    if (flag.flag_class != flag_class) continue;
    for (const std::vector<std::string>* more : {&flag.names, &flag.shorts, &flag.negatives})
      for (const std::string& name : *more) names += (names.empty() ? "" : " ") + name;
  }
  if (names.empty()) return {};
  return std::string("\n") + heading + ":\n    " + wrap(names, 4, 4) + "\n";
}

const char* class_letter(FlagClass flag_class) {
  return flag_class == FlagClass::kActs ? "A" : flag_class == FlagClass::kIgnored ? "W" : "R";
}

}  // namespace

std::string make_help(const CLI::App& app, const FlagSet* flags, const std::string& name) {
  std::string out = wrap(app.get_description(), 0, 0) + "\n\nUsage: " + name;
  const auto commands =
      app.get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); });
  if (!commands.empty()) out += " COMMAND";
  const auto positionals =
      app.get_options([](const CLI::Option* o) { return o->get_positional(); });
  for (const CLI::Option* option : positionals) out += " " + option->get_option_text();
  out += " [FLAGS]\n";
  if (!commands.empty()) {
    out += "\nCommands:\n";
    for (const CLI::App* command : commands)
      out += row(command->get_name(), command->get_description());
  }
  if (!positionals.empty()) {
    out += "\nArguments:\n";
    for (const CLI::Option* option : positionals) out += argument_row(option);
  }
  std::vector<std::string> groups;
  if (flags != nullptr)
    for (const FlagRecord& flag : flags->records())
      if (flag.flag_class == FlagClass::kActs &&
          std::find(groups.begin(), groups.end(), flag.group) == groups.end())
        groups.push_back(flag.group);
  for (const std::string& group : groups) {
    out += "\n" + group + ":\n";
    for (const FlagRecord& flag : flags->records())
      if (flag.flag_class == FlagClass::kActs && flag.group == group) out += flag_row(flag);
  }
  if (flags != nullptr) {
    out += foreign_group(*flags, FlagClass::kIgnored,
                         "Taken with one warning and without effect, for llama-server's launchers");
    out += foreign_group(*flags, FlagClass::kRefused,
                         "Refused, each with the reason, unless the value asks for nothing");
  }
  out += "\nOther:\n";
  for (const CLI::Option* option : app.get_options(
           [](const CLI::Option* o) { return o->nonpositional() && o->get_group() == "Options"; }))
    out += argument_row(option);
  if (!app.get_footer().empty()) out += "\n" + app.get_footer() + "\n";
  return out;
}

std::string flags_json(const FlagSet& flags) {
  Json list = Json::array();
  for (const FlagRecord& flag : flags.records()) {
    Json aliases = Json::array();
    for (size_t i = 1; i < flag.names.size(); ++i) aliases.push_back(flag.names[i]);
    for (const std::vector<std::string>* more : {&flag.shorts, &flag.negatives})
      for (const std::string& name : *more) aliases.push_back(name);
    Json json = Json::object();
    json.set("name", flag.names.front());
    json.set("aliases", std::move(aliases));
    json.set("arity", flag.arity == FlagRecord::Arity::kNone  ? "0"
                      : flag.arity == FlagRecord::Arity::kOne ? "1"
                                                              : "0..1");
    json.set("type", flag.type);
    json.set("default", flag.shown_default.empty() ? Json() : Json(flag.shown_default));
    json.set("env", flags.is_for_launchers() ? Json(variable_of(flag.names.front())) : Json());
    json.set("class", class_letter(flag.flag_class));
    list.push_back(std::move(json));
  }
  return list.dump(2) + "\n";
}

std::vector<std::string> long_flags(const FlagSet& flags) {
  std::vector<std::string> names = {"--help"};
  for (const FlagRecord& flag : flags.records())
    names.insert(names.end(), flag.names.begin(), flag.names.end());
  return names;
}

}  // namespace invar::cli
