// The syntax tree of a template. Trees are no deeper than the parser's limit, so that walking and
// freeing them may recurse.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace invar::jinja {

class Interpreter;

// Parameters of a built-in, in the order of its list; absent ones are empty. `rest`: for built-ins
// that take any arguments ("*"), those as they were given.
struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};
using Params = std::vector<std::optional<Value>>;
using BuiltinFn = Value (*)(Interpreter&, const Value& self, const Params&, const CallArgs& rest);

// A filter, test or method. params: "name,name,..." in order, or "*".
struct Builtin {
  const char* name;
  BuiltinFn fn;
  const char* params = "";
  int num_required = 0;
};

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kList,
  kTuple,
  kDict,     // args: key, value, key, value, ...
  kGetAttr,  // args[0] . text
  kGetItem,  // args[0] [ args[1] ]
  kSlice,    // only as args[1] of kGetItem; 3 args, null where left out
  kCall,     // args[0] (args[1...], named)
  kFilter,   // args[0] (null in a filter block) | builtin(args[1...], named)
  kTest,     // args[0] is builtin(args[1...], named)
  kCond,     // args: condition, then, else (may be null)
  kAnd,
  kOr,
  kNot,
  kNeg,
  kPos,
  kBinary,   // op: one of + - * / f(loor) % p(ower)
  kConcat,   // a ~ b ~ c
  kCompare,  // args[0] ops[0] args[1] ops[1] args[2] ...
};

enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expr {
  ExprKind kind = ExprKind::kConst;
  char op = 0;
  int line = 0;
  int depth = 1;
  int name = -1;  // kName: index into Template::names
  Value value;    // kConst
  Str text;       // kGetAttr
  const Builtin* builtin = nullptr;
  std::vector<std::unique_ptr<Expr>> args;
  std::vector<std::pair<std::string, std::unique_ptr<Expr>>> named;
  std::vector<CompareOp> ops;
};
using ExprPtr = std::unique_ptr<Expr>;

enum class StmtKind : uint8_t {
  kText,       // text
  kPrint,      // expr
  kIf,         // branches: (condition or null for else, body)
  kFor,        // targets in expr [if condition] body else_body
  kSet,        // targets = expr
  kSetBlock,   // targets, filter expr or null, body
  kMacro,      // name, params, body
  kCallBlock,  // expr is the call; params and body of its caller()
  kFilter,     // expr is a kFilter without input; body
  kScope,      // with: params are names and values; generation: none
  kBreak,
  kContinue,
};

// Where an assignment goes: a name, an attribute of a namespace, or a tuple of these.
struct Target {
  int name = -1;
  std::string attribute;
  std::vector<Target> parts;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  Str text;
  ExprPtr expr, condition;
  Target target;
  Body body, else_body;
  std::vector<std::pair<ExprPtr, Body>> branches;
  int name = -1;
  std::vector<std::pair<int, ExprPtr>> params;  // macro: name and default (or null); with: value
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  // For with a condition: the loop variable needs all items (length, last, nextitem ...).
  bool needs_all_items = false;
};
using StmtPtr = std::unique_ptr<Stmt>;

struct Template {
  Body body;
  std::vector<std::string> names;  // every name the template mentions
};

}  // namespace invar::jinja
