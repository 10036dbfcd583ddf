// The invar command: reads the command line, runs one subcommand, returns its exit code. What the
// commands do stands in one file each (commands.h).
#include <signal.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/log.h"
#include "commands.h"
#include "exit_codes.h"
#include "help.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr const char* kFooter =
    "Example:\n"
    "  invar pull HuggingFaceTB/SmolLM2-135M-Instruct\n"
    "  invar run SmolLM2-135M-Instruct --prompt 'Why is the sky blue?'\n\n"
    "Models are kept in $INVAR_MODELS, else $XDG_CACHE_HOME/invar/models, else\n"
    "~/.cache/invar/models.\n\n"
    "Exit codes: 0 done; 1 the answer is no, or a download failed; 2 a flag or value cannot work;\n"
    "3 model or file missing or broken; 4 not supported; 5 does not fit in memory;\n"
    "6 address in use or not bindable (serve);\n"
    "130 ended by Ctrl-C; 141 the reader of our output went away.\n"
    "`invar COMMAND --help` shows the flags of a command.";

constexpr Command kCommands[] = {
    {"run", "Answers a prompt, or chats in the terminal.", add_run},
    {"serve", "Serves a model over HTTP, as OpenAI's API does.", add_serve},
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
    {"verify", "Checks that a reply depends on its request only, whatever runs beside it.",
     add_verify},
    {"tokenize", "Shows the tokens of a text.", add_tokenize},
    {"completion", "Prints the completion script of a shell.", add_completion},
};

// What was not understood, in one line that names the nearest known word.
int report_extras(const CLI::App& root, const CLI::App* command) {
  const CLI::App& app = command != nullptr ? *command : root;
  const std::string name = command != nullptr ? command->get_name() : "";
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
    guess = nearest(extra, long_flags(app));
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

int run_command_line(int argc, char** argv) {
  CLI::App root{"Invar: exact, fast local LLM inference.", "invar"};
  root.footer(kFooter);
  root.allow_extras();
  root.require_subcommand(0, 1);
  root.set_help_flag("-h,--help", "Shows this text.");
  bool version = false;
  root.add_flag("--version", version, "Shows version, instruction set and arithmetic id.");

  std::vector<CLI::App*> apps;
  std::vector<std::function<int()>> runs;
  for (const Command& command : kCommands) {
    CLI::App* app = root.add_subcommand(command.name, command.summary);
    // Extras are ours to report: CLI11 would name all, and none of the known flags.
    app->allow_extras();
    FlagSet flags(*app);
    apps.push_back(app);
    runs.push_back(command.add(flags));
  }
  const CLI::App* chosen = nullptr;
  const std::function<int()>* run = nullptr;
  const auto find_chosen = [&] {
    for (size_t i = 0; i < apps.size(); ++i)
      if (apps[i]->parsed()) {
        chosen = apps[i];
        run = &runs[i];
      }
  };

  try {
    root.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    find_chosen();
    print(chosen == nullptr ? make_help(root, "invar")
                            : make_help(*chosen, "invar " + chosen->get_name()));
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    find_chosen();
    std::string message = error.what();
    // "--threads: 1 required N missing"
    if (error.get_name() == "ArgumentMismatch")
      message = message.substr(0, message.find(':')) + " needs a value, or is given twice";
    return fail(chosen == nullptr ? "" : chosen->get_name(), message, kExitUsage);
  }
  find_chosen();
  if (chosen == nullptr) {
    if (!root.remaining().empty()) return report_extras(root, nullptr);
    if (version) return print_version();
    print_error(make_help(root, "invar"));
    return kExitUsage;
  }
  if (!chosen->remaining().empty()) return report_extras(root, chosen);
  for (const CLI::Option* option : chosen->get_options()) {
    if (option->get_positional() && option->count() == 0 &&
        !option->get_option_text().starts_with("["))  // optional
      return fail(chosen->get_name(),
                  option->get_name(true) + " is missing; `invar " + chosen->get_name() +
                      " --help` shows how it is used",
                  kExitUsage);
  }
  return (*run)();
}

}  // namespace
}  // namespace invar::cli

int main(int argc, char** argv) {
  // A closed pipe shows up as a failed write, which print() handles; no signal.
  ::signal(SIGPIPE, SIG_IGN);
  return invar::cli::run_command_line(argc, argv);
}
