// Rows for a list of nodes or edges, straight into the batch's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "gather/copy_rows.h"

namespace gz {

// A column of int32 or int64 numbers.
struct IdColumn {
  const std::byte* data;
  std::int64_t num_rows;
  int item_bytes;  // 4 or 8
};

// Raises std::invalid_argument where rows are not 4 or 8 bytes, or do not touch.
IdColumn id_column(const RowTable& table);

// What to gather for every batch: columns of tables, each by one of the batch's index lists.
struct GatherPlan {
  struct Lookup {
    std::size_t by;  // number of a list
    IdColumn ids;
  };
  struct Column {
    std::size_t by;
    RowTable table;
  };

  std::size_t num_lists = 0;    // how many lists a batch brings
  std::vector<Lookup> lookups;  // lookup l makes one more list, number num_lists + l
  std::vector<Column> columns;
  bool locked = false;                              // rows go to page-locked memory
  std::vector<std::shared_ptr<const void>> owners;  // keep the tables alive
};

struct Gathered {
  struct Column {
    Buffer<std::byte> rows;  // one behind the other
    std::int64_t row_bytes;
  };
  std::vector<Buffer<std::int64_t>> lists;  // [lookup]
  std::vector<Column> columns;              // [column]
};

// Gathers a batch's columns on `threads` threads (0: as many as torch uses). Raises
// std::out_of_range naming the first bad position of a list, and OsError when a table's file was
// truncated under its map.
Gathered gather(const GatherPlan& plan, std::span<const std::span<const std::int64_t>> lists,
                int threads);

// Copies row index[i] of `table` to out + i * row_bytes, for every i; otherwise as gather().
void gather_rows(const RowTable& table, std::span<const std::int64_t> index, std::byte* out,
                 int threads);

// Items index[i] of `column`, widened to int64; otherwise as gather().
void gather_ids(const IdColumn& column, std::span<const std::int64_t> index, std::int64_t* out,
                int threads);

}  // namespace gz
