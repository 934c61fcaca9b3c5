// Options for the edges of one type.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "build/records.h"

namespace gz {

enum class Coalesce { kFirst, kSum, kMean, kMin, kMax };
inline constexpr const char* kCoalesceNames[] = {"first", "sum", "mean", "min", "max"};
enum class SelfLoops { kKeep, kRemove, kAdd };

struct CscOptions {
  std::uint64_t num_src = 0;
  std::uint64_t num_dst = 0;
  // At least as many as there will be; they decide how wide numbers are.
  std::uint64_t max_edges = 0;
  // Sources and destinations are different nodes, so that no edge is a self-loop.
  bool bipartite = false;
  bool undirected = false;
  std::optional<Coalesce> coalesce;
  SelfLoops self_loops = SelfLoops::kKeep;
  // Whether the edge of every slot is written; only then can there be columns.
  bool edge_ids = true;
  std::vector<PayloadColumn> columns;
  // Neighbourhoods are sorted by this column, or by the times of their sources, if there is one.
  std::optional<std::size_t> time_column;
  std::span<const std::int64_t> source_times;  // [num_src], comparable; empty: none
  std::shared_ptr<const void> owner;           // of these
};

// How edges are numbered. Their count is not known while they come in, so reverses start at a
// number that no edge before them can reach, and the loop added to node v is loop_base + v.
struct Numbering {
  explicit Numbering(const CscOptions& options) noexcept
      : reverse_base(options.max_edges),
        loop_base(options.max_edges * (options.undirected ? 2 : 1)),
        end(loop_base + (options.self_loops == SelfLoops::kAdd ? options.num_dst : 0)) {}

  std::uint64_t reverse_base;
  std::uint64_t loop_base;
  std::uint64_t end;  // all numbers are below
};

}  // namespace gz
