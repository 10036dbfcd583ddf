// The filters between a reply's text and what clients see: the same result however the text is cut
// (tests of reported cases D1 to D3 among them).
#include <gtest/gtest.h>

#include <random>

#include "server/logprobs.h"
#include "server/reasoning_filter.h"
#include "server/tool_call_filter.h"

namespace invar::server {
namespace {

// Every way to cut that tests try: pieces of a few sizes, and random ones.
std::vector<std::vector<std::string>> cuts(const std::string& text) {
  std::vector<std::vector<std::string>> all;
  for (const size_t size : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{50}, text.size()}) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size(); at += size) pieces.push_back(text.substr(at, size));
    all.push_back(std::move(pieces));
  }
  std::mt19937 rng(3);
  for (int i = 0; i < 100; ++i) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + rng() % 9;
      pieces.push_back(text.substr(at, size));
      at += size;
    }
    all.push_back(std::move(pieces));
  }
  return all;
}

struct Split {
  std::string reasoning, content;
  bool operator==(const Split&) const = default;
};

Split split(const std::vector<std::string>& pieces, bool starts_inside) {
  ReasoningFilter filter(starts_inside);
  Split all;
  const auto add = [&](const ReasoningFilter::Piece& piece) {
    EXPECT_EQ((piece.reasoning + piece.content).find("think>"), std::string::npos);
    all.reasoning += piece.reasoning;
    all.content += piece.content;
  };
  for (const std::string& piece : pieces) add(filter.push(piece));
  add(filter.finish());
  return all;
}

TEST(ReasoningFilter, SplitsAtTheTagsHoweverTheTextIsCut) {
  const struct {
    std::string text;
    bool starts_inside;
    Split expected;
  } cases[] = {
      {"<think>\nSky.\n</think>\n\nBlue.", false, {"Sky.", "Blue."}},
      {" \n<think>a\n\nb</think>c", false, {"a\n\nb", "c"}},
      {"Sky.\n</think>\n\nBlue. </thin", true, {"Sky.", "Blue. </thin"}},
      {"\nnever closed", true, {"never closed", ""}},
      {"no tags at all", false, {"", "no tags at all"}},
      {" <thing>", false, {"", " <thing>"}},
      {"<think></think>x", false, {"", "x"}},
      {"<thi", false, {"", "<thi"}},
      {"a < b </thin", true, {"a < b </thin", ""}},
  };
  for (const auto& c : cases)
    for (const auto& pieces : cuts(c.text)) {
      const Split got = split(pieces, c.starts_inside);
      EXPECT_EQ(got.reasoning, c.expected.reasoning) << c.text;
      EXPECT_EQ(got.content, c.expected.content) << c.text;
    }
}

TEST(ReasoningFilter, PromptThatEndsInOpenReasoning) {
  EXPECT_TRUE(ends_in_open_reasoning("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(ends_in_open_reasoning("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_in_open_reasoning("assistant\n"));
}

struct Calls {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  bool operator==(const Calls&) const = default;
};

Calls read_calls(const std::vector<std::string>& pieces, const ToolSyntax& syntax = {},
                 const std::vector<ToolFunction>& tools = {}) {
  const auto made = make_tool_call_filter(syntax, tools);
  ToolCallFilter& filter = *made;
  Calls all;
  std::string whole;
  for (const std::string& piece : pieces) whole += piece;
  const auto add = [&](const std::vector<ReplyPart>& parts) {
    for (const ReplyPart& part : parts) {
      if (part.kind == ReplyPart::Kind::kContent) {
        all.content += part.text;
        EXPECT_EQ(whole.substr(part.begin, part.text.size()), part.text);
      }
      if (part.kind == ReplyPart::Kind::kCallBegin) all.calls.emplace_back(part.text, "");
      if (part.kind == ReplyPart::Kind::kArguments) all.calls.back().second += part.text;
    }
  };
  size_t begin = 0;
  for (const std::string& piece : pieces) {
    add(filter.push(piece, begin));
    begin += piece.size();
  }
  add(filter.finish());
  EXPECT_EQ(filter.num_calls(), static_cast<int>(all.calls.size()));
  return all;
}

TEST(ToolCallFilter, FindsCallsHoweverTheTextIsCut) {
  const std::string nested = R"({"a":[{"b":"}{\"\u00e9"}],"c":""})";
  const std::string one = R"(<tool_call>{"name":"f","arguments":)" + nested + "}</tool_call>";
  const std::string two = R"(<tool_call>{"name":"ping","arguments":{}}</tool_call>)";
  const struct {
    std::string text;
    Calls expected;
  } cases[] = {
      {one + two, {"", {{"f", nested}, {"ping", "{}"}}}},
      {"I look. \n" + one + "\n" + two + "\n", {"I look.", {{"f", nested}, {"ping", "{}"}}}},
      {"<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>",
       {"", {{"ping", "{}"}}}},
      {two + " and then", {" and then", {{"ping", "{}"}}}},
      {"only < text <tool_c", {"only < text <tool_c", {}}},
      {"white space \n", {"white space \n", {}}},
      {"<tool_call>not json</tool_call>", {"<tool_call>not json</tool_call>", {}}},
      {"<tool_call>{\"name\":\"f\"", {"<tool_call>{\"name\":\"f\"", {}}},
      {R"(<tool_call>{"name":"f","arguments":{"a":1)", {"", {{"f", R"({"a":1)"}}}},
  };
  for (const auto& c : cases)
    for (const auto& pieces : cuts(c.text)) {
      const Calls got = read_calls(pieces);
      EXPECT_EQ(got.content, c.expected.content) << c.text;
      EXPECT_EQ(got.calls, c.expected.calls) << c.text;
    }
}

void expect_calls(const std::string& text, const Calls& expected, const ToolSyntax& syntax,
                  const std::vector<ToolFunction>& tools = {}) {
  for (const auto& pieces : cuts(text)) {
    const Calls got = read_calls(pieces, syntax, tools);
    EXPECT_EQ(got.content, expected.content) << text;
    EXPECT_EQ(got.calls, expected.calls) << text;
  }
}

TEST(ToolCallFilter, BareObjectsAreTheWholeReply) {
  ToolSyntax llama;
  llama.begin = llama.end = llama.separator = llama.trigger = "";
  llama.arguments_key = "parameters";
  const std::string call = R"({"name": "f", "parameters": {"a": "}{\"", "b": [1, {}]}})";
  const Calls one = {"", {{"f", R"({"a": "}{\"", "b": [1, {}]})"}}};
  expect_calls(call, one, llama);
  expect_calls(" \n" + call + " \n", one, llama);
  expect_calls(R"({"name": "f", "arguments": {}})", {"", {{"f", "{}"}}}, llama);
  expect_calls("Look: " + call, {"Look: " + call, {}}, llama);
  expect_calls(R"({"answer": 42} )", {R"({"answer": 42} )", {}}, llama);
  expect_calls(R"({"name": "f"})", {R"({"name": "f"})", {}}, llama);
  expect_calls("  ", {"  ", {}}, llama);
  expect_calls("", {"", {}}, llama);
}

TEST(ToolCallFilter, TagsWithParameters) {
  ToolSyntax xml;
  xml.kind = ToolSyntax::Kind::kXml;
  ToolFunction tool;
  tool.name = "f";
  tool.parameters_json =
      R"({"type":"object","properties":{"s":{"type":"string"},"i":{"type":"integer"},)"
      R"("x":{"type":["null","number"]},"b":{"type":"boolean"},"o":{"type":"object"},)"
      R"("any":{"anyOf":[{"type":"integer"},{"type":"string"}]}}})";
  const std::vector<ToolFunction> tools = {tool};
  const auto parameter = [](std::string name, std::string value) {
    return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
  };
  const auto call = [](std::string body) {
    return "<tool_call>\n<function=f>\n" + body + "</function>\n</tool_call>";
  };
  const auto all = [&](std::string arguments) { return Calls{"", {{"f", std::move(arguments)}}}; };
  expect_calls(call(parameter("s", "a\n\"b\" < c\n") + parameter("i", "-7")),
               all(R"({"s":"a\n\"b\" < c\n","i":-7})"), xml, tools);
  expect_calls(
      call(parameter("x", "2.5") + parameter("b", "True") + parameter("o", R"({"k": [1, null]})")),
      all(R"({"x":2.5,"b":true,"o":{"k":[1,null]}})"), xml, tools);
  expect_calls(call(parameter("x", "None?") + parameter("any", "12") + parameter("any", "a12")),
               all(R"({"x":"None?","any":12,"any":"a12"})"), xml, tools);
  expect_calls(call(parameter("o", "{'k': True, 'l': ['it\\'s', None]}") + parameter("new", "3")),
               all(R"({"o":{"k":true,"l":["it's",null]},"new":"3"})"), xml, tools);
  expect_calls(call(parameter("x", "null")), all(R"({"x":null})"), xml, tools);
  expect_calls(call(""), all("{}"), xml, tools);
  const std::string two = "I look.\n\n" + call("") + "\n" + call(parameter("s", "")) + "\n";
  expect_calls(two, {"I look.", {{"f", "{}"}, {"f", R"({"s":""})"}}}, xml, tools);
  // End tags that were forgotten, and a call that is none.
  expect_calls("<tool_call>\n<function=f>\n<parameter=s>\na<parameter=i>\n2\n</function>",
               all(R"({"s":"a","i":2})"), xml, tools);
  expect_calls(call("<parameter=s>\na\n") + "\n", all(R"({"s":"a"})"), xml, tools);
  expect_calls(call("<parameter=s>a</parameter><parameter=i>2</parameter>"),
               all(R"({"s":"a","i":2})"), xml, tools);
  // What the constraint lets a value hold: tags, if not an end tag that is a line of its own.
  const std::string file = "x = '</parameter>'\n</function>\n</parameter>;<parameter=s>\n\n</para";
  const std::string as_json = Json(file).dump();
  expect_calls(call(parameter("s", file) + parameter("i", "3")) + "\nDone",
               {"\nDone", {{"f", "{\"s\":" + as_json + ",\"i\":3}"}}}, xml, tools);
  expect_calls(call(parameter("s", "</parameter>")), all(R"({"s":"</parameter>"})"), xml, tools);
  // A reply that was cut inside such a value: no part of it passes for the whole.
  expect_calls("<tool_call>\n<function=f>\n<parameter=s>\n" + file + " and so", all("{"), xml,
               tools);
  expect_calls("<tool_call> is a tag", {"<tool_call> is a tag", {}}, xml, tools);
  expect_calls("a <tool_c", {"a <tool_c", {}}, xml, tools);
}

TEST(LogprobAligner, EntriesComeWithTheirFirstDeliveredByte) {
  LogprobAligner aligner;
  const auto entry = [](int32_t id, size_t begin, size_t end) {
    TokenEntry e;
    e.event.id = id;
    e.event.text_begin = begin;
    e.event.text_end = end;
    return e;
  };
  const auto ids = [](const std::vector<TokenEntry>& entries) {
    std::vector<int32_t> list;
    for (const TokenEntry& e : entries) list.push_back(e.event.id);
    return list;
  };
  using Ids = std::vector<int32_t>;
  aligner.push(entry(1, 0, 1));  // e4, held back: a character begins
  EXPECT_EQ(ids(aligner.deliver(0, 0)), Ids{});
  aligner.push(entry(2, 0, 3));  // b8 ad: it is whole
  EXPECT_EQ(ids(aligner.deliver(0, 3)), (Ids{1, 2}));
  aligner.push(entry(3, 3, 7));  // "a EN", of which "EN" is held back: it may be a stop
  EXPECT_EQ(ids(aligner.deliver(3, 5)), Ids{3});
  aligner.push(entry(4, 7, 9));  // "D!"
  EXPECT_EQ(ids(aligner.deliver(5, 5)), Ids{});
  aligner.push(entry(5, 0, 0));  // an end token
  EXPECT_EQ(ids(aligner.deliver(5, 7)), Ids{});
  EXPECT_EQ(ids(aligner.deliver(7, 9)), Ids{4});
  aligner.push(entry(6, 9, 20));   // markup
  aligner.push(entry(7, 20, 22));  // content behind it
  EXPECT_EQ(ids(aligner.deliver(20, 22)), Ids{7});
}

}  // namespace
}  // namespace invar::server
