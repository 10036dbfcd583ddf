// Request bodies: what is accepted, what is refused, and how it is said.
#include "server/fields.h"

#include <gtest/gtest.h>

#include "server/generation_fields.h"
#include "server/response_format.h"
#include "server/tool_calls.h"

namespace invar::server {
namespace {

Json parse(const char* text) {
  Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return *json;
}

ModelDescription tiny_model() {
  ModelDescription model;
  model.vocab_size = 100;
  model.context = 256;
  return model;
}

struct Read {
  GenerationFields generation;
  std::optional<ApiError> error;
};

Read read(const char* body,
          ApiOptions options = {.model_names = {"tiny"}, .any_model_name = true}) {
  const Json json = parse(body);
  Fields fields(json);
  Read result;
  result.generation = read_generation_fields(fields, tiny_model(), options, false, "digest");
  fields.finish(options.strict_fields, result.generation.warnings);
  result.error = fields.error();
  return result;
}

TEST(GenerationFields, RefusalsNameTheField) {
  const struct {
    const char *body, *param, *code;
  } cases[] = {
      {R"({"temperature":"hot"})", "temperature", "invalid_type"},
      {R"({"temperature":9})", "temperature", "out_of_range"},
      {R"({"temperature":true})", "temperature", "invalid_type"},
      {R"({"n":-1})", "n", "out_of_range"},
      {R"({"n":17})", "n", "out_of_range"},
      {R"({"n":1.5})", "n", "invalid_type"},
      {R"({"top_p":0})", "top_p", "out_of_range"},
      {R"({"max_tokens":0})", "max_tokens", "out_of_range"},
      {R"({"stop":""})", "stop", "invalid_value"},
      {R"({"stop":7})", "stop", "invalid_type"},
      {R"({"stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"]})", "stop",
       "out_of_range"},
      {R"({"logit_bias":{"100":1}})", "logit_bias", "out_of_range"},
      {R"({"logit_bias":{"x":1}})", "logit_bias", "invalid_value"},
      {R"({"logit_bias":{"1":101}})", "logit_bias", "out_of_range"},
      {R"({"stream_options":{"include_usage":true}})", "stream_options", "invalid_value"},
      {R"({"mirostat":2})", "mirostat", "unsupported_parameter"},
      {R"({"chat_template":"{{x}}"})", "chat_template", "template_not_allowed"},
      {R"({"best_of":3})", "best_of", "unsupported_parameter"},
      {R"({"watermarking":true})", "watermarking", "unsupported_parameter"},
      {R"({"skip_special_tokens":false})", "skip_special_tokens", "unsupported_parameter"},
  };
  for (const auto& c : cases) {
    const Read got = read(c.body);
    ASSERT_TRUE(got.error) << c.body;
    EXPECT_EQ(got.error->param, c.param) << c.body;
    EXPECT_EQ(got.error->code, c.code) << c.body;
    EXPECT_EQ(got.error->status, 400);
  }
}

TEST(GenerationFields, NeutralAndAbsentValuesPass) {
  const Read got = read(
      R"({"temperature":null,"mirostat":0,"typical_p":1,"lora":[],"dry_multiplier":0,"best_of":1,
          "top_k":-1,"n":2.0,"watermarking":false,"skip_special_tokens":true,"user":"me","seed":5,"stop":[],"speculative":false})");
  ASSERT_FALSE(got.error) << got.error->message;
  EXPECT_EQ(got.generation.num_choices, 2);
  EXPECT_EQ(got.generation.request.sampling.seed, 5u);
  EXPECT_EQ(got.generation.request.sampling.temperature, 1);
  EXPECT_TRUE(got.generation.request.stop.empty());
  EXPECT_TRUE(got.generation.warnings.empty());
}

TEST(GenerationFields, RepeatWindows) {
  for (const int64_t window : {int64_t{64}, int64_t{0}, int64_t{-1}}) {
    const Read got = read(("{\"repeat_last_n\":" + std::to_string(window) + "}").c_str());
    ASSERT_FALSE(got.error) << got.error->message;
    EXPECT_EQ(got.generation.request.sampling.repeat_last_n, window);
  }
  EXPECT_EQ(read(R"({"repeat_last_n":257})").error->code, "out_of_range");
}

TEST(GenerationFields, WarningsAreNotCollectedBeyondThoseThatAreTold) {
  std::string body = "{";
  for (int i = 0; i < 1000; ++i) body += (i > 0 ? ",\"x" : "\"x") + std::to_string(i) + "\":1";
  EXPECT_EQ(read((body + "}").c_str()).generation.warnings.size(), kMaxWarnings);
}

TEST(GenerationFields, UnknownFieldsWarnOrAreRefused) {
  const Read warned = read(R"({"foo":1})");
  ASSERT_FALSE(warned.error);
  ASSERT_EQ(warned.generation.warnings.size(), 1u);
  EXPECT_EQ(warned.generation.warnings[0].code, "ignored_field");
  EXPECT_EQ(warned.generation.warnings[0].param, "foo");
  ApiOptions strict{.model_names = {"tiny"}, .any_model_name = true, .strict_fields = true};
  const Read refused = read(R"({"foo":1})", strict);
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code, "unknown_field");
}

TEST(GenerationFields, ModelNames) {
  const ApiOptions exact{.model_names = {"tiny", "small"}};
  EXPECT_EQ(read(R"({"model":"small"})", exact).generation.model, "small");
  EXPECT_EQ(read(R"({"model":"gpt"})", exact).error->code, "model_not_found");
  EXPECT_EQ(read(R"({"model":"gpt"})", exact).error->status, 404);
  EXPECT_EQ(read(R"({})", exact).error->code, "missing_field");
  const Read any = read(R"({"model":"gpt"})");
  EXPECT_EQ(any.generation.model, "tiny");
  EXPECT_EQ(any.generation.warnings.at(0).code, "model_substituted");
}

TEST(GenerationFields, SeedsAreDrawnAndDiffer) {
  const uint64_t a = read("{}").generation.request.sampling.seed;
  const uint64_t b = read("{}").generation.request.sampling.seed;
  EXPECT_NE(a, b);
  EXPECT_LT(a, uint64_t{1} << 53);
}

TEST(GenerationFields, Salts) {
  ApiOptions options{.model_names = {"tiny"}, .any_model_name = true, .salt_per_key = true};
  EXPECT_EQ(read("{}", options).generation.request.cache_salt, "digest");
  EXPECT_EQ(read(R"({"cache_salt":"x"})", options).generation.request.cache_salt, "digestx");
  EXPECT_EQ(read(R"({"cache_salt":"x"})").generation.request.cache_salt, "x");
}

// Reported case D8: a window of 256.
TEST(FitWindow, SaysWhatFits) {
  const auto fit = [](int64_t num_prompt_tokens, int64_t max_tokens, ApiOptions options = {}) {
    const Json json = Json::object();
    Fields fields(json);
    GenerationFields generation;
    generation.max_tokens = max_tokens;
    fit_window(fields, generation, "prompt", num_prompt_tokens, 256, options);
    return std::pair(fields.error(), generation);
  };
  for (const auto& [prompt, asked] : {std::pair{300, -1}, {200, 100}, {256, -1}, {257, 10}}) {
    const auto [error, generation] = fit(prompt, asked);
    ASSERT_TRUE(error) << prompt;
    EXPECT_EQ(error->code, "context_length_exceeded");
    EXPECT_TRUE(error->message.starts_with("This model's maximum context length is 256 tokens."));
    EXPECT_EQ(error->num_prompt_tokens, prompt);
    EXPECT_EQ(error->context, 256);
  }
  EXPECT_NE(fit(200, 100).first->message.find("send at most 56"), std::string::npos);
  EXPECT_FALSE(fit(200, -1).first);
  EXPECT_FALSE(fit(200, 56).first);
  const auto [error, clamped] = fit(200, 100, {.clamp_max_tokens = true});
  EXPECT_FALSE(error);
  EXPECT_EQ(clamped.request.max_tokens, 56);
  EXPECT_EQ(clamped.warnings.at(0).code, "clamped_max_tokens");
}

TEST(ResponseFormat, Forms) {
  const auto read_format = [](const char* body, ConstraintSpec& spec) {
    const Json json = parse(body);
    Fields fields(json);
    read_response_format(fields, spec);
    return fields.error();
  };
  for (
      const char* body :
      {R"({"response_format":{"type":"json_schema","json_schema":{"name":"p","schema":{"type":"object"}}}})",
       R"({"response_format":{"type":"json_object","schema":{"type":"object"}}})",
       R"({"response_format":{"type":"json_schema","schema":{"type":"object"}}})",
       R"({"json_schema":{"type":"object"}})",
       R"({"structured_outputs":{"json":{"type":"object"}}})"}) {
    ConstraintSpec spec;
    EXPECT_FALSE(read_format(body, spec)) << body;
    EXPECT_EQ(spec.json_schema, R"({"type":"object"})") << body;
  }
  ConstraintSpec object, choice, none, bad;
  EXPECT_FALSE(read_format(R"({"response_format":{"type":"json_object"}})", object));
  EXPECT_TRUE(object.any_json_object);
  EXPECT_FALSE(read_format(R"({"guided_choice":["a","b"]})", choice));
  EXPECT_EQ(choice.choices, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(read_format(R"({"response_format":{"type":"text"}})", none));
  EXPECT_FALSE(has_format(none));
  for (const char* body :
       {R"({"response_format":{"type":"xml"}})", R"({"response_format":{}})",
        R"({"response_format":{"type":"json_schema"}})",
        R"({"response_format":{"type":"json_object"},"json_schema":{}})",
        R"({"structured_outputs":{"regex":"a"}})",
        R"({"response_format":{"type":"json_schema","json_schema":{"name":"a b","schema":{}}}})"})
    EXPECT_TRUE(read_format(body, bad)) << body;
}

TEST(Tools, ChoicesAndRefusals) {
  const ToolSupport support{true, ToolSyntax{}};
  const auto read_body = [&](const std::string& rest, ConstraintSpec& spec,
                             const ToolSupport& able) {
    const std::string tools =
        R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},
                    {"type":"function","function":{"name":"g"}}])";
    const Json json = parse(("{" + tools + rest + "}").c_str());
    Fields fields(json);
    std::vector<Warning> warnings;
    const ToolFields out = read_tools(fields, able, spec, warnings);
    return std::pair(out, fields.error());
  };
  using Use = ConstraintSpec::ToolUse;
  const struct {
    const char* rest;
    Use use;
    size_t num_tools;
  } cases[] = {
      {"", Use::kAuto, 2},
      {R"(,"tool_choice":"required")", Use::kRequired, 2},
      {R"(,"tool_choice":"none")", Use::kNone, 0},
      {R"(,"tool_choice":{"type":"function","function":{"name":"g"}})", Use::kRequired, 1},
      {R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":
          [{"type":"function","function":{"name":"f"}}]}})",
       Use::kAuto, 1},
  };
  for (const auto& c : cases) {
    ConstraintSpec spec;
    const auto [out, error] = read_body(c.rest, spec, support);
    ASSERT_FALSE(error) << c.rest << error->message;
    EXPECT_EQ(spec.tool_use, c.use) << c.rest;
    EXPECT_EQ(spec.tools.size(), c.num_tools) << c.rest;
    EXPECT_EQ(out.tools_json.empty(), c.use == Use::kNone);
  }
  ConstraintSpec unknown, none_shown, hidden;
  EXPECT_EQ(
      read_body(R"(,"tool_choice":{"type":"function","function":{"name":"h"}})", unknown, support)
          .second->param,
      "tool_choice");
  EXPECT_EQ(read_body("", none_shown, ToolSupport{}).second->param, "tools");
  EXPECT_FALSE(read_body(R"(,"tool_choice":"none")", hidden, ToolSupport{}).second);
}

}  // namespace
}  // namespace invar::server
