// Recursive descent with a counted depth. After the first error the parser stands at the end of its
// tokens, where every loop ends; what it returns then is thrown away.
#include "tokenizer/jinja_parser.h"

#include <algorithm>
#include <unordered_map>

#include "base/keyed_hash.h"
#include "tokenizer/jinja_lexer.h"

namespace invar::jinja {
namespace {

constexpr int kMaxParseDepth = 150;  // bounds the C stack of the parser
constexpr int kMaxTreeDepth = 250;   // and of whoever walks the tree

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Template> run() {
    Template result;
    result.body = statements({});
    if (error_.empty() && !at_end()) fail("unexpected '" + current().text + "'");
    if (!error_.empty()) return invalid_argument("line %d: %s", error_line_, error_.c_str());
    result.names = std::move(names_);
    return result;
  }

 private:
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
    explicit DepthGuard(Parser& owner) : parser(owner) {
      if (++owner.depth_ > kMaxParseDepth)
        owner.fail("nested deeper than " + std::to_string(kMaxParseDepth) + " levels");
    }
    ~DepthGuard() { --parser.depth_; }
    Parser& parser;
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

  // ---- Statements ----

  StmtPtr make_stmt(StmtKind kind, int line) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = line;
    return stmt;
  }

  // Until a tag that begins with one of `ends`; stands at that name then. Empty: to the end.
  Body statements(std::initializer_list<std::string_view> ends) {
    const DepthGuard guard(*this);
    Body body;
    const int begin_line = current().line;
    while (!at_end()) {
      const Token& token = current();
      if (token.type == TokenType::kData) {
        StmtPtr stmt = make_stmt(StmtKind::kText, token.line);
        stmt->text = Str(token.text, /*trusted=*/true);
        next();
        body.push_back(std::move(stmt));
      } else if (token.type == TokenType::kVarBegin) {
        StmtPtr stmt = make_stmt(StmtKind::kPrint, token.line);
        next();
        stmt->expr = tuple_or_expression();
        if (current().type != TokenType::kVarEnd) {
          fail("expected '}}', found " + shown());
        } else {
          next();
        }
        body.push_back(std::move(stmt));
      } else {  // kBlockBegin
        next();
        for (const std::string_view end : ends)
          if (is_name(end)) return body;
        body.push_back(statement());
      }
    }
    if (ends.size() > 0) {
      std::string wanted;
      for (const std::string_view end : ends)
        wanted += (wanted.empty() ? "'" : " or '") + std::string(end) + "'";
      fail("the block begun here has no " + wanted, begin_line);
    }
    return body;
  }

  // statements() up to {% end %}, whose tag is taken too.
  Body body_until(std::string_view end) {
    expect_block_end();
    Body body = statements({end});
    next();
    expect_block_end();
    return body;
  }

  StmtPtr statement() {
    const Token token = current();
    if (token.type != TokenType::kName) {
      fail("expected a statement, found " + shown());
      return make_stmt(StmtKind::kText, token.line);
    }
    next();
    if (token.text == "if") return if_statement(token.line);
    if (token.text == "for") return for_statement(token.line);
    if (token.text == "set") return set_statement(token.line);
    if (token.text == "macro") return macro_statement(token.line);
    if (token.text == "call") return call_block(token.line);
    if (token.text == "filter") return filter_block(token.line);
    if (token.text == "with") return with_statement(token.line);
    if (token.text == "generation") return generation_block(token.line);
    if (token.text == "break" || token.text == "continue") {
      if (loop_depth_ == 0) fail("'" + token.text + "' outside of a loop", token.line);
      expect_block_end();
      return make_stmt(token.text == "break" ? StmtKind::kBreak : StmtKind::kContinue, token.line);
    }
    if (token.text == "print") {
      StmtPtr stmt = make_stmt(StmtKind::kPrint, token.line);
      stmt->expr = tuple_or_expression();
      expect_block_end();
      return stmt;
    }
    fail("unknown statement '" + token.text + "'", token.line);
    return make_stmt(StmtKind::kText, token.line);
  }

  StmtPtr if_statement(int line) {
    StmtPtr stmt = make_stmt(StmtKind::kIf, line);
    while (true) {
      ExprPtr condition = tuple_or_expression(/*with_condition=*/false);
      expect_block_end();
      Body body = statements({"elif", "else", "endif"});
      stmt->branches.emplace_back(std::move(condition), std::move(body));
      if (skip_name("elif")) continue;
      if (skip_name("else")) {
        stmt->branches.emplace_back(nullptr, body_until("endif"));
      } else {
        next();
        expect_block_end();
      }
      return stmt;
    }
  }

  StmtPtr for_statement(int line) {
    StmtPtr stmt = make_stmt(StmtKind::kFor, line);
    stmt->target = target(/*with_namespace=*/false);
    expect_name("in");
    stmt->expr = tuple_or_expression(/*with_condition=*/false);
    if (skip_name("if")) stmt->condition = expression();
    if (is_name("recursive")) fail("recursive loops are not supported");
    expect_block_end();
    ++loop_depth_;
    loops_.push_back(stmt.get());
    stmt->body = statements({"endfor", "else"});
    loops_.pop_back();
    --loop_depth_;
    if (skip_name("else")) {
      stmt->else_body = body_until("endfor");
    } else {
      next();
      expect_block_end();
    }
    return stmt;
  }

  StmtPtr set_statement(int line) {
    StmtPtr stmt = make_stmt(StmtKind::kSet, line);
    stmt->target = target(/*with_namespace=*/true);
    if (skip_op("=")) {
      stmt->expr = tuple_or_expression();
      expect_block_end();
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    if (is_op("|")) stmt->expr = filters(nullptr);
    stmt->body = body_until("endset");
    return stmt;
  }

  // Macro or call(...) parameters.
  void signature(Stmt& stmt) {
    expect_op("(");
    bool has_default = false;
    while (!is_op(")") && !at_end()) {
      if (!stmt.params.empty()) expect_op(",");
      const Token name = current();
      if (name.type != TokenType::kName) return fail("expected a parameter name, found " + shown());
      next();
      ExprPtr fallback;
      if (skip_op("=")) {
        fallback = expression();
        has_default = true;
      } else if (has_default) {
        return fail("a parameter without default follows one with default");
      }
      stmt.params.emplace_back(name_index(name.text), std::move(fallback));
    }
    expect_op(")");
  }

  // The body of a macro: loops around it are not its own.
  void macro_body(Stmt& stmt, std::string_view end) {
    const int outer_depth = std::exchange(loop_depth_, 0);
    Stmt* outer_macro = std::exchange(macro_, &stmt);
    stmt.body = body_until(end);
    macro_ = outer_macro;
    loop_depth_ = outer_depth;
  }

  StmtPtr macro_statement(int line) {
    StmtPtr stmt = make_stmt(StmtKind::kMacro, line);
    if (current().type != TokenType::kName) fail("expected the name of a macro");
    stmt->name = name_index(current().text);
    next();
    signature(*stmt);
    macro_body(*stmt, "endmacro");
    return stmt;
  }

  StmtPtr call_block(int line) {
    StmtPtr stmt = make_stmt(StmtKind::kCallBlock, line);
    stmt->name = name_index("caller");
    if (is_op("(")) signature(*stmt);
    stmt->expr = expression();
    if (stmt->expr->kind != ExprKind::kCall) fail("'call' needs a call", line);
    macro_body(*stmt, "endcall");
    return stmt;
  }

  StmtPtr filter_block(int line) {
    StmtPtr stmt = make_stmt(StmtKind::kFilter, line);
    stmt->expr = filters(nullptr, /*at_name=*/true);
    stmt->body = body_until("endfilter");
    return stmt;
  }

  StmtPtr with_statement(int line) {
    StmtPtr stmt = make_stmt(StmtKind::kScope, line);
    while (current().type == TokenType::kName) {
      const int name = name_index(current().text);
      next();
      expect_op("=");
      stmt->params.emplace_back(name, expression());
      if (!skip_op(",")) break;
    }
    stmt->body = body_until("endwith");
    return stmt;
  }

  // Hugging Face's mark of what the assistant wrote: a scope, and otherwise nothing.
  StmtPtr generation_block(int line) {
    StmtPtr stmt = make_stmt(StmtKind::kScope, line);
    const int outer_depth = std::exchange(loop_depth_, 0);
    stmt->body = body_until("endgeneration");
    loop_depth_ = outer_depth;
    return stmt;
  }

  Target simple_target(bool with_namespace) {
    const DepthGuard guard(*this);
    Target result;
    if (skip_op("(")) {
      result = target(with_namespace);
      expect_op(")");
      return result;
    }
    const Token token = current();
    static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                      "True", "False", "None"};
    if (token.type != TokenType::kName || std::find(std::begin(kConstants), std::end(kConstants),
                                                    token.text) != std::end(kConstants)) {
      fail("cannot assign to " + shown());
      return result;
    }
    next();
    result.name = name_index(token.text);
    if (with_namespace && skip_op(".")) {
      if (current().type != TokenType::kName) fail("expected an attribute name, found " + shown());
      result.attribute = current().text;
      next();
    }
    return result;
  }

  Target target(bool with_namespace) {
    Target first = simple_target(with_namespace);
    if (!is_op(",")) return first;
    Target tuple;
    tuple.parts.push_back(std::move(first));
    while (skip_op(",")) {
      if (current().type != TokenType::kName && !is_op("(")) break;
      if (is_name("in")) break;
      tuple.parts.push_back(simple_target(with_namespace));
    }
    return tuple;
  }

  // ---- Expressions, lowest precedence first ----

  bool tuple_ends() const {
    return current().type == TokenType::kVarEnd || current().type == TokenType::kBlockEnd ||
           is_op(")") || is_name("recursive") || at_end();
  }

  // a, b, c without brackets is a tuple.
  ExprPtr tuple_or_expression(bool with_condition = true, bool in_brackets = false) {
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

  ExprPtr expression() {
    const DepthGuard guard(*this);
    const int line = current().line;
    ExprPtr then = or_expression();
    while (skip_name("if")) {
      ExprPtr condition = or_expression();
      ExprPtr otherwise;
      if (skip_name("else")) otherwise = expression();
      then =
          node(ExprKind::kCond, line, std::move(condition), std::move(then), std::move(otherwise));
    }
    return then;
  }

  ExprPtr or_expression() {
    const int line = current().line;
    ExprPtr left = and_expression();
    while (skip_name("or")) left = node(ExprKind::kOr, line, std::move(left), and_expression());
    return left;
  }

  ExprPtr and_expression() {
    const int line = current().line;
    ExprPtr left = not_expression();
    while (skip_name("and")) left = node(ExprKind::kAnd, line, std::move(left), not_expression());
    return left;
  }

  ExprPtr not_expression() {
    const DepthGuard guard(*this);
    const int line = current().line;
    if (skip_name("not")) return node(ExprKind::kNot, line, not_expression());
    return comparison();
  }

  bool compare_operator(CompareOp& op) {
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

  ExprPtr comparison() {
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

  ExprPtr binary(char op, int line, ExprPtr left, ExprPtr right) {
    ExprPtr expr = node(ExprKind::kBinary, line, std::move(left), std::move(right));
    expr->op = op;
    return expr;
  }

  ExprPtr sum() {
    ExprPtr left = concatenation();
    while (is_op("+") || is_op("-")) {
      const char op = current().text[0];
      const int line = current().line;
      next();
      left = binary(op, line, std::move(left), concatenation());
    }
    return left;
  }

  ExprPtr concatenation() {
    const int line = current().line;
    ExprPtr left = product();
    if (!is_op("~")) return left;
    ExprPtr expr = make(ExprKind::kConcat, line);
    expr->args.push_back(std::move(left));
    while (skip_op("~")) expr->args.push_back(product());
    return finish(std::move(expr));
  }

  ExprPtr product() {
    ExprPtr left = power();
    while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
      const char op = is_op("//") ? 'f' : current().text[0];
      const int line = current().line;
      next();
      left = binary(op, line, std::move(left), power());
    }
    return left;
  }

  ExprPtr power() {
    ExprPtr left = unary();
    while (is_op("**")) {
      const int line = current().line;
      next();
      left = binary('p', line, std::move(left), unary());
    }
    return left;
  }

  // A sign binds weaker than subscripts and calls, and stronger than filters.
  ExprPtr unary(bool with_filter = true) {
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

  ExprPtr primary() {
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

  ExprPtr name_or_constant() {
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

  ExprPtr postfix(ExprPtr expr) {
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

  ExprPtr subscript(ExprPtr object) {
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

  ExprPtr subscript_item() {
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
  void arguments(Expr& expr) {
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

  ExprPtr call(ExprPtr callee) {
    ExprPtr expr = make(ExprKind::kCall, current().line);
    expr->args.push_back(std::move(callee));
    arguments(*expr);
    return finish(std::move(expr));
  }

  std::string dotted_name() {
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
  ExprPtr filters(ExprPtr expr, bool at_name = false) {
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

  ExprPtr test(ExprPtr object, int line) {
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
               (type == TokenType::kName && !is_name("else") && !is_name("or") &&
                !is_name("and"))) {
      if (is_name("is")) fail("tests cannot be chained with 'is'");
      expr->args.push_back(postfix(primary()));
    }
    expr = finish(std::move(expr));
    return negated ? node(ExprKind::kNot, line, std::move(expr)) : std::move(expr);
  }

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

}  // namespace

Result<Template> parse_template(std::string_view source) {
  INVAR_TRY(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace invar::jinja
