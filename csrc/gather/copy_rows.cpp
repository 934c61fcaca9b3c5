#include "gather/copy_rows.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/constants.h"
#include "gather/dictionary.h"

namespace gz {
namespace {

constexpr std::int64_t kPrefetchAhead = 16;
constexpr std::int64_t kLine = 64;
// The hardware follows a row once it is started; its first lines are what it cannot foresee.
constexpr std::int64_t kPrefetchedBytes = 4 * kLine;

// Calls copy(from, to) for every row, fetching rows ahead; row_at(i) is where row i lies.
template <class RowAt, class Size, class Copy>
void for_rows(const RowAt& row_at, const std::int64_t* index, std::int64_t count, std::byte* out,
              Size row_bytes, std::int64_t fetched, const Copy& copy) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kPrefetchAhead < count) {
      const std::byte* const ahead = row_at(index[i + kPrefetchAhead]);
      for (std::int64_t at = 0; at < fetched; at += kLine) __builtin_prefetch(ahead + at);
    }
    copy(row_at(index[i]), out + i * row_bytes);
  }
}

template <class Size, class Copy>
void for_rows(const RowTable& table, const std::int64_t* index, std::int64_t count, std::byte* out,
              Size row_bytes, const Copy& copy) {
  const std::int64_t fetched =
      std::min({std::int64_t{row_bytes}, table.row_stride, kPrefetchedBytes});
  with_row_at(table, [&](const auto& row_at) {
    for_rows(row_at, index, count, out, row_bytes, fetched, copy);
  });
}

}  // namespace

void copy_ids(const RowTable& column, const std::int64_t* index, std::int64_t count,
              std::int64_t* out) {
  const std::integral_constant<std::int64_t, sizeof *out> size;
  const auto copy = [&]<class Item>(Item) {
    with_row_at(column, [&](const auto& row_at) {
      for_rows(row_at, index, count, reinterpret_cast<std::byte*>(out), size, kLine,
               [](const std::byte* from, std::byte* to) {
                 const auto id = static_cast<std::int64_t>(*reinterpret_cast<const Item*>(from));
                 std::memcpy(to, &id, sizeof id);
               });
    });
  };
  column.row_bytes == 4 ? copy(std::int32_t{}) : copy(std::int64_t{});
}

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
  if (table.row_bytes == 0) return;
  // Rows of some sizes by loops that know them.
  const auto copy = [&](auto size) {
    for_rows(table, index, count, out, size, [size](const std::byte* from, std::byte* to) {
      std::memcpy(to, from, static_cast<std::size_t>(size));
    });
  };
  if (!with_constant<1, 2, 4, 8, 16>(table.row_bytes, copy)) copy(table.row_bytes);
}

}  // namespace gz
