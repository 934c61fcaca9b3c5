#include "sampling/packed_bounds.h"

#include <algorithm>
#include <span>

#include "arrays/buffer.h"
#include "base/chunk_sizes.h"

namespace gz {
namespace {

constexpr std::int64_t kFarthest = UINT16_MAX;
constexpr int kOffsetBits = 16;

}  // namespace

std::int64_t PackedBounds::num_bytes(std::int64_t num_nodes, std::int64_t num_edges) noexcept {
  const std::int64_t blocks = num_nodes / kBlockNodes + 1;
  // A wide block has more edges than kFarthest, and each edge is in one block.
  const std::int64_t wide = std::min(blocks, num_edges / kFarthest);
  return PackedInts::num_bytes(blocks, 64) + PackedInts::num_bytes(num_nodes + 1, kOffsetBits) +
         wide * kBlockNodes * 8;
}

PackedBounds::PackedBounds(const Topology& file, int threads)
    : firsts_(static_cast<std::int64_t>(file.num_dst()) / kBlockNodes + 1, 64),
      offsets_(static_cast<std::int64_t>(file.num_dst()) + 1, kOffsetBits) {
  const std::int64_t together = (chunk_sizes.packed_bounds / kBlockNodes + 1) * kBlockNodes;
  Buffer<std::int64_t> bounds(std::min(together, offsets_.size()));
  for (std::int64_t begin = 0; begin < offsets_.size(); begin += together) {
    const std::int64_t end = std::min(begin + together, offsets_.size());
    bounds.resize(end - begin);
    file.read_bounds(static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end - 1),
                     bounds.data(), threads);
    for (std::int64_t at = 0; at < bounds.size(); at += kBlockNodes) {
      const std::int64_t count = std::min(kBlockNodes, bounds.size() - at);
      const std::span its(bounds.data() + at, static_cast<std::size_t>(count));
      std::int64_t first = its.front();
      if (its.back() - first > kFarthest) {
        first = ~(static_cast<std::int64_t>(wide_.size()) >> kBlockBits);
        wide_.insert(wide_.end(), its.begin(), its.end());
        wide_.resize((wide_.size() + kBlockMask) >> kBlockBits << kBlockBits);
        std::ranges::fill(its, 0);
      } else {
        for (std::int64_t& bound : its) bound -= first;
      }
      firsts_.set((begin + at) >> kBlockBits, static_cast<std::uint64_t>(first));
    }
    offsets_.write(begin, bounds.span());
  }
  wide_.shrink_to_fit();
}

}  // namespace gz
