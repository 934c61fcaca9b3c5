// Edges between the same two nodes: found, and merged.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arrays/buffer.h"
#include "build/options.h"

namespace gz {

// Counts distinct sources of one destination, by open addressing.
class SourceTable {
 public:
  // Gets ready for up to `max_sources` sources.
  void clear(std::uint64_t max_sources);
  // The number that `src` was given when it was first seen: 0, 1, 2 …
  std::uint32_t find_or_add(std::uint64_t src);
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(sources_.size()); }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  std::vector<std::uint32_t> slots_;
  std::uint32_t shift_ = 63;
  std::uint64_t mask_ = 0;
  std::vector<std::uint64_t> sources_;
};

// Merges the edges of one destination, so that a source occurs once: with the number of its first
// edge, and attributes joined as Coalesce says. Sums of integers are exact and must fit the dtype;
// fractions are added in double precision and rounded once.
class EdgeMerger {
 public:
  EdgeMerger(const RecordLayout& layout, const CscOptions& options);

  // Starts a destination with up to `max_edges` different sources among them.
  void clear(std::uint64_t max_edges);
  // In any order.
  void add(const Byte* record);
  // The merged records, in the order of their numbers; valid until clear().
  // Raises std::invalid_argument when a sum does not fit.
  std::span<const Byte* const> finish();

  // Bytes for each record that is being merged, at most.
  static std::uint64_t bytes_per_record(const RecordLayout& layout, const CscOptions& options);

 private:
  struct Item {  // of a record: one number to be joined
    std::uint32_t at;
    const PayloadColumn* column;
  };
  void join(std::uint32_t merged, const Byte* record);

  const RecordLayout& layout_;
  Coalesce how_;
  std::vector<Item> items_;
  SourceTable table_;
  Buffer<Byte> records_;
  std::vector<std::uint64_t> counts_;
  std::vector<std::uint64_t> joined_;  // bits of double or int64, by record and item
  std::vector<const Byte*> order_;
};

}  // namespace gz
