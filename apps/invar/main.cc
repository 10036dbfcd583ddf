// The invar command: reads the command line, runs one subcommand, returns its exit code. What the
// commands do stands in one file each (commands.h).
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/log.h"
#include "commands.h"
#include "exit_codes.h"
#include "fatal.h"
#include "help.h"
#include "launch_arguments.h"
#include "terminal.h"

namespace invar::cli {
namespace {

// Started under this name, we take a command line of llama.cpp's server.
constexpr const char* kServerName = "llama-server";

constexpr const char* kFooter =
    "Example:\n"
    "  invar pull HuggingFaceTB/SmolLM2-135M-Instruct\n"
    "  invar run SmolLM2-135M-Instruct --prompt 'Why is the sky blue?'\n\n"
    "Models are kept in $INVAR_MODELS, else $XDG_CACHE_HOME/invar/models, else\n"
    "~/.cache/invar/models.\n\n"
    "Exit codes: 0 done; 1 the answer is no, or a download failed; 2 a flag or value cannot work;\n"
    "3 model or file missing or broken; 4 not supported; 5 does not fit in memory;\n"
    "serve: 6 address in use or not bindable; 70 a mistake of ours; 71 the engine stood still;\n"
    "72 the GPU was lost;\n"
    "130 ended by Ctrl-C; 141 the reader of our output went away.\n"
    "`invar COMMAND --help` shows the flags of a command.";

constexpr Command kCommands[] = {
    {"run", "Answers a prompt, or chats in the terminal.", add_run},
#ifdef INVAR_WITH_SERVE
    {"serve", "Serves a model over HTTP, as OpenAI's and Anthropic's APIs do.", add_serve},
#endif
    {"pull", "Downloads a model from the Hugging Face hub or a URL, resumed and checked.",
     add_pull},
    {"list", "Lists the models in the models folder.", add_list},
    {"cache", "Shows or clears what is kept of packed weights for quicker starts.", add_cache},
    {"info", "Says what a model is, and what of it would run where.", add_info},
    {"plan", "Says whether a model fits into memory with a context.", add_plan},
    {"eval", "Measures perplexity on a text, and the distance to another model or backend.",
     add_eval},
    {"bench", "Measures tokens per second.", add_bench},
    {"profile", "Measures what rows cost in each kernel, and tunes this machine for a model.",
     add_profile},
#ifdef INVAR_WITH_SERVE
    {"verify", "Checks that a reply depends on its request only, whatever runs beside it.",
     add_verify},
#endif
    {"tokenize", "Shows the tokens of a text.", add_tokenize},
    {"completion", "Prints the completion script of a shell.", add_completion},
};

// What was not understood, in one line that names the nearest known word.
int report_extras(const CLI::App& root, const FlagSet* command) {
  const CLI::App& app = command != nullptr ? command->app() : root;
  const std::string name = command != nullptr ? app.get_name() : "";
  const std::vector<std::string> extras = app.remaining();
  std::string extra = extras.front();
  for (const std::string& candidate : extras) {
    if (candidate.size() > 1 && candidate[0] == '-' && candidate != "--") {
      extra = candidate.substr(0, candidate.find('='));
      break;
    }
  }
  std::string known_for = "invar" + (name.empty() ? "" : " " + name);
  std::string message, guess;
  if (extra[0] == '-') {
    message = "unknown flag " + extra;
    guess = nearest(extra, command != nullptr ? long_flags(*command)
                                              : std::vector<std::string>{"--help", "--version"});
  } else if (command == nullptr) {
    message = "unknown command '" + extra + "'";
    std::vector<std::string> names;
    for (const CLI::App* sub : root.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(sub->get_name());
    guess = nearest(extra, names);
  } else {
    message = "one argument too many: '" + extra + "'";
  }
  message += guess.empty() ? "; `" : "; did you mean " + guess + "? `";
  return fail(name, message + known_for + " --help` shows what there is", kExitUsage);
}

// All commands with their flags.
struct CommandLine {
  CommandLine();

  CLI::App root{"Invar: exact, fast local LLM inference.", "invar"};
  bool version = false;
  std::vector<FlagSet> flags;  // as kCommands
  std::vector<std::function<int()>> runs;
};

CommandLine::CommandLine() {
  root.footer(kFooter);
  root.allow_extras();
  root.require_subcommand(0, 1);
  root.set_help_flag("-h,--help", "Shows this text.");
  root.add_flag("--version", version, "Shows version, instruction set and arithmetic id.");
  flags.reserve(std::size(kCommands));  // commands keep references
  for (const Command& command : kCommands) {
    CLI::App* app = root.add_subcommand(command.name, command.summary);
    // Extras are ours to report: CLI11 would name all, and none of the known flags.
    app->allow_extras();
    runs.push_back(command.add(flags.emplace_back(*app, &flags)));
  }
}

// Values are good and flags known; what remains is to set targets and to look for MODEL.
int parse_and_run(CommandLine& line, std::vector<std::string> arguments) {
  size_t chosen = std::size(kCommands);
  const auto find_chosen = [&] {
    for (size_t i = 0; i < line.flags.size(); ++i)
      if (line.flags[i].app().parsed()) chosen = i;
    return chosen < line.flags.size();
  };
  std::reverse(arguments.begin(), arguments.end());  // as the library wants it
  try {
    line.root.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    print(find_chosen() ? make_help(line.flags[chosen].app(), &line.flags[chosen],
                                    std::string("invar ") + kCommands[chosen].name)
                        : make_help(line.root, nullptr, "invar"));
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    std::string message = error.what();
    // "--threads: 1 required N missing"
    if (error.get_name() == "ArgumentMismatch")
      message = message.substr(0, message.find(':')) + " needs a value, or is given twice";
    return fail(find_chosen() ? kCommands[chosen].name : "", message, kExitUsage);
  }
  if (!find_chosen()) {
    if (!line.root.remaining().empty()) return report_extras(line.root, nullptr);
    if (line.version) return print_version();
    print_error(make_help(line.root, nullptr, "invar"));
    return kExitUsage;
  }
  const FlagSet& flags = line.flags[chosen];
  if (!flags.app().remaining().empty()) return report_extras(line.root, &flags);
  const std::string name = kCommands[chosen].name;
  for (const CLI::Option* option : flags.app().get_options()) {
    if (option->get_positional() && option->count() == 0 &&
        !option->get_option_text().starts_with("["))  // optional
      return fail(
          name,
          option->get_name(true) + " is missing; `invar " + name + " --help` shows how it is used",
          kExitUsage);
  }
  return line.runs[chosen]();
}

// The names of those that are set, "" when none is.
std::string variables_of_llama() {
  constexpr std::string_view kPrefix = "LLAMA_ARG_";
  std::vector<std::string> names;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with(kPrefix)) names.emplace_back(text.substr(0, text.find('=')));
  }
  std::sort(names.begin(), names.end());
  return CLI::detail::join(names, ", ");
}

// The command line of a server, in its own words (launch_arguments.h).
int launch(CommandLine& line, const std::string& command, std::vector<std::string> arguments) {
  size_t index = 0;
  while (index < std::size(kCommands) && kCommands[index].name != command) ++index;
  if (index == std::size(kCommands))
    return fail(command, "this build has no server; `make serve` builds one and starts it",
                kExitUnsupported);
  const FlagSet& flags = line.flags[index];
  LaunchArguments read;
  const auto environment = [](const std::string& name) { return std::getenv(name.c_str()); };
  const Result<void> result = read_launch_arguments(flags.records(), arguments, environment, read);
  const auto end_with = [&](const std::string& cause) {
    const char* name = "--termination-log";
    const auto known = read.values.find(name);
    const std::string log =
        known != read.values.end()
            ? known->second
            : find_value(name, arguments, environment).value_or(kTerminationLog);
    return fatal(log, cause, kExitUsage);
  };
  if (!result) return end_with(result.error().message);
  if (read.version) return print_version();
  if (read.help == LaunchArguments::Help::kJson) {
    print(flags_json(flags));
    return kExitOk;
  }
  if (read.help == LaunchArguments::Help::kText) {
    print(make_help(flags.app(), &flags, "invar " + command));
    return kExitOk;
  }
  if (read.words.size() > 1)
    return end_with("one argument too many: '" + read.words[1] + "'; `invar " + command +
                    " --help` shows what there is");
  if (const std::string ignored = variables_of_llama(); !ignored.empty())
    read.warnings.push_back("variables of llama-server are not read: " + ignored);
  *flags.launch_warnings() = std::move(read.warnings);
  std::vector<std::string> plain = read.plain();
  plain.insert(plain.begin(), command);
  return parse_and_run(line, std::move(plain));
}

int run_command_line(int argc, char** argv) {
  const std::string program = argc > 0 ? argv[0] : "invar";
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  CommandLine line;
  const std::string first = arguments.empty() ? "" : arguments.front();
  const bool is_server_name = program.substr(program.rfind('/') + 1) == kServerName;
  if (first == "serve" && !is_server_name) {
    arguments.erase(arguments.begin());
    return launch(line, "serve", std::move(arguments));
  }
  const bool is_ours = first == "--help" || first == "-h" || first == "--version";
  if (is_server_name || (first.starts_with('-') && !is_ours))
    return launch(line, "serve", std::move(arguments));
  return parse_and_run(line, std::move(arguments));
}

}  // namespace
}  // namespace invar::cli

int main(int argc, char** argv) {
  // A closed pipe shows up as a failed write, which print() handles; no signal.
  ::signal(SIGPIPE, SIG_IGN);
  return invar::cli::run_command_line(argc, argv);
}
