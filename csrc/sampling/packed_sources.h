// The neighbours of a file in memory of this process's own, in no more bits than a node's number
// has. Unlike the pages of a map they are not taken away where memory is scarce.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "storage/topology.h"

namespace gz {

// Thread safety: immutable.
class PackedSources {
 public:
  // Reads them. Raises OsError where the file cannot be read, FormatError where it was cut short or
  // a neighbour is no node.
  explicit PackedSources(const Topology& file, int threads = 0);

  // What those of so many edges from so many nodes take.
  static std::int64_t num_bytes(std::int64_t num_src, std::int64_t num_edges) noexcept;

  std::int64_t num_edges() const noexcept { return num_edges_; }

  // REQUIRES 0 <= slot < num_edges().
  std::int64_t operator[](std::int64_t slot) const noexcept {
    const std::uint64_t bit = static_cast<std::uint64_t>(slot) * bits_;
    std::uint64_t word;
    std::memcpy(&word, pages_.get() + (bit >> 3), sizeof word);
    return static_cast<std::int64_t>((word >> (bit & 7)) & mask_);
  }

  void prefetch(std::int64_t slot) const noexcept {
    __builtin_prefetch(pages_.get() + (static_cast<std::uint64_t>(slot) * bits_ >> 3));
  }

 private:
  std::int64_t num_edges_;
  std::uint64_t bits_;
  std::uint64_t mask_;
  std::shared_ptr<std::byte> pages_;
};

}  // namespace gz
