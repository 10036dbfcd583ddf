// SchemaCompiler: schemas -> rules of a grammar. Values are described by what may begin them: rules
// for strings, objects and arrays, and texts and numbers in line. Bodies of objects and arrays are
// made later, from a queue, so that recursive schemas end and the stack stays flat.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "constraint/char_dfa.h"
#include "constraint/grammar.h"
#include "constraint/schema.h"

namespace invar {

class SchemaCompiler {
 public:
  explicit SchemaCompiler(GrammarBuilder& builder) : builder_(builder) {}

  // A document; the reader stays until the rules are finished. `relaxed`: a schema that cannot be
  // enforced accepts any value, and `warning` of it is kept (the first).
  const SchemaReader& open(const Json& document, bool relaxed);

  // A JSON value of the schema from `from` to `to`.
  Result<void> add_value(const SchemaReader& reader, const SchemaRef& schema, StateId from,
                         StateId to);
  // The same, objects only.
  Result<void> add_object(const SchemaReader& reader, const SchemaRef& schema, StateId from,
                          StateId to);
  // {"name": NAME, KEY: arguments}
  Result<void> add_call(const SchemaReader& reader, const SchemaRef& arguments,
                        const std::string& name, const std::string& key, StateId from, StateId to);
  // Raw text of a value in an XML parameter, up to and with `closing`.
  Result<void> add_raw_value(const SchemaReader& reader, const SchemaRef& schema, StateId from,
                             std::string_view closing, StateId to);
  void add_constant(const Json& value, StateId from, StateId to);

  // Members of an object schema that is the only alternative: what XML parameters need.
  struct Members {
    std::vector<std::pair<std::string, SchemaRef>> listed;
    std::vector<bool> required;
    std::optional<SchemaRef> extra;  // schema of members that are not listed
  };
  Result<Members> members_of(const SchemaNode& node) const;
  Result<SchemaNode> object_node(const SchemaReader& reader, const SchemaRef& schema);

  Result<void> finish();  // makes the queued bodies
  // The first schema that was relaxed, as the error that it would have been.
  const std::optional<std::string>& relaxation() const { return relaxation_; }
  void forget_relaxation() { relaxation_.reset(); }

 private:
  struct Document {
    std::unique_ptr<SchemaReader> reader;
    bool relaxed = false;
    std::map<std::string, size_t> values;  // by path: index into values_
  };
  struct Value {
    std::vector<RuleId> rules;
    std::vector<std::string> literals;
    std::vector<NumberRange> numbers;
  };
  struct Body {
    size_t document;
    SchemaNode node;
    RuleId rule;
    bool is_object;
  };

  size_t index_of(const SchemaReader& reader) const;
  Result<size_t> value(size_t document, const SchemaRef& schema);
  Result<Value> make_value(size_t document, const SchemaRef& schema);
  size_t any_value(size_t document);
  Result<void> add_node(size_t document, const SchemaNode& node, Value& value);
  Result<void> add_listed(const SchemaNode& node, Value& value);
  Result<void> add_string(const SchemaNode& node, Value& value);
  Result<CharDfa> string_dfa(const SchemaNode& node);
  void add(const Value& value, StateId from, StateId to);
  Result<void> make_object(const Body& body);
  Result<void> make_array(const Body& body);
  RuleId key_rule(const std::string& name);
  RuleId free_string(uint32_t min, uint32_t max);
  RuleId other_keys(const std::vector<std::pair<std::string, SchemaRef>>& listed);
  RuleId choice_rule(const std::vector<std::string>& texts);
  RuleId constant_rule(const Json& value);
  StateId add_key_value(StateId from, RuleId key, StateId& value_at);

  GrammarBuilder& builder_;
  std::vector<Document> documents_;
  std::deque<Value> values_;
  std::deque<Body> bodies_;
  std::map<std::string, RuleId> keys_;
  std::map<std::pair<uint32_t, uint32_t>, RuleId> free_strings_;
  std::map<std::string, RuleId> pattern_rules_;
  std::optional<std::string> relaxation_;
};

}  // namespace invar
