#include "gather/gather.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "base/parallel.h"
#include "io/fault_guard.h"

namespace gz {
namespace {

constexpr std::int64_t kPrefetchAhead = 16;
constexpr std::int64_t kLine = 64;

void check_index(std::span<const std::int64_t> index, std::int64_t begin, std::int64_t end,
                 std::int64_t num_rows) {
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t row = index[static_cast<std::size_t>(i)];
    if (row < 0 || row >= num_rows) {
      throw std::out_of_range("index[" + std::to_string(i) + "]: found row " + std::to_string(row) +
                              ", expected 0 <= row < " + std::to_string(num_rows));
    }
  }
}

// Copies rows of a size known at compile time (0: at run time), prefetching ahead.
template <std::size_t kBytes>
void copy_rows(const RowTable& table, const std::int64_t* index, std::int64_t count,
               std::byte* out) {
  const auto bytes = kBytes != 0 ? kBytes : static_cast<std::size_t>(table.row_bytes);
  // The hardware follows a row once it is started; the first lines are what it cannot foresee.
  const std::int64_t lines = std::min<std::int64_t>(static_cast<std::int64_t>(bytes), 8 * kLine);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kPrefetchAhead < count) {
      const std::byte* ahead = table.data + index[i + kPrefetchAhead] * table.row_stride;
      for (std::int64_t at = 0; at < lines; at += kLine) __builtin_prefetch(ahead + at);
    }
    std::memcpy(out + static_cast<std::size_t>(i) * bytes, table.data + index[i] * table.row_stride,
                bytes);
  }
}

void decode_rows(const RowTable& table, const std::int64_t* index, std::int64_t count,
                 std::byte* out) {
  const std::int64_t items = table.row_bytes / static_cast<std::int64_t>(sizeof(float));
  const std::int64_t lines = std::min(table.row_stride, 8 * kLine);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kPrefetchAhead < count) {
      const std::byte* ahead = table.data + index[i + kPrefetchAhead] * table.row_stride;
      for (std::int64_t at = 0; at < lines; at += kLine) __builtin_prefetch(ahead + at);
    }
    table.decode(table.data + index[i] * table.row_stride, items, table.scale, table.zero_point,
                 out + i * table.row_bytes);
  }
}

void copy_rows_of_any_size(const RowTable& table, const std::int64_t* index, std::int64_t count,
                           std::byte* out) {
  if (table.decode != nullptr) return decode_rows(table, index, count, out);
  switch (table.row_bytes) {
    case 1:
      return copy_rows<1>(table, index, count, out);
    case 2:
      return copy_rows<2>(table, index, count, out);
    case 4:
      return copy_rows<4>(table, index, count, out);
    case 8:
      return copy_rows<8>(table, index, count, out);
    case 16:
      return copy_rows<16>(table, index, count, out);
    default:
      return copy_rows<0>(table, index, count, out);
  }
}

template <class Item>
void widen(const Item* column, const std::int64_t* index, std::int64_t count, std::int64_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kPrefetchAhead < count) __builtin_prefetch(column + index[i + kPrefetchAhead]);
    out[i] = column[index[i]];
  }
}

// Rows per range: some 256 KiB of output, so that threads share evenly and ranges stay cheap.
std::int64_t grain_for(std::int64_t row_bytes) {
  return std::clamp<std::int64_t>((256 << 10) / std::max<std::int64_t>(row_bytes, 1), 16, 16384);
}

}  // namespace

void gather_rows(const RowTable& table, std::span<const std::int64_t> index, std::byte* out,
                 int threads) {
  const auto n = static_cast<std::int64_t>(index.size());
  parallel_for(n, grain_for(table.row_bytes), threads, [&](std::int64_t begin, std::int64_t end) {
    check_index(index, begin, end, table.num_rows);
    if (table.row_bytes == 0) return;
    guarded([&] {
      copy_rows_of_any_size(table, index.data() + begin, end - begin,
                            out + begin * table.row_bytes);
    });
  });
}

void gather_int64(const std::byte* column, std::int64_t num_rows, int item_bytes,
                  std::span<const std::int64_t> index, std::int64_t* out, int threads) {
  if (item_bytes != 4 && item_bytes != 8) {
    throw std::invalid_argument("found items of " + std::to_string(item_bytes) +
                                " bytes, expected int32 or int64");
  }
  const auto n = static_cast<std::int64_t>(index.size());
  parallel_for(n, grain_for(8), threads, [&](std::int64_t begin, std::int64_t end) {
    check_index(index, begin, end, num_rows);
    guarded([&] {
      const std::int64_t* at = index.data() + begin;
      if (item_bytes == 4) {
        widen(reinterpret_cast<const std::int32_t*>(column), at, end - begin, out + begin);
      } else {
        widen(reinterpret_cast<const std::int64_t*>(column), at, end - begin, out + begin);
      }
    });
  });
}

}  // namespace gz
