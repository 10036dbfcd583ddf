// Template source -> tokens, with Jinja's white space rules as Hugging Face sets them: trim_blocks,
// lstrip_blocks, no final newline (specs/chat.md section 1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace invar::jinja {

enum class TokenType : uint8_t {
  kData,      // text between tags
  kVarBegin,  // {{
  kVarEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string text;  // data, name, unescaped string, operator
  int64_t integer = 0;
  double real = 0;

  bool is_op(std::string_view op) const { return type == TokenType::kOperator && text == op; }
  bool is_name(std::string_view name) const { return type == TokenType::kName && text == name; }
};

// Ends with one kEnd token. Comments are gone, raw blocks are data.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace invar::jinja
