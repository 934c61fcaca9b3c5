#include "build/csc.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace gz {
namespace {

[[noreturn]] void throw_bad_edge(std::size_t edge, const char* end, std::int64_t id,
                                 std::int64_t num_nodes) {
  throw std::out_of_range("edge " + std::to_string(edge) + ": " + end + " id: found " +
                          std::to_string(id) + ", expected 0 <= id < " + std::to_string(num_nodes));
}

}  // namespace

Buffer<std::int64_t> count_destinations(std::span<const std::int64_t> src,
                                        std::span<const std::int64_t> dst, std::int64_t num_src,
                                        std::int64_t num_dst) {
  if (src.size() != dst.size()) throw std::invalid_argument("src and dst differ in length");
  Buffer<std::int64_t> indptr(num_dst + 1);
  std::fill_n(indptr.data(), num_dst + 1, 0);
  for (std::size_t edge = 0; edge < dst.size(); ++edge) {
    if (src[edge] < 0 || src[edge] >= num_src) throw_bad_edge(edge, "source", src[edge], num_src);
    if (dst[edge] < 0 || dst[edge] >= num_dst) {
      throw_bad_edge(edge, "destination", dst[edge], num_dst);
    }
    ++indptr[dst[edge] + 1];
  }
  for (std::int64_t v = 0; v < num_dst; ++v) indptr[v + 1] += indptr[v];
  return indptr;
}

Buffer<std::int64_t> order_by_destination(std::span<const std::int64_t> dst,
                                          std::span<const std::int64_t> indptr) {
  std::vector<std::int64_t> next(indptr.begin(), indptr.end() - 1);
  Buffer<std::int64_t> order(static_cast<std::int64_t>(dst.size()));
  for (std::size_t edge = 0; edge < dst.size(); ++edge) {
    order[next[static_cast<std::size_t>(dst[edge])]++] = static_cast<std::int64_t>(edge);
  }
  return order;
}

}  // namespace gz
