#include "gather/copy_rows.h"

#include <algorithm>
#include <cstring>

#include "gather/dictionary.h"

namespace gz {
namespace {

constexpr std::int64_t kPrefetchAhead = 16;
constexpr std::int64_t kLine = 64;
// The hardware follows a row once it is started; its first lines are what it cannot foresee.
constexpr std::int64_t kPrefetchedBytes = 4 * kLine;

// Calls copy(from, to) for every row, fetching rows ahead; row_at(i) is where row i lies.
template <class RowAt, class Copy>
void for_rows(const RowAt& row_at, const std::int64_t* index, std::int64_t count, std::byte* out,
              std::int64_t row_bytes, std::int64_t fetched, const Copy& copy) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kPrefetchAhead < count) {
      const std::byte* const ahead = row_at(index[i + kPrefetchAhead]);
      for (std::int64_t at = 0; at < fetched; at += kLine) __builtin_prefetch(ahead + at);
    }
    copy(row_at(index[i]), out + i * row_bytes);
  }
}

template <class Copy>
void for_rows(const RowTable& table, const std::int64_t* index, std::int64_t count, std::byte* out,
              std::int64_t row_bytes, const Copy& copy) {
  const std::int64_t fetched = std::min({row_bytes, table.row_stride, kPrefetchedBytes});
  const std::byte* const data = table.data;
  const std::int64_t stride = table.row_stride;
  if (table.rest == nullptr) {
    return for_rows([=](std::int64_t row) { return data + row * stride; }, index, count, out,
                    row_bytes, fetched, copy);
  }
  const std::byte* const rest = table.rest;
  const std::int64_t split = table.split;
  for_rows(
      [=](std::int64_t row) {
        return row < split ? data + row * stride : rest + (row - split) * stride;
      },
      index, count, out, row_bytes, fetched, copy);
}

// Rows of a size known at compile time.
template <std::size_t kBytes>
void copy_narrow(const RowTable& table, const std::int64_t* index, std::int64_t count,
                 std::byte* out) {
  for_rows(table, index, count, out, kBytes,
           [](const std::byte* from, std::byte* to) { std::memcpy(to, from, kBytes); });
}

}  // namespace

void copy_rows(const RowTable& table, const std::int64_t* index, std::int64_t count,
               std::byte* out) {
  if (table.dictionary != nullptr) return table.dictionary->copy(index, count, out);
  if (table.encoding != nullptr) {
    const std::int64_t items = table.row_bytes / static_cast<std::int64_t>(sizeof(float));
    return for_rows(table, index, count, out, table.row_bytes,
                    [&](const std::byte* from, std::byte* to) {
                      table.encoding->decode(from, items, table.scale, table.zero_point, to);
                    });
  }
  switch (table.row_bytes) {
    case 0:
      return;
    case 1:
      return copy_narrow<1>(table, index, count, out);
    case 2:
      return copy_narrow<2>(table, index, count, out);
    case 4:
      return copy_narrow<4>(table, index, count, out);
    case 8:
      return copy_narrow<8>(table, index, count, out);
    case 16:
      return copy_narrow<16>(table, index, count, out);
    default:
      break;
  }
  const auto bytes = static_cast<std::size_t>(table.row_bytes);
  for_rows(table, index, count, out, table.row_bytes,
           [bytes](const std::byte* from, std::byte* to) { std::memcpy(to, from, bytes); });
}

}  // namespace gz
