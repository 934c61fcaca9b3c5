#include "gather/sum_rows.h"

#include <algorithm>
#include <cstring>

#include "base/chunk_sizes.h"
#include "base/errors.h"

namespace gz {
namespace {

constexpr std::int64_t kPrefetchAhead = 16;
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kPrefetchedBytes = 8 * kLine;
// Rows that a kernel is given at once; their addresses lie on the stack.
constexpr std::int64_t kBlock = 64;

void divide(std::byte* sums, std::int64_t items, float divisor) {
  for (std::int64_t i = 0; i < items; ++i) {
    std::byte* const at = sums + i * static_cast<std::int64_t>(sizeof(float));
    float sum;
    std::memcpy(&sum, at, sizeof sum);
    sum /= divisor;
    std::memcpy(at, &sum, sizeof sum);
  }
}

template <class RowAt>
void sum_rows_at(const RowAt& row_at, const RowTable& table, const InEdges& edges,
                 std::int64_t first, std::int64_t last, bool is_mean, std::byte* out) {
  const AddRows add = (table.encoding != nullptr ? *table.encoding : kernels(std::nullopt)).add;
  const std::int64_t items = table.row_bytes / static_cast<std::int64_t>(sizeof(float));
  const std::int64_t fetched = std::min(table.row_stride, kPrefetchedBytes);
  const std::int64_t most = std::min(kBlock, chunk_sizes.summed_rows);
  const std::int64_t* const bounds = edges.bounds.data();
  const std::int64_t last_ahead = bounds[last] - kPrefetchAhead;
  const std::byte* rows[kBlock];
  for (std::int64_t d = first; d < last; ++d, out += table.row_bytes) {
    std::fill_n(out, table.row_bytes, std::byte{0});
    const std::int64_t end = bounds[d + 1];
    for (std::int64_t begin = bounds[d]; begin < end; begin += most) {
      const std::int64_t count = std::min(most, end - begin);
      for (std::int64_t i = 0; i < count; ++i) {
        if (begin + i < last_ahead) {
          const std::byte* const ahead = row_at(begin + i + kPrefetchAhead);
          for (std::int64_t at = 0; at < fetched; at += kLine) __builtin_prefetch(ahead + at);
        }
        rows[i] = row_at(begin + i);
      }
      add(rows, count, items, table.scale, table.zero_point, out);
    }
    const std::int64_t degree = end - bounds[d];
    if (is_mean && degree > 1) divide(out, items, static_cast<float>(degree));
  }
}

}  // namespace

InEdges in_edges(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                 std::int64_t num_dst) {
  InEdges found{src, Buffer<std::int64_t>(num_dst + 1)};
  std::int64_t* const bounds = found.bounds.data();
  std::int64_t done = 0;  // destinations whose bounds are known
  for (std::int64_t e = 0; e < std::ssize(dst); ++e) {
    const std::int64_t d = dst[static_cast<std::size_t>(e)];
    if (d < 0 || d < done - 1 || d >= num_dst) {
      throw invalid("edges: found edge ", e, " to node ", d,
                    ", expected them by destination, below ", num_dst);
    }
    while (done <= d) bounds[done++] = e;
  }
  while (done <= num_dst) bounds[done++] = std::ssize(dst);
  return found;
}

void sum_rows(const RowTable& table, const std::int64_t* index, const InEdges& edges,
              std::int64_t first, std::int64_t last, bool is_mean, std::byte* out) {
  const std::int64_t* const src = edges.src.data();
  with_row_at(table, [&](const auto& row_at) {
    sum_rows_at([=](std::int64_t e) { return row_at(index[src[e]]); }, table, edges, first, last,
                is_mean, out);
  });
}

}  // namespace gz
