// ExpressionParser: the tokens of a template and the expressions in them. Recursive descent with a
// counted depth. After the first error the parser stands at the end of its tokens, where every loop
// ends; what it returns then is thrown away. Statements: jinja_parser.cc.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/keyed_hash.h"
#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_lexer.h"

namespace invar::jinja {

inline constexpr int kMaxParseDepth = 150;  // bounds the C stack of the parser
inline constexpr int kMaxTreeDepth = 250;   // and of whoever walks the tree

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // ---- Tokens ----

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead(size_t count = 1) const {
    return tokens_[std::min(at_ + count, tokens_.size() - 1)];
  }
  bool at_end() const { return current().type == TokenType::kEnd; }
  void next() {
    if (!at_end()) ++at_;
  }
  bool is_op(std::string_view op) const { return current().is_op(op); }
  bool is_name(std::string_view name) const { return current().is_name(name); }
  bool skip_op(std::string_view op) { return is_op(op) && (next(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (next(), true); }

  void fail(std::string why, int line = 0) {
    if (error_.empty()) {
      error_ = std::move(why);
      error_line_ = line > 0 ? line : current().line;
    }
    at_ = tokens_.size() - 1;
  }
  std::string shown() const {
    switch (current().type) {
      case TokenType::kEnd:
        return "the end of the template";
      case TokenType::kData:
        return "text";
      case TokenType::kString:
        return "a string";
      default:
        return "'" + current().text.substr(0, 60) + "'";
    }
  }
  void expect_op(const char* op) {
    if (!skip_op(op)) fail("expected '" + std::string(op) + "', found " + shown());
  }
  void expect_name(const char* name) {
    if (!skip_name(name)) fail("expected '" + std::string(name) + "', found " + shown());
  }
  void expect_block_end() {
    if (current().type != TokenType::kBlockEnd) return fail("expected '%}', found " + shown());
    next();
  }

  int name_index(const std::string& name) {
    const auto [found, added] = name_ids_.emplace(name, static_cast<int>(names_.size()));
    if (added) names_.push_back(name);
    return found->second;
  }

  struct DepthGuard {
    explicit DepthGuard(ExpressionParser& owner) : parser(owner) {
      if (++owner.depth_ > kMaxParseDepth)
        owner.fail("nested deeper than " + std::to_string(kMaxParseDepth) + " levels");
    }
    ~DepthGuard() { --parser.depth_; }
    ExpressionParser& parser;
  };

  // ---- Trees ----

  ExprPtr make(ExprKind kind, int line) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = line;
    return expr;
  }

  // To be called when all children are there.
  ExprPtr finish(ExprPtr expr) {
    for (const ExprPtr& arg : expr->args)
      if (arg) expr->depth = std::max(expr->depth, arg->depth + 1);
    for (const auto& [name, arg] : expr->named) expr->depth = std::max(expr->depth, arg->depth + 1);
    if (expr->depth > kMaxTreeDepth)
      fail("an expression has more than " + std::to_string(kMaxTreeDepth) + " levels", expr->line);
    return expr;
  }

  template <typename... Args>
  ExprPtr node(ExprKind kind, int line, Args... args) {
    ExprPtr expr = make(kind, line);
    (expr->args.push_back(std::move(args)), ...);
    return finish(std::move(expr));
  }

  ExprPtr constant(Value value, int line) {
    ExprPtr expr = make(ExprKind::kConst, line);
    expr->value = std::move(value);
    return expr;
  }

  // ---- Expressions, lowest precedence first ----

  bool tuple_ends() const;
  // a, b, c without brackets is a tuple.
  ExprPtr tuple_or_expression(bool with_condition = true, bool in_brackets = false);
  ExprPtr expression();
  ExprPtr or_expression();
  ExprPtr and_expression();
  ExprPtr not_expression();
  bool compare_operator(CompareOp& op);
  ExprPtr comparison();
  ExprPtr binary(char op, int line, ExprPtr left, ExprPtr right);
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  // A sign binds weaker than subscripts and calls, and stronger than filters.
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary();
  ExprPtr name_or_constant();
  ExprPtr postfix(ExprPtr expr);
  ExprPtr subscript(ExprPtr object);
  ExprPtr subscript_item();
  // Adds "(a, b, name=c)" to the arguments of `expr`.
  void arguments(Expr& expr);
  ExprPtr call(ExprPtr callee);
  std::string dotted_name();
  // Filters, tests and calls behind an expression. Without one (set and filter blocks) the first
  // filter gets a null input; at_name: its '|' is left out.
  ExprPtr filters(ExprPtr expr, bool at_name = false);
  ExprPtr test(ExprPtr object, int line);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loop_depth_ = 0;
  std::vector<Stmt*> loops_;
  Stmt* macro_ = nullptr;
  std::vector<std::string> names_;
  std::unordered_map<std::string, int, KeyedHash> name_ids_;
  std::string error_;
  int error_line_ = 0;
};

}  // namespace invar::jinja
