// Ways in which the same hybrid model stands in files, and mistakes that are easily made with each:
// one model, several layouts, equal bits. Independent numbers: golden_test.cc.
#include "base/log.h"
#include "models/edited_folder.h"
#include "models/edited_weights.h"
#include "models/model_source.h"

namespace invar::testing {
namespace {

std::vector<int32_t> some_ids() {
  std::vector<int32_t> ids(40);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 37 % 96);
  return ids;
}

Logits logits_of(const std::string& path) {
  ModelOnBackend m(path, "reference");
  return m.ok() ? m.run(some_ids(), 64) : Logits();
}

void expect_same(const Logits& a, const Logits& b) {
  ASSERT_FALSE(a.empty());
  EXPECT_EQ(a, b);
}

class LayoutTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LayoutTest, MlxConversionIsTheSameModel) {
  EditedSafetensors folder(GetParam());
  make_mlx(folder);
  expect_same(logits_of(folder.write()), logits_of(golden_path(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Hybrid, LayoutTest, ::testing::Values("qwen3_5", "qwen3_5_moe"));

TEST(HybridForms, ExpertsMayBeFusedOrSingle) {
  EditedSafetensors single("qwen3_5_moe");
  std::map<std::string, EditedTensor> split;
  for (auto& [name, tensor] : single.tensors) {
    const bool is_down = name.ends_with("experts.down_proj");
    if (!is_down && !name.ends_with("experts.gate_up_proj")) {
      split.emplace(name, std::move(tensor));
      continue;
    }
    const std::string stem = name.substr(0, name.rfind('.') + 1);
    const size_t num_experts = tensor.num_matrices(), num_parts = is_down ? 1 : 2;
    for (size_t i = 0; i < num_experts * num_parts; ++i) {
      EditedTensor part = tensor;
      part.shape = {tensor.shape[1] / static_cast<int64_t>(num_parts), tensor.shape[2]};
      part.bytes = part_of(tensor, i, num_experts * num_parts);
      const char* which = is_down ? "down_proj" : i % 2 == 0 ? "gate_proj" : "up_proj";
      split.emplace(stem + std::to_string(i / num_parts) + "." + which + ".weight",
                    std::move(part));
    }
  }
  single.tensors = std::move(split);
  expect_same(logits_of(single.write()), logits_of(golden_path("qwen3_5_moe")));
}

TEST(HybridForms, GgufExpertsMayHaveGateAndUpInOne) {
  EditedGguf fused("qwen3_5_moe");
  for (int block = 0; block < 6; ++block) {
    const std::string stem = "blk." + std::to_string(block) + ".ffn_";
    const EditedTensor gate = fused.tensors.at(stem + "gate_exps.weight");
    const EditedTensor up = fused.tensors.at(stem + "up_exps.weight");
    EditedTensor both = gate;
    both.shape[1] *= 2;
    both.bytes.clear();
    for (size_t e = 0; e < gate.num_matrices(); ++e)
      both.bytes += part_of(gate, e, gate.num_matrices()) + part_of(up, e, gate.num_matrices());
    fused.tensors.erase(stem + "gate_exps.weight");
    fused.tensors.erase(stem + "up_exps.weight");
    fused.tensors.emplace(stem + "gate_up_exps.weight", std::move(both));
  }
  expect_same(logits_of(fused.write()), logits_of(golden_path("qwen3_5_moe") + "/model.gguf"));
}

// Older qwen3next files keep q, k, v and z of a key head together.
TEST(HybridForms, OlderQwen3NextFilesHaveOneInput) {
  EditedGguf older("qwen3_next");
  constexpr size_t kKeyHeads = 2, kKeyDim = 16, kValuesPerHead = 48;
  for (int block = 0; block < 5; ++block) {
    const std::string stem = "blk." + std::to_string(block) + ".";
    if (!older.tensors.contains(stem + "attn_qkv.weight")) continue;
    const EditedTensor qkv = older.tensors.at(stem + "attn_qkv.weight");
    const EditedTensor z = older.tensors.at(stem + "attn_gate.weight");
    ASSERT_EQ(qkv.shape[0], int64_t{kKeyHeads * (2 * kKeyDim + kValuesPerHead)});
    const size_t row = qkv.bytes.size() / static_cast<size_t>(qkv.shape[0]);
    const auto rows = [&](const EditedTensor& tensor, size_t first, size_t count) {
      return tensor.bytes.substr(first * row, count * row);
    };
    EditedTensor in = qkv;
    in.shape[0] += z.shape[0];
    in.bytes.clear();
    for (size_t head = 0; head < kKeyHeads; ++head) {
      in.bytes += rows(qkv, head * kKeyDim, kKeyDim);
      in.bytes += rows(qkv, (kKeyHeads + head) * kKeyDim, kKeyDim);
      in.bytes += rows(qkv, 2 * kKeyHeads * kKeyDim + head * kValuesPerHead, kValuesPerHead);
      in.bytes += rows(z, head * kValuesPerHead, kValuesPerHead);
    }
    older.tensors.erase(stem + "attn_qkv.weight");
    older.tensors.erase(stem + "attn_gate.weight");
    older.tensors.emplace(stem + "ssm_in.weight", std::move(in));
  }
  expect_same(logits_of(older.write()), logits_of(golden_path("qwen3_next") + "/model.gguf"));
}

// mlx-lm keeps routers at 8 bits, by a setting of their own under their full name; it may stand in
// the wrapper or inside.
TEST(HybridForms, MlxRoutersHaveEightBits) {
  const char* golden = "qwen3_moe_quantized/mlx";
  EditedSafetensors inside(golden);
  const Json text = inside.config;
  inside.config = Json::object();
  inside.config.set("model_type", "qwen3_moe");
  inside.config.set("text_config", text);
  const std::string nested = inside.write(), plain = golden_path(golden);
  for (const std::string& path : {nested, plain}) {
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint.ok());
    const TensorInfo* router = (*checkpoint)->find("model.layers.0.mlp.gate.weight");
    const TensorInfo* inner = (*checkpoint)->find("model.layers.0.self_attn.q_proj.weight");
    ASSERT_TRUE(router != nullptr && inner != nullptr);
    EXPECT_EQ(router->matrix.bits, 8);
    EXPECT_EQ(inner->matrix.bits, 4);
  }
  expect_same(logits_of(nested), logits_of(plain));
}

// A second 1 gives fluent nonsense: neither the name prefix nor an MTP head may decide.
TEST(HybridForms, HeadAndNamesDoNotDecideAboutNorms) {
  EditedSafetensors plain_names("qwen3_5_tied"), no_head("qwen3_5_tied");
  const Logits expected = logits_of(golden_path("qwen3_5_tied"));
  std::map<std::string, EditedTensor> renamed;
  for (auto& [name, tensor] : plain_names.tensors)
    renamed.emplace("language_model." + name, std::move(tensor));
  plain_names.tensors = std::move(renamed);
  std::erase_if(no_head.tensors, [](const auto& t) { return t.first.starts_with("mtp."); });
  expect_same(logits_of(plain_names.write()), expected);
  expect_same(logits_of(no_head.write()), expected);
}

TEST(HybridForms, ConfigMayBeFlatOrNested) {
  EditedFolder flat("qwen3_5"), nested("qwen3_5_tied"), wrapper_tied("qwen3_5_tied");
  flat.config = *flat.config.find("text_config");
  Json inner = nested.config;
  for (EditedFolder* folder : {&nested, &wrapper_tied}) {
    folder->config = Json::object();
    folder->set("model_type", "qwen3_5");
    folder->set("text_config", inner);
  }
  // The flag may stand outside alone.
  wrapper_tied.set("tie_word_embeddings", true);
  wrapper_tied.set("text_config", without(inner, "tie_word_embeddings"));
  expect_same(flat.run(some_ids()), logits_of(golden_path("qwen3_5")));
  const Logits expected = logits_of(golden_path("qwen3_5_tied"));
  expect_same(nested.run(some_ids()), expected);
  expect_same(wrapper_tied.run(some_ids()), expected);
}

TEST(HybridForms, RopeStandsInItsParametersOrBeside) {
  const Logits expected = logits_of(golden_path("qwen3_5_tied"));
  EditedFolder beside("qwen3_5_tied"), silent("qwen3_5_tied"), other("qwen3_5_tied"),
      missing("qwen3_5_tied");
  beside.config = without(beside.config, "rope_parameters");
  beside.set("rope_theta", 1e7);
  beside.set("partial_rotary_factor", 0.25);
  // A quarter of a head turns unless said otherwise.
  silent.set("rope_parameters", *Json::parse(R"({"rope_type": "default", "rope_theta": 1e7})"));
  // What stands in the parameters counts.
  other.set("rope_theta", 1e4);
  missing.config = without(missing.config, "rope_parameters");
  expect_same(beside.run(some_ids()), expected);
  expect_same(silent.run(some_ids()), expected);
  expect_same(other.run(some_ids()), expected);
  EXPECT_NE(missing.load_error().find("rope_theta"), std::string::npos);
  other.set("rope_parameters", *Json::parse(R"({"rope_type": "default", "rope_theta": 1e5})"));
  EXPECT_NE(other.run(some_ids()), expected);
}

TEST(HybridForms, LayersStandInListOrInterval) {
  EditedFolder interval("qwen3_5");
  Json text = without(*interval.config.find("text_config"), "layer_types");
  interval.set("text_config", text);
  const Logits expected = logits_of(golden_path("qwen3_5"));
  expect_same(interval.run(some_ids()), expected);
  text.set("full_attention_interval", Json());  // every fourth, as ever
  interval.set("text_config", text);
  expect_same(interval.run(some_ids()), expected);
  text.set("full_attention_interval", 2);
  interval.set("text_config", text);
  EXPECT_NE(interval.load_error().find("self_attn"), std::string::npos);
}

TEST(HybridForms, GateOfTheOutput) {
  const Logits expected = logits_of(golden_path("qwen3_5_tied"));
  EditedFolder folder("qwen3_5_tied");
  for (const char* name : {"silu", "swish"}) {
    folder.set("output_gate_type", name);
    expect_same(folder.run(some_ids()), expected);
  }
  folder.set("output_gate_type", "sigmoid");
  EXPECT_NE(folder.run(some_ids()), expected);
  folder.set("output_gate_type", "relu");
  EXPECT_NE(folder.load_error().find("output_gate_type"), std::string::npos);
}

TEST(HybridForms, BadKeysAreNamed) {
  const std::pair<const char*, Json> bad[] = {
      {"hidden_act", "gelu"},        {"attention_bias", true},       {"linear_num_value_heads", 4},
      {"linear_key_head_dim", 0},    {"linear_conv_kernel_dim", -1}, {"attn_output_gate", false},
      {"layer_types", Json::array()}};
  for (const auto& [key, value] : bad) {
    EditedFolder folder("qwen3_5_tied");
    folder.set(key, value);
    EXPECT_NE(folder.load_error().find(key), std::string::npos) << folder.load_error();
  }
}

TEST(HybridForms, InfoCountsLayersOfEachKind) {
  auto checkpoint = Checkpoint::open(golden_path("qwen3_5"));
  ASSERT_TRUE(checkpoint.ok());
  auto info = describe_model(**checkpoint);
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->family, "qwen3_5");
  EXPECT_EQ(info->num_layers, 5);
  ASSERT_EQ(info->kv_layers.size(), 1u);
  EXPECT_EQ(info->kv_layers[0].num_kv_heads, 2);
  EXPECT_EQ(info->kv_layers[0].head_dim, 32);
  ASSERT_EQ(info->recurrent_layers.size(), 4u);
  // 2 key heads and 6 value heads of 16.
  EXPECT_EQ(info->recurrent_layers[0], (RecurrentLayerShape{160, 4, 6, 16, 16}));
  EXPECT_TRUE(info->has_mtp);
  EXPECT_EQ(info->num_experts, 0);
  EXPECT_EQ(info->num_active_parameters, info->num_parameters);
  // Of all, without the vision tensor (24 x 24) and the head.
  int64_t expected = 0;
  for (const TensorInfo& tensor : (*checkpoint)->tensors())
    if (!tensor.name.starts_with("mtp.") && !tensor.name.starts_with("model.visual."))
      expected += tensor.matrix.num_rows * tensor.matrix.num_cols;
  EXPECT_EQ(info->num_parameters, expected);
}

TEST(TensorParts, AreToldByName) {
  auto checkpoint = Checkpoint::open(golden_path("qwen3_5"));
  ASSERT_TRUE(checkpoint.ok());
  const ModelSource source(**checkpoint, Json::object());
  using Part = ModelSource::Part;
  const std::pair<const char*, Part> names[] = {
      {"model.visual.blocks.0.attn.proj.weight", Part::kVision},
      {"vision_tower.encoder.layers.3.mlp.fc1.weight", Part::kVision},
      {"multi_modal_projector.linear_1.weight", Part::kVision},
      {"audio_tower.layers.0.fc1.weight", Part::kAudio},
      {"mtp.fc.weight", Part::kMtp},
      {"language_model.mtp.layers.0.mlp.up_proj.weight", Part::kMtp},
      {"model.language_model.layers.0.linear_attn.norm.weight", Part::kText},
      {"language_model.lm_head.weight", Part::kText},
      {"backbone.layers.1.mixer.gate.weight", Part::kText}};
  for (const auto& [name, part] : names) EXPECT_EQ(source.part_of(name), part) << name;
}

// What a text model leaves alone is said in one line, and is no warning.
TEST(HybridForms, SkippedTensorsAreCountedInOneLine) {
  auto checkpoint = Checkpoint::open(golden_path("qwen3_5"));
  auto backend = make_backend("reference", {});
  ASSERT_TRUE(checkpoint.ok() && backend.ok());
  set_log_level(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  const auto model = load_model(**checkpoint, **backend);
  const std::string log = ::testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::kWarning);
  ASSERT_TRUE(model.ok());
  int num_mtp = 0;
  for (const TensorInfo& tensor : (*checkpoint)->tensors())
    num_mtp += tensor.name.starts_with("mtp.");
  EXPECT_GT(num_mtp, 0);
  const std::string expected = "1 of vision, " + std::to_string(num_mtp) + " of the MTP head";
  EXPECT_NE(log.find(expected), std::string::npos) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

// A backend with nothing but a name.
class BareBackend : public Backend {
 public:
  BareBackend() { info_.name = "bare"; }
  const BackendInfo& info() const override { return info_; }
  Result<std::unique_ptr<PackedWeight>> pack(const PackRequest&) override {
    return unsupported("packs nothing");
  }
  Result<std::unique_ptr<KvCache>> make_kv_cache(std::span<const KvLayerShape>, int) override {
    return unsupported("keeps nothing");
  }
  size_t kv_page_bytes(std::span<const KvLayerShape>) const override { return 0; }
  void copy_page(KvCache&, int, int) override {}
  void embed(Tensor, std::span<const int32_t>, const PackedWeight&, float) override {}
  void rms_norm(Tensor, Tensor, std::span<const float>, float, Tensor) override {}
  void head_rms_norm(Tensor, int, std::span<const float>, float) override {}
  void linear(Tensor, Tensor, const PackedWeight&, std::span<const float>, Tensor) override {}
  void gated_linear(Tensor, Tensor, const PackedWeight&, Activation) override {}
  void rope(Tensor, int, std::span<const int32_t>, const RopeSpec&) override {}
  void attention(Tensor, Tensor, Tensor, Tensor, std::span<const Window>, KvCache&,
                 const AttentionArgs&) override {}
  void gather_rows(Tensor, Tensor, std::span<const int32_t>) override {}
  void lm_head(Tensor, Tensor, const PackedWeight&, float) override {}

 private:
  BackendInfo info_;
};

TEST(HybridForms, BackendWithoutTheOpsIsRefusedAtLoad) {
  BareBackend backend;
  const std::pair<const char*, const char*> families[] = {
      {"qwen3_5", "gated_delta"}, {"qwen3_moe", "moe"}, {"nemotron_h", "ssd"}};
  for (const auto& [family, op] : families) {
    auto checkpoint = Checkpoint::open(golden_path(family));
    ASSERT_TRUE(checkpoint.ok());
    const auto model = load_model(**checkpoint, backend);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
    for (const char* part : {family, op, "bare", "--backend cpu"})
      EXPECT_NE(model.error().message.find(part), std::string::npos) << model.error().message;
  }
}

}  // namespace
}  // namespace invar::testing
