// Facts that all steps of a build share.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "build/options.h"
#include "build/packed_edges.h"
#include "build/times.h"

namespace gz {

struct BuildPlan {
  explicit BuildPlan(CscOptions given)
      : options(std::move(given)),
        numbering(options),
        layout(std::max(options.num_src, options.num_dst), numbering.end, options.columns),
        times(layout, options) {}
  BuildPlan(const BuildPlan&) = delete;
  BuildPlan& operator=(const BuildPlan&) = delete;

  const CscOptions options;
  const Numbering numbering;
  const RecordLayout layout;
  const EdgeTimes times;
  std::optional<PackedEdges> packed;  // as which edges wait to be sorted; none: as records

  // Bytes of one edge while it waits.
  std::uint32_t waiting_bytes() const noexcept { return packed ? packed->size() : layout.size(); }
};

}  // namespace gz
