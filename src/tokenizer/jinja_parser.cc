// Statements of a template. Expressions and what both need: jinja_expression_parser.h.
#include "tokenizer/jinja_parser.h"

#include "tokenizer/jinja_expression_parser.h"

namespace invar::jinja {
namespace {

class Parser : ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Result<Template> run() {
    Template result;
    result.body = statements({});
    if (error_.empty() && !at_end()) fail("unexpected '" + current().text + "'");
    if (!error_.empty()) return invalid_argument("line %d: %s", error_line_, error_.c_str());
    result.names = std::move(names_);
    return result;
  }

 private:
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
};

}  // namespace

Result<Template> parse_template(std::string_view source) {
  INVAR_TRY(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace invar::jinja
