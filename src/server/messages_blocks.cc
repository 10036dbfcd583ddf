#include "server/messages_blocks.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace invar::server {
namespace {

constexpr std::string_view kBillingLine = "x-anthropic-billing-header:";
constexpr std::string_view kAttribution = "x-anthropic-";

// Tools that run at the vendor: nothing of them can be shown to the model.
bool is_hosted_block(std::string_view type) {
  static constexpr std::string_view kTypes[] = {"server_tool_use", "mcp_tool_use"};
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes) ||
         (type.ends_with("_tool_result") && type != "tool_result");
}

class Reader {
 public:
  Reader(Fields& fields, bool keep_attribution, ChatBody& chat, std::vector<Warning>& warnings)
      : fields_(fields), keep_attribution_(keep_attribution), chat_(chat), warnings_(warnings) {}

  bool read() {
    read_system();
    const Json* messages = fields_.array("messages");
    if (fields_.error()) return false;
    if (messages == nullptr)
      return fields_.fail("missing_field", "messages", "field required"), false;
    if (messages->items().empty())
      return fields_.fail("invalid_value", "messages", "must not be empty"), false;
    for (size_t i = 0; i < messages->items().size() && !fields_.error(); ++i)
      read_message(messages->items()[i], format("messages[%zu]", i));
    const bool ends_with_assistant = role_ == "assistant" && !(was_cut_ && turn_.empty());
    end_message();
    return ends_with_assistant;
  }

 private:
  void fail(std::string_view code, const std::string& path, const std::string& what) {
    fields_.fail(api_error(code, path + " " + what, path));
  }

  std::optional<std::string> text(const Json& object, const std::string& path, const char* name) {
    const Json* value = object.find(name);
    if (value != nullptr && value->is_string()) return value->as_string();
    const bool is_absent = value == nullptr || value->is_null();
    fail(is_absent ? "missing_field" : "invalid_type", path + "." + name,
         is_absent ? "field required" : "must be a string");
    return std::nullopt;
  }

  // ---- System

  void read_system() {
    const Json* system = fields_.find("system");
    if (system == nullptr) return;
    std::string joined;
    if (system->is_string()) {
      joined = system->as_string();
      if (!keep_attribution_ && joined.starts_with(kBillingLine))
        joined.erase(0, std::min(joined.find('\n'), joined.size() - 1) + 1);
    } else if (system->is_array()) {
      bool is_first = true;
      for (size_t i = 0; i < system->items().size(); ++i) {
        const std::string path = format("system[%zu]", i);
        const std::optional<std::string> piece = text_block(system->items()[i], path);
        if (!piece) return;
        if (!keep_attribution_ && piece->starts_with(kAttribution)) continue;
        if (!std::exchange(is_first, false)) joined += '\n';
        joined += *piece;
      }
    } else {
      return fields_.fail(
          "invalid_type", "system",
          std::string("must be a string or an array of text blocks, got ") + system->kind_name());
    }
    if (!joined.empty()) chat_.add_message(chat_message("system", std::move(joined)), "system");
  }

  std::optional<std::string> text_block(const Json& block, const std::string& path) {
    const std::optional<std::string> type = text(block, path, "type");
    if (!type) return std::nullopt;
    if (*type == "text") return text(block, path, "text");
    fail("unsupported_content", path + ".type",
         "is " + quote_value(*type) + "; this model reads text only");
    return std::nullopt;
  }

  // ---- Messages: those of one role in a row are one, so each is held until another role comes.

  void read_message(const Json& message, const std::string& path) {
    if (!message.is_object()) return fail("invalid_type", path, "must be an object");
    const std::optional<std::string> role = text(message, path, "role");
    if (!role) return;
    if (*role != "user" && *role != "assistant" && *role != "system")
      return fail("invalid_value", path + ".role",
                  "must be user, assistant or system, got " + quote_value(*role));
    const Json* content = message.find("content");
    const std::string at = path + ".content";
    if (content == nullptr || content->is_null())
      return fail("missing_field", at, "field required");
    begin_message(*role, path);
    if (content->is_string()) return add_text(content->as_string());
    if (!content->is_array())
      return fail(
          "invalid_type", at,
          std::string("must be a string or an array of blocks, got ") + content->kind_name());
    for (size_t i = 0; i < content->items().size() && !fields_.error(); ++i)
      read_block(content->items()[i], at + format("[%zu]", i));
  }

  void begin_message(const std::string& role, const std::string& path) {
    if (role == role_) {
      needs_blank_line_ = turn_.has_content;
      return;
    }
    end_message();
    role_ = role;
    path_ = path;
  }

  void end_message() {
    // An empty message counts too, unless something of it is there already.
    const bool has_more = !turn_.empty() || !(has_results_ || was_cut_);
    if (role_ == "assistant" && has_more)
      chat_.add_message(turn_.take(), path_);
    else if (!role_.empty() && has_more)
      chat_.add_message(chat_message(role_, std::move(turn_.content)), path_);
    turn_ = {};
    has_results_ = was_cut_ = needs_blank_line_ = false;
    role_.clear();
  }

  void add_text(std::string_view text) {
    if (std::exchange(needs_blank_line_, false) && !text.empty()) turn_.content += "\n\n";
    turn_.has_content = true;
    turn_.content += text;
  }

  void read_block(const Json& block, const std::string& path) {
    const std::optional<std::string> type = text(block, path, "type");
    if (!type) return;
    if (*type == "text") return read_text(block, path);
    if (*type == "mid_conv_system") return read_system_block(block, path);
    if (*type == "redacted_thinking") return;
    if (is_hosted_block(*type)) {
      warn(warnings_,
           {"item_dropped", path, quote_value(*type) + " cannot be shown to this model"});
      return;
    }
    if (*type == "thinking" || *type == "tool_use") {
      if (role_ != "assistant")
        return fail("invalid_value", path + ".type",
                    quote_value(*type) + " belongs to an assistant's message");
      return *type == "thinking" ? read_thinking(block, path) : read_tool_use(block, path);
    }
    if (*type == "tool_result" && role_ == "user") return read_tool_result(block, path);
    if (*type == "tool_result")
      return fail("invalid_value", path + ".type", "'tool_result' belongs to a user's message");
    fail("unsupported_content", path + ".type",
         "is " + quote_value(*type) + "; this model reads text only");
  }

  void read_text(const Json& block, const std::string& path) {
    if (const std::optional<std::string> said = text(block, path, "text")) add_text(*said);
  }

  // The system speaks in the middle of another's message: that goes up to here.
  void read_system_block(const Json& block, const std::string& path) {
    const Json* content = block.find("content");
    const std::string at = path + ".content";
    std::string said;
    if (content != nullptr && content->is_string()) {
      said = content->as_string();
    } else if (content != nullptr && content->is_array()) {
      for (size_t i = 0; i < content->items().size(); ++i) {
        const auto piece = text_block(content->items()[i], at + format("[%zu]", i));
        if (!piece) return;
        said += *piece;
      }
    } else {
      return fail("missing_field", at, "field required, a string or an array of text blocks");
    }
    if (role_ == "system") return add_text(said);
    const std::string role = role_;
    if (!turn_.empty() || has_results_) end_message();
    chat_.add_message(chat_message("system", std::move(said)), path);
    role_ = role;
    was_cut_ = true;
  }

  void read_thinking(const Json& block, const std::string& path) {
    const std::optional<std::string> thought = text(block, path, "thinking");
    if (!thought || thought->empty()) return;
    if (!turn_.reasoning.empty()) turn_.reasoning += "\n\n";
    turn_.reasoning += *thought;
  }

  void read_tool_use(const Json& block, const std::string& path) {
    const std::optional<std::string> id = text(block, path, "id");
    const std::optional<std::string> name = text(block, path, "name");
    if (!id || !name) return;
    const Json* input = block.find("input");
    if (input != nullptr && !input->is_null() && !input->is_object())
      return fail("invalid_type", path + ".input", "must be an object");
    const bool is_empty = input == nullptr || input->is_null();
    turn_.add_call(*id, *name, is_empty ? "{}" : input->dump());
  }

  // Results stand before what the user says beside them.
  void read_tool_result(const Json& block, const std::string& path) {
    const std::optional<std::string> id = text(block, path, "tool_use_id");
    if (!id) return;
    std::string result = result_text(block, path);
    if (fields_.error()) return;
    const Json* is_error = block.find("is_error");
    if (result.empty() && is_error != nullptr && is_error->is_bool() && is_error->as_bool())
      result = "error";
    Json message = chat_message("tool", std::move(result));
    message.set("tool_call_id", *id);
    chat_.add_message(std::move(message), path);
    has_results_ = true;
  }

  std::string result_text(const Json& block, const std::string& path) {
    const Json* content = block.find("content");
    if (content == nullptr || content->is_null()) return "";
    if (content->is_string()) return content->as_string();
    const std::string at = path + ".content";
    if (!content->is_array())
      return fail("invalid_type", at, "must be a string or an array of blocks"), "";
    std::string joined;
    for (size_t i = 0; i < content->items().size(); ++i) {
      const Json& part = content->items()[i];
      const std::string part_path = at + format("[%zu]", i);
      const std::optional<std::string> type = text(part, part_path, "type");
      if (!type) return "";
      if (*type == "text") {
        const std::optional<std::string> piece = text(part, part_path, "text");
        if (!piece) return "";
        joined += *piece;
      } else {
        joined += kImageOmitted;
        warn(warnings_,
             {"image_omitted", part_path, quote_value(*type) + " was replaced by a note"});
      }
    }
    return joined;
  }

  Fields& fields_;
  const bool keep_attribution_;
  ChatBody& chat_;
  std::vector<Warning>& warnings_;
  std::string role_, path_;  // of the message that is being gathered; "": none
  AssistantTurn turn_;       // for all roles; only assistants reason and call
  bool has_results_ = false;
  bool was_cut_ = false;           // by a system block, and went on behind it
  bool needs_blank_line_ = false;  // between two messages that became one
};

}  // namespace

bool read_messages(Fields& fields, bool keep_attribution, ChatBody& chat,
                   std::vector<Warning>& warnings) {
  return Reader(fields, keep_attribution, chat, warnings).read();
}

}  // namespace invar::server
