#include "sampling/neighbor_sums.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <utility>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "io/pages.h"
#include "io/process.h"
#include "sampling/read_csc.h"

namespace gz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDepth = 32;
// At least 8 bits of a word say which destination of its part it is.
constexpr std::int64_t kMaxChunkRows = std::int64_t{1} << 24;
constexpr std::int64_t kMaxSums = std::int64_t{1} << 31;
constexpr std::int64_t kParts = 4;  // of the destinations, for each thread, or more
constexpr std::int64_t kSumGrain = 1 << 14;
constexpr int kRowsAhead = 12;
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kPrefetchedBytes = 8 * kLine;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

SummedColumn SummedColumn::of(const Column& column, bool direct) {
  if (!column.encoding() && column.dtype().name != "float32") {
    throw invalid(column.path(), ": found ", column.dtype().name, ", expected float32");
  }
  SummedColumn found{ColumnFile::of(column, direct), 0, column.encoding(), column.scale(),
                     column.zero_point()};
  found.items = static_cast<std::int64_t>(column.row_bytes()) / found.item_bytes();
  return found;
}

NeighborSums::NeighborSums(Csc csc, SummedColumn column, const SumLimits& limits)
    : csc_(std::move(csc)),
      column_(std::move(column)),
      add_(kernels(column_.encoding).add),
      threads_(num_threads(limits.threads)),
      max_mapped_(limits.max_mapped),
      room_bytes_(limits.room) {
  need_neighbors(csc_);
  if (csc_.paged != nullptr || column_.file.layout.num_rows != csc_.num_src || column_.items < 1 ||
      limits.chunk_rows < 1 || limits.room < 0) {
    throw invalid(csc_.name, ": expected a column of its sources");
  }
  const std::int64_t rows = std::min(limits.chunk_rows, kMaxChunkRows);
  chunk_bits_ = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows))) - 1;
  num_chunks_ = (csc_.num_src + (std::int64_t{1} << chunk_bits_) - 1) >> chunk_bits_;
  reader_ = AsyncReader::create({ReaderKind::kAuto, kDepth});
}

NeighborSums::~NeighborSums() {
  if (reading_.joinable()) reading_.join();
}

void NeighborSums::begin(std::int64_t first, std::int64_t last) {
  if (first < 0 || first > last || last > csc_.num_dst || last - first > kMaxSums) {
    throw invalid(csc_.name, ": expected a run of its destinations");
  }
  if (reading_.joinable()) reading_.join();
  error_ = nullptr;
  stats_ = {};
  wait_seconds_ = 0;
  if (csc_.file != nullptr) csc_.file->check_size();
  first_ = first;
  last_ = last;
  next_ = 0;
  chunks_.clear();
  // A word tells this many destinations of a part from each other.
  const std::int64_t most = std::int64_t{1} << (32 - chunk_bits_);
  num_parts_ =
      std::max<std::int64_t>(threads_ > 1 ? kParts * threads_ : 1, (num_sums() + most - 1) / most);
  sort_edges();
  parallel_for(num_sums(), kSumGrain, threads_, [&](std::int64_t from, std::int64_t to) {
    std::fill(numbers() + from * items(), numbers() + to * items(), 0.0F);
  });
  read_ahead();
}

std::int64_t NeighborSums::border(std::int64_t part) const noexcept {
  return first_ + num_sums() * part / num_parts_;
}

void NeighborSums::sort_edges() {
  const int bits = chunk_bits_;
  const std::uint32_t mask = (std::uint32_t{1} << bits) - 1;
  lists_.assign(static_cast<std::size_t>(num_chunks_ * num_parts_), {});
  const auto lists_of = [&](std::int64_t part) { return lists_.data() + part * num_chunks_; };
  // Calls visit(the next word's place in its list, the word) for each edge.
  const auto for_edges = [&](const auto& visit) {
    std::atomic<std::int64_t> mapped = 0;
    const std::int64_t together = num_parts_ / (kParts * threads_) + 1;
    parallel_for(num_parts_, together, threads_, [&](std::int64_t from, std::int64_t to) {
      SlotsAhead ahead(csc_);
      for (std::int64_t part = from; part < to; ++part) {
        const std::int64_t first = border(part);
        List* const lists = lists_of(part);
        sweep(csc_, first, border(part + 1), ahead, mapped, max_mapped_,
              [=](std::int64_t node, std::int64_t source, std::int64_t) {
                visit(lists[source >> bits].end, static_cast<std::uint32_t>(node - first) << bits |
                                                     (static_cast<std::uint32_t>(source) & mask));
              });
      }
    });
  };
  for_edges([](std::int64_t& size, std::uint32_t) { ++size; });
  std::int64_t words = 0;
  for (std::int64_t c = 0; c < num_chunks_; ++c) {
    const std::int64_t before = words;
    for (std::int64_t part = 0; part < num_parts_; ++part) {
      List& list = lists_of(part)[c];
      list.begin = words;
      words += std::exchange(list.end, words);
    }
    if (words > before) chunks_.push_back(c);
  }
  make_room(words);
  for_edges([to = words_](std::int64_t& at, std::uint32_t word) { to[at++] = word; });
}

// For the sums and `words` words behind them. It is taken once, so that its pages are filled with
// zeros by the kernel once.
void NeighborSums::make_room(std::int64_t words) {
  const std::int64_t sum_bytes = num_sums() * items() * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t bytes = std::max<std::int64_t>(
      room_bytes_, sum_bytes + words * static_cast<std::int64_t>(sizeof(std::uint32_t)));
  if (room_ == nullptr || bytes > room_bytes_) {
    room_ = nullptr;
    room_ = make_pages(static_cast<std::size_t>(bytes));
    room_bytes_ = bytes;
  }
  words_ = reinterpret_cast<std::uint32_t*>(room_.get() + sum_bytes);
  const RowLayout& layout = column_.file.layout;
  const std::int64_t most = std::min(layout.num_rows, std::int64_t{1} << chunk_bits_);
  for (std::size_t i = 0; i < std::min<std::size_t>(2, chunks_.size()); ++i) {
    if (rooms_[i].data != nullptr) continue;
    rooms_[i].data = make_pages(static_cast<std::size_t>(most * layout.row_stride) +
                                2 * std::max<std::uint64_t>(column_.file.file->alignment(), 4096));
  }
}

void NeighborSums::read_ahead() {
  if (next_ >= chunks_.size()) return;
  reading_ = start_thread([this, at = next_] {
    const Clock::time_point begin = Clock::now();
    try {
      read(chunks_[at], rooms_[at % 2]);
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
  // A destination is one thread's.
  parallel_for(num_parts_, 1, threads_, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t part = from; part < to; ++part) {
      add_list(lists_[static_cast<std::size_t>(part * num_chunks_ + chunks_[now])],
               border(part) - first_, rooms_[now % 2].rows);
    }
  });
  return next_ < chunks_.size();
}

void NeighborSums::add_list(const List& list, std::int64_t first, const std::byte* rows) const {
  const std::int64_t stride = column_.file.layout.row_stride;
  const std::int64_t fetched = std::min(stride, kPrefetchedBytes);
  const std::int64_t sum_bytes = items() * static_cast<std::int64_t>(sizeof(float));
  const int bits = chunk_bits_;
  const std::uint32_t mask = (std::uint32_t{1} << bits) - 1;
  const auto sum_of = [&](std::uint32_t word) {
    return reinterpret_cast<std::byte*>(numbers() + (first + (word >> bits)) * items());
  };
  const std::uint32_t* const end = words_ + list.end;
  const std::uint32_t* ahead = words_ + list.begin;
  for (const std::uint32_t* at = ahead; at < end; ++at) {
    // Here and not in a function: one that only prefetches has no effect for GCC, and is not
    // called.
    for (; ahead < end && ahead <= at + kRowsAhead; ++ahead) {
      const std::byte* const row = rows + (*ahead & mask) * stride;
      for (std::int64_t line = 0; line < fetched; line += kLine) __builtin_prefetch(row + line);
      const std::byte* const sum = sum_of(*ahead);
      for (std::int64_t line = 0; line < std::min(sum_bytes, kPrefetchedBytes); line += kLine) {
        __builtin_prefetch(sum + line, 1);
      }
    }
    const std::byte* const row = rows + (*at & mask) * stride;
    add_(&row, 1, items(), column_.scale.data(), column_.zero_point.data(), sum_of(*at));
  }
}

}  // namespace gz
