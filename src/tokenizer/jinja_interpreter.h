// Runs a syntax tree. One Interpreter renders once; what filters, tests and methods need of it is
// public. The C stack is bounded by a count of nested evaluations.
#pragma once

#include <ctime>

#include "tokenizer/jinja_ast.h"

namespace invar::jinja {

struct Scope;

struct MethodObject : Object {
  Value self;
  const Builtin* builtin = nullptr;
};
struct FunctionObject : Object {
  const Builtin* builtin = nullptr;
};

class Interpreter {
 public:
  Interpreter(const Template& program, const TemplateLimits& limits, const std::tm& now);
  ~Interpreter();

  // Gives the template a variable; names that it does not mention are dropped.
  void set_variable(std::string_view name, Value value);
  // On failure budget.failed(), with error() and line().
  Str render();
  int line() const { return line_; }

  Budget budget;
  const std::tm now;

  // obj.name and obj[key]; undefined where there is none.
  Value attribute(const Value& object, const Str& name);
  Value item(const Value& object, const Value& key);
  Value call(const Value& callee, CallArgs args);
  Value apply(const Builtin& builtin, const Value& self, const CallArgs& args, const char* what);
  Value make_namespace();
  bool contains(const Value& container, const Value& value);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  Flow run(const Body& body);
  Flow run(const Stmt& stmt);
  Flow run_if(const Stmt& stmt);
  Flow run_for(const Stmt& stmt);
  Flow run_scope(const Stmt& stmt);
  Flow run_set_block(const Stmt& stmt);
  Flow run_filter_block(const Stmt& stmt);
  void run_call_block(const Stmt& stmt);
  void print(const Value& value);
  // Output of `body` in a scope of its own. A break or continue in it drops the text.
  Flow capture(const Body& body, Str& text);

  Value eval(const Expr& expr);
  Value eval_name(const Expr& expr);
  Value eval_container(const Expr& expr);
  Value eval_subscript(const Expr& expr);
  Value eval_call(const Expr& expr);
  Value eval_builtin(const Expr& expr, const Value* input);
  Value eval_logic(const Expr& expr);
  Value eval_sign(const Expr& expr);
  Value eval_binary(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_compare(const Expr& expr);
  bool compare_once(CompareOp op, const Value& a, const Value& b);
  CallArgs eval_args(const Expr& expr);
  Value slice(const Value& object, const Expr& bounds);

  Value lookup(int name);
  void assign(const Target& target, const Value& value);
  Value make_macro(const Stmt& stmt, std::string name);
  Value call_macro(const Value& callee, CallArgs& args);
  Value loop_attribute(const Value& loop, const std::string& name);

  bool enter();  // counts nesting; false when too deep
  struct Nesting {
    explicit Nesting(Interpreter& owner) : interpreter(owner), ok(owner.enter()) {}
    ~Nesting() { --interpreter.depth_; }
    Interpreter& interpreter;
    const bool ok;
  };
  struct ScopeGuard;

  const Template& program_;
  int line_ = 1;
  int depth_ = 0;
  int macro_depth_ = 0;
  int loop_name_ = -1, caller_name_ = -1, varargs_name_ = -1, kwargs_name_ = -1;
  StrBuilder* out_ = nullptr;
  std::vector<std::optional<Value>> variables_;  // template level, by name
  std::shared_ptr<Scope> root_, scope_;
  // Scopes and namespaces can hold each other in circles: the destructor empties them all.
  std::vector<std::shared_ptr<Scope>> captured_;
  std::vector<std::shared_ptr<const NamespaceObject>> namespaces_;
};

// a op b as Python computes it; op as in Expr.
Value arithmetic(Interpreter& interpreter, char op, const Value& a, const Value& b);

const Builtin* find_method(Kind kind, std::string_view name);
const Builtin* find_global(std::string_view name);

}  // namespace invar::jinja
