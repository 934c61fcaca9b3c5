#include "sampling/edge_prints.h"

#include <algorithm>
#include <atomic>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/rng.h"
#include "io/fault_guard.h"
#include "sampling/read_csc.h"

namespace gz {
namespace {

constexpr std::int64_t kMostMapped = 64 << 20;  // bytes, before they are forgotten

}  // namespace

EdgePrints edge_prints(const Csc& csc, int threads, const std::function<void()>& checkpoint) {
  need_neighbors(csc);
  std::atomic<std::uint64_t> along{0}, against{0};
  if (csc.file != nullptr) csc.file->check_size();
  renew_guard();
  std::atomic<std::int64_t> mapped = 0;
  const std::int64_t size = chunk_sizes.summed_nodes, together = size * num_threads(threads);
  for (std::int64_t from = 0; from < csc.num_dst; from += together) {
    const std::int64_t count = std::min(together, csc.num_dst - from);
    parallel_for(count, size, threads, [&](std::int64_t first, std::int64_t last) {
      std::uint64_t one = 0, other = 0;
      SlotsAhead ahead(csc);
      sweep(csc, from + first, from + last, ahead, mapped, kMostMapped,
            [&](std::int64_t node, std::int64_t source, std::int64_t) {
              const auto u = static_cast<std::uint64_t>(source);
              const auto w = static_cast<std::uint64_t>(node);
              one += derive_key(mix64(u + kGolden), w);
              other += derive_key(mix64(w + kGolden), u);
            });
      along += one;
      against += other;
    });
    checkpoint();
  }
  return {along.load(), against.load()};
}

}  // namespace gz
