#include "gather/copy_rows.h"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gz {
namespace {

constexpr std::int64_t kPrefetchAhead = 16;
constexpr std::int64_t kLine = 64;
// The hardware follows a row once it is started; its first lines are what it cannot foresee.
constexpr std::int64_t kPrefetchedBytes = 8 * kLine;

// Calls copy(from, to) for every row, fetching rows ahead.
template <class Copy>
void for_rows(const RowTable& table, const std::int64_t* index, std::int64_t count, std::byte* out,
              std::int64_t row_bytes, const Copy& copy) {
  const std::int64_t fetched = std::min(row_bytes, kPrefetchedBytes);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kPrefetchAhead < count) {
      const std::byte* const ahead = table.data + index[i + kPrefetchAhead] * table.row_stride;
      for (std::int64_t at = 0; at < fetched; at += kLine) __builtin_prefetch(ahead + at);
    }
    copy(table.data + index[i] * table.row_stride, out + i * row_bytes);
  }
}

// Rows of a size known at compile time.
template <std::size_t kBytes>
void copy_narrow(const RowTable& table, const std::int64_t* index, std::int64_t count,
                 std::byte* out) {
  for_rows(table, index, count, out, kBytes,
           [](const std::byte* from, std::byte* to) { std::memcpy(to, from, kBytes); });
}

#if defined(__SSE2__)
constexpr std::size_t kVector = sizeof(__m128i);

bool can_stream(const RowTable& table, const std::byte* out) {
  return static_cast<std::size_t>(table.row_bytes) % kVector == 0 && table.row_bytes >= kLine &&
         reinterpret_cast<std::uintptr_t>(out) % kVector == 0;
}

// Written past the caches: a line that is not read first costs half the memory traffic.
void stream_wide(const RowTable& table, const std::int64_t* index, std::int64_t count,
                 std::byte* out) {
  const auto vectors = static_cast<std::size_t>(table.row_bytes) / kVector;
  for_rows(table, index, count, out, table.row_bytes,
           [vectors](const std::byte* from, std::byte* to) {
             const auto* const source = reinterpret_cast<const __m128i*>(from);
             auto* const target = reinterpret_cast<__m128i*>(to);
             for (std::size_t v = 0; v < vectors; ++v) {
               _mm_stream_si128(target + v, _mm_loadu_si128(source + v));
             }
           });
  _mm_sfence();  // the batch is handed to another thread
}
#else
bool can_stream(const RowTable&, const std::byte*) { return false; }
void stream_wide(const RowTable&, const std::int64_t*, std::int64_t, std::byte*) {}
#endif

}  // namespace

void copy_rows(const RowTable& table, const std::int64_t* index, std::int64_t count,
               std::byte* out, bool streams) {
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
  if (streams && can_stream(table, out)) return stream_wide(table, index, count, out);
  const auto bytes = static_cast<std::size_t>(table.row_bytes);
  for_rows(table, index, count, out, table.row_bytes,
           [bytes](const std::byte* from, std::byte* to) { std::memcpy(to, from, bytes); });
}

}  // namespace gz
