// What cannot be loaded is refused with file, tensor or key, what was found and what was expected.
#include "models/edited_folder.h"

namespace invar::testing {
namespace {

void expect_all(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}

TEST(ModelErrors, UnchangedFolderLoads) { EXPECT_EQ(EditedFolder("llama").load_error(), ""); }

TEST(ModelErrors, UnknownArchitectureListsTheKnown) {
  EditedFolder folder("llama");
  Json list = Json::array();
  list.push_back("MambaForCausalLM");
  folder.set("architectures", list);
  folder.set("model_type", "mamba");
  expect_all(folder.load_error(), {"MambaForCausalLM", "LlamaForCausalLM", "Qwen3ForCausalLM"});
}

TEST(ModelErrors, WrongShapeNamesTensorFoundAndExpected) {
  EditedFolder folder("llama");
  folder.set("vocab_size", 97);
  expect_all(folder.load_error(), {"model.safetensors", "model.embed_tokens.weight", "[96, 48]",
                                   "[97, 48]", "config.json"});
}

TEST(ModelErrors, MissingTensorIsNamed) {
  EditedFolder folder("llama");
  folder.set("num_hidden_layers", 8);
  expect_all(folder.load_error(), {"model.layers.7.input_layernorm.weight", "missing", "[48]"});
}

TEST(ModelErrors, UntiedModelWithoutHead) {
  EditedFolder folder("llama");
  folder.set("tie_word_embeddings", false);
  expect_all(folder.load_error(), {"lm_head.weight", "missing", "[96, 48]"});
}

TEST(ModelErrors, KeysAreNamed) {
  const std::pair<const char*, Json> bad[] = {
      {"hidden_act", "relu"},          {"rms_norm_eps", "small"}, {"num_attention_heads", 0},
      {"num_key_value_heads", 3},      {"hidden_size", Json()},   {"mlp_bias", true},
      {"max_position_embeddings", -1}, {"head_dim", 100000},      {"partial_rotary_factor", 0.5}};
  for (const auto& [key, value] : bad) {
    EditedFolder folder("llama");
    folder.set(key, value);
    expect_all(folder.load_error(), {"config.json", key});
  }
}

TEST(ModelErrors, MoreQueryHeadsThanTheKernelsTake) {
  EditedFolder folder("llama");
  folder.set("num_attention_heads", 128);
  folder.set("num_key_value_heads", 1);
  folder.set("head_dim", 16);
  expect_all(folder.load_error(), {"config.json", "num_attention_heads", "128", "64"});
}

TEST(ModelErrors, RopeTypeIsNamed) {
  EditedFolder folder("llama");
  folder.set("rope_parameters", *Json::parse(R"({"rope_type": "longrope", "rope_theta": 1e4})"));
  expect_all(folder.load_error(), {"longrope", "llama3", "yarn"});
}

TEST(ModelErrors, DescribeNeedsNoPacking) {
  auto checkpoint = Checkpoint::open(golden_path("qwen3") + "/model.gguf");
  ASSERT_TRUE(checkpoint.ok());
  auto info = describe_model(**checkpoint);
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->family, "qwen3");
  EXPECT_EQ(info->num_layers, 7);
  EXPECT_EQ(info->vocab_size, 96);
  EXPECT_EQ(info->max_position_embeddings, 512);
  EXPECT_EQ(info->kv_layers.size(), 7u);
  EXPECT_EQ(info->quantization, "F32");
}

}  // namespace
}  // namespace invar::testing
