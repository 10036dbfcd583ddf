// Rope scalings, each written as its paper or checkpoint defines it, in double.
#include "models/rope_config.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"

namespace invar {
namespace {

constexpr double kPi = 3.14159265358979323846;

Result<double> positive(const Json& parameters, const char* key) {
  INVAR_TRY(const double value, parameters.required<double>(key));
  if (!(value > 0))
    return invalid_argument("rope '%s' is %g, expected a positive number", key, value);
  return value;
}

// Wavelengths beyond the original window are stretched by `factor`, short ones are kept, between
// them the two are mixed.
Result<void> apply_llama3(RopeSpec& spec, const Json& parameters) {
  INVAR_TRY(const double factor, positive(parameters, "factor"));
  INVAR_TRY(const double low, positive(parameters, "low_freq_factor"));
  INVAR_TRY(const double high, positive(parameters, "high_freq_factor"));
  INVAR_TRY(const double original, positive(parameters, "original_max_position_embeddings"));
  if (high <= low)
    return invalid_argument("rope 'high_freq_factor' %g is not above 'low_freq_factor' %g", high,
                            low);
  for (double& f : spec.inv_freq) {
    const double wavelength = 2 * kPi / f;
    const double s = std::clamp((original / wavelength - low) / (high - low), 0.0, 1.0);
    f = (1 - s) * f / factor + s * f;
  }
  return {};
}

// Dims that turn more than beta_fast times in the original window are kept, those below beta_slow
// are interpolated, a linear ramp between.
Result<void> apply_yarn(RopeSpec& spec, const Json& parameters, double theta, int dim) {
  INVAR_TRY(const double original, positive(parameters, "original_max_position_embeddings"));
  INVAR_TRY(const double longest, parameters.optional<double>("max_position_embeddings", 0));
  const Json* given = parameters.find("factor");
  const bool is_implied = (given == nullptr || given->is_null()) && longest > 0;
  INVAR_TRY(const double factor,
            is_implied ? Result<double>(longest / original) : positive(parameters, "factor"));
  INVAR_TRY(const double beta_fast, parameters.optional<double>("beta_fast", 32));
  INVAR_TRY(const double beta_slow, parameters.optional<double>("beta_slow", 1));
  const auto grown = [&](double by) { return factor > 1 ? 0.1 * by * log_f64(factor) + 1 : 1.0; };
  INVAR_TRY(const double mscale, parameters.optional<double>("mscale", 0));
  INVAR_TRY(const double mscale_all_dim, parameters.optional<double>("mscale_all_dim", 0));
  const double default_magnitude =
      mscale != 0 && mscale_all_dim != 0 ? grown(mscale) / grown(mscale_all_dim) : grown(1);
  INVAR_TRY(const double magnitude,
            parameters.optional<double>("attention_factor", default_magnitude));
  spec.magnitude *= magnitude;
  const auto dim_of = [&](double turns) {
    return dim * log_f64(original / (turns * 2 * kPi)) / (2 * log_f64(theta));
  };
  INVAR_TRY(const bool truncate, parameters.optional<bool>("truncate", true));
  const double first = dim_of(beta_fast), last = dim_of(beta_slow);
  const double low = std::max(truncate ? std::floor(first) : first, 0.0);
  const double high = std::min(truncate ? std::ceil(last) : last, dim - 1.0);
  for (size_t i = 0; i < spec.inv_freq.size(); ++i) {
    const double ramp =
        std::clamp((static_cast<double>(i) - low) / std::max(high - low, 0.001), 0.0, 1.0);
    spec.inv_freq[i] = spec.inv_freq[i] * (1 - ramp) + spec.inv_freq[i] / factor * ramp;
  }
  return {};
}

}  // namespace

Result<RopeSpec> rope_spec(const Json& parameters, int rotary_dim) {
  INVAR_TRY(const double theta, positive(parameters, "rope_theta"));
  INVAR_TRY(const double part, parameters.optional<double>("partial_rotary_factor", 1));
  if (part != 1) return unsupported("'partial_rotary_factor' is %g, expected 1", part);
  INVAR_TRY(std::string type, parameters.optional<std::string>("rope_type", ""));
  if (type.empty()) {
    INVAR_TRY(type, parameters.optional<std::string>("type", "default"));
  }
  RopeSpec spec;
  INVAR_TRY(spec.magnitude, parameters.optional<double>("gguf_attn_factor", 1));
  for (int i = 0; i < rotary_dim; i += 2)
    spec.inv_freq.push_back(pow_f64(theta, -static_cast<double>(i) / rotary_dim));
  if (type == "default") return spec;
  if (type == "linear") {
    INVAR_TRY(const double factor, positive(parameters, "factor"));
    for (double& f : spec.inv_freq) f /= factor;
    return spec;
  }
  if (type == "llama3") {
    INVAR_TRY_VOID(apply_llama3(spec, parameters));
    return spec;
  }
  if (type == "yarn") {
    INVAR_TRY_VOID(apply_yarn(spec, parameters, theta, rotary_dim));
    return spec;
  }
  return unsupported("rope_type '%s'; known: default, linear, llama3, yarn", type.c_str());
}

Result<Json> rope_parameters(const Json& config, double default_theta) {
  INVAR_TRY(const double theta, config.optional<double>("rope_theta", default_theta));
  const Json* newer = config.find("rope_parameters");
  const Json* older = config.find("rope_scaling");
  Json parameters = Json::object();
  if (newer != nullptr && newer->is_object())
    parameters = *newer;
  else if (older != nullptr && older->is_object())
    parameters = *older;
  if (parameters.find("rope_theta") == nullptr) parameters.set("rope_theta", theta);
  const Json* part = config.find("partial_rotary_factor");
  if (part != nullptr && parameters.find("partial_rotary_factor") == nullptr)
    parameters.set("partial_rotary_factor", *part);
  return parameters;
}

}  // namespace invar
