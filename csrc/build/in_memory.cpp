#include "build/in_memory.h"

#include "base/errors.h"
#include "build/counting_order.h"
#include "build/edge_source.h"

namespace gz {

std::pair<Buffer<std::int64_t>, Buffer<std::int64_t>> sort_by_destination(
    std::span<const std::int64_t> src, std::span<const std::int64_t> dst, std::int64_t num_src,
    std::int64_t num_dst) {
  if (src.size() != dst.size()) throw invalid("src and dst differ in length");
  for (std::size_t edge = 0; edge < dst.size(); ++edge) {
    check_end(edge, "source", src[edge], static_cast<std::uint64_t>(num_src));
    check_end(edge, "destination", dst[edge], static_cast<std::uint64_t>(num_dst));
  }
  Buffer<std::int64_t> indptr(num_dst + 1);
  Buffer<std::int64_t> order(static_cast<std::int64_t>(dst.size()));
  indptr[0] = 0;
  counting_order(
      order.size(), static_cast<std::uint64_t>(num_dst),
      [&](std::int64_t edge) { return dst[static_cast<std::size_t>(edge)]; }, indptr.data() + 1,
      order.data());
  return {std::move(indptr), std::move(order)};
}

}  // namespace gz
