// The one place that knows how the rows of a table are stored and turned into a batch's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "storage/encoding.h"

namespace gz {

class Dictionary;

// A table of rows somewhere in memory, mapped or not; in one place or in two.
struct RowTable {
  const std::byte* data;
  std::int64_t num_rows;
  std::int64_t row_bytes;   // of a row in the batch
  std::int64_t row_stride;  // bytes from one row to the next
  // Null where rows are stored as batches have them; otherwise they are decoded to float32 by this.
  const EncodingKernels* encoding = nullptr;
  const float* scale = nullptr;
  const float* zero_point = nullptr;
  // From this row on, rows lie one behind the other at `rest`. Null: all of them are at `data`.
  std::int64_t split = 0;
  const std::byte* rest = nullptr;
  // Not null: the rows are in there, and there is no data.
  const Dictionary* dictionary = nullptr;
};

// Calls call(row_at), where row_at(i) is where row i lies.
template <class Call>
void with_row_at(const RowTable& table, const Call& call) {
  const std::byte *const data = table.data, *const rest = table.rest;
  const std::int64_t stride = table.row_stride, split = table.split;
  if (rest == nullptr) return call([=](std::int64_t row) { return data + row * stride; });
  call([=](std::int64_t row) {
    return row < split ? data + row * stride : rest + (row - split) * stride;
  });
}

// Items index[0 … count) of a column of int32 or int64 to `out`, which may be `index`. REQUIRES:
// every index is a row. Runs inside guarded().
void copy_ids(const RowTable& column, const std::int64_t* index, std::int64_t count,
              std::int64_t* out);

// Puts rows index[0 … count) one behind the other at `out`.
// REQUIRES: every index is a row. Runs inside guarded(), see io/fault_guard.h.
void copy_rows(const RowTable& table, const std::int64_t* index, std::int64_t count,
               std::byte* out);

}  // namespace gz
