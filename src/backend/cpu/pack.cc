// pack_panels: the parts of a request become segments of panels in one block of memory, filled in
// parallel over panels. What a lane looks like: panels.h and pack_lane.cc.
#include <algorithm>
#include <cstring>
#include <span>

#include "backend/cpu/linear.h"
#include "backend/cpu/pack_lane.h"
#include "base/block_hash.h"

namespace invar::cpu {
namespace {

void pack_panel(const MatrixView& matrix, const PanelFormat& format, int64_t panel_index,
                uint8_t* panel) {
  const int64_t first_row = panel_index * kPanelRows;
  const int num_lanes =
      static_cast<int>(std::min<int64_t>(kPanelRows, matrix.num_rows - first_row));
  for (int lane = 0; lane < num_lanes; ++lane)
    pack_lane(matrix, format, first_row + lane, lane, panel);
}

// The matrix as floats in `bytes`, which then own it.
MatrixView widen(const MatrixView& matrix, std::vector<uint8_t>& bytes) {
  MatrixView view;
  view.name = matrix.name;
  view.num_rows = matrix.num_rows;
  view.num_cols = matrix.num_cols;
  view.row_bytes = matrix.num_cols * static_cast<int64_t>(sizeof(float));
  bytes.resize(static_cast<size_t>(view.num_rows * view.row_bytes));
  std::vector<float> row(static_cast<size_t>(matrix.num_cols));
  for (int64_t r = 0; r < matrix.num_rows; ++r) {
    dequantize_row(matrix, r, row.data());
    std::memcpy(bytes.data() + r * view.row_bytes, row.data(), static_cast<size_t>(view.row_bytes));
  }
  view.data = bytes.data();
  return view;
}

// Of a matrix of fp32 whose values are all bf16 (GGUF keeps routers so), the bf16: equal numbers
// and half of the bytes. Else the matrix as it is.
MatrixView without_zeros(const MatrixView& matrix, std::vector<uint8_t>& bytes) {
  std::vector<uint8_t> halves(static_cast<size_t>(matrix.num_rows * matrix.num_cols) * 2);
  uint8_t* out = halves.data();
  for (int64_t r = 0; r < matrix.num_rows; ++r) {
    const uint8_t* in = matrix.row_data(r);
    for (int64_t k = 0; k < matrix.num_cols; ++k, in += 4, out += 2) {
      if (in[0] != 0 || in[1] != 0) return matrix;
      std::memcpy(out, in + 2, 2);
    }
  }
  bytes = std::move(halves);
  MatrixView view;
  view.name = matrix.name;
  view.format = WeightFormat::kBF16;
  view.num_rows = matrix.num_rows;
  view.num_cols = matrix.num_cols;
  view.row_bytes = matrix.num_cols * 2;
  view.data = bytes.data();
  return view;
}

// A router's request with parts in floating point, equal in value to the file's.
Result<PackRequest> in_floats(PackRequest request, std::vector<std::vector<uint8_t>>& storage) {
  if (request.num_experts != 1)
    return invalid_argument("%s: a router has no experts of its own",
                            request.parts[0].name.c_str());
  for (MatrixView& part : request.parts) {
    INVAR_TRY_VOID(panel_format(part));
    if (part.format == WeightFormat::kF16 || part.format == WeightFormat::kBF16) continue;
    if (part.format != WeightFormat::kF32) part = widen(part, storage.emplace_back());
    part = without_zeros(part, storage.emplace_back());
  }
  return request;
}

Result<void> check_request(const PackRequest& request) {
  if (request.parts.empty()) return invalid_argument("no matrix to pack");
  const MatrixView& first = request.parts[0];
  const size_t num_experts = static_cast<size_t>(request.num_experts);
  if (request.num_experts < 1 || request.parts.size() % num_experts != 0)
    return invalid_argument("%s: %zu matrices for %d experts", first.name.c_str(),
                            request.parts.size(), request.num_experts);
  const size_t num_parts = request.parts.size() / num_experts;
  for (size_t i = 0; i < request.parts.size(); ++i) {
    const MatrixView& part = request.parts[i];
    if (part.num_cols != first.num_cols)
      return invalid_argument("%s has %ld columns, %s has %ld", part.name.c_str(),
                              long{part.num_cols}, first.name.c_str(), long{first.num_cols});
    const MatrixView& same = request.parts[i % num_parts];  // the first expert's
    if (part.num_rows != same.num_rows)
      return invalid_argument("%s has %ld rows, %s has %ld", part.name.c_str(), long{part.num_rows},
                              same.name.c_str(), long{same.num_rows});
  }
  if (request.order == PartOrder::kGateAndUp &&
      (num_parts != 2 || request.parts[1].num_rows != first.num_rows))
    return invalid_argument("%s: gate and up must be two matrices of one shape",
                            first.name.c_str());
  return {};
}

// Segments with everything but the panels themselves; each expert's begin panels of their own.
Result<std::unique_ptr<PackedPanels>> lay_out(const PackRequest& request,
                                              const LinearOptions& options) {
  auto packed = std::make_unique<PackedPanels>();
  packed->order = request.order;
  packed->role = request.role;
  packed->activation_bits = request.role == MatrixRole::kHead ? 12 : options.activation_bits;
  packed->num_cols = request.parts[0].num_cols;
  packed->num_experts = request.num_experts;
  const size_t parts_per_expert = request.parts.size() / static_cast<size_t>(request.num_experts);
  for (size_t i = 0; i < request.parts.size(); ++i) {
    if (i % parts_per_expert == 0) packed->num_rows = 0;
    const MatrixView& part = request.parts[i];
    PanelSegment segment;
    INVAR_TRY(segment.format, panel_format(part));
    segment.unit_bytes = segment.format.panel_bytes;
    if (request.order == PartOrder::kGateAndUp) {
      INVAR_TRY(segment.up, panel_format(request.parts[++i]));
      segment.unit_bytes += segment.up.panel_bytes;
    }
    segment.first_unit = packed->num_units;
    segment.num_units = (part.num_rows + kPanelRows - 1) / kPanelRows;
    segment.first_row = packed->num_rows;
    segment.num_rows = part.num_rows;
    segment.offset = packed->num_bytes;
    packed->num_units += segment.num_units;
    packed->num_rows += part.num_rows;
    packed->num_bytes += static_cast<size_t>(segment.num_units * segment.unit_bytes);
    packed->segments.push_back(segment);
  }
  return packed;
}

// Of a matrix' name ("file: 'tensor'") the file is left out, so that a model may be renamed.
std::string part_name(const MatrixView& part) {
  const size_t file = part.name.find(": ");
  std::string name =
      format("%s %s %ldx%ld", part.name.c_str() + (file == std::string::npos ? 0 : file + 2),
             format_name(part.format), long{part.num_rows}, long{part.num_cols});
  if (part.format == WeightFormat::kMlxAffine)
    name += format(" bits %d group %d scales %d", part.bits, part.group_size,
                   static_cast<int>(part.scale_dtype));
  if (part.interleaved_head_dim != 0) name += format(" heads of %d", part.interleaved_head_dim);
  return name;
}

// What decides the panels' bytes. Activation bits and role are no part of it: all arithmetics and
// instruction sets read the same panels (a router's parts are named as they are packed). Hundreds
// of experts' parts are named by the first, the last and a hash of all.
std::string section_name(const PackRequest& request) {
  std::string parts;
  for (const MatrixView& part : request.parts) parts += " | " + part_name(part);
  std::string name = request.order == PartOrder::kGateAndUp ? "gated" : "stacked";
  if (request.num_experts == 1) return name + parts;
  const std::span text(reinterpret_cast<const uint8_t*>(parts.data()), parts.size());
  return name + format(" %d experts | ", request.num_experts) + part_name(request.parts.front()) +
         " ... " + part_name(request.parts.back()) +
         format(" | %016llx", static_cast<unsigned long long>(block_hash(text)));
}

}  // namespace

Result<std::unique_ptr<PackedWeight>> pack_panels(const PackRequest& asked, ThreadPool& pool,
                                                  const LinearOptions& options) {
  INVAR_CHECK(options.activation_bits == 8 || options.activation_bits == 12, "%d activation bits",
              options.activation_bits);
  INVAR_TRY_VOID(check_request(asked));
  std::vector<std::vector<uint8_t>> widened;
  PackRequest request = asked;
  if (asked.role == MatrixRole::kRouter) {
    INVAR_TRY(request, in_floats(asked, widened));
  }
  INVAR_TRY(std::unique_ptr<PackedPanels> packed, lay_out(request, options));
  const std::string section = request.cache == nullptr ? "" : section_name(request);
  if (request.cache != nullptr) {
    // Nothing writes to panels once they are packed.
    packed->memory =
        std::const_pointer_cast<uint8_t[]>(request.cache->find(section, packed->num_bytes, pool));
    if (packed->memory != nullptr) return std::unique_ptr<PackedWeight>(std::move(packed));
  }
  packed->memory = options.arena->allocate(packed->num_bytes);
  if (packed->memory == nullptr)
    return resource_exhausted("no memory for %zu bytes of packed weights (%s)", packed->num_bytes,
                              request.parts[0].name.c_str());
  const bool gated = request.order == PartOrder::kGateAndUp;
  for (size_t i = 0; i < packed->segments.size(); ++i) {
    const PanelSegment& segment = packed->segments[i];
    const MatrixView* parts = &request.parts[gated ? 2 * i : i];
    uint8_t* units = packed->memory.get() + segment.offset;
    pool.run(segment.num_units, [&](int64_t begin, int64_t end, int) {
      for (int64_t u = begin; u < end; ++u) {
        uint8_t* unit = units + u * segment.unit_bytes;
        pack_panel(parts[0], segment.format, u, unit);
        if (gated) pack_panel(parts[1], segment.up, u, unit + segment.format.panel_bytes);
      }
    });
  }
  if (request.cache != nullptr) request.cache->keep(section, packed->memory, packed->num_bytes);
  return std::unique_ptr<PackedWeight>(std::move(packed));
}

}  // namespace invar::cpu
