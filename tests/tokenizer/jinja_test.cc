// The template language without an oracle: errors and their lines, limits, provenance, and the
// places where we differ from Python on purpose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>

#include "tokenizer/chat_template.h"

namespace invar {
namespace {

using testing::HasSubstr;

Result<std::vector<TextSegment>> render_segments(const std::string& source,
                                                 const TemplateInput& input = {},
                                                 const TemplateLimits& limits = {}) {
  Result<ChatTemplate> parsed = ChatTemplate::parse(source, limits);
  if (!parsed) return parsed.error();
  return parsed->render(input);
}

std::string render(const std::string& source, const TemplateInput& input = {},
                   const TemplateLimits& limits = {}) {
  const auto segments = render_segments(source, input, limits);
  if (!segments.ok()) return "error: " + segments.error().message;
  std::string text;
  for (const TextSegment& segment : *segments) text += segment.text;
  return text;
}

// Segments as "[trusted](user)".
std::string provenance(const std::string& source, const TemplateInput& input) {
  const auto segments = render_segments(source, input);
  if (!segments.ok()) return "error: " + segments.error().message;
  std::string text;
  for (const TextSegment& segment : *segments)
    text +=
        (segment.allow_special ? "[" : "(") + segment.text + (segment.allow_special ? "]" : ")");
  return text;
}

TemplateInput with(const std::string& kwargs) {
  TemplateInput input;
  input.kwargs = *Json::parse(kwargs);
  return input;
}

TEST(Jinja, SyntaxErrorsNameTheLine) {
  EXPECT_THAT(render("a\n\n{{ 1 + }}"), HasSubstr("line 3"));
  EXPECT_THAT(render("a\n{% if x %}\nb\n"), HasSubstr("no 'elif' or 'else' or 'endif'"));
  EXPECT_THAT(render("a\n{{ x | frobnicate }}"), HasSubstr("line 2: unknown filter 'frobnicate'"));
  EXPECT_THAT(render("a\n{{ x is frobnicated }}"), HasSubstr("line 2: unknown test 'frobnicated'"));
  EXPECT_THAT(render("\n\n\n{% include 'x' %}"), HasSubstr("line 4: unknown statement 'include'"));
  EXPECT_THAT(render("{% for x in y recursive %}{% endfor %}"), HasSubstr("recursive"));
  EXPECT_THAT(render("{{ 'abc }}"), HasSubstr("no end"));
  EXPECT_THAT(render("x\n{{ a ｜ b }}"), HasSubstr("line 2: unexpected character U+FF5C"));
  EXPECT_THAT(render("x\n\xff"), HasSubstr("line 2: the template is not valid UTF-8"));
  // Found when the template is loaded, also where it would not run.
  EXPECT_FALSE(ChatTemplate::parse("{% if false %}{{ x | nope }}{% endif %}").ok());
}

TEST(Jinja, RunTimeErrorsNameTheLine) {
  EXPECT_EQ(render("a\n\n{{ raise_exception('roles must alternate') }}"),
            "error: chat template, line 3: roles must alternate");
  EXPECT_THAT(render("\n{{ x.y }}"), HasSubstr("line 2: 'x' is undefined"));
  EXPECT_THAT(render("{{ 1 + 'a' }}"), HasSubstr("'+' is not supported between 'int' and 'str'"));
  EXPECT_THAT(render("{% set x = [] %}{{ x.append(1) }}"), HasSubstr("may not change a list"));
  EXPECT_THAT(render("{{ 9223372036854775807 + 1 }}"), HasSubstr("more than 64 bits"));
}

TEST(Jinja, ClockIsInjected) {
  TemplateInput input;
  std::tm now{};
  now.tm_year = 124, now.tm_mon = 6, now.tm_mday = 5, now.tm_wday = 5, now.tm_yday = 186;
  input.now = now;
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y') }}", input), "05 Jul 2024");
  EXPECT_EQ(render("{{ strftime_now('%A %-d. %B, %Y-%m-%dT%H:%M:%S %j %%') }}", input),
            "Friday 5. July, 2024-07-05T00:00:00 187 %");
  EXPECT_THAT(render("{{ strftime_now('%Q') }}", input), HasSubstr("'%Q' is not supported"));
}

TEST(Jinja, ProvenanceFollowsEveryByte) {
  const TemplateInput input = with(R"({"u": "USER", "p": " a,b ", "k": {"x": "y"}})");
  const std::pair<const char*, const char*> cases[] = {
      {"<s>{{ u }}</s>", "[<s>](USER)[</s>]"},
      {"{{ '<s>' + u + '</s>' }}", "[<s>](USER)[</s>]"},
      {"{{ '<s>' ~ u ~ '</s>' }}", "[<s>](USER)[</s>]"},
      {"{{ (' <s> ' + u + ' ') | trim }}", "[<s> ](USER)"},
      {"{{ ('<s>' + u)[1:5] }}", "[s>](US)"},
      {"{{ ('<s>' + u)[::-1] }}", "(RESU)[>s<]"},
      {"{{ 'a-b'.replace('-', u) }}", "[a](USER)[b]"},
      {"{{ u.replace('S', '<s>') }}", "(U)[<s>](ER)"},
      {"{{ p.split(',') | join('|') }}", "( a)[|](b )"},
      {"{{ ', '.join([u, 'lit']) }}", "(USER)[, lit]"},
      {"{{ '%s!' % u }}", "(USER)[!]"},
      {"{{ '<%s>' | format(u) }}", "[<](USER)[>]"},
      {"{{ '<{}>'.format(u) }}", "[<](USER)[>]"},
      {"{{ (u + '<s>') | lower }}", "(user)[<s>]"},
      {"{{ u * 2 ~ '<s>' * 2 }}", "(USERUSER)[<s><s>]"},
      {"{% set x %}<s>{{ u }}{% endset %}{{ x }}", "[<s>](USER)"},
      {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(u) }}", "[<](USER)[>]"},
      {"{% filter upper %}<s>{{ u }}{% endfilter %}", "[<S>](USER)"},
      {"{{ u | tojson }}", "(\"USER\")"},
      {"{{ k | tojson }}", "({\"x\": \"y\"})"},
      {"{{ [u] | string }}", "(['USER'])"},
      {"{{ u | first ~ '<' }}", "(U)[<]"},
      {"{{ u if u else 'x' }}{{ nothing | default('<d>') }}", "(USER)[<d>]"},
      {"{% for c in 'ab' %}{{ c }}{% endfor %}{% for c in u %}{{ c }}{% endfor %}", "[ab](USER)"},
      {"{{ 5 }}{{ true }}", "(5True)"},
      {"{{ ('<s>\n' ~ u) | indent(1) }}", "[<s>](\n USER)"},
      {"{% set ns = namespace(a='<s>') %}{% set ns.a = ns.a + u %}{{ ns.a }}", "[<s>](USER)"},
  };
  for (const auto& [source, expected] : cases)
    EXPECT_EQ(provenance(source, input), expected) << source;
  TemplateInput tokens = input;
  tokens.bos_token = "<bos>";
  EXPECT_EQ(provenance("{{ bos_token }}{{ u }}", tokens), "[<bos>](USER)");
  // A keyword of the request that replaces a token variable is text of the request.
  EXPECT_EQ(provenance("{{ eos_token }}", with(R"({"eos_token": "<eos>"})")), "(<eos>)");
  // And it cannot replace the messages.
  EXPECT_EQ(render("{{ messages | length }}", with(R"({"messages": [1, 2, 3]})")), "0");
}

// Processor time of this process, which other load on the machine does not stretch.
double seconds_of(const std::function<void()>& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST(JinjaLimits, HostileTemplatesEndSoonAndNameTheLimit) {
  const std::string four =
      "{% for a in range(99999) %}{% for b in range(99999) %}"
      "{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}";
  const auto twice = [](const std::string& body) {
    return "{% for a in range(99999) %}{% for b in range(99999) %}" + body +
           "{% endfor %}{% endfor %}";
  };
  const auto many_names = [](const std::string& before, const std::string& after) {
    std::string out;
    for (int i = 0; i < 50'000; ++i) out += before + std::to_string(i) + after;
    return out;
  };
  const std::pair<std::string, const char*> cases[] = {
      {four, "5000000 steps"},
      {"{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}", "steps"},
      {"{% for a in range(100001) %}{% endfor %}", "100000 numbers in a range"},
      {"{{ range(10 ** 15) | length }}", "range"},
      {"{{ 'x' * 1000000000 }}", "bytes"},
      {"{{ ('x' * 8000000) ~ ('x' * 8000000) }}", "bytes"},
      {"{% for i in range(100) %}{{ 'x' * 1000000 }}{% endfor %}", "limit"},
      {"{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% "
       "endfor %}",
       "limit"},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% "
       "endfor %}",
       "steps"},
      {"{{ [0] * 1000000000 }}", "steps"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% "
       "endfor %}"
       "{{ ns.x }}",
       "limit"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% "
       "endfor %}"
       "{{ ns.x == ns.x | list }}{{ ns.x | tojson | length }}",
       "limit"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor "
       "%}",
       "nested deeper"},
      {"{% set ns = namespace(x={}) %}{% for i in range(9999) %}{% set ns.x = {'a': ns.x} %}{% "
       "endfor %}",
       "nested deeper"},
      {"{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", "100 nested macro calls"},
      {"{% macro m() %}{{ caller() }}{{ m() }}{% endmacro %}{% call m() %}{% endcall %}", ""},
      {"{{ ('a' * 4000000).replace('', 'bbbb') }}", "limit"},
      {"{{ ('a' * 4000000) | replace('a', 'bbbb') }}", "limit"},
      {"{{ ('a' * 4000000).split('a') | length }}", "steps"},
      {"{{ ('a' * 4000000) | list | length }}", "steps"},
      {"{{ '%9999999999d' % 5 }}", "too large"},
      {"{% for i in range(99999) %}{{ ('a' * 4000).rfind('b' * 2000) }}{% endfor %}", "steps"},
      {"{{ range(99999) | sort | map('string') | sort | join | length }}{{ range(99999) | sort | "
       "sort }}",
       "steps"},
      {"{{ 'x' | indent(999999999) }}\n{{ 'a\nb' | indent(999999999) }}", "limit"},
      {"{{ 7 ** 7 ** 7 ** 7 }}", "64 bits"},
      // Work that is in no text: each of these took seconds to minutes when it was not counted.
      {twice("{% set x = '%10000d' % 5 %}"), "steps"},
      {twice("{% set x = '%.9999f' % 1e300 %}"), "steps"},
      {twice("{% set x = 1e300 | round(300) %}"), "steps"},
      {"{% set t = 'a' * 4000000 %}" + twice("{% set x = t | truncate(3000000, true) %}"), "steps"},
      {"{% set t = ' ' * 4000000 %}" + twice("{% set x = t | int %}{% set x = t | float %}"),
       "steps"},
      {"{% set t = 'a' * 4000000 %}" + twice("{% set x = {} | attr(t) %}"), "steps"},
      {"{% for i in [1] %}" + many_names("{% set a", " = 1 %}") + "{% endfor %}{{ 1 // 0 }}", ""},
      {"{% for i in [1] %}" + many_names("{% set a", " = 1 %}") + twice("{{ zz }}") +
           "{% endfor %}",
       "steps"},
      {"{% set ns = namespace() %}" + many_names("{% set ns.a", " = 1 %}") + twice("{{ ns.zz }}"),
       "steps"},
  };
  for (const auto& [source, limit] : cases) {
    std::string message;
    const double seconds = seconds_of([&] { message = render(source); });
    EXPECT_THAT(message, HasSubstr("error: chat template, line 1")) << source.substr(0, 200);
    EXPECT_THAT(message, HasSubstr(limit)) << source.substr(0, 200);
    // 0.2 s on the machines this is for; the allowance is for test machines and sanitizers.
    EXPECT_LT(seconds, 1.5) << source.substr(0, 200);
    if (std::getenv("INVAR_TEST_TIMES") != nullptr)
      std::printf("%6.0f ms  %.70s\n", seconds * 1000, source.c_str());
  }
}

// The sanitizer sees the overflow that such a step once made behind the last element.
TEST(JinjaLimits, HugeSteps) {
  EXPECT_EQ(render("{{ 'abc'[1::9223372036854775807] }}{{ 'abc'[1::-9223372036854775807] }}"),
            "bb");
  EXPECT_EQ(render("{{ [1, 2, 3][1::9223372036854775807] }}"), "[2]");
  EXPECT_EQ(render("{{ range(3)[1::9223372036854775807] | list }}"), "[1]");
}

TEST(JinjaLimits, DeepNestingIsAnErrorNotACrash) {
  const auto repeated = [](const std::string& text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  for (const int n : {100, 200, 1000, 20000}) {
    const std::string sources[] = {
        "{{ " + repeated("(", n) + "1" + repeated(")", n) + " }}",
        "{{ " + repeated("[", n) + repeated("]", n) + " }}",
        "{{ " + repeated("{'a':", n) + "1" + repeated("}", n) + " }}",
        "{{ " + repeated("not ", n) + "1 }}",
        "{{ " + repeated("-", n) + "1 }}",
        "{{ 1" + repeated(" + 1", n) + " }}",
        "{{ 'a'" + repeated(" | upper", n) + " }}",
        "{{ a" + repeated(".b", n) + " }}",
        "{{ a" + repeated("[0]", n) + " }}",
        "{{ a" + repeated("()", n) + " }}",
        "{{ 1" + repeated(" if 1 else 1", n) + " }}",
        "{{ 1" + repeated(" if 1", n) + " }}",
        "{{ 1" + repeated(" and 1", n) + " }}",
        "{{ 1" + repeated(" < 2", n) + " }}",
        "{{ 1" + repeated(" is odd", n) + " }}",
        "{{ 1 ~ " + repeated("1 ~ ", n) + "1 }}",
        repeated("{% if 1 %}", n) + repeated("{% endif %}", n),
        repeated("{% for x in [1] %}", n) + repeated("{% endfor %}", n),
        repeated("{% set x %}", n) + repeated("{% endset %}", n),
        repeated("{% macro m() %}", n) + repeated("{% endmacro %}", n),
        "{% if 0 %}" + repeated("{% elif 0 %}", n) + "{% endif %}",
        "{% for " + repeated("(", n) + "a" + repeated(")", n) + " in x %}{% endfor %}",
        repeated("{{", n),
        repeated("{% raw %}", n),
        repeated("{#", n),
    };
    for (const std::string& source : sources) {
      const std::string result = render(source);
      const bool flat = source.find("elif") != std::string::npos ||
                        source.find('~') != std::string::npos ||
                        source.find('<') != std::string::npos;
      if (n >= 1000 && !flat) {
        EXPECT_THAT(result, HasSubstr("error")) << source.substr(0, 40);
      }
    }
  }
  // As deep as the limits allow, at run time: macros inside expressions inside loops.
  std::string body = "{{ m(n - 1) }}";
  for (int i = 0; i < 8; ++i)
    body = "{% for x in [1] %}{% if true %}" + body + "{% endif %}{% endfor %}";
  EXPECT_EQ(render("{% macro m(n) %}{% if n > 0 %}" + body +
                   "{% else %}end{% endif %}{% endmacro %}{{ m(40) }}"),
            "end");
  std::string deep = "m(n)";
  for (int i = 0; i < 40; ++i) deep = "[" + deep + "]";
  EXPECT_THAT(render("{% macro m(n) %}{{ " + deep + " }}{% endmacro %}{{ m(1) }}"),
              HasSubstr("limit"));
}

TEST(JinjaLimits, DeepJsonIsAnError) {
  Json deep = Json::array();
  for (int i = 0; i < 1000; ++i) {
    Json outer = Json::array();
    outer.push_back(std::move(deep));
    deep = std::move(outer);
  }
  TemplateInput input;
  input.messages = deep;
  EXPECT_THAT(render("{{ messages | string }}", input), HasSubstr("nested deeper"));
}

TEST(JinjaLimits, ReferenceCirclesAreFreed) {  // leak checkers see it if not
  EXPECT_EQ(
      render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}"
             "{% for i in range(3) %}{% set ns.loop = loop %}{% macro m() %}{{ ns.me is defined }}"
             "{% endmacro %}{% set ns.m = m %}{{ m() }}{% endfor %}{{ ns.m() }}"),
      "TrueTrueTrueTrue");
}

TEST(JinjaLimits, LimitsCanBeSet) {
  TemplateLimits limits;
  limits.max_output_bytes = 10;
  EXPECT_THAT(render("{% for i in range(11) %}x{% endfor %}", {}, limits), HasSubstr("10 bytes"));
  limits = {};
  limits.max_range = 5;
  EXPECT_THAT(render("{{ range(6) | list }}", {}, limits), HasSubstr("5 numbers"));
  limits = {};
  limits.max_recursion = 3;
  EXPECT_THAT(render("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", {}, limits),
              HasSubstr("3 nested macro calls"));
  limits = {};
  limits.max_steps = 50;
  EXPECT_THAT(render("{% for i in range(50) %}{% endfor %}", {}, limits), HasSubstr("50 steps"));
}

// The condition of a loop runs while the loop does, so it sees what the body has changed.
TEST(Jinja, LoopConditionsSeeTheBody) {
  EXPECT_EQ(render("{% set ns = namespace(n=0) %}{% for i in range(9) if ns.n < 3 %}{{ i }}"
                   "{% set ns.n = ns.n + 1 %}{% endfor %}"),
            "012");
}

}  // namespace
}  // namespace invar
