// Where the neighbours of every node begin, in a quarter of the memory that a file has it in.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "storage/topology.h"

namespace gz {

// For blocks of nodes, where the first one's neighbours begin; for every node, how far behind that
// its own do, in 16 bits. Blocks of more edges than these can tell have their bounds as they are.
// No PackedInts: a node takes two looks, and each costs more there (benchmarks/NOTES.md).
//
// Thread safety: immutable.
class PackedBounds {
 public:
  // Reads them; raises as Topology::read_bounds().
  explicit PackedBounds(const Topology& file);

  // Bytes of the bounds of `num_nodes` nodes with `num_edges` edges, at most.
  static std::int64_t num_bytes(std::int64_t num_nodes, std::int64_t num_edges) noexcept;

  std::int64_t num_nodes() const noexcept { return num_nodes_; }

  // indptr[node]. REQUIRES 0 <= node <= num_nodes().
  std::int64_t operator[](std::int64_t node) const noexcept {
    const std::int64_t first = firsts_[node >> kBlockBits];
    if (first < 0) [[unlikely]]
      return wide_[static_cast<std::size_t>((~first << kBlockBits) + (node & kBlockMask))];
    return first + offsets_[node];
  }

  void prefetch(std::int64_t node) const noexcept {
    __builtin_prefetch(firsts_ + (node >> kBlockBits));
    __builtin_prefetch(offsets_ + node);
  }

 private:
  static constexpr int kBlockBits = 6;
  static constexpr std::int64_t kBlockNodes = std::int64_t{1} << kBlockBits;
  static constexpr std::int64_t kBlockMask = kBlockNodes - 1;

  std::int64_t num_nodes_;
  std::shared_ptr<std::byte> pages_;
  std::int64_t* firsts_;            // [block]; ~n: it is number n of the wide ones
  std::uint16_t* offsets_;          // [node]
  std::vector<std::int64_t> wide_;  // the bounds of those blocks, one block behind the other
};

}  // namespace gz
