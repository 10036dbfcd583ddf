// The MTP heads against an independent implementation (tools/mtp_reference.py; see
// tests/golden/README.md): the head's logits for the pairs of a prompt, for the first token of the
// reply, and for drafts that feed on themselves.
#include "models/edited_weights.h"

namespace invar::testing {
namespace {

// Runs trunk and head over one sequence.
class MtpOnBackend {
 public:
  MtpOnBackend(const std::string& path, const std::string& backend)
      : m(path, backend, {}, LoadOptions{true}) {}

  // Hidden rows behind the trunk's last norm.
  Logits trunk(const std::vector<int32_t>& ids, int64_t chunk) {
    m.keeps_hidden = true;
    ModelOnBackend::Sequence s = m.start(ids);
    while (s.done < static_cast<int64_t>(ids.size()))
      m.step({&s}, {std::min(chunk, static_cast<int64_t>(ids.size()) - s.done)});
    return std::move(s.hidden);
  }

  // Row i: hidden row i and the token behind it, both at position `start` + i.
  Logits draft(const Logits& hidden, const std::vector<int32_t>& next, int64_t start) {
    std::vector<int32_t> positions, rows, pages = {0};
    const auto count = static_cast<int64_t>(next.size());
    const auto size = static_cast<int64_t>(hidden[0].size());
    m.arena.reset();
    const Tensor given = m.arena.rows(count, size);
    for (int64_t i = 0; i < count; ++i) {
      positions.push_back(static_cast<int32_t>(start + i));
      rows.push_back(static_cast<int32_t>(i));
      std::copy_n(hidden[static_cast<size_t>(i)].data(), size, given.row(i));
    }
    const std::vector<Window> windows = {{0, count, start, pages, 0}};
    Tensor out;
    Batch batch{next, positions, windows, rows};
    batch.hidden = &out;
    ops::Context ctx{*m.backend, m.arena, *m.cache, nullptr, m.states.get()};
    const Tensor logits = m.model->draft(ctx, batch, given);
    Logits result;
    last_hidden.clear();
    for (int64_t i = 0; i < count; ++i) {
      result.emplace_back(logits.row(i), logits.row(i) + logits.num_cols);
      last_hidden.emplace_back(out.row(i), out.row(i) + out.num_cols);
    }
    return result;
  }

  ModelOnBackend m;
  Logits last_hidden;
};

struct Golden {
  const char* family;
  const char* file;
  float bound = 2e-4f;  // as golden_test.cc
};

class MtpTest : public ::testing::TestWithParam<Golden> {
 protected:
  std::string folder() const { return golden_path(GetParam().family); }
};

TEST_P(MtpTest, ReferenceMeetsIndependentHead) {
  const Logits expected = read_npy(folder() + "/ref_mtp_logits.npy");
  const auto reference = Json::parse(*read_file(folder() + "/reference.json", 1 << 20));
  std::vector<int32_t> fed;
  for (const Json& id : reference->find("mtp_tokens")->items())
    fed.push_back(static_cast<int32_t>(id.as_int()));
  const auto ids = read_tokens(folder() + "/tokens.json");
  ASSERT_EQ(fed.size(), expected.size());
  ASSERT_EQ(ids.size(), 75u);

  MtpOnBackend head(folder() + GetParam().file, "reference");
  ASSERT_TRUE(head.m.ok());
  EXPECT_TRUE(head.m.model->info().has_mtp);
  EXPECT_EQ(head.m.model->info().num_mtp_layers, 1);
  const Logits hidden = head.trunk(ids, 75);
  EXPECT_LT(max_difference(hidden, read_npy(folder() + "/ref_hidden.npy")), GetParam().bound);
  Logits got = head.draft(hidden, {fed.begin(), fed.begin() + 75}, 0);
  Logits state = {head.last_hidden.back()};
  for (size_t i = 75; i < fed.size(); ++i) {
    got.push_back(head.draft(state, {fed[i]}, static_cast<int64_t>(i))[0]);
    state = head.last_hidden;
    EXPECT_EQ(fed[i], argmax(got[i - 1])) << i;
  }
  EXPECT_LT(max_difference(got, expected), GetParam().bound);
}

TEST_P(MtpTest, ChunksDoNotMatter) {
  const auto ids = read_tokens(folder() + "/tokens.json");
  const std::vector<int32_t> next(ids.begin() + 1, ids.end());
  MtpOnBackend head(folder() + GetParam().file, "reference");
  ASSERT_TRUE(head.m.ok());
  const Logits hidden = head.trunk(ids, 75);
  const Logits whole = head.draft(hidden, next, 0);
  EXPECT_EQ(head.trunk(ids, 7), hidden);
  Logits single;
  for (size_t i = 0; i < next.size(); ++i)
    single.push_back(head.draft({hidden[i]}, {next[i]}, static_cast<int64_t>(i))[0]);
  EXPECT_EQ(single, whole);
}

// The head costs nothing to whom does not ask for it, and its cache layer stands behind the
// trunk's.
TEST_P(MtpTest, IsLoadedOnlyWhenAskedFor) {
  const std::string path = folder() + GetParam().file;
  ModelOnBackend without(path, "reference"), with(path, "reference", {}, LoadOptions{true});
  ASSERT_TRUE(without.ok() && with.ok());
  const ModelInfo &plain = without.model->info(), &more = with.model->info();
  EXPECT_TRUE(plain.has_mtp && more.has_mtp);
  EXPECT_EQ(plain.num_mtp_layers, 0);
  EXPECT_EQ(more.kv_layers.size(), plain.kv_layers.size() + 1);
  EXPECT_GT(more.packed_bytes, plain.packed_bytes);
  EXPECT_EQ(more.streamed_bytes_per_token, plain.streamed_bytes_per_token);
  EXPECT_EQ(more.num_active_parameters, plain.num_active_parameters);
  const auto ids = read_tokens(folder() + "/tokens.json");
  EXPECT_EQ(with.run(ids, 64), without.run(ids, 64));
}

std::string name_of(const ::testing::TestParamInfo<Golden>& info) {
  return std::string(info.param.family) + (info.param.file[0] == 0 ? "" : "_gguf");
}

INSTANTIATE_TEST_SUITE_P(
    Families, MtpTest,
    ::testing::Values(Golden{"qwen3_5", ""}, Golden{"qwen3_5", "/model.gguf"},
                      Golden{"qwen3_5_tied", "", 1e-3f}, Golden{"qwen3_5_moe", ""},
                      Golden{"qwen3_5_moe", "/model.gguf"}, Golden{"qwen3_next_mixed", ""},
                      Golden{"nemotron_h_moe", ""}, Golden{"nemotron_h_moe", "/model.gguf"}),
    name_of);

// Converters that keep the head leave its gains as they were or add the 1, whatever they do to the
// trunk's.
TEST(MtpNorms, OfConvertedFilesHaveTheirOneOrNot) {
  const auto ids = read_tokens(golden_path("qwen3_5") + "/tokens.json");
  const std::vector<int32_t> next(ids.begin() + 1, ids.end());
  const auto drafts = [&](const std::string& path) {
    MtpOnBackend head(path, "reference");
    return head.m.ok() ? head.draft(head.trunk(ids, 75), next, 0) : Logits();
  };
  const Logits expected = drafts(golden_path("qwen3_5"));
  ASSERT_FALSE(expected.empty());
  EditedSafetensors shifted("qwen3_5"), raw("qwen3_5");
  make_mlx(shifted);
  const auto original = raw.tensors;
  make_mlx(raw);
  for (const auto& [name, tensor] : original)
    if (name.starts_with("mtp.")) raw.tensors.at("language_model." + name) = tensor;
  EXPECT_EQ(drafts(shifted.write()), expected);
  EXPECT_EQ(drafts(raw.write()), expected);
}

// What config and metadata say of a head does not matter, only whether it is there.
TEST(MtpFlags, MayLie) {
  EditedSafetensors denied("qwen3_5_tied"), promised("qwen3_5_tied");
  denied.config.set("mtp_num_hidden_layers", 0);
  std::erase_if(promised.tensors, [](const auto& t) { return t.first.starts_with("mtp."); });
  for (EditedSafetensors* folder : {&denied, &promised}) {
    ModelOnBackend m(folder->write(), "reference", {}, LoadOptions{true});
    ASSERT_TRUE(m.ok());
    EXPECT_EQ(m.model->info().has_mtp, folder == &denied);
    EXPECT_EQ(m.model->info().num_mtp_layers, folder == &denied ? 1 : 0);
  }

  EditedGguf no_key("qwen3_5"), no_block("qwen3_5"), neither("qwen3_5");
  no_key.set("qwen35.nextn_predict_layers", 0);
  std::erase_if(no_block.tensors, [](const auto& t) { return t.first.starts_with("blk.5."); });
  neither.tensors = no_block.tensors;
  neither.set("qwen35.block_count", 5);  // the key still promises a head behind them
  // Some files leave the head's last norm out: the trunk's counts.
  EditedGguf no_norm("qwen3_5"), same_norm("qwen3_5");
  no_norm.tensors.erase("blk.5.nextn.shared_head_norm.weight");
  same_norm.tensors.at("blk.5.nextn.shared_head_norm.weight") =
      same_norm.tensors.at("output_norm.weight");
  const auto drafted = [](EditedGguf& file) {
    MtpOnBackend head(file.write(), "reference");
    return head.m.ok() ? head.draft(head.trunk({1, 2, 3}, 3), {2, 3}, 0) : Logits();
  };
  EXPECT_EQ(drafted(no_norm), drafted(same_norm));

  // A draft file beside a model's own.
  EditedGguf alone("qwen3_5");
  std::erase_if(alone.tensors, [](const auto& t) {
    return t.first.starts_with("blk.") && !t.first.starts_with("blk.5.");
  });
  auto opened = Checkpoint::open(alone.write());
  ASSERT_TRUE(opened.ok());
  const auto described = describe_model(**opened);
  ASSERT_FALSE(described.ok());
  EXPECT_NE(described.error().message.find("MTP head alone"), std::string::npos);

  for (EditedGguf* file : {&no_key, &no_block, &neither}) {
    ModelOnBackend m(file->write(), "reference", {}, LoadOptions{true});
    ASSERT_TRUE(m.ok());
    EXPECT_EQ(m.model->info().num_layers, 5);
    EXPECT_EQ(m.model->info().has_mtp, file == &no_key);
  }
}

}  // namespace
}  // namespace invar::testing
