// Facts that all steps of a build share.
#pragma once

#include <optional>

#include "build/options.h"
#include "build/packed_edges.h"
#include "build/times.h"

namespace gz {

struct BuildPlan {
  const CscOptions& options;
  const RecordLayout& layout;
  const Numbering& numbering;
  const EdgeTimes& times;
  std::optional<PackedEdges> packed;  // as which edges wait to be sorted; none: as records

  // Bytes of one edge while it waits.
  std::uint32_t waiting_bytes() const noexcept { return packed ? packed->size() : layout.size(); }
};

}  // namespace gz
