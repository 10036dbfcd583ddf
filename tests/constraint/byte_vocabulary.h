// A small vocabulary for tests: every byte, and tokens that make masks hard: several JSON tokens in
// one, parts of characters, spaces and digits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "constraint/compile.h"
#include "constraint/constraint.h"

namespace invar {

inline constexpr int32_t kEndId = 256;

inline std::vector<std::string> byte_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens.push_back("");  // kEndId
  for (const char* text : {"{\"",          "\":",
                           "\": ",         "\",",
                           "\", \"",       "\"}",
                           "\"]",          "],",
                           "],[",          "[[",
                           "[[[[",         "]]",
                           "}}",           "{}",
                           "[]",           "{\"a\":",
                           "\",\"b\":",    "true",
                           "false",        "null",
                           "tru",          "e,",
                           "12",           "123",
                           "00",           ".5",
                           "e1",           "E+",
                           "-1",           "0,",
                           "1]",           "  ",
                           "\n  ",         "\n    ",
                           ", ",           ": ",
                           " \"",          "abc",
                           "name",         "a\":1}",
                           "\xC3",         "\xC3\xA9",
                           "\xE4\xB8",     "\xB8\xAD",
                           "\xF0\x9F",     "\x98\x8A",
                           "\xA9\"",       "\\u",
                           "\\n",          "\\\"",
                           "\\ud83d",      "\\ude00",
                           "d8",           "<tool_call>",
                           "</tool_call>", "<tool",
                           "_call>",       "\n</tool_call>",
                           "<function=",   "</parameter>\n",
                           "hello world",  "x\"],\"y"})
    tokens.push_back(text);
  return tokens;
}

inline std::shared_ptr<const TokenTrie> byte_trie() {
  static const auto trie = TokenTrie::make(byte_vocabulary(), std::vector<int32_t>{kEndId});
  return trie;
}

inline Result<std::shared_ptr<const CompiledConstraint>> compile_schema(
    const std::string& schema, std::shared_ptr<const TokenTrie> trie = byte_trie()) {
  ConstraintSpec spec;
  spec.json_schema = schema;
  return compile_constraint(spec, std::move(trie));
}

// Whether `text`, byte by byte, is a complete reply.
inline bool accepts_text(const std::shared_ptr<const CompiledConstraint>& compiled,
                         std::string_view text) {
  Constraint constraint(compiled);
  for (const char c : text)
    if (!constraint.accept(static_cast<uint8_t>(c))) return false;
  return constraint.is_complete();
}

}  // namespace invar
