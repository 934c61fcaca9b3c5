#include "sampling/packed_sources.h"

#include <algorithm>

#include "arrays/buffer.h"
#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "sampling/graph.h"

namespace gz {
namespace {

int bits_for(std::int64_t num_src) noexcept {
  return PackedInts::bits_for(static_cast<std::uint64_t>(std::max<std::int64_t>(num_src, 1) - 1));
}

// Packs slots [first, first + values.size()).
template <class Index>
void pack(const Topology& file, std::int64_t first, Buffer<Index>& values, PackedInts& packed) {
  read_whole(*file.file(), "indices", values.data(), values.span().size_bytes(),
             file.indices_offset() + static_cast<std::uint64_t>(first) * sizeof(Index));
  const auto num_src = static_cast<std::int64_t>(file.num_src());
  if (const auto bad = find_outside(values.span(), num_src); bad != values.span().end()) {
    throw_bad_index(file.path(), num_src, static_cast<std::int64_t>(*bad));
  }
  packed.write(first, values.span());
}

}  // namespace

std::int64_t packed_sources_bytes(std::int64_t num_src, std::int64_t num_edges) noexcept {
  return PackedInts::num_bytes(num_edges, bits_for(num_src));
}

PackedInts pack_sources(const Topology& file) {
  file.check_size();
  const auto num_edges = static_cast<std::int64_t>(file.num_edges());
  PackedInts packed(num_edges, bits_for(static_cast<std::int64_t>(file.num_src())));
  // Eights of numbers are whole bytes: threads do not meet in one.
  const std::int64_t eights = std::max<std::int64_t>(chunk_sizes.packed_sources / 8, 1);
  parallel_for((num_edges + 7) / 8, eights, 0, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t count = std::min(8 * end, num_edges) - 8 * begin;
    if (file.index_bytes() == 4) {
      Buffer<std::uint32_t> values(count);
      pack(file, 8 * begin, values, packed);
    } else {
      Buffer<std::int64_t> values(count);
      pack(file, 8 * begin, values, packed);
    }
  });
  return packed;
}

}  // namespace gz
