#include "sampling/packed_bounds.h"

#include <algorithm>

#include "arrays/buffer.h"
#include "base/chunk_sizes.h"
#include "io/pages.h"

namespace gz {
namespace {

constexpr std::int64_t kFarthest = UINT16_MAX;

}  // namespace

std::int64_t PackedBounds::num_bytes(std::int64_t num_nodes, std::int64_t num_edges) noexcept {
  const std::int64_t blocks = num_nodes / kBlockNodes + 1;
  // A wide block has more edges than kFarthest, and each edge is in one block.
  const std::int64_t wide = std::min(blocks, num_edges / kFarthest);
  return (blocks + wide * kBlockNodes) * 8 + (num_nodes + 1) * 2;
}

PackedBounds::PackedBounds(const Topology& file)
    : num_nodes_(static_cast<std::int64_t>(file.num_dst())) {
  const std::int64_t blocks = num_nodes_ / kBlockNodes + 1;
  pages_ = make_pages(static_cast<std::size_t>(blocks * 8 + (num_nodes_ + 1) * 2));
  firsts_ = reinterpret_cast<std::int64_t*>(pages_.get());
  offsets_ = reinterpret_cast<std::uint16_t*>(firsts_ + blocks);
  const std::int64_t together = chunk_sizes.packed_bounds / kBlockNodes + 1;
  Buffer<std::int64_t> bounds(std::min(together, blocks) * kBlockNodes);
  for (std::int64_t begin = 0; begin < blocks; begin += together) {
    const std::int64_t end = std::min(begin + together, blocks);
    const std::int64_t from = begin * kBlockNodes;
    const std::int64_t to = std::min(end * kBlockNodes, num_nodes_ + 1);
    file.read_bounds(static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to - 1),
                     bounds.data());
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t node = block * kBlockNodes;
      const std::int64_t* const its = bounds.data() + (node - from);
      const std::int64_t count = std::min(kBlockNodes, num_nodes_ + 1 - node);
      if (its[count - 1] - its[0] > kFarthest) {
        firsts_[block] = ~(static_cast<std::int64_t>(wide_.size()) >> kBlockBits);
        wide_.insert(wide_.end(), its, its + count);
        wide_.resize((wide_.size() + kBlockMask) >> kBlockBits << kBlockBits);
        continue;
      }
      firsts_[block] = its[0];
      for (std::int64_t i = 0; i < count; ++i) {
        offsets_[node + i] = static_cast<std::uint16_t>(its[i] - its[0]);
      }
    }
  }
  wide_.shrink_to_fit();
}

}  // namespace gz
