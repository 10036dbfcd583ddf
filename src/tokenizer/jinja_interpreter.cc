// Statements, scopes, macros, names and attributes. Expressions stand in jinja_expressions.cc,
// built-in filters, tests and methods in files of their own.
#include "tokenizer/jinja_interpreter.h"

#include <string.h>

#include <algorithm>
#include <cmath>

namespace invar::jinja {

namespace {

// Evaluations inside each other, over all macros. A frame takes some hundred bytes (a few thousand
// with sanitizers), a thread's stack 8 MiB.
constexpr int kMaxNesting = 1500;
// What a statement or an expression costs, so that the default fuel ends within 200 ms.
constexpr int kNodeSteps = 2;
constexpr int kIterationSteps = 8;
// Names are searched one by one: right for the few that real templates have, and paid for by
// others.
constexpr size_t kNamesAStep = 16;

struct MacroObject : Object {
  const Stmt* stmt = nullptr;
  std::shared_ptr<Scope> closure;
  std::string name;
};

}  // namespace

// Names assigned in a loop body, macro or block. The template level has none: its names stand in
// Interpreter::variables_.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> names;
  bool captured = false;

  void set(int name, Value value) {
    for (auto& [present, old] : names) {
      if (present != name) continue;
      old = std::move(value);
      return;
    }
    names.emplace_back(name, std::move(value));
  }
};

// A new scope for as long as this object lives.
struct Interpreter::ScopeGuard {
  ScopeGuard(Interpreter& owner, std::shared_ptr<Scope> parent)
      : interpreter(owner), outer(owner.scope_) {
    owner.scope_ = std::make_shared<Scope>();
    owner.scope_->parent = std::move(parent);
  }
  ~ScopeGuard() { interpreter.scope_ = std::move(outer); }
  Interpreter& interpreter;
  std::shared_ptr<Scope> outer;
};

bool Interpreter::enter() {
  if (++depth_ <= kMaxNesting) return budget.spend(kNodeSteps);
  budget.fail("the limit of " + std::to_string(kMaxNesting) + " nested evaluations was passed");
  return false;
}

Interpreter::Interpreter(const Template& program, const TemplateLimits& limits, const std::tm& time)
    : budget(limits), now(time), program_(program), variables_(program.names.size()) {
  root_ = scope_ = std::make_shared<Scope>();
  for (size_t i = 0; i < program.names.size(); ++i) {
    const std::string& name = program.names[i];
    if (name == "loop") loop_name_ = static_cast<int>(i);
    if (name == "caller") caller_name_ = static_cast<int>(i);
    if (name == "varargs") varargs_name_ = static_cast<int>(i);
    if (name == "kwargs") kwargs_name_ = static_cast<int>(i);
    if (const Builtin* global = find_global(name)) {
      auto function = std::make_shared<FunctionObject>();
      function->builtin = global;
      variables_[i] = Value(Kind::kFunction, std::move(function));
    }
  }
}

Interpreter::~Interpreter() {
  variables_.clear();
  for (const auto& scope : captured_) scope->names.clear();
  for (const auto& object : namespaces_) object->members.clear();
}

void Interpreter::set_variable(std::string_view name, Value value) {
  for (size_t i = 0; i < program_.names.size(); ++i)
    if (program_.names[i] == name) variables_[i] = std::move(value);
}

Str Interpreter::render() {
  StrBuilder out;
  out_ = &out;
  run(program_.body);
  out_ = nullptr;
  return out.build();
}

// ---- Statements
// ----------------------------------------------------------------------------------

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const StmtPtr& stmt : body) {
    const Flow flow = run(*stmt);
    if (budget.failed() || flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Stmt& stmt) {
  const Nesting nesting(*this);
  if (!nesting.ok) return Flow::kNext;
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kText:
      print(stmt.text);
      break;
    case StmtKind::kPrint:
      print(eval(*stmt.expr));
      break;
    case StmtKind::kIf:
      return run_if(stmt);
    case StmtKind::kFor:
      return run_for(stmt);
    case StmtKind::kSet:
      assign(stmt.target, eval(*stmt.expr));
      break;
    case StmtKind::kSetBlock:
      return run_set_block(stmt);
    case StmtKind::kMacro: {
      Target target;
      target.name = stmt.name;
      const std::string& name = program_.names[static_cast<size_t>(stmt.name)];
      assign(target, make_macro(stmt, name));
      break;
    }
    case StmtKind::kCallBlock:
      run_call_block(stmt);
      break;
    case StmtKind::kFilter:
      return run_filter_block(stmt);
    case StmtKind::kScope:
      return run_scope(stmt);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Interpreter::print(const Value& value) {
  if (budget.failed()) return;
  append_str(budget, *out_, value);
}

Interpreter::Flow Interpreter::run_if(const Stmt& stmt) {
  for (const auto& [condition, body] : stmt.branches) {
    if (condition != nullptr && !truthy(eval(*condition))) {
      if (budget.failed()) return Flow::kNext;
      continue;
    }
    return budget.failed() ? Flow::kNext : run(body);
  }
  return Flow::kNext;
}

// A condition is a filter that runs as the loop goes, so that the body can change what it sees
// (through a namespace). Only where `loop` must know what comes later it runs over all items first.
Interpreter::Flow Interpreter::run_for(const Stmt& stmt) {
  List items = iterate(budget, eval(*stmt.expr));
  if (budget.failed()) return Flow::kNext;
  const std::shared_ptr<Scope> outer = scope_;
  const auto accepts = [&](const Value& item) {
    assign(stmt.target, item);
    return truthy(eval(*stmt.condition)) && !budget.failed();
  };
  if (stmt.condition != nullptr && stmt.needs_all_items) {
    const ScopeGuard guard(*this, outer);
    List accepted;
    for (const Value& item : items) {
      if (!budget.spend(kIterationSteps)) return Flow::kNext;
      if (accepts(item)) accepted.push_back(item);
    }
    items = std::move(accepted);
  }
  if (budget.failed()) return Flow::kNext;

  const bool filters_now = stmt.condition != nullptr && !stmt.needs_all_items;
  auto loop = std::make_shared<LoopObject>();
  for (const Value& item : items)
    loop->value_depth = std::max(loop->value_depth, depth_of(item) + 1);
  loop->lazy = filters_now;
  const Value loop_value(Kind::kLoop, loop);
  if (!filters_now) loop->items = std::move(items);
  const List& source = filters_now ? items : loop->items;

  int64_t count = 0;
  bool completed = false, broken = false;
  {
    const ScopeGuard guard(*this, outer);
    for (size_t i = 0; i < source.size() && !broken; ++i) {
      if (!budget.spend(kIterationSteps)) return Flow::kNext;
      if (scope_.use_count() == 1) {
        scope_->names.clear();
      } else {  // a macro holds it
        scope_ = std::make_shared<Scope>();
        scope_->parent = outer;
      }
      if (filters_now ? !accepts(source[i]) : (assign(stmt.target, source[i]), false)) continue;
      loop->index0 = count++;
      if (loop_name_ >= 0) scope_->set(loop_name_, loop_value);
      const Flow flow = run(stmt.body);
      if (budget.failed()) return Flow::kNext;
      // Jinja's: an iteration that breaks or continues does not count for `else`.
      completed |= flow == Flow::kNext;
      broken = flow == Flow::kBreak;
      if (filters_now) loop->previous = source[i];
    }
  }
  return !completed ? run(stmt.else_body) : Flow::kNext;
}

Interpreter::Flow Interpreter::run_scope(const Stmt& stmt) {
  std::vector<Value> values;  // seen from outside, as all of them are set at once
  for (const auto& param : stmt.params) values.push_back(eval(*param.second));
  const ScopeGuard guard(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i)
    scope_->set(stmt.params[i].first, std::move(values[i]));
  return budget.failed() ? Flow::kNext : run(stmt.body);
}

Interpreter::Flow Interpreter::capture(const Body& body, Str& text) {
  StrBuilder inner;
  StrBuilder* const outer = std::exchange(out_, &inner);
  Flow flow = Flow::kNext;
  {
    const ScopeGuard guard(*this, scope_);
    flow = run(body);
  }
  out_ = outer;
  text = inner.build();
  return flow;
}

Interpreter::Flow Interpreter::run_set_block(const Stmt& stmt) {
  Str text;
  const Flow flow = capture(stmt.body, text);
  if (budget.failed() || flow != Flow::kNext) return flow;
  const Value captured(text);
  assign(stmt.target, stmt.expr == nullptr ? captured : eval_builtin(*stmt.expr, &captured));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_filter_block(const Stmt& stmt) {
  Str text;
  const Flow flow = capture(stmt.body, text);
  if (budget.failed() || flow != Flow::kNext) return flow;
  const Value captured(text);
  print(eval_builtin(*stmt.expr, &captured));
  return Flow::kNext;
}

void Interpreter::run_call_block(const Stmt& stmt) {
  const Value callee = eval(*stmt.expr->args[0]);
  CallArgs args = eval_args(*stmt.expr);
  args.named.emplace_back("caller", make_macro(stmt, "caller"));
  if (!budget.failed()) print(call(callee, std::move(args)));
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (budget.failed()) return;
  if (!target.parts.empty()) {
    const List items = iterate(budget, value);
    if (budget.failed()) return;
    if (items.size() != target.parts.size())
      return budget.fail(
          format("cannot unpack %zu values into %zu names", items.size(), target.parts.size()));
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) {
    if (scope_ == root_) {
      variables_[static_cast<size_t>(target.name)] = value;
    } else {
      budget.spend(static_cast<int64_t>(scope_->names.size() / kNamesAStep));
      scope_->set(target.name, value);
    }
    return;
  }
  const Value object = lookup(target.name);
  if (!object.is(Kind::kNamespace))
    return budget.fail("cannot assign attribute '" + target.attribute + "' of a " +
                       type_name(object) + ": only of a namespace");
  budget.spend(static_cast<int64_t>(object.as<NamespaceObject>().members.size() / kNamesAStep));
  for (auto& [name, old] : object.as<NamespaceObject>().members) {
    if (name != target.attribute) continue;
    old = value;
    return;
  }
  object.as<NamespaceObject>().members.emplace_back(target.attribute, value);
}

// ---- Macros and calls
// ----------------------------------------------------------------------------

Value Interpreter::make_macro(const Stmt& stmt, std::string name) {
  auto macro = std::make_shared<MacroObject>();
  macro->stmt = &stmt;
  macro->closure = scope_;
  macro->name = std::move(name);
  for (auto scope = scope_; scope != root_ && !scope->captured; scope = scope->parent) {
    scope->captured = true;
    captured_.push_back(scope);
  }
  return Value(Kind::kMacro, std::move(macro));
}

Value Interpreter::call_macro(const Value& callee, CallArgs& args) {
  const auto& macro = callee.as<MacroObject>();
  const Stmt& stmt = *macro.stmt;
  if (macro_depth_ >= budget.limits.max_recursion) {
    budget.fail("the limit of " + std::to_string(budget.limits.max_recursion) +
                " nested macro calls was passed");
    return {};
  }
  const auto fail = [&](const std::string& why) {
    budget.fail("macro '" + macro.name + "' " + why);
    return Value();
  };
  ++macro_depth_;
  const int call_line = line_;
  StrBuilder text;
  StrBuilder* const outer = std::exchange(out_, &text);
  {
    const ScopeGuard guard(*this, macro.closure);
    std::vector<bool> used(args.named.size());
    for (size_t i = 0; i < stmt.params.size(); ++i) {
      const int name = stmt.params[i].first;
      const std::string& name_text = program_.names[static_cast<size_t>(name)];
      std::optional<Value> value;
      if (i < args.positional.size()) value = args.positional[i];
      for (size_t k = 0; k < args.named.size(); ++k) {
        if (args.named[k].first != name_text) continue;
        if (value) fail("got two values for '" + name_text + "'");
        value = args.named[k].second;
        used[k] = true;
      }
      if (!value)
        value = stmt.params[i].second != nullptr
                    ? eval(*stmt.params[i].second)
                    : Value::undefined("parameter '" + name_text + "' was not provided");
      scope_->set(name, std::move(*value));
    }
    Value caller = Value::undefined("No caller defined");
    auto kwargs = std::make_shared<Dict>();
    for (size_t k = 0; k < args.named.size(); ++k) {
      if (used[k]) continue;
      auto& [name, value] = args.named[k];
      if (name == "caller" && stmt.uses_caller) {
        caller = value;
      } else if (stmt.uses_kwargs) {
        kwargs->set(budget, Value::string(name, true), value);
      } else {
        fail("takes no argument '" + name + "'");
      }
    }
    if (args.positional.size() > stmt.params.size() && !stmt.uses_varargs)
      fail(format("takes no more than %zu arguments", stmt.params.size()));
    if (stmt.uses_caller) scope_->set(caller_name_, std::move(caller));
    if (stmt.uses_kwargs) scope_->set(kwargs_name_, make_dict(budget, std::move(kwargs)));
    if (stmt.uses_varargs) {
      const size_t taken = std::min(stmt.params.size(), args.positional.size());
      List rest(args.positional.begin() + static_cast<ptrdiff_t>(taken), args.positional.end());
      scope_->set(varargs_name_, make_list(budget, std::move(rest), Kind::kTuple));
    }
    if (!budget.failed()) run(stmt.body);
  }
  out_ = outer;
  --macro_depth_;
  if (!budget.failed()) line_ = call_line;
  return text.build();
}

Value Interpreter::call(const Value& callee, CallArgs args) {
  if (budget.failed()) return {};
  switch (callee.kind()) {
    case Kind::kMacro:
      return call_macro(callee, args);
    case Kind::kMethod: {
      const auto& method = callee.as<MethodObject>();
      return apply(*method.builtin, method.self, args, "method");
    }
    case Kind::kFunction:
      return apply(*callee.as<FunctionObject>().builtin, {}, args, "function");
    case Kind::kUndefined:
      budget.fail(undefined_why(callee));
      return {};
    default:
      budget.fail(std::string("a ") + type_name(callee) + " cannot be called");
      return {};
  }
}

Value Interpreter::apply(const Builtin& builtin, const Value& self, const CallArgs& args,
                         const char* what) {
  if (!budget.spend(kNodeSteps)) return {};
  const std::string_view params = builtin.params;
  if (params == "*") return builtin.fn(*this, self, {}, args);
  const auto fail = [&](const std::string& why) {
    budget.fail(std::string(what) + " '" + builtin.name + "' " + why);
    return Value();
  };
  Params bound;
  size_t num_used = 0;
  for (size_t begin = 0; begin < params.size();) {
    const size_t end = std::min(params.find(',', begin), params.size());
    const std::string_view name = params.substr(begin, end - begin);
    std::optional<Value> value;
    if (bound.size() < args.positional.size()) value = args.positional[bound.size()];
    for (const auto& [given, named] : args.named) {
      if (given != name) continue;
      if (value) return fail("got two values for '" + given + "'");
      value = named;
      ++num_used;
    }
    bound.push_back(std::move(value));
    begin = end + 1;
  }
  if (args.positional.size() > bound.size())
    return fail(format("takes no more than %zu arguments", bound.size()));
  if (num_used != args.named.size()) {
    for (const auto& [given, value] : args.named)
      if (("," + std::string(params) + ",").find("," + given + ",") == std::string::npos)
        return fail("takes no argument '" + given + "'");
  }
  for (size_t i = 0; i < static_cast<size_t>(builtin.num_required); ++i)
    if (!bound[i]) return fail(format("needs %d arguments", builtin.num_required));
  return builtin.fn(*this, self, bound, args);
}

Value Interpreter::make_namespace() {
  auto object = std::make_shared<NamespaceObject>();
  namespaces_.push_back(object);
  return Value(Kind::kNamespace, std::move(object));
}

// ---- Names and attributes
// ------------------------------------------------------------------------

Value Interpreter::lookup(int name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    budget.spend(static_cast<int64_t>(scope->names.size() / kNamesAStep));
    for (const auto& [present, value] : scope->names)
      if (present == name) return value;
  }
  const auto index = static_cast<size_t>(name);
  if (variables_[index]) return *variables_[index];
  return Value::undefined("'" + program_.names[index] + "' is undefined");
}

Value Interpreter::loop_attribute(const Value& value, const std::string& name) {
  const auto& loop = value.as<LoopObject>();
  const auto size = static_cast<int64_t>(loop.items.size());
  const int64_t i = loop.index0;
  if (name == "index") return Value::integer(i + 1);
  if (name == "index0") return Value::integer(i);
  if (name == "first") return Value::boolean(i == 0);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem") {
    if (i == 0) return Value::undefined("there is no previous item");
    return loop.lazy ? loop.previous : loop.items[static_cast<size_t>(i - 1)];
  }
  if (name == "cycle") {
    auto method = std::make_shared<MethodObject>();
    method->self = value;
    method->builtin = find_method(Kind::kLoop, "cycle");
    return Value(Kind::kMethod, std::move(method));
  }
  if (loop.lazy) return Value::undefined("loop." + name + " is not known in this loop");
  if (name == "last") return Value::boolean(i + 1 == size);
  if (name == "length") return Value::integer(size);
  if (name == "revindex") return Value::integer(size - i);
  if (name == "revindex0") return Value::integer(size - i - 1);
  if (name == "nextitem") {
    if (i + 1 >= size) return Value::undefined("there is no next item");
    return loop.items[static_cast<size_t>(i + 1)];
  }
  return Value::undefined("a loop has no attribute '" + name + "'");
}

Value Interpreter::attribute(const Value& object, const Str& name) {
  if (!budget.spend_bytes(name.num_bytes())) return {};
  switch (object.kind()) {
    case Kind::kUndefined:
      budget.fail(undefined_why(object));
      return {};
    case Kind::kLoop:
      return loop_attribute(object, name.text());
    case Kind::kNamespace:
      budget.spend(static_cast<int64_t>(object.as<NamespaceObject>().members.size() / kNamesAStep));
      for (const auto& [member, value] : object.as<NamespaceObject>().members)
        if (member == name.text()) return value;
      break;
    case Kind::kMacro:
      if (name.text() == "name") return Value::string(object.as<MacroObject>().name, true);
      break;
    default:
      if (const Builtin* builtin = find_method(object.kind(), name.text())) {
        auto method = std::make_shared<MethodObject>();
        method->self = object;
        method->builtin = builtin;
        return Value(Kind::kMethod, std::move(method));
      }
      if (object.is_dict())
        if (const Value* member = object.dict().find(name.text())) return *member;
  }
  return Value::undefined(std::string("'") + type_name(object) + " object' has no attribute '" +
                          name.text().substr(0, 80) + "'");
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) {
    budget.fail(undefined_why(object));
    return {};
  }
  if (object.is_dict()) {
    if (const Value* member = object.dict().find(budget, key)) return *member;
  } else if (const int64_t length = length_of(object); length >= 0 && key.is_integral()) {
    int64_t i = key.as_int();
    if (i < 0) i += length;
    if (i >= 0 && i < length) {
      if (object.is_sequence()) return object.items()[static_cast<size_t>(i)];
      if (object.is(Kind::kRange)) return object.as<RangeObject>().at(i);
      const Str str = object.as_str();
      if (!str.is_ascii()) budget.spend_bytes(str.num_bytes());
      const size_t at = str.offset_of(i);
      return str.bytes(at, at + char_size(str.text(), at));
    }
    return Value::undefined(std::string(type_name(object)) + " index out of range");
  }
  if (key.is_string()) return attribute(object, key.as_str());
  return Value::undefined(std::string("'") + type_name(object) + " object' has no such element");
}

bool Interpreter::contains(const Value& container, const Value& value) {
  switch (container.kind()) {
    case Kind::kString: {
      if (!value.is_string()) {
        budget.fail(std::string("'in <string>' needs a string, not ") + type_name(value));
        return false;
      }
      budget.spend_bytes(container.text().size());
      const std::string &text = container.text(), &part = value.text();
      return part.empty() || memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
    }
    case Kind::kList:
    case Kind::kTuple:
      for (const Value& item : container.items())
        if (equal(budget, item, value)) return true;
      return false;
    case Kind::kDict:
      return container.dict().find(budget, value) != nullptr;
    case Kind::kRange: {
      const auto& range = container.as<RangeObject>();
      if (!value.is_integral() || range.count == 0) return false;
      if (std::abs(value.as_double()) > 1e16) return false;  // beyond every range
      const int64_t distance = value.as_int() - range.start;
      return distance % range.step == 0 && distance / range.step >= 0 &&
             distance / range.step < range.count;
    }
    case Kind::kUndefined:
      return false;
    default:
      budget.fail(std::string("a ") + type_name(container) + " cannot be searched with 'in'");
      return false;
  }
}

}  // namespace invar::jinja
