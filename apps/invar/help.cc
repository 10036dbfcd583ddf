#include "help.h"

#include <algorithm>

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

std::string option_row(const CLI::Option* option) {
  std::string name =
      option->get_positional() ? option->get_name(true) : option->get_name(false, true);
  std::replace(name.begin(), name.end(), ',', ' ');
  if (!option->get_positional() && option->get_type_size() != 0)
    name += " " + option->get_type_name();
  std::string description = option->get_description();
  if (!option->get_default_str().empty())
    description += " Default: " + option->get_default_str() + ".";
  return row(name, description);
}

}  // namespace

std::string make_help(const CLI::App& app, const std::string& name) {
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
    for (const CLI::Option* option : positionals) out += option_row(option);
  }
  // CLI11's own group (--help) goes last: it is in every command.
  std::vector<std::string> groups = app.get_groups();
  std::erase(groups, "Options");
  groups.push_back("Options");
  for (const std::string& group : groups) {
    const auto options = app.get_options([&](const CLI::Option* o) {
      return !group.empty() && o->get_group() == group && o->nonpositional();
    });
    if (options.empty()) continue;
    out += "\n" + (group == "Options" ? std::string("Other") : group) + ":\n";
    for (const CLI::Option* option : options) out += option_row(option);
  }
  if (!app.get_footer().empty()) out += "\n" + app.get_footer() + "\n";
  return out;
}

std::vector<std::string> long_flags(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

}  // namespace invar::cli
