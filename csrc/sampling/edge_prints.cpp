#include "sampling/edge_prints.h"

#include <algorithm>
#include <atomic>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/rng.h"
#include "io/fault_guard.h"
#include "sampling/read_csc.h"

namespace gz {

EdgePrints edge_prints(const Csc& csc, int threads, const std::function<void()>& checkpoint) {
  need_neighbors(csc);
  std::atomic<std::uint64_t> along{0}, against{0};
  if (csc.file != nullptr) csc.file->check_size();
  renew_guard();
  SlotsAhead ahead(csc);
  for (std::int64_t from = 0; from < csc.num_dst;) {
    const std::int64_t to = std::min(csc.num_dst, from + chunk_sizes.summed_nodes);
    parallel_for(to - from, 1024, threads, [&](std::int64_t first, std::int64_t last) {
      std::uint64_t one = 0, other = 0;
      check_lists(csc, from + first, from + last);
      visit_edges(csc, from + first, from + last,
                  [&](std::int64_t node, std::int64_t source, std::int64_t) {
                    const auto u = static_cast<std::uint64_t>(source);
                    const auto w = static_cast<std::uint64_t>(node);
                    one += derive_key(mix64(u + kGolden), w);
                    other += derive_key(mix64(w + kGolden), u);
                  });
      along += one;
      against += other;
    });
    guarded([&] { ahead.at(csc.indptr[to]); });
    if (csc.file != nullptr) csc.file->forget_pages();
    checkpoint();
    from = to;
  }
  return {along.load(), against.load()};
}

}  // namespace gz
