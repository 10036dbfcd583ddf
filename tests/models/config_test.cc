// Ways in which published config.json files say the same thing.
#include "models/edited_folder.h"
#include "models/model_source.h"
#include "models/rope_config.h"

namespace invar::testing {
namespace {

std::vector<int32_t> some_ids() {
  std::vector<int32_t> ids(40);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 37 % 96);
  return ids;
}

void expect_same(const Logits& a, const Logits& b) {
  ASSERT_FALSE(a.empty());
  EXPECT_EQ(a, b);
}

// Gemma 3 4B and larger: a wrapper with the text model's config inside, and in it only what differs
// from transformers' defaults.
TEST(ConfigForms, Gemma3WrapperLeavesDefaultsOut) {
  EditedFolder folder("gemma3");
  Json text = *Json::parse(R"({"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 7,
      "model_type": "gemma3_text", "sliding_window": 1024,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}})");
  Json architectures = Json::array();
  architectures.push_back("Gemma3ForConditionalGeneration");
  folder.config = Json::object();
  folder.set("architectures", architectures);
  folder.set("model_type", "gemma3");
  folder.set("eos_token_id", *Json::parse("[1, 106]"));
  folder.set("text_config", text);
  const auto info = folder.describe();
  ASSERT_TRUE(info.ok()) << info.error().message;
  ASSERT_EQ(info->kv_layers.size(), 7u);
  EXPECT_EQ(info->kv_layers[0].num_kv_heads, 4);
  EXPECT_EQ(info->kv_layers[0].head_dim, 256);
  EXPECT_EQ(info->vocab_size, 96);  // what the embedding has
  EXPECT_EQ(info->max_position_embeddings, 131072);
  EXPECT_EQ(info->eos_ids, (std::vector<int32_t>{1, 106}));
}

TEST(ConfigForms, Gemma3OldAndNewKeysAreOneModel) {
  EditedFolder newer("gemma3"), older("gemma3"), wrapped("gemma3");
  older.config = without(without(without(older.config, "rope_parameters"), "layer_types"),
                         "_sliding_window_pattern");
  older.set("sliding_window_pattern", 6);
  older.set("rope_theta", 1e6);
  older.set("rope_local_base_freq", 10000);
  older.set("rope_scaling", *Json::parse(R"({"type": "linear", "factor": 8})"));
  const Json text = wrapped.config;
  wrapped.config = Json::object();
  wrapped.set("model_type", "gemma3");
  wrapped.set("text_config", text);
  const Logits expected = newer.run(some_ids());
  expect_same(older.run(some_ids()), expected);
  expect_same(wrapped.run(some_ids()), expected);
}

TEST(ConfigForms, LlamaOldAndNewRopeAreOneModel) {
  EditedFolder newer("llama3"), older("llama3"), absent("llama3");
  Json scaling = *newer.config.find("rope_parameters");
  const Json theta = *scaling.find("rope_theta");
  scaling.set("type", *scaling.find("rope_type"));
  older.set("rope_parameters", Json());
  older.set("rope_theta", theta);
  older.set("rope_scaling", without(without(scaling, "rope_theta"), "rope_type"));
  older.set("head_dim", Json());  // null: hidden_size / num_attention_heads, if that is what it is
  if (newer.config.find("head_dim") != nullptr)
    older.set("head_dim", *newer.config.find("head_dim"));
  const Logits expected = newer.run(some_ids());
  expect_same(older.run(some_ids()), expected);
  absent.set("rope_parameters", Json());
  absent.set("rope_theta", theta);
  EXPECT_NE(absent.run(some_ids()), expected) << "the scaling has no effect";
}

TEST(ConfigForms, NullMeansAbsent) {
  EditedFolder plain("llama"), nulls("llama");
  for (const char* key : {"rope_scaling", "attention_bias", "mlp_bias", "sliding_window",
                          "layer_types", "use_sliding_window", "partial_rotary_factor"})
    nulls.set(key, Json());
  expect_same(nulls.run(some_ids()), plain.run(some_ids()));
}

TEST(ConfigForms, Qwen2SlidesFromMaxWindowLayersOn) {
  EditedFolder full("qwen2"), wide("qwen2"), narrow("qwen2"), beyond("qwen2");
  for (EditedFolder* folder : {&wide, &narrow, &beyond}) {
    folder->set("layer_types", Json());
    folder->set("use_sliding_window", true);
    folder->set("max_window_layers", 0);
    folder->set("sliding_window", 40);
  }
  narrow.set("sliding_window", 8);
  beyond.set("sliding_window", 8);
  beyond.set("max_window_layers", 28);
  const Logits expected = full.run(some_ids());
  expect_same(wide.run(some_ids()), expected);  // 40 positions are all there are
  expect_same(beyond.run(some_ids()), expected);
  EXPECT_NE(narrow.run(some_ids()), expected);
  narrow.set("sliding_window", 0);
  EXPECT_NE(narrow.load_error().find("sliding_window"), std::string::npos);
}

TEST(TensorNames, TellTheirLayer) {
  const auto layer = ModelSource::layer_of;
  EXPECT_EQ(layer("blk.17.attn_q.weight"), 17);
  EXPECT_EQ(layer("model.layers.3.mlp.up_proj.weight"), 3);
  EXPECT_EQ(layer("language_model.model.layers.0.mlp.up_proj.weight"), 0);
  EXPECT_EQ(layer("model.language_model.layers.12.input_layernorm.weight"), 12);
  EXPECT_EQ(layer("token_embd.weight"), -1);
  EXPECT_EQ(layer("blk.x"), -1);
  EXPECT_EQ(layer("vision_tower.encoder.layers.3.mlp.fc1.weight"), -1);
}

TEST(Rope, TwoKeysForYarnsMagnitude) {
  const auto magnitude = [](const char* json) {
    const auto spec = rope_spec(*Json::parse(json), 64);
    EXPECT_TRUE(spec.ok()) << spec.error().message;
    return spec.ok() ? spec->magnitude : 0;
  };
#define YARN                                                   \
  R"({"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0,)" \
  R"("original_max_position_embeddings": 32768)"
  const double usual = 1.1386294361119891;  // 0.1 ln 4 + 1
  EXPECT_DOUBLE_EQ(magnitude(YARN "}"), usual);
  EXPECT_DOUBLE_EQ(magnitude(YARN R"(, "attention_factor": 1.5})"), 1.5);
  EXPECT_DOUBLE_EQ(magnitude(YARN R"(, "gguf_attn_factor": 1.5})"), 1.5 * usual);
#undef YARN
}

}  // namespace
}  // namespace invar::testing
