#include "server/responses_items.h"

#include <algorithm>
#include <optional>

#include "server/responses_tools.h"

namespace invar::server {
namespace {

// Calls of tools that run at a vendor, and their outputs: nothing of them can be shown to the
// model.
bool is_hosted_item(std::string_view type) {
  static constexpr std::string_view kTypes[] = {
      "web_search_call",      "file_search_call",        "computer_call",
      "computer_call_output", "image_generation_call",   "code_interpreter_call",
      "local_shell_call",     "local_shell_call_output", "shell_call",
      "shell_call_output",    "apply_patch_call",        "apply_patch_call_output",
      "tool_search_call",     "tool_search_output",      "compaction"};
  return type.starts_with("mcp_") ||
         std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

class Reader {
 public:
  Reader(Fields& fields, ChatBody& chat, std::vector<Warning>& warnings)
      : fields_(fields), chat_(chat), warnings_(warnings) {}

  void read() {
    chat_.rename("messages", "input");
    const Json* input = fields_.find("input");
    if (input == nullptr) return fields_.fail("missing_field", "input", "field required");
    if (input->is_string())
      return chat_.add_message(chat_message("user", input->as_string()), "input");
    if (!input->is_array())
      return fields_.fail(
          "invalid_type", "input",
          std::string("must be a string or an array of items, got ") + input->kind_name());
    // Clients ask with nothing to see whether the route is there.
    if (input->items().empty()) return chat_.add_message(chat_message("user", ""), "input");
    for (size_t i = 0; i < input->items().size() && !fields_.error(); ++i)
      read_item(input->items()[i], format("input[%zu]", i));
    end_turn();
  }

 private:
  void fail(std::string_view code, const std::string& path, const std::string& what) {
    fields_.fail(api_error(code, path + " " + what, path));
  }
  void warn(const char* code, const std::string& path, std::string what) {
    server::warn(warnings_, {code, path, std::move(what)});
  }

  // A string member that must be there.
  std::optional<std::string> text(const Json& item, const std::string& path, const char* name) {
    const Json* value = item.find(name);
    if (value != nullptr && value->is_string()) return value->as_string();
    const bool is_absent = value == nullptr || value->is_null();
    fail(is_absent ? "missing_field" : "invalid_type", path + "." + name,
         is_absent ? "field required" : "must be a string");
    return std::nullopt;
  }

  // Text of a string or of parts, joined. `is_output`: what is no text is replaced, not refused.
  std::string content(const Json& item, const std::string& path, const char* name, bool is_output) {
    const std::string at = path + "." + name;
    const Json* value = item.find(name);
    if (value == nullptr || value->is_null())
      return fail("missing_field", at, "field required"), "";
    if (value->is_string()) return value->as_string();
    if (!value->is_array())
      return fail("invalid_type", at,
                  std::string("must be a string or an array of parts, got ") + value->kind_name()),
             "";
    std::string joined;
    for (size_t i = 0; i < value->items().size(); ++i) {
      const Json& part = value->items()[i];
      const std::string part_path = at + format("[%zu]", i);
      const std::optional<std::string> type = text(part, part_path, "type");
      if (!type) return "";
      const bool is_text = *type == "input_text" || *type == "output_text" || *type == "text";
      if (is_text || *type == "refusal") {
        const std::optional<std::string> piece =
            text(part, part_path, is_text ? "text" : "refusal");
        if (!piece) return "";
        joined += *piece;
      } else if (is_output) {
        joined += kImageOmitted;
        warn("image_omitted", part_path, quote_value(*type) + " was replaced by a note");
      } else {
        fail("unsupported_content", part_path + ".type",
             "is " + quote_value(*type) + "; this model reads text only");
        return "";
      }
    }
    return joined;
  }

  void read_item(const Json& item, const std::string& path) {
    if (!item.is_object()) return fail("invalid_type", path, "must be an object");
    const Json* kind = item.find("type");
    if (kind == nullptr || kind->is_null()) {
      if (item.find("role") != nullptr) return read_message(item, path);
      return fail("missing_field", path + ".type", "field required");
    }
    const std::optional<std::string> type = text(item, path, "type");
    if (!type) return;
    if (*type == "message") return read_message(item, path);
    if (*type == "reasoning") return read_reasoning(item, path);
    if (*type == "function_call") return read_call(item, path, "arguments");
    if (*type == "custom_tool_call") return read_call(item, path, "input");
    if (*type == "function_call_output" || *type == "custom_tool_call_output")
      return read_output(item, path);
    if (is_hosted_item(*type))
      return warn("item_dropped", path, quote_value(*type) + " cannot be shown to this model");
    fail("unsupported_content", path + ".type",
         "is " + quote_value(*type) +
             (*type == "item_reference" ? "; nothing is stored here, send the item itself"
                                        : ", which is not known"));
  }

  void read_message(const Json& item, const std::string& path) {
    const std::optional<std::string> role = text(item, path, "role");
    if (!role) return;
    if (*role != "user" && *role != "assistant" && *role != "system" && *role != "developer")
      return fail("invalid_value", path + ".role",
                  "must be user, assistant, system or developer, got " + quote_value(*role));
    std::string said = content(item, path, "content", false);
    if (fields_.error()) return;
    if (*role != "assistant") {
      end_turn();
      return chat_.add_message(chat_message(*role, std::move(said)), path);
    }
    // A second message begins a turn of its own; text behind calls belongs to theirs.
    if (turn_.has_content && turn_.calls.empty()) end_turn();
    begin_turn(path);
    turn_.has_content = true;
    turn_.content += said;
  }

  void read_reasoning(const Json& item, const std::string& path) {
    std::string thought;
    if (const Json* parts = item.find("content"); parts != nullptr && !parts->is_null()) {
      thought = reasoning_text(*parts, path + ".content");
      if (fields_.error()) return;
    }
    if (thought.empty())
      return warn("item_dropped", path, "a reasoning item without readable content");
    if (turn_.has_content || !turn_.calls.empty()) end_turn();
    begin_turn(path);
    if (!turn_.reasoning.empty()) turn_.reasoning += "\n\n";
    turn_.reasoning += thought;
  }

  std::string reasoning_text(const Json& parts, const std::string& path) {
    if (!parts.is_array()) return fail("invalid_type", path, "must be an array"), "";
    std::string joined;
    for (size_t i = 0; i < parts.items().size(); ++i) {
      const auto piece = text(parts.items()[i], path + format("[%zu]", i), "text");
      if (!piece) return "";
      joined += *piece;
    }
    return joined;
  }

  void read_call(const Json& item, const std::string& path, const char* arguments_name) {
    const std::optional<std::string> id = text(item, path, "call_id");
    const std::optional<std::string> name = text(item, path, "name");
    std::optional<std::string> arguments = text(item, path, arguments_name);
    if (!id || !name || !arguments) return;
    const Json* name_space = item.find("namespace");
    const bool has_space = name_space != nullptr && name_space->is_string();
    if (std::string_view(arguments_name) == "input") {
      Json object = Json::object();
      object.set("input", *std::move(arguments));
      arguments = object.dump();
    }
    begin_turn(path);
    turn_.add_call(*id, rendered_tool_name(has_space ? name_space->as_string() : "", *name),
                   *std::move(arguments));
  }

  void read_output(const Json& item, const std::string& path) {
    std::optional<std::string> id = text(item, path, "call_id");
    std::string output = content(item, path, "output", true);
    if (fields_.error()) return;
    end_turn();
    Json message = chat_message("tool", std::move(output));
    message.set("tool_call_id", *std::move(id));
    chat_.add_message(std::move(message), path);
  }

  void begin_turn(const std::string& path) {
    if (turn_.empty()) turn_path_ = path;
  }
  void end_turn() {
    if (!turn_.empty()) chat_.add_message(turn_.take(), turn_path_);
  }

  Fields& fields_;
  ChatBody& chat_;
  std::vector<Warning>& warnings_;
  AssistantTurn turn_;
  std::string turn_path_;
};

}  // namespace

void read_responses_input(Fields& fields, ChatBody& chat, std::vector<Warning>& warnings) {
  Reader(fields, chat, warnings).read();
}

}  // namespace invar::server
