// `invar tokenize`: the tokens of a text, without loading any weights.
#include "base/file.h"
#include "base/log.h"
#include "commands.h"
#include "exit_codes.h"
#include "model_files.h"
#include "models_folder.h"
#include "terminal.h"
#include "text_input.h"
#include "tokenizer/unicode.h"

namespace invar::cli {
namespace {

constexpr const char* kCommand = "tokenize";

struct TokenizeFlags {
  std::string model;
  std::string text;
  std::string file;
  bool special = false, bos = false, json = false, ids_only = false;
};

Result<std::string> input_text(const TokenizeFlags& flags) {
  if (!flags.file.empty()) return read_file(flags.file, kMaxTextBytes);
  if (!flags.text.empty()) return flags.text;
  return read_standard_input();
}

// Bytes of a token in double quotes, with what cannot be shown as \n, \t or \xNN.
std::string shown(std::string_view bytes) {
  std::string out = "\"";
  for (const char c : escape_control(bytes)) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '"') {
      out += "\\\"";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// A part of a character is no text: its bytes are shown instead.
std::string piece(const Tokenizer& tokenizer, int32_t id) {
  const std::string_view bytes = tokenizer.token_bytes(id, true);
  if (is_valid_utf8(bytes)) return shown(bytes);
  std::string out = "<";
  for (const char c : bytes)
    out += format("%s%02x", out.size() > 1 ? " " : "", static_cast<unsigned char>(c));
  return out + ">";
}

int tokenize(const TokenizeFlags& flags) {
  if (!flags.file.empty() && !flags.text.empty())
    return fail(kCommand, "both TEXT and --file are given; give one", kExitUsage);
  if (flags.file.empty() && flags.text.empty() && stdin_is_terminal())
    return fail(kCommand, "no text: give TEXT, --file FILE, or pipe it in", kExitUsage);
  const Result<std::string> path = resolve_model(flags.model);
  if (!path) return fail(kCommand, path.error());
  Result<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::open(*path);
  if (!checkpoint) return fail(kCommand, checkpoint.error());
  Result<std::unique_ptr<Tokenizer>> opened = Tokenizer::from_checkpoint(**checkpoint);
  if (!opened) return fail(kCommand, opened.error());
  const Tokenizer& tokenizer = **opened;
  const Result<std::string> text = input_text(flags);
  if (!text) return fail(kCommand, text.error());

  const std::vector<int32_t> ids = tokenizer.encode(*text, flags.special, flags.bos);
  std::string out;
  if (flags.json) {
    Json tokens = Json::array();
    for (const int32_t id : ids) {
      Json token = Json::object();
      token.set("id", int64_t{id});
      token.set("piece", piece(tokenizer, id));
      tokens.push_back(std::move(token));
    }
    Json json = Json::object();
    json.set("num_tokens", static_cast<int64_t>(ids.size()));
    json.set("num_bytes", static_cast<int64_t>(text->size()));
    json.set("tokens", std::move(tokens));
    out = json.dump() + "\n";
  } else if (flags.ids_only) {
    for (const int32_t id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
    out += "\n";
  } else {
    for (const int32_t id : ids) out += format("%7d  ", id) + piece(tokenizer, id) + "\n";
  }
  print(out);
  if (!flags.json)
    print_error(dim(format("%zu tokens, %zu bytes", ids.size(), text->size())) + "\n");
  return kExitOk;
}

}  // namespace

std::function<int()> add_tokenize(FlagSet& flags) {
  auto options = std::make_shared<TokenizeFlags>();
  add_model(flags, options->model);
  flags.argument("TEXT", options->text, "The text. Default: --file, else standard input, whole.",
                 true);
  flags.group("Text");
  flags.text("--file", "FILE", options->file, "Takes the text from FILE.");
  flags.toggle("--special", options->special,
               "Reads texts of special tokens (<|im_start|>) as those tokens.");
  flags.toggle("--bos", options->bos, "Adds BOS and EOS where the vocabulary asks for them.");
  flags.group("Output");
  flags.toggle("--ids", options->ids_only, "Ids only, on one line.");
  flags.toggle("--json", options->json, "One JSON object: num_tokens, num_bytes, tokens.");
  flags.footer("Example:\n  invar tokenize model.gguf 'Hello, world!'");
  return [options] { return tokenize(*options); };
}

}  // namespace invar::cli
