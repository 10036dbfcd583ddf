// Answers one question with a local model: answer MODEL.gguf "Why is the sky blue?"
#include <invar/invar.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: answer MODEL QUESTION\n";
    return 2;
  }
  const auto engine = invar::Engine::open({.model = argv[1], .context = 2048});
  if (!engine) {
    std::cerr << engine.error().message << '\n';
    return 1;
  }
  const auto stream = (*engine)->submit({
      .messages = {{"user", argv[2]}},
      .sampling = {.temperature = 0.7f, .seed = 42},
      .max_tokens = 64,
  });
  if (!stream) {
    std::cerr << stream.error().message << '\n';
    return 1;
  }
  while (const auto event = (*stream)->next()) std::cout << event->text << std::flush;

  const invar::GenerationResult& result = (*stream)->result();
  std::cout << "\n-- " << result.token_ids.size() << " tokens, "
            << invar::finish_reason_name(result.finish_reason) << ", " << result.arithmetic_id
            << ", token_sha " << result.token_sha.substr(0, 8) << '\n';
  return result.finish_reason == invar::FinishReason::kError ? 1 : 0;
}
