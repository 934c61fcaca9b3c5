#include "sampling/edge_prints.h"

#include <algorithm>
#include <atomic>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/rng.h"
#include "io/fault_guard.h"

namespace gz {

EdgePrints edge_prints(const Csc& csc, const std::int64_t* values, int threads,
                       const std::function<void()>& checkpoint) {
  need_neighbors(csc);
  std::atomic<std::uint64_t> along{0}, against{0};
  std::atomic<std::int64_t> bad{-1};
  if (csc.file != nullptr) csc.file->check_size();
  renew_guard();
  SlotsAhead ahead(csc);
  for (std::int64_t from = 0; from < csc.num_dst;) {
    const std::int64_t to = std::min(csc.num_dst, from + chunk_sizes.summed_nodes);
    parallel_for(to - from, 1024, threads, [&](std::int64_t first, std::int64_t last) {
      std::uint64_t one = 0, other = 0;
      guarded([&] {
        for (std::int64_t v = from + first; v < from + last; ++v) {
          const std::int64_t begin = csc.indptr[v], end = csc.indptr[v + 1];
          if (begin < 0 || end < begin || end > csc.num_edges) [[unlikely]] {
            bad.store(v, std::memory_order_relaxed);
            return;
          }
          for (std::int64_t slot = begin; slot < end; ++slot) {
            const auto u = static_cast<std::uint64_t>(csc.source(slot));
            const auto w = static_cast<std::uint64_t>(v);
            const std::uint64_t own =
                values == nullptr ? 0 : static_cast<std::uint64_t>(values[slot]);
            one += derive_key(mix64(u + kGolden) ^ own, w);
            other += derive_key(mix64(w + kGolden) ^ own, u);
          }
        }
      });
      along += one;
      against += other;
    });
    if (bad.load() >= 0) throw_bad_indptr(csc, bad.load());
    guarded([&] { ahead.at(csc.indptr[to]); });
    if (csc.file != nullptr) csc.file->forget_pages();
    checkpoint();
    from = to;
  }
  return {along.load(), against.load()};
}

}  // namespace gz
