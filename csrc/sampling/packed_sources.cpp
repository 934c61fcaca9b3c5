#include "sampling/packed_sources.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>

#include "arrays/buffer.h"
#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "io/pages.h"
#include "sampling/graph.h"

namespace gz {
namespace {

// A word that begins with any bit of a byte holds so many whole bits; wider numbers take words.
constexpr std::uint64_t kMostBits = 57;
constexpr std::uint64_t kWord = 64;
// Whole bytes for any number of bits: threads do not meet in one.
constexpr std::int64_t kSlotsOfBytes = 8;

std::uint64_t bits_for(std::uint64_t num_src) noexcept {
  const auto bits =
      static_cast<std::uint64_t>(std::bit_width(std::max<std::uint64_t>(num_src, 2) - 1));
  return bits <= kMostBits ? bits : kWord;
}

template <class Index>
void pack(const Index* values, std::int64_t count, std::uint64_t bits, std::byte* out) noexcept {
  std::uint64_t word = 0, waiting = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    word |= static_cast<std::uint64_t>(values[i]) << waiting;
    for (waiting += bits; waiting >= 8; waiting -= 8, word >>= 8) {
      *out++ = static_cast<std::byte>(word);
    }
  }
  if (waiting > 0) *out = static_cast<std::byte>(word);
}

}  // namespace

std::int64_t PackedSources::num_bytes(std::int64_t num_src, std::int64_t num_edges) noexcept {
  const std::uint64_t bits = bits_for(static_cast<std::uint64_t>(num_src));
  const auto edges = static_cast<std::uint64_t>(num_edges);
  // The last word is read whole.
  const std::uint64_t bytes = edges / 8 * bits + (edges % 8 * bits + 7) / 8 + sizeof(std::uint64_t);
  return static_cast<std::int64_t>(
      std::min<std::uint64_t>(bytes, std::numeric_limits<std::int64_t>::max()));
}

PackedSources::PackedSources(const Topology& file, int threads)
    : num_edges_(static_cast<std::int64_t>(file.num_edges())),
      bits_(bits_for(file.num_src())),
      mask_(bits_ == kWord ? ~std::uint64_t{0} : (std::uint64_t{1} << bits_) - 1),
      pages_(make_pages(static_cast<std::size_t>(
          num_bytes(static_cast<std::int64_t>(file.num_src()), num_edges_)))) {
  file.check_size();
  const std::int64_t together =
      std::max(chunk_sizes.packed_sources / kSlotsOfBytes * kSlotsOfBytes, kSlotsOfBytes);
  const std::int64_t chunks = (num_edges_ + together - 1) / together;
  const auto read = [&]<class Index>(Index) {
    parallel_for(chunks, 1, threads, [&](std::int64_t begin, std::int64_t end) {
      Buffer<Index> values(std::min(together, num_edges_));
      for (std::int64_t chunk = begin; chunk < end; ++chunk) {
        const std::int64_t first = chunk * together;
        const std::int64_t count = std::min(together, num_edges_ - first);
        const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(Index);
        const std::uint64_t at =
            file.indices_offset() + static_cast<std::uint64_t>(first) * sizeof(Index);
        if (file.file().read_at(values.data(), bytes, at) != bytes) {
          throw FormatError(file.path(), "indices", "end of file",
                            std::to_string(num_edges_) + " neighbours");
        }
        for (std::int64_t i = 0; i < count; ++i) {
          const auto node = static_cast<std::uint64_t>(values.data()[i]);
          if (node >= file.num_src()) {
            throw_bad_index(file.path(), static_cast<std::int64_t>(file.num_src()),
                            static_cast<std::int64_t>(node));
          }
        }
        pack(values.data(), count, bits_,
             pages_.get() + static_cast<std::uint64_t>(first) / 8 * bits_);
      }
    });
  };
  if (file.index_bytes() == 4) {
    read(std::uint32_t{});
  } else {
    read(std::int64_t{});
  }
}

}  // namespace gz
