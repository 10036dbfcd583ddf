// `invar completion`: completion scripts for bash, zsh and fish, made from the flags themselves, so
// that they cannot fall behind.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "commands.h"
#include "exit_codes.h"
#include "terminal.h"

namespace invar::cli {
namespace {

struct FlagFacts {
  std::vector<std::string> names;  // "--file", "--include"
  std::string help, value;         // value "": a toggle
  bool is_file = false;
  std::vector<std::string> words;  // the only values
};

struct CommandFacts {
  std::string name, help;
  std::vector<FlagFacts> flags;
  bool takes_model = false;
  std::vector<std::string> words;  // of the first argument, when it is one of a few
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t i = 0; i <= text.size();) {
    const size_t end = std::min(text.find(separator, i), text.size());
    parts.push_back(text.substr(i, end - i));
    i = end + 1;
  }
  return parts;
}

std::vector<CommandFacts> collect(const std::vector<FlagSet>& all) {
  std::vector<CommandFacts> commands;
  for (const FlagSet& set : all) {
    CommandFacts command{set.app().get_name(), set.app().get_description(), {}, false, {}};
    if (command.name == "completion") command.words = {"bash", "zsh", "fish"};
    for (const CLI::Option* option : set.app().get_options())
      command.takes_model |= option->get_positional() && option->get_name(true) == "MODEL";
    command.flags.push_back({{"--help"}, "Shows the flags.", "", false, {}});
    for (const FlagRecord& record : set.records()) {
      if (record.flag_class == FlagClass::kRefused) continue;
      FlagFacts flag;
      flag.names = record.names;
      flag.names.insert(flag.names.end(), record.negatives.begin(), record.negatives.end());
      flag.help = record.help;
      flag.value = record.value;
      flag.is_file = flag.value == "FILE" || flag.value == "OTHER";
      if (flag.value.find('|') != std::string::npos) flag.words = split(flag.value, '|');
      command.flags.push_back(std::move(flag));
    }
    commands.push_back(std::move(command));
  }
  return commands;
}

std::string join(const std::vector<std::string>& words, const char* separator = " ") {
  return CLI::detail::join(words, separator);
}

std::string bash_script(const std::vector<CommandFacts>& commands) {
  std::vector<std::string> names;
  std::string values, flags, models, words;
  for (const CommandFacts& command : commands) {
    names.push_back(command.name);
    std::vector<std::string> all;
    for (const FlagFacts& flag : command.flags) {
      all.insert(all.end(), flag.names.begin(), flag.names.end());
      if (flag.value.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : flag.names) patterns.push_back(command.name + ":" + name);
      values += "    " + join(patterns, "|") + ") ";
      if (!flag.words.empty()) {
        values += "COMPREPLY=($(compgen -W '" + join(flag.words) + "' -- \"$cur\"))";
      } else if (flag.is_file) {
        values += "COMPREPLY=($(compgen -f -- \"$cur\"))";
      } else {
        values += ":";
      }
      values += "; return ;;\n";
    }
    flags += "    " + command.name + ") flags='" + join(all) + "' ;;\n";
    if (command.takes_model) models += (models.empty() ? "" : "|") + command.name;
    if (!command.words.empty())
      words += "    " + command.name + ") COMPREPLY=($(compgen -W '" + join(command.words) +
               "' -- \"$cur\")) ;;\n";
  }
  return "# bash completion for invar: source <(invar completion bash)\n"
         "_invar() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} flags=\n"
         "  COMPREPLY=()\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    COMPREPLY=($(compgen -W '" +
         join(names) +
         " --help --version' -- \"$cur\"))\n"
         "    return\n"
         "  fi\n"
         "  case \"${COMP_WORDS[1]}:$prev\" in\n" +
         values +
         "  esac\n"
         "  case \"${COMP_WORDS[1]}\" in\n" +
         flags +
         "  esac\n"
         "  if [ \"${cur:0:1}\" = - ]; then\n"
         "    COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
         "    return\n"
         "  fi\n"
         "  case \"${COMP_WORDS[1]}\" in\n"
         "    " +
         models +
         ") COMPREPLY=($(compgen -W \"$(\"${COMP_WORDS[0]}\" list --names 2>/dev/null)\" -- "
         "\"$cur\") $(compgen -f -- \"$cur\")) ;;\n" +
         words +
         "  esac\n"
         "}\n"
         "complete -o filenames -F _invar invar\n";
}

// For single quotes, and for the brackets and colons that _arguments reads.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '[' || c == ']' || c == ':') {
      out += std::string("\\") + c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string zsh_script(const std::vector<CommandFacts>& commands) {
  std::string list, cases;
  for (const CommandFacts& command : commands) {
    list += "    '" + command.name + ":" + zsh_text(command.help) + "'\n";
    cases += "    " + command.name + ")\n      _arguments";
    for (const FlagFacts& flag : command.flags) {
      for (const std::string& name : flag.names) {
        cases += " \\\n        '*" + name + "[" + zsh_text(flag.help) + "]";
        if (!flag.words.empty()) {
          cases += ":value:(" + join(flag.words) + ")";
        } else if (flag.is_file) {
          cases += ":file:_files";
        } else if (!flag.value.empty()) {
          cases += ":" + zsh_text(flag.value) + ":";
        }
        cases += "'";
      }
    }
    if (command.takes_model) cases += " \\\n        '1:model:_invar_models'";
    if (!command.words.empty()) cases += " \\\n        '1:word:(" + join(command.words) + ")'";
    cases += "\n      ;;\n";
  }
  return "#compdef invar\n"
         "# zsh completion for invar: invar completion zsh > \"${fpath[1]}/_invar\"\n"
         "_invar_models() {\n"
         "  local -a models\n"
         "  models=(${(f)\"$(invar list --names 2>/dev/null)\"})\n"
         "  compadd -a models\n"
         "  _files\n"
         "}\n"
         "_invar() {\n"
         "  local -a commands\n"
         "  commands=(\n" +
         list +
         "  )\n"
         "  if (( CURRENT == 2 )); then\n"
         "    _describe command commands\n"
         "    return\n"
         "  fi\n"
         "  local command=${words[2]}\n"
         "  shift words\n"
         "  (( CURRENT-- ))\n"
         "  case $command in\n" +
         cases +
         "  esac\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _invar ]; then _invar \"$@\"; else compdef _invar invar; fi\n";
}

std::string fish_text(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return "'" + out + "'";
}

std::string fish_script(const std::vector<CommandFacts>& commands) {
  std::string out = "# fish completion for invar: invar completion fish | source\n";
  for (const CommandFacts& command : commands) {
    out += "complete -c invar -f -n __fish_use_subcommand -a " + command.name + " -d " +
           fish_text(command.help) + "\n";
    const std::string begin =
        "complete -c invar -n '__fish_seen_subcommand_from " + command.name + "'";
    if (command.takes_model) out += begin + " -a '(invar list --names 2>/dev/null)'\n";
    if (!command.words.empty()) out += begin + " -f -a '" + join(command.words) + "'\n";
    for (const FlagFacts& flag : command.flags) {
      for (const std::string& name : flag.names) {
        out += begin + " -l " + name.substr(2);
        if (!flag.words.empty()) {
          out += " -x -a '" + join(flag.words) + "'";
        } else if (!flag.value.empty()) {
          out += flag.is_file ? " -r -F" : " -x";
        }
        out += " -d " + fish_text(flag.help) + "\n";
      }
    }
  }
  return out;
}

int complete(const std::vector<FlagSet>& all, const std::string& shell) {
  const std::vector<CommandFacts> commands = collect(all);
  if (shell == "bash") {
    print(bash_script(commands));
  } else if (shell == "zsh") {
    print(zsh_script(commands));
  } else if (shell == "fish") {
    print(fish_script(commands));
  } else {
    return fail("completion", "'" + shell + "' is none of bash, zsh, fish", kExitUsage);
  }
  return kExitOk;
}

}  // namespace

std::function<int()> add_completion(FlagSet& flags) {
  auto shell = std::make_shared<std::string>();
  flags.argument("SHELL", *shell, "bash, zsh or fish.");
  flags.footer(
      "Example:\n"
      "  source <(invar completion bash)\n"
      "  invar completion zsh > \"${fpath[1]}/_invar\"\n"
      "  invar completion fish | source");
  return [shell, all = flags.siblings()] { return complete(*all, *shell); };
}

}  // namespace invar::cli
