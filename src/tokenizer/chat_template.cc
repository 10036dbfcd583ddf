// A template and one rendering of it. The language stands in jinja_*.cc.
#include "tokenizer/chat_template.h"

#include <ctime>

#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_parser.h"

namespace invar {

struct ChatTemplate::Program {
  jinja::Template tree;
  TemplateLimits limits;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Program> program) : program_(std::move(program)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const TemplateLimits& limits) {
  Result<jinja::Template> tree = jinja::parse_template(source);
  if (!tree) return with_context("chat template", tree.error());
  auto program = std::make_unique<Program>();
  program->tree = std::move(*tree);
  program->limits = limits;
  return ChatTemplate(std::move(program));
}

namespace {

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm result{};
  localtime_r(&now, &result);
  return result;
}

}  // namespace

Result<std::vector<TextSegment>> ChatTemplate::render(const TemplateInput& input) const {
  using jinja::Value;
  jinja::Interpreter interpreter(program_->tree, program_->limits,
                                 input.now ? *input.now : local_time());
  jinja::Budget& budget = interpreter.budget;
  const std::pair<const char*, const std::string*> tokens[] = {{"bos_token", &input.bos_token},
                                                               {"eos_token", &input.eos_token},
                                                               {"pad_token", &input.pad_token},
                                                               {"unk_token", &input.unk_token}};
  for (const auto& [name, text] : tokens)
    interpreter.set_variable(name, Value::string(*text, /*trusted=*/true));
  interpreter.set_variable("documents", Value::none());
  if (input.kwargs.is_object())
    for (const auto& [name, value] : input.kwargs.members())
      interpreter.set_variable(name, jinja::from_json(budget, value));
  // Last, so that no keyword of a request can replace them.
  interpreter.set_variable("messages", jinja::from_json(budget, input.messages));
  interpreter.set_variable("tools", jinja::from_json(budget, input.tools));
  interpreter.set_variable("add_generation_prompt", Value::boolean(input.add_generation_prompt));

  const jinja::Str text = budget.failed() ? jinja::Str() : interpreter.render();
  if (budget.failed())
    return invalid_argument("chat template, line %d: %s", interpreter.line(),
                            budget.error().c_str());
  std::vector<TextSegment> segments;
  text.for_each_run(0, text.num_bytes(), [&](std::string_view run, bool trusted) {
    segments.push_back({std::string(run), trusted});
  });
  return segments;
}

}  // namespace invar
