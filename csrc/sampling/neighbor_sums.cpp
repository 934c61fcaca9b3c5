#include "sampling/neighbor_sums.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "io/fault_guard.h"
#include "io/pages.h"

namespace gz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDepth = 32;
constexpr std::int64_t kPrefetchAhead = 12;
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kPrefetchedBytes = 4 * kLine;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Calls visit(node, source) for the in-edges of nodes [begin, end). Returns the first node
// that has a bad one, or `end`; what its bounds are is checked by the caller.
template <class Visit>
std::int64_t for_edges(const Csc& csc, std::int64_t begin, std::int64_t end, const Visit& visit) {
  const auto num_src = static_cast<std::uint64_t>(csc.num_src);
  for (std::int64_t node = begin; node < end; ++node) {
    const std::int64_t last = csc.indptr[node + 1];
    for (std::int64_t slot = csc.indptr[node]; slot < last; ++slot) {
      const auto source = static_cast<std::uint64_t>(csc.source(slot));
      if (source >= num_src) return node;
      visit(node, static_cast<std::int64_t>(source));
    }
  }
  return end;
}

// Raises FormatError where the lists of nodes [begin, end) do not follow each other.
void check_lists(const Csc& csc, std::int64_t begin, std::int64_t end) {
  std::int64_t bad = -1;
  guarded([&] {
    std::int64_t at = csc.indptr[begin];
    if (at < 0) bad = begin;
    for (std::int64_t node = begin; node < end && bad < 0; ++node) {
      const std::int64_t next = csc.indptr[node + 1];
      if (next < at || next > csc.num_edges) bad = node;
      at = next;
    }
  });
  if (bad >= 0) throw_bad_indptr(csc, bad);
}

}  // namespace

NeighborSums::NeighborSums(const Csc& csc, std::int64_t first, std::int64_t last,
                           SummedColumn column, const SumLimits& limits, float* sums)
    : column_(std::move(column)),
      add_(kernels(column_.encoding).add),
      sums_(sums),
      threads_(num_threads(limits.threads)) {
  const RowLayout& layout = column_.file.layout;
  const bool is_scaled = column_.encoding && has_scales(*column_.encoding);
  const auto numbers = static_cast<std::size_t>(is_scaled ? column_.items : 0);
  if (first < 0 || first > last || last > csc.num_dst || csc.paged != nullptr ||
      layout.num_rows != csc.num_src || layout.row_bytes != column_.items * column_.item_bytes() ||
      column_.scale.size() != numbers || column_.zero_point.size() != numbers ||
      limits.chunk_rows < 1 || column_.items < 1 ||
      last - first > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument(csc.name +
                                ": expected a run of its destinations and a column of its sources");
  }
  if (csc.file != nullptr) csc.file->check_size();
  const std::int64_t rows = std::clamp<std::int64_t>(limits.chunk_rows, 1, std::int64_t{1} << 31);
  chunk_bits_ = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows))) - 1;
  sort_edges(csc, first, last, limits.max_mapped);
  if (chunks_.empty()) return;
  reader_ = AsyncReader::create({ReaderKind::kAuto, kDepth});
  const std::int64_t most = std::min(layout.num_rows, std::int64_t{1} << chunk_bits_);
  const std::size_t count = std::min<std::size_t>(2, chunks_.size());
  for (std::size_t i = 0; i < count; ++i) {
    rooms_[i].data = make_pages(static_cast<std::size_t>(most * layout.row_stride) +
                                2 * std::max<std::uint64_t>(column_.file.file->alignment(), 4096));
  }
  read_ahead();
}

NeighborSums::~NeighborSums() {
  if (reading_.joinable()) reading_.join();
}

void NeighborSums::sort_edges(const Csc& csc, std::int64_t first, std::int64_t last,
                              std::int64_t max_mapped) {
  const auto num_chunks =
      static_cast<std::size_t>((csc.num_src + (std::int64_t{1} << chunk_bits_) - 1) >> chunk_bits_);
  std::vector<std::int64_t> at(num_chunks + 1);
  std::int64_t mapped = 0;
  // Front to back, so that no more of the map than that is in memory at a time.
  const auto sweep = [&](const auto& visit) {
    SlotsAhead ahead(csc);
    const std::int64_t step = chunk_sizes.summed_nodes;
    for (std::int64_t begin = first; begin < last; begin += step) {
      const std::int64_t end = std::min(begin + step, last);
      check_lists(csc, begin, end);
      std::int64_t stopped = begin;
      std::int64_t slots = 0;
      guarded([&] { slots = csc.indptr[begin]; });
      ahead.at(slots);
      guarded([&] {
        stopped = for_edges(csc, begin, end, visit);
        slots = csc.indptr[end] - csc.indptr[begin];
      });
      if (stopped < end) throw_bad_index(csc, stopped);
      mapped += slots * csc.index_bytes + (end - begin) * 8;
      if (mapped > max_mapped && csc.file != nullptr) {
        csc.file->forget_pages();
        mapped = 0;
      }
    }
  };
  std::int64_t* const counts = at.data() + 1;
  const int bits = chunk_bits_;
  sweep([=](std::int64_t, std::int64_t source) { ++counts[source >> bits]; });
  for (std::size_t c = 0; c < num_chunks; ++c) at[c + 1] += at[c];
  edges_ = make_pages(static_cast<std::size_t>(at.back()) * sizeof(Edge));
  auto* const edges = reinterpret_cast<Edge*>(edges_.get());
  for (std::size_t c = 0; c < num_chunks; ++c) {
    if (at[c] < at[c + 1]) {
      chunks_.push_back({static_cast<std::int64_t>(c), edges + at[c], edges + at[c + 1]});
    }
  }
  std::int64_t* const next = at.data();
  const std::int64_t mask = (std::int64_t{1} << bits) - 1;
  sweep([=](std::int64_t node, std::int64_t source) {
    edges[next[source >> bits]++] = {static_cast<std::uint32_t>(source & mask),
                                     static_cast<std::uint32_t>(node - first)};
  });
}

void NeighborSums::read_ahead() {
  if (next_ >= chunks_.size()) return;
  reading_ = std::thread([this, at = next_] {
    const Clock::time_point begin = Clock::now();
    try {
      read(chunks_[at].number, rooms_[at % 2]);
    } catch (...) {
      error_ = std::current_exception();
    }
    read_.seconds = seconds_since(begin);
  });
}

void NeighborSums::read(std::int64_t chunk, Room& room) {
  const RowLayout& layout = column_.file.layout;
  const std::int64_t first = chunk << chunk_bits_;
  const std::int64_t rows =
      std::min(layout.num_rows, first + (std::int64_t{1} << chunk_bits_)) - first;
  const auto stride = static_cast<std::uint64_t>(layout.row_stride);
  const std::uint64_t begin = layout.data_offset + static_cast<std::uint64_t>(first) * stride;
  const std::uint64_t end = begin + static_cast<std::uint64_t>(rows - 1) * stride +
                            static_cast<std::uint64_t>(layout.row_bytes);
  const std::uint64_t alignment = column_.file.file->alignment();
  const std::uint64_t from = begin / alignment * alignment;
  const std::uint64_t to =
      std::max(end, std::min((end + alignment - 1) / alignment * alignment, layout.file_bytes));
  const int file = reader_->add_file(column_.file.file);
  std::vector<ReadRequest> requests;
  for (std::uint64_t at = from; at < to; at += chunk_sizes.sum_read_bytes) {
    const std::uint64_t size = std::min(chunk_sizes.sum_read_bytes, to - at);
    requests.push_back({file, at, size, room.data.get() + (at - from), at});
  }
  reader_->submit(requests);
  std::exception_ptr error;
  std::array<Completion, 16> done;
  for (std::size_t count = reader_->wait(done); count > 0; count = reader_->wait(done)) {
    for (std::size_t i = 0; i < count; ++i) {
      if (done[i].error && !error) error = done[i].error;
    }
  }
  if (error) std::rethrow_exception(error);
  room.rows = room.data.get() + (begin - from);
  read_.rows = rows;
  read_.reads = std::ssize(requests);
  read_.bytes = to - from;
  read_.useful_bytes = static_cast<std::uint64_t>(rows * layout.row_bytes);
}

bool NeighborSums::step() {
  if (next_ >= chunks_.size()) return false;
  const Clock::time_point begin = Clock::now();
  if (reading_.joinable()) reading_.join();
  wait_seconds_ += seconds_since(begin);
  if (error_) std::rethrow_exception(error_);
  stats_ += read_;
  const std::size_t now = next_++;
  read_ahead();
  add(chunks_[now], rooms_[now % 2].rows);
  return next_ < chunks_.size();
}

void NeighborSums::add(const Chunk& chunk, const std::byte* rows) const {
  const std::int64_t count = chunk.end - chunk.begin;
  const std::int64_t stride = column_.file.layout.row_stride;
  const std::int64_t fetched = std::min(stride, kPrefetchedBytes);
  const std::int64_t items = column_.items;
  const std::int64_t sum_bytes = items * static_cast<std::int64_t>(sizeof(float));
  // A destination is one thread's.
  const auto border = [&](std::int64_t part) {
    std::int64_t at = count * part / threads_;
    while (at > 0 && at < count && chunk.begin[at].dst == chunk.begin[at - 1].dst) ++at;
    return at;
  };
  parallel_for(threads_, 1, threads_, [&](std::int64_t part, std::int64_t last_part) {
    const std::int64_t end = border(last_part);
    for (std::int64_t i = border(part); i < end; ++i) {
      if (i + kPrefetchAhead < count) {
        const Edge& ahead = chunk.begin[i + kPrefetchAhead];
        const std::byte* const row = rows + ahead.src * stride;
        for (std::int64_t at = 0; at < fetched; at += kLine) __builtin_prefetch(row + at);
        const char* const sum = reinterpret_cast<const char*>(sums_ + ahead.dst * items);
        for (std::int64_t at = 0; at < std::min(sum_bytes, kPrefetchedBytes); at += kLine) {
          __builtin_prefetch(sum + at, 1);
        }
      }
      const Edge& edge = chunk.begin[i];
      const std::byte* const row = rows + edge.src * stride;
      add_(&row, 1, items, column_.scale.data(), column_.zero_point.data(),
           reinterpret_cast<std::byte*>(sums_ + edge.dst * items));
    }
  });
}

}  // namespace gz
