// Our interpreter against Python's jinja2, set up as Hugging Face does (tools/template_oracle.py):
// templates in the style of each model family and those inside the real models, snippets for each
// construct, random expressions. Output must be equal byte for byte; where one fails both must.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/file.h"
#include "tokenizer/chat_template.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

const std::string kTemplates = std::string(INVAR_TEST_DATA) + "/golden/templates/";

std::string slurp(const std::string& path) {
  Result<std::string> text = read_file(path, 64u << 20);
  EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
  return text.ok() ? *text : "";
}

std::string python() {
  const char* given = std::getenv("INVAR_PYTHON");
  return given != nullptr ? given : std::string(INVAR_SOURCE_DIR) + "/.venv/bin/python";
}

constexpr const char* kRemedy =
    "; run tools/setup.sh, which makes .venv with jinja2 (or set INVAR_PYTHON to a Python that has "
    "it)";

// Runs the oracle; what it printed, or nothing when it failed.
std::optional<std::string> run_oracle(const std::string& arguments) {
  const std::string command = "'" + python() + "' '" + std::string(INVAR_SOURCE_DIR) +
                              "/tools/template_oracle.py' " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string output;
  char buffer[4096];
  while (const size_t count = fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, count);
  if (pclose(pipe) == 0) return output;
  ADD_FAILURE() << command << " failed: " << output.substr(0, 400) << kRemedy;
  return std::nullopt;
}

struct Case {
  std::string name, source;
  Json variables;  // messages, tools, add_generation_prompt and everything else
};

Json to_json(const std::vector<Case>& cases) {
  Json list = Json::array();
  for (const Case& test : cases) {
    Json entry = Json::object();
    entry.set("template", test.source);
    entry.set("vars", test.variables);
    list.push_back(std::move(entry));
  }
  return list;
}

std::string joined(const std::vector<TextSegment>& segments) {
  std::string text;
  for (const TextSegment& segment : segments) text += segment.text;
  return text;
}

Result<std::string> render_ours(const Case& test) {
  Result<ChatTemplate> parsed = ChatTemplate::parse(test.source);
  if (!parsed) return parsed.error();
  TemplateInput input;
  input.kwargs = test.variables;
  if (const Json* messages = test.variables.find("messages")) input.messages = *messages;
  if (const Json* tools = test.variables.find("tools")) input.tools = *tools;
  if (const Json* prompt = test.variables.find("add_generation_prompt"))
    input.add_generation_prompt = prompt->as_bool();
  if (const Json* bos = test.variables.find("bos_token")) input.bos_token = bos->as_string();
  std::tm now{};  // 2025-03-09 04:05:06, a Sunday, as in the oracle
  now.tm_year = 125, now.tm_mon = 2, now.tm_mday = 9, now.tm_hour = 4, now.tm_min = 5;
  now.tm_sec = 6, now.tm_wday = 0, now.tm_yday = 67;
  input.now = now;
  Result<std::vector<TextSegment>> segments = parsed->render(input);
  if (!segments) return segments.error();
  return joined(*segments);
}

// Renders all cases in both and compares. Returns how many jinja2 rendered.
int compare_all(const std::vector<Case>& cases, const std::string& name) {
  const fs::path folder =
      fs::temp_directory_path() / ("invar-jinja-" + name + "-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::string request = folder / "cases.json", reply = folder / "results.json";
  std::ofstream(request) << to_json(cases).dump();
  const auto output = run_oracle("'" + request + "' '" + reply + "'");
  int num_rendered = 0;
  if (output) {
    Result<Json> results = Json::parse(slurp(reply));
    EXPECT_TRUE(results.ok()) << (results.ok() ? "" : results.error().message);
    if (results.ok() && results->items().size() == cases.size()) {
      for (size_t i = 0; i < cases.size(); ++i) {
        const Json& theirs = results->items()[i];
        const Result<std::string> ours = render_ours(cases[i]);
        const Json *text = theirs.find("output"), *error = theirs.find("error");
        num_rendered += text != nullptr;
        if (text != nullptr && !ours.ok()) {
          ADD_FAILURE() << cases[i].name << ": " << ours.error().message
                        << "\n  jinja2: " << text->as_string();
        } else if (text != nullptr) {
          EXPECT_EQ(*ours, text->as_string()) << cases[i].name;
        } else if (ours.ok()) {
          ADD_FAILURE() << cases[i].name << ": rendered '" << *ours
                        << "'\n  jinja2: " << error->as_string();
        }
      }
    } else {
      ADD_FAILURE() << "the oracle gave no " << cases.size() << " results";
    }
  }
  fs::remove_all(folder);
  return num_rendered;
}

std::vector<std::pair<std::string, Json>> conversations() {
  std::vector<std::pair<std::string, Json>> result;
  Result<Json> all = Json::parse(slurp(kTemplates + "conversations.json"));
  if (!all.ok()) return result;
  for (const auto& [name, conversation] : all->members()) {
    Json variables = Json::object();
    variables.set("messages", *conversation.find("messages"));
    const Json* tools = conversation.find("tools");
    variables.set("tools", tools != nullptr ? *tools : Json());
    variables.set("documents", Json());
    const Json* prompt = conversation.find("add_generation_prompt");
    variables.set("add_generation_prompt", prompt != nullptr ? *prompt : Json(true));
    variables.set("bos_token", "<bos>");
    variables.set("eos_token", "<eos>");
    variables.set("pad_token", "");
    variables.set("unk_token", "");
    if (const Json* kwargs = conversation.find("kwargs"))
      for (const auto& [key, value] : kwargs->members()) variables.set(key, value);
    result.emplace_back(name, std::move(variables));
  }
  return result;
}

TEST(JinjaDifferential, FamilyTemplates) {
  std::vector<Case> cases;
  for (const auto& entry : fs::directory_iterator(kTemplates)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string source = slurp(entry.path());
    for (const auto& [name, variables] : conversations())
      cases.push_back({entry.path().filename().string() + " / " + name, source, variables});
  }
  ASSERT_GE(cases.size(), 100u);
  EXPECT_GE(compare_all(cases, "family"), 80);
}

fs::path models_folder() {
  if (const char* given = std::getenv("INVAR_MODELS")) return given;
  if (const char* cache = std::getenv("XDG_CACHE_HOME")) return fs::path(cache) / "invar/models";
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr ? home : "/") / ".cache/invar/models";
}

TEST(JinjaDifferential, TemplatesOfRealModels) {
  std::vector<Case> cases;
  for (const char* file :
       {"smollm2-135m-instruct-q4_1.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"}) {
    const std::string path = models_folder() / file;
    ASSERT_TRUE(file_exists(path)) << path << " is missing; run tools/fetch_models.py";
    const auto source = run_oracle("--template '" + path + "'");
    ASSERT_TRUE(source.has_value());
    ASSERT_GT(source->size(), 100u) << path;
    for (const auto& [name, variables] : conversations())
      cases.push_back({std::string(file) + " / " + name, *source, variables});
  }
  EXPECT_GE(compare_all(cases, "real"), 30);
}

Json snippet_variables() {
  Result<Json> variables = Json::parse(slurp(kTemplates + "snippet_vars.json"));
  if (!variables.ok()) return Json::object();
  Json all = *variables;
  all.set("messages", Json::array());
  all.set("tools", Json());
  all.set("documents", Json());
  all.set("add_generation_prompt", true);
  all.set("bos_token", "");
  all.set("eos_token", "");
  all.set("pad_token", "");
  all.set("unk_token", "");
  return all;
}

TEST(JinjaDifferential, Snippets) {
  std::vector<Case> cases;
  std::istringstream lines(slurp(kTemplates + "snippets.txt"));
  const Json variables = snippet_variables();
  for (std::string line; std::getline(lines, line);) {
    std::string source;
    for (size_t i = 0; i < line.size(); ++i) {
      const bool newline = line.compare(i, 2, "\\n") == 0;
      source += newline ? '\n' : line[i];
      i += newline;
    }
    cases.push_back({line, source, variables});
    // With Windows line ends, and as a part of a larger template.
    cases.push_back({"after a line: " + line, "x\r\n  " + source + "\r\n", variables});
  }
  ASSERT_GE(cases.size(), 200u);
  EXPECT_GE(compare_all(cases, "snippets"), 150);
}

// Random expressions whose parts mostly fit each other, so that most of them render.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  std::string any(int depth) {
    switch (pick(5)) {
      case 0:
        return number(depth);
      case 1:
        return text(depth);
      case 2:
        return list(depth);
      case 3:
        return truth(depth);
      default:
        return one_of({"d", "users", "mix", "none", "nothing", "users[0]", "d.b", "ed"});
    }
  }

  std::string number(int depth) {
    if (depth == 0) return one_of({"n", "z", "m", "f", "1", "2", "3.5", "0", "10", "true"});
    switch (pick(8)) {
      case 0:
        return "(" + number(depth - 1) + one_of({" + ", " - ", " * "}) + number(depth - 1) + ")";
      case 1:
        return "(" + number(depth - 1) + one_of({" / ", " // ", " % "}) + number(depth - 1) + ")";
      case 2:
        return text(depth - 1) + " | length";
      case 3:
        return "(" + list(depth - 1) + " | length)";
      case 4:
        return "-" + number(0);
      case 5:
        return "(" + number(depth - 1) + " | " + one_of({"int", "float", "abs", "round"}) + ")";
      case 6:
        return text(depth - 1) + "." + one_of({"find", "count", "rfind"}) + "(" + text(0) + ")";
      default:
        return "(" + number(depth - 1) + " if " + truth(depth - 1) + " else " + number(0) + ")";
    }
  }

  std::string text(int depth) {
    if (depth == 0)
      return one_of({"s", "e", "u", "ws", "q", "lines", "'a'", "'lo'", "' '", "'｜'", "\"x\\ty\"",
                     "'a,b c'"});
    switch (pick(10)) {
      case 0:
        return "(" + text(depth - 1) + " + " + text(depth - 1) + ")";
      case 1:
        return "(" + any(depth - 1) + " ~ " + text(depth - 1) + ")";
      case 2:
        return "(" + text(depth - 1) + " | " +
               one_of({"upper", "lower", "trim", "title", "capitalize", "e", "string", "reverse",
                       "tojson", "indent", "first", "last"}) +
               ")";
      case 3:
        return text(depth - 1) + "." +
               one_of({"upper()", "lower()", "strip()", "lstrip()", "rstrip()", "title()",
                       "capitalize()", "strip('aH ')", "replace('l', 'LL')", "replace('', '.')"});
      case 4:
        return text(depth - 1) + "[" + bound() + ":" + bound() + "]";
      case 5:
        return text(depth - 1) + "[" + bound() + ":" + bound() + ":" +
               one_of({"-1", "2", "1", "-3"}) + "]";
      case 6:
        return "(" + any(depth - 1) + " | " +
               one_of({"string", "tojson", "default('w', true)", "tojson(indent=2)"}) + ")";
      case 7:
        return "(" + list(depth - 1) + " | join(" + text(0) + "))";
      case 8:
        return "(" + text(0) + " * " + one_of({"0", "2", "3", "-1"}) + ")";
      default:
        return "(" + text(depth - 1) + " if " + truth(depth - 1) + " else " + text(0) + ")";
    }
  }

  std::string list(int depth) {
    if (depth == 0)
      return one_of({"l", "ls", "el", "mix", "[1, 'b']", "[none, [2]]", "range(4) | list"});
    switch (pick(9)) {
      case 0:
        return "[" + any(depth - 1) + ", " + any(depth - 1) + "]";
      case 1:
        return text(depth - 1) + ".split(" + one_of({"", "','", "' '", "'l', 1", "none, 1"}) + ")";
      case 2:
        return "(" + list(depth - 1) + ")[" + bound() + ":" + bound() + "]";
      case 3:
        return "(" + list(depth - 1) + " | " +
               one_of({"reverse", "unique", "map('string')", "map('tojson')", "select('string')",
                       "reject('none')", "select"}) +
               " | list)";
      case 4:
        return "((" + list(depth - 1) + ") + (" + list(depth - 1) + "))";
      case 5:
        return "(" + one_of({"l", "ls", "[" + number(0) + ", " + number(0) + "]"}) + " | sort)";
      case 6:
        return "(" + text(depth - 1) + " | list)";
      case 7:
        return "(users | map(attribute='" + one_of({"name", "age", "tag.x"}) + "') | list)";
      default:
        return "(d" + one_of({".keys()", ".values()", " | items", " | dictsort"}) + " | list)";
    }
  }

  std::string truth(int depth) {
    if (depth == 0) return one_of({"t", "fa", "true", "e", "s", "nothing", "no", "l", "el"});
    switch (pick(7)) {
      case 0:
        return "(" + number(depth - 1) + one_of({" < ", " <= ", " == ", " != ", " > "}) +
               number(depth - 1) + ")";
      case 1:
        return "(" + any(depth - 1) + one_of({" == ", " != "}) + any(depth - 1) + ")";
      case 2:
        return "(" + any(depth - 1) + " is " + one_of({"", "not "}) +
               one_of({"string", "number", "mapping", "sequence", "iterable", "none", "defined",
                       "undefined", "boolean", "true", "false", "integer", "float"}) +
               ")";
      case 3:
        return "(" + text(0) + one_of({" in ", " not in "}) + text(depth - 1) + ")";
      case 4:
        return "(" + number(0) + " in " + list(0) + ")";
      case 5:
        return "(" + truth(depth - 1) + one_of({" and ", " or "}) + truth(depth - 1) + ")";
      default:
        return "(not " + truth(depth - 1) + ")";
    }
  }

  std::string statement(int depth) {
    switch (pick(6)) {
      case 0:
        return "{% for x in " + list(depth) +
               " %}{{ x }}{{ loop.index if loop.last else ',' }}{% else %}-{% endfor %}";
      case 1:
        return "{% if " + truth(depth) + " %}A{% elif " + truth(depth) +
               " %}B{% else %}C{% endif %}";
      case 2:
        return "{% set v = " + any(depth) + " %}{{ v }}{{ v is string }}";
      case 3:
        return "{% macro mac(a, b=" + any(0) + ") %}{{ a ~ b }}{% endmacro %}{{ mac(" + any(depth) +
               ") }}";
      case 4:
        return "{% for x in " + list(depth) +
               " if x is string %}{{ loop.index }}{{ x }}{% endfor %}";
      default:
        return "{{ " + any(depth) + " }}";
    }
  }

  size_t pick(size_t count) { return random_() % count; }

 private:
  std::string one_of(const std::vector<std::string>& choices) {
    return choices[pick(choices.size())];
  }
  std::string bound() { return one_of({"", "", "1", "-1", "2", "-3", "100", "-100", "0"}); }

  std::mt19937_64 random_;
};

TEST(JinjaDifferential, RandomTemplates) {
  Generator generator(20250301);
  const Json variables = snippet_variables();
  std::vector<Case> cases;
  for (int i = 0; i < 700; ++i) {
    const std::string source = generator.statement(1 + static_cast<int>(generator.pick(3)));
    cases.push_back({source, source, variables});
  }
  EXPECT_GE(compare_all(cases, "random"), 400);
}

}  // namespace
}  // namespace invar
