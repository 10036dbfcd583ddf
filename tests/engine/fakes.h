// Stand-ins for everything below the engine. The fake model keeps its memory in KV pages and
// nowhere else, so that a wrong page table, position or row order changes what it says.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/no_kernels.h"
#include "backend/page_access.h"
#include "backend/recurrent_ops.h"
#include "engine/engine_parts.h"
#include "sampling/random.h"

namespace invar::testing {

class FakeCache : public KvCache {
 public:
  std::vector<uint64_t> state;  // [num_pages, kPagePositions]
};

class FakeStates : public StateCache {
 public:
  std::vector<uint64_t> state;  // [num_slots]
};

// States are kept and copied; the fake model computes them itself.
class FakeRecurrentOps : public RecurrentOps {
 public:
  Result<std::unique_ptr<StateCache>> make_state_cache(std::span<const RecurrentLayerShape>,
                                                       int num_slots) override {
    auto states = std::make_unique<FakeStates>();
    states->num_slots = num_slots;
    states->state.assign(static_cast<size_t>(num_slots), 99);
    return std::unique_ptr<StateCache>(std::move(states));
  }
  size_t state_slot_bytes(std::span<const RecurrentLayerShape>) const override { return 1 << 20; }
  void copy_state(StateCache& cache, int from, int to) override {
    auto& state = static_cast<FakeStates&>(cache).state;
    state.at(static_cast<size_t>(to)) = state.at(static_cast<size_t>(from));
  }
  void short_conv(Tensor, Tensor, std::span<const float>, std::span<const float>,
                  std::span<const Window>, StateCache&, int) override {
    INVAR_CHECK(false, "no kernels");
  }
  void gated_delta(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, std::span<const Window>,
                   StateCache&, const GatedDeltaArgs&) override {
    INVAR_CHECK(false, "no kernels");
  }
  void ssd(Tensor, Tensor, Tensor, Tensor, Tensor, std::span<const Window>, StateCache&,
           const SsdArgs&) override {
    INVAR_CHECK(false, "no kernels");
  }
  void gated_norm(Tensor, Tensor, Tensor, std::span<const float>, const GatedNormArgs&) override {
    INVAR_CHECK(false, "no kernels");
  }
  void sigmoid_gate(Tensor, Tensor) override { INVAR_CHECK(false, "no kernels"); }
  void relu2(Tensor) override { INVAR_CHECK(false, "no kernels"); }
};

// No arithmetic; only the cache is real. As strict about steps as a device that records them.
class FakeBackend : public NoKernels {
 public:
  FakeBackend() {
    info_.name = "fake";
    info_.arithmetic_id = "fake-1";
  }
  const BackendInfo& info() const override { return info_; }
  Result<std::unique_ptr<KvCache>> make_kv_cache(std::span<const KvLayerShape>,
                                                 int num_pages) override {
    auto cache = std::make_unique<FakeCache>();
    cache->num_pages = num_pages;
    cache->state.assign(static_cast<size_t>(num_pages) * kPagePositions, 0);
    return std::unique_ptr<KvCache>(std::move(cache));
  }
  size_t kv_page_bytes(std::span<const KvLayerShape>) const override { return 1 << 20; }
  RecurrentOps* recurrent_ops() override { return &recurrent_ops_; }
  void copy_page(KvCache& cache, int from, int to) override {
    INVAR_CHECK(!is_in_step_, "a page is copied within a step");
    auto& state = static_cast<FakeCache&>(cache).state;
    std::copy_n(state.begin() + from * kPagePositions, kPagePositions,
                state.begin() + to * kPagePositions);
  }
  void begin_step() override {
    INVAR_CHECK(!is_in_step_, "the step before was neither synchronized nor dropped");
    is_in_step_ = true;
  }
  void synchronize() override { is_in_step_ = false; }
  void drop_step() override { is_in_step_ = false; }

 protected:
  BackendInfo info_;

 private:
  bool is_in_step_ = false;
  FakeRecurrentOps recurrent_ops_;
};

// Its pages can be kept on disk.
class FakePagesBackend : public FakeBackend, public PageAccess {
 public:
  static constexpr size_t kPageBytes = kPagePositions * sizeof(uint64_t);
  size_t kv_page_bytes(std::span<const KvLayerShape>) const override { return kPageBytes; }
  std::string kv_layout() const override { return "fake"; }
  std::vector<uint8_t> read_page(const KvCache& cache, int page) const override {
    std::vector<uint8_t> bytes(kPageBytes);
    const auto& state = static_cast<const FakeCache&>(cache).state;
    std::memcpy(bytes.data(), &state[static_cast<size_t>(page) * kPagePositions], kPageBytes);
    return bytes;
  }
  void write_page(KvCache& cache, int page, std::span<const uint8_t> bytes) override {
    auto& state = static_cast<FakeCache&>(cache).state;
    std::memcpy(&state[static_cast<size_t>(page) * kPagePositions], bytes.data(), kPageBytes);
  }
};

// State of position p: a hash of the token, p, and the states at p - 1, p / 2, p / 3 and one page
// back, all read through the page table. Logits: a hash of the last state and the id.
class FakeModel : public Model {
 public:
  explicit FakeModel(int vocab_size, int64_t max_positions = 1 << 20) {
    info_.family = "fake";
    info_.vocab_size = vocab_size;
    info_.max_position_embeddings = max_positions;
    info_.kv_layers = {{1, 1}};
  }
  void set_eos(std::vector<int32_t> ids) { info_.eos_ids = std::move(ids); }
  // Then it also keeps a hash of all rows before, in the sequence's state and nowhere else.
  void set_recurrent() { info_.recurrent_layers = {{1, 2, 1, 1, 1}}; }
  // Forces the tokens after the prompt: token i of the reply is script[i].
  void set_script(int64_t prompt_length, std::vector<int32_t> script) {
    script_start_ = prompt_length;
    script_ = std::move(script);
  }
  int64_t bad_logits_at = -1;  // position whose logits hold a NaN
  mutable std::vector<int64_t> rows_per_step;

  Tensor forward(ops::Context& ctx, const Batch& batch) const override {
    auto& state = static_cast<FakeCache&>(ctx.cache).state;
    std::vector<uint64_t> row_state(batch.token_ids.size());
    for (const Window& window : batch.windows) {
      const auto at = [&](int64_t p) -> uint64_t& {
        const int32_t page = window.pages[static_cast<size_t>(p / kPagePositions)];
        return state[static_cast<size_t>(page) * kPagePositions +
                     static_cast<size_t>(p % kPagePositions)];
      };
      uint64_t* const kept = ctx.states == nullptr
                                 ? nullptr
                                 : &static_cast<FakeStates&>(*ctx.states)
                                        .state.at(static_cast<size_t>(window.state_slot));
      if (kept != nullptr && window.start == 0) *kept = 0;
      for (int64_t i = 0; i < window.num_rows; ++i) {
        const size_t row = static_cast<size_t>(window.first_row + i);
        const int64_t p = window.start + i;
        INVAR_CHECK(batch.positions[row] == p, "position %d at %ld", batch.positions[row], long{p});
        uint64_t h = mix64(static_cast<uint64_t>(batch.token_ids[row]) + 77);
        h = mix64(h + static_cast<uint64_t>(p));
        if (p > 0) h = mix64(h ^ at(p - 1)) + at(p / 2) + 3 * at(p / 3);
        if (p >= kPagePositions) h += 5 * at(p - kPagePositions);
        if (kept != nullptr) h += * kept = mix64(*kept ^ mix64(h));
        at(p) = row_state[row] = mix64(h);
      }
    }
    rows_per_step.push_back(static_cast<int64_t>(batch.token_ids.size()));
    Tensor logits = ctx.backend.logits_memory(
        ctx.arena, static_cast<int64_t>(batch.logit_rows.size()), info_.vocab_size);
    for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
      const size_t row = static_cast<size_t>(batch.logit_rows[i]);
      for (int64_t id = 0; id < info_.vocab_size; ++id)
        logits.at(static_cast<int64_t>(i), id) = logit(row_state[row], id);
      const int64_t p = batch.positions[row];
      const int64_t scripted = p + 1 - script_start_;
      if (scripted >= 0 && scripted < static_cast<int64_t>(script_.size()))
        logits.at(static_cast<int64_t>(i), script_[static_cast<size_t>(scripted)]) = 100;
      if (p == bad_logits_at) logits.at(static_cast<int64_t>(i), 1) = std::nanf("");
    }
    return logits;
  }
  static float logit(uint64_t state, int64_t id) {
    return static_cast<float>(mix64(state + static_cast<uint64_t>(id)) >> 40) * 0x1p-24f * 8;
  }

 private:
  int64_t script_start_ = -1;
  std::vector<int32_t> script_;
};

// Ids 0..255 are bytes; 256 <bos>, 257 <end> (an end token), 258 <unused>, 259.. pieces of more
// bytes.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(std::vector<std::string> pieces = {}) {
    for (int i = 0; i < 256; ++i) texts_.emplace_back(1, static_cast<char>(i));
    texts_.insert(texts_.end(), {"<bos>", "<end>", "<unused>"});
    texts_.insert(texts_.end(), pieces.begin(), pieces.end());
    bos_id = 256;
    eos_id = 257;
    add_bos = true;
    end_ids = {257};
  }
  std::vector<int32_t> encode(std::span<const TextSegment> segments,
                              bool add_special) const override {
    std::vector<int32_t> ids;
    if (add_special) ids.push_back(bos_id);
    for (const TextSegment& segment : segments)
      for (const char c : segment.text) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }
  using Tokenizer::encode;
  std::string_view token_bytes(int32_t id, bool with_special) const override {
    if (id < 0 || id >= vocab_size() || (!with_special && id >= 256 && id < 259)) return {};
    return texts_[static_cast<size_t>(id)];
  }
  std::string_view token_text(int32_t id) const override { return texts_[static_cast<size_t>(id)]; }
  TokenKind token_kind(int32_t id) const override {
    return id == 258               ? TokenKind::kUnused
           : id >= 256 && id < 258 ? TokenKind::kSpecial
                                   : TokenKind::kNormal;
  }
  int32_t find(std::string_view text) const override {
    for (size_t i = 0; i < texts_.size(); ++i)
      if (texts_[i] == text) return static_cast<int32_t>(i);
    return -1;
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(texts_.size()); }
  std::string_view model_name() const override { return "bytes"; }

 private:
  std::vector<std::string> texts_;
};

struct FakeOptions {
  int64_t context = 2048;
  int num_pages = 0;  // 0: one context
  int max_sequences = 4;
  int prefill_chunk = 64;
  bool is_recurrent = false;
  int num_state_snapshots = 8;
  double step_slowdown = 0;  // steps of a fake take no time worth measuring
  int max_waiting = 1024;
  std::vector<std::string> pieces = {};
};

inline EngineParts fake_parts(const FakeOptions& options,
                              const std::function<void(FakeModel&)>& configure = {}) {
  EngineParts parts;
  auto tokenizer = std::make_unique<ByteTokenizer>(options.pieces);
  // Three rows of padding beyond the tokenizer's vocabulary, as real heads have.
  auto model = std::make_unique<FakeModel>(tokenizer->vocab_size() + 3);
  if (options.is_recurrent) model->set_recurrent();
  if (configure) configure(*model);
  parts.backend = std::make_unique<FakeBackend>();
  parts.model = std::move(model);
  parts.tokenizer = std::move(tokenizer);
  parts.chat_templates = {{"default",
                           "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
                           "{% if add_generation_prompt %}[assistant]{% endif %}"}};
  parts.context = options.context;
  parts.num_pages = options.num_pages > 0
                        ? options.num_pages
                        : static_cast<int>((options.context + kPagePositions - 1) / kPagePositions);
  parts.max_sequences = options.max_sequences;
  parts.prefill_chunk = options.prefill_chunk;
  parts.num_state_snapshots = options.num_state_snapshots;
  parts.step_slowdown = options.step_slowdown;
  parts.max_waiting = options.max_waiting;
  return parts;
}

inline std::unique_ptr<Engine> fake_engine(const FakeOptions& options = {},
                                           const std::function<void(FakeModel&)>& configure = {}) {
  auto engine = make_engine(fake_parts(options, configure));
  INVAR_CHECK(engine.ok(), "%s", engine.error().message.c_str());
  return *std::move(engine);
}

// Reads a stream to its end.
inline GenerationResult finish(TokenStream& stream, std::vector<TokenEvent>* events = nullptr) {
  while (auto event = stream.next())
    if (events) events->push_back(*std::move(event));
  return stream.result();
}

inline GenerationResult generate(Engine& engine, const GenerationRequest& request) {
  auto stream = engine.submit(request);
  INVAR_CHECK(stream.ok(), "%s", stream.error().message.c_str());
  return finish(**stream);
}

}  // namespace invar::testing
