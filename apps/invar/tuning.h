// The tuning file: what `invar profile` measured of a model on this machine, and what `run`,
// `serve` and `bench` take from it. Speed only, whatever stands in it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/tunable.h"
#include "base/json.h"
#include "engine/open.h"
#include "invar/invar.h"

namespace invar::cli {

// What a measurement holds for. All of it must agree, or the file is not used.
struct TuningKey {
  std::string cpu;  // "AMD EPYC 7R13 Processor"
  std::string backend, isa, arithmetic_id, model_sha, version;
  int num_threads = 0, num_cpus = 0;
  bool operator==(const TuningKey&) const = default;
};
TuningKey tuning_key(const ModelDescription& model);

struct Tuning {
  std::vector<KernelCrossover> crossovers;
};

// $INVAR_TUNING, then $XDG_CACHE_HOME/invar/tuning, then ~/.cache/invar/tuning; "" for none ("off"
// in the variable, or no home folder).
std::string tuning_folder();
// Of a key in that folder; its name has a hash of the key.
std::string tuning_path(const std::string& folder, const TuningKey& key);

Json tuning_json(const TuningKey& key, const Tuning& tuning);
// Errors say why it is not used: damaged, of another machine, out of range.
Result<Tuning> parse_tuning(const std::string& text, const TuningKey& key);
// All at once, by a rename.
Result<void> write_tuning(const std::string& folder, const TuningKey& key, const Json& file);

// What became of a model's tuning files.
struct TuningNote {
  std::string text;         // one line: the file that is used, or why one is not; "": there is none
  std::string used_path;    // "": none
  bool is_warning = false;  // damaged, not only of other settings
};

// Engine::open() (with `wrap`, as open_engine_with) and the tuning of its model, if there is one.
Result<std::unique_ptr<Engine>> open_tuned_engine(const EngineOptions& options,
                                                  const WrapBackend& wrap, TuningNote* note);

}  // namespace invar::cli
