#include "tokenizer/jinja_expression_parser.h"

#include "tokenizer/jinja_parser.h"

namespace invar::jinja {

bool ExpressionParser::tuple_ends() const {
  return current().type == TokenType::kVarEnd || current().type == TokenType::kBlockEnd ||
         is_op(")") || is_name("recursive") || at_end();
}

// a, b, c without brackets is a tuple.
ExprPtr ExpressionParser::tuple_or_expression(bool with_condition, bool in_brackets) {
  const int line = current().line;
  if (in_brackets && is_op(")")) return node(ExprKind::kTuple, line);
  ExprPtr first = with_condition ? expression() : or_expression();
  if (!is_op(",")) return first;
  ExprPtr tuple = make(ExprKind::kTuple, line);
  tuple->args.push_back(std::move(first));
  while (skip_op(",")) {
    if (tuple_ends()) break;
    tuple->args.push_back(with_condition ? expression() : or_expression());
  }
  return finish(std::move(tuple));
}

ExprPtr ExpressionParser::expression() {
  const DepthGuard guard(*this);
  const int line = current().line;
  ExprPtr then = or_expression();
  while (skip_name("if")) {
    ExprPtr condition = or_expression();
    ExprPtr otherwise;
    if (skip_name("else")) otherwise = expression();
    then = node(ExprKind::kCond, line, std::move(condition), std::move(then), std::move(otherwise));
  }
  return then;
}

ExprPtr ExpressionParser::or_expression() {
  const int line = current().line;
  ExprPtr left = and_expression();
  while (skip_name("or")) left = node(ExprKind::kOr, line, std::move(left), and_expression());
  return left;
}

ExprPtr ExpressionParser::and_expression() {
  const int line = current().line;
  ExprPtr left = not_expression();
  while (skip_name("and")) left = node(ExprKind::kAnd, line, std::move(left), not_expression());
  return left;
}

ExprPtr ExpressionParser::not_expression() {
  const DepthGuard guard(*this);
  const int line = current().line;
  if (skip_name("not")) return node(ExprKind::kNot, line, not_expression());
  return comparison();
}

bool ExpressionParser::compare_operator(CompareOp& op) {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
      {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
  for (const auto& [text, value] : kOps) {
    if (!skip_op(text)) continue;
    op = value;
    return true;
  }
  if (skip_name("in")) {
    op = CompareOp::kIn;
    return true;
  }
  if (is_name("not") && ahead().is_name("in")) {
    next(), next();
    op = CompareOp::kNotIn;
    return true;
  }
  return false;
}

ExprPtr ExpressionParser::comparison() {
  const int line = current().line;
  ExprPtr left = sum();
  CompareOp op;
  if (!compare_operator(op)) return left;
  ExprPtr expr = make(ExprKind::kCompare, line);
  expr->args.push_back(std::move(left));
  do {
    expr->ops.push_back(op);
    expr->args.push_back(sum());
  } while (compare_operator(op));
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::binary(char op, int line, ExprPtr left, ExprPtr right) {
  ExprPtr expr = node(ExprKind::kBinary, line, std::move(left), std::move(right));
  expr->op = op;
  return expr;
}

ExprPtr ExpressionParser::sum() {
  ExprPtr left = concatenation();
  while (is_op("+") || is_op("-")) {
    const char op = current().text[0];
    const int line = current().line;
    next();
    left = binary(op, line, std::move(left), concatenation());
  }
  return left;
}

ExprPtr ExpressionParser::concatenation() {
  const int line = current().line;
  ExprPtr left = product();
  if (!is_op("~")) return left;
  ExprPtr expr = make(ExprKind::kConcat, line);
  expr->args.push_back(std::move(left));
  while (skip_op("~")) expr->args.push_back(product());
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::product() {
  ExprPtr left = power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    const char op = is_op("//") ? 'f' : current().text[0];
    const int line = current().line;
    next();
    left = binary(op, line, std::move(left), power());
  }
  return left;
}

ExprPtr ExpressionParser::power() {
  ExprPtr left = unary();
  while (is_op("**")) {
    const int line = current().line;
    next();
    left = binary('p', line, std::move(left), unary());
  }
  return left;
}

// A sign binds weaker than subscripts and calls, and stronger than filters.
ExprPtr ExpressionParser::unary(bool with_filter) {
  const DepthGuard guard(*this);
  const int line = current().line;
  ExprPtr expr;
  if (skip_op("-")) {
    expr = node(ExprKind::kNeg, line, unary(false));
  } else if (skip_op("+")) {
    expr = node(ExprKind::kPos, line, unary(false));
  } else {
    expr = primary();
  }
  expr = postfix(std::move(expr));
  if (with_filter) expr = filters(std::move(expr));
  return expr;
}

ExprPtr ExpressionParser::primary() {
  const Token token = current();
  const int line = token.line;
  switch (token.type) {
    case TokenType::kName:
      return name_or_constant();
    case TokenType::kString: {
      std::string text;
      for (; current().type == TokenType::kString; next()) text += current().text;
      return constant(Value::string(std::move(text), /*trusted=*/true), line);
    }
    case TokenType::kInteger:
      next();
      return constant(Value::integer(token.integer), line);
    case TokenType::kFloat:
      next();
      return constant(Value::real(token.real), line);
    default:
      break;
  }
  if (skip_op("(")) {
    ExprPtr expr = tuple_or_expression(true, /*in_brackets=*/true);
    expect_op(")");
    return expr;
  }
  if (skip_op("[")) {
    ExprPtr list = make(ExprKind::kList, line);
    while (!is_op("]") && !at_end()) {
      if (!list->args.empty()) expect_op(",");
      if (is_op("]")) break;
      list->args.push_back(expression());
    }
    expect_op("]");
    return finish(std::move(list));
  }
  if (skip_op("{")) {
    ExprPtr dict = make(ExprKind::kDict, line);
    while (!is_op("}") && !at_end()) {
      if (!dict->args.empty()) expect_op(",");
      if (is_op("}")) break;
      dict->args.push_back(expression());
      expect_op(":");
      dict->args.push_back(expression());
    }
    expect_op("}");
    return finish(std::move(dict));
  }
  fail("unexpected " + shown());
  return constant(Value::none(), line);
}

ExprPtr ExpressionParser::name_or_constant() {
  const Token token = current();
  next();
  if (token.text == "true" || token.text == "True")
    return constant(Value::boolean(true), token.line);
  if (token.text == "false" || token.text == "False")
    return constant(Value::boolean(false), token.line);
  if (token.text == "none" || token.text == "None") return constant(Value::none(), token.line);
  if (macro_ != nullptr) {
    macro_->uses_caller |= token.text == "caller";
    macro_->uses_varargs |= token.text == "varargs";
    macro_->uses_kwargs |= token.text == "kwargs";
  }
  if (token.text == "loop" && !loops_.empty()) {
    static constexpr std::string_view kKnownEarly[] = {"index", "index0", "first", "previtem",
                                                       "cycle", "depth",  "depth0"};
    const bool early = is_op(".") && std::find(std::begin(kKnownEarly), std::end(kKnownEarly),
                                               ahead().text) != std::end(kKnownEarly);
    if (!early) loops_.back()->needs_all_items = true;
  }
  ExprPtr expr = make(ExprKind::kName, token.line);
  expr->name = name_index(token.text);
  return expr;
}

ExprPtr ExpressionParser::postfix(ExprPtr expr) {
  while (true) {
    if (is_op(".") || is_op("[")) {
      expr = subscript(std::move(expr));
    } else if (is_op("(")) {
      expr = call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr object) {
  const int line = current().line;
  if (skip_op(".")) {
    const Token token = current();
    next();
    if (token.type == TokenType::kInteger)
      return node(ExprKind::kGetItem, line, std::move(object),
                  constant(Value::integer(token.integer), line));
    if (token.type != TokenType::kName) {
      fail("expected a name or a number after '.'", line);
      return object;
    }
    ExprPtr expr = node(ExprKind::kGetAttr, line, std::move(object));
    expr->text = Str(token.text, /*trusted=*/true);
    return expr;
  }
  expect_op("[");
  ExprPtr index = subscript_item();
  if (is_op(",")) {
    ExprPtr tuple = make(ExprKind::kTuple, line);
    tuple->args.push_back(std::move(index));
    while (skip_op(",")) tuple->args.push_back(subscript_item());
    for (const ExprPtr& arg : tuple->args)
      if (arg->kind == ExprKind::kSlice) fail("a slice inside a tuple is not supported", line);
    index = finish(std::move(tuple));
  }
  expect_op("]");
  return node(ExprKind::kGetItem, line, std::move(object), std::move(index));
}

ExprPtr ExpressionParser::subscript_item() {
  const int line = current().line;
  ExprPtr begin, end, step;
  if (!is_op(":")) {
    begin = expression();
    if (!is_op(":")) return begin;
  }
  expect_op(":");
  if (!is_op(":") && !is_op("]") && !is_op(",")) end = expression();
  if (skip_op(":") && !is_op("]") && !is_op(",")) step = expression();
  return node(ExprKind::kSlice, line, std::move(begin), std::move(end), std::move(step));
}

// Adds "(a, b, name=c)" to the arguments of `expr`.
void ExpressionParser::arguments(Expr& expr) {
  expect_op("(");
  bool first = true;
  while (!is_op(")") && !at_end()) {
    if (!first) {
      expect_op(",");
      if (is_op(")")) break;
    }
    first = false;
    if (is_op("*") || is_op("**")) return fail("'*' and '**' arguments are not supported");
    if (current().type == TokenType::kName && ahead().is_op("=")) {
      const std::string name = current().text;
      next(), next();
      for (const auto& present : expr.named)
        if (present.first == name) return fail("argument '" + name + "' is given twice");
      expr.named.emplace_back(name, expression());
    } else {
      if (!expr.named.empty()) return fail("a positional argument follows a named one");
      expr.args.push_back(expression());
    }
  }
  expect_op(")");
}

ExprPtr ExpressionParser::call(ExprPtr callee) {
  ExprPtr expr = make(ExprKind::kCall, current().line);
  expr->args.push_back(std::move(callee));
  arguments(*expr);
  return finish(std::move(expr));
}

std::string ExpressionParser::dotted_name() {
  std::string name = current().text;
  if (current().type != TokenType::kName) fail("expected a name, found " + shown());
  next();
  while (is_op(".") && ahead().type == TokenType::kName) {
    next();
    name += "." + current().text;
    next();
  }
  return name;
}

// Filters, tests and calls behind an expression. Without one (set and filter blocks) the first
// filter gets a null input; at_name: its '|' is left out.
ExprPtr ExpressionParser::filters(ExprPtr expr, bool at_name) {
  const bool only_filters = expr == nullptr;
  while (true) {
    const int line = current().line;
    if (at_name || skip_op("|")) {
      at_name = false;
      ExprPtr filter = make(ExprKind::kFilter, line);
      filter->args.push_back(std::move(expr));
      const std::string name = dotted_name();
      filter->builtin = find_filter(name);
      if (filter->builtin == nullptr) fail("unknown filter '" + name + "'", line);
      if (is_op("(")) arguments(*filter);
      expr = finish(std::move(filter));
    } else if (!only_filters && skip_name("is")) {
      expr = test(std::move(expr), line);
    } else if (!only_filters && is_op("(")) {
      expr = call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::test(ExprPtr object, int line) {
  const bool negated = skip_name("not");
  ExprPtr expr = make(ExprKind::kTest, line);
  expr->args.push_back(std::move(object));
  const std::string name = dotted_name();
  expr->builtin = find_test(name);
  if (expr->builtin == nullptr) fail("unknown test '" + name + "'", line);
  const TokenType type = current().type;
  if (is_op("(")) {
    arguments(*expr);
  } else if (type == TokenType::kString || type == TokenType::kInteger ||
             type == TokenType::kFloat || is_op("[") || is_op("{") ||
             (type == TokenType::kName && !is_name("else") && !is_name("or") && !is_name("and"))) {
    if (is_name("is")) fail("tests cannot be chained with 'is'");
    expr->args.push_back(postfix(primary()));
  }
  expr = finish(std::move(expr));
  return negated ? node(ExprKind::kNot, line, std::move(expr)) : std::move(expr);
}
}  // namespace invar::jinja
