// pack_panels: the parts of a request become segments of panels in one block of memory, filled in
// parallel over panels. What a lane looks like: panels.h and pack_lane.cc.
#include <algorithm>
#include <cstring>

#include "backend/cpu/linear.h"
#include "backend/cpu/pack_lane.h"

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

Result<void> check_request(const PackRequest& request) {
  if (request.parts.empty()) return invalid_argument("no matrix to pack");
  const MatrixView& first = request.parts[0];
  for (const MatrixView& part : request.parts)
    if (part.num_cols != first.num_cols)
      return invalid_argument("%s has %ld columns, %s has %ld", part.name.c_str(),
                              long{part.num_cols}, first.name.c_str(), long{first.num_cols});
  if (request.order == PartOrder::kGateAndUp &&
      (request.parts.size() != 2 || request.parts[1].num_rows != first.num_rows))
    return invalid_argument("%s: gate and up must be two matrices of one shape",
                            first.name.c_str());
  return {};
}

// Segments with everything but the panels themselves.
Result<std::unique_ptr<PackedPanels>> lay_out(const PackRequest& request,
                                              const LinearOptions& options) {
  auto packed = std::make_unique<PackedPanels>();
  packed->order = request.order;
  packed->role = request.role;
  packed->activation_bits = request.role == MatrixRole::kHead ? 12 : options.activation_bits;
  packed->num_cols = request.parts[0].num_cols;
  for (size_t i = 0; i < request.parts.size(); ++i) {
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

// What decides the panels' bytes. Activation bits and role are no part of it: all arithmetics and
// instruction sets read the same panels. Of a matrix' name ("file: 'tensor'") the file is left out,
// so that a model may be renamed.
std::string section_name(const PackRequest& request) {
  std::string name = request.order == PartOrder::kGateAndUp ? "gated" : "stacked";
  for (const MatrixView& part : request.parts) {
    const size_t file = part.name.find(": ");
    name +=
        format(" | %s %s %ldx%ld", part.name.c_str() + (file == std::string::npos ? 0 : file + 2),
               format_name(part.format), long{part.num_rows}, long{part.num_cols});
    if (part.format == WeightFormat::kMlxAffine)
      name += format(" bits %d group %d scales %d", part.bits, part.group_size,
                     static_cast<int>(part.scale_dtype));
    if (part.interleaved_head_dim != 0) name += format(" heads of %d", part.interleaved_head_dim);
  }
  return name;
}

}  // namespace

Result<std::unique_ptr<PackedWeight>> pack_panels(const PackRequest& request, ThreadPool& pool,
                                                  const LinearOptions& options) {
  INVAR_CHECK(options.activation_bits == 8 || options.activation_bits == 12, "%d activation bits",
              options.activation_bits);
  INVAR_TRY_VOID(check_request(request));
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
    uint8_t* units = packed->memory.get() + segment.offset;
    pool.run(segment.num_units, [&](int64_t begin, int64_t end, int) {
      for (int64_t u = begin; u < end; ++u) {
        uint8_t* unit = units + u * segment.unit_bytes;
        pack_panel(request.parts[i], segment.format, u, unit);
        if (gated) pack_panel(request.parts[1], segment.up, u, unit + segment.format.panel_bytes);
      }
    });
  }
  if (request.cache != nullptr) request.cache->keep(section, packed->memory, packed->num_bytes);
  return std::unique_ptr<PackedWeight>(std::move(packed));
}

}  // namespace invar::cpu
