// Rows for a list of nodes or edges, straight into the batch's memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "arrays/buffer.h"
#include "gather/copy_rows.h"
#include "gather/paged_rows.h"
#include "gather/window_room.h"

namespace gz {

// Raises std::invalid_argument unless rows are int32 or int64 numbers that touch.
void check_id_column(const RowTable& table);

// Raised where reading was stopped: there is no batch.
struct Stopped : std::exception {
  const char* what() const noexcept override { return "reading was stopped"; }
};

// Rows to gather for every batch: columns of tables, each by one of the batch's index lists.
struct GatherPlan {
  // A table in memory; or paged rows, of which `table` says only what becomes of them:
  // row_bytes, encoding, scale and zero_point.
  struct Source {
    std::size_t by;  // number of a list
    RowTable table;
    int paged = -1;     // number of the paged rows, which then go by the same list
    int inner_of = -1;  // a node type: only of its nodes that were sampled before the last hop
    // In place of rows, sums or means of them over in-edges: see SumOver.
    struct SumOver {
      std::size_t edges;  // number of an edge type: leads from the nodes of list `by`
      std::size_t to;     // the node type it leads to; sums are of inner nodes
      bool is_mean;
    };
    std::optional<SumOver> sum = std::nullopt;
  };
  struct Paged {
    std::size_t by;
    std::shared_ptr<PagedRows> rows;
  };

  std::size_t num_lists = 0;    // how many lists a batch brings
  std::vector<Source> lookups;  // columns of ids; lookup l makes one more list, num_lists + l
  std::vector<Source> columns;
  std::vector<Paged> paged;                          // by lists that the batch brings
  std::shared_ptr<WindowRoom> windows;               // what is read ahead; null: nothing is
  int max_window = std::numeric_limits<int>::max();  // batches of one, at most
  bool keeps_slots = true;                           // batches have the slots of their edges
  std::vector<std::shared_ptr<const void>> owners;   // keep the tables alive

  // Whether batches must say what they know of their hops.
  bool needs_hops() const noexcept {
    return std::any_of(columns.begin(), columns.end(),
                       [](const Source& source) { return source.inner_of >= 0 || source.sum; });
  }

  // Whether rows are read for windows of batches.
  bool reads_ahead() const noexcept { return windows != nullptr && !paged.empty(); }
};

struct Gathered {
  struct Column {
    Buffer<std::byte> rows;  // one behind the other
    std::int64_t row_bytes;
  };
  std::vector<Buffer<std::int64_t>> lists;  // [lookup]
  std::vector<Column> columns;              // [column]
  ReadStats read;                           // what no window brought
};

// Hops of a batch, for plans that ask for inner nodes or sums.
struct SampledHops {
  struct Edges {
    std::span<const std::int64_t> src, dst;  // positions among nodes; by destination
  };
  std::vector<std::int64_t> inner;  // [node type]: nodes that were sampled before the last hop
  std::vector<Edges> edges;         // [edge type]
};

// Where a batch finds what was read of a plan's paged rows.
struct WindowPart {
  std::span<const RowWindow> windows;  // [paged]; none where nothing was read
  std::size_t list = 0;                // which list of them is the batch's
};

// Gathers a batch's columns on `threads` threads (0: as many as torch uses). Paged rows that no
// window was read for are read meanwhile: of columns that are nothing but such rows some
// megabytes at a time, in the order of the file, else all at once. Raises
// std::out_of_range naming the first bad position of a list, OsError when a table's file was
// truncated under its map or cannot be read, and Stopped.
Gathered gather(const GatherPlan& plan, std::span<const std::span<const std::int64_t>> lists,
                int threads, const WindowPart& part = {}, const SampledHops& hops = {},
                const std::stop_token& stop = {});

// Copies row index[i] of `table` to out + i * row_bytes, for every i; otherwise as gather().
void gather_rows(const RowTable& table, std::span<const std::int64_t> index, std::byte* out,
                 int threads);

// Items index[i] of a column of ids, widened to int64; otherwise as gather(). An id is the number
// of a row of `whole`, the table that `column` is or has a part of; raises FormatError where it is
// not.
void gather_ids(const RowTable& column, const RowTable& whole, std::span<const std::int64_t> index,
                std::int64_t* out, int threads);

}  // namespace gz
