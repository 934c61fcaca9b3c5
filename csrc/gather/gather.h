// Rows for a list of nodes, straight into the batch's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gather/decode.h"

namespace gz {

// A table of rows somewhere in memory, mapped or not.
struct RowTable {
  const std::byte* data;
  std::int64_t num_rows;
  std::int64_t row_bytes;   // of a row in the batch
  std::int64_t row_stride;  // bytes from one row to the next
  // Null where rows are stored as batches have them; otherwise they are decoded to float32 by this.
  DecodeItems decode = nullptr;
  const float* scale = nullptr;
  const float* zero_point = nullptr;
};

// Copies (or decodes) row index[i] of `table` to out + i * row_bytes, for every i, on `threads`
// threads (0: as many as torch uses). Raises std::out_of_range naming the first bad position, and
// OsError when the table's file was truncated under its map.
void gather_rows(const RowTable& table, std::span<const std::int64_t> index, std::byte* out,
                 int threads);

// The same for a column of int32 or int64 numbers (`item_bytes` 4 or 8), widened to int64.
void gather_int64(const std::byte* column, std::int64_t num_rows, int item_bytes,
                  std::span<const std::int64_t> index, std::int64_t* out, int threads);

}  // namespace gz
