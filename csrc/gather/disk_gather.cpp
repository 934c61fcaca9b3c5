#include "gather/disk_gather.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "io/read_buffer.h"

namespace gz {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

ColumnFile ColumnFile::of(const Column& column, bool direct) {
  ColumnFile found{DirectFile::of(column.file(), direct), {}};
  found.layout = {column.data_offset(), static_cast<std::int64_t>(column.num_rows()),
                  static_cast<std::int64_t>(column.row_bytes()),
                  static_cast<std::int64_t>(column.row_stride()), found.file->size()};
  return found;
}

ColumnFile ColumnFile::of_indices(const Topology& topology, bool direct) {
  ColumnFile found{DirectFile::of(topology.file(), direct), {}};
  found.layout = {topology.indices_offset(), static_cast<std::int64_t>(topology.num_edges()),
                  topology.index_bytes(), topology.index_bytes(), found.file->size()};
  return found;
}

// One call.
struct DiskGather::Job {
  const ColumnFile& column;
  std::span<const RowRequest> requests;
  const ReadPlan& plan;
  std::stop_token stop;
  std::vector<std::exception_ptr> errors;  // [request]
  std::size_t next = 0;                    // to start
  std::size_t complete = 0;

  std::byte* place_of(const RowTarget& target) const {
    const RowRequest& request = requests[static_cast<std::size_t>(target.request)];
    const auto index = static_cast<std::size_t>(target.index);
    const std::int64_t position =
        request.positions.empty() ? target.index : request.positions[index];
    return request.out + position * column.layout.row_bytes;
  }

  void copy_rows(const std::byte* from, std::int64_t rows, std::byte* to) const {
    const RowLayout& layout = column.layout;
    const auto bytes = static_cast<std::size_t>(layout.row_bytes);
    if (layout.row_stride == layout.row_bytes) {
      std::memcpy(to, from, bytes * static_cast<std::size_t>(rows));
      return;
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      std::memcpy(to + i * layout.row_bytes, from + i * layout.row_stride, bytes);
    }
  }

  std::uint64_t offset_of(std::int64_t row) const {
    return column.layout.data_offset +
           static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(column.layout.row_stride);
  }

  // Rows that follow each other in the file and in their destination are copied at once.
  void scatter(const PlannedRead& read, const std::byte* data) const {
    for (std::int64_t i = read.first; i < read.last;) {
      const RowTarget first = plan.target(i);
      std::byte* const to = place_of(first);
      std::int64_t run = 1;
      for (; i + run < read.last; ++run) {
        const RowTarget next_target = plan.target(i + run);
        if (next_target.row != first.row + run ||
            place_of(next_target) != to + run * column.layout.row_bytes) {
          break;
        }
      }
      copy_rows(data + (offset_of(first.row) - read.offset), run, to);
      i += run;
    }
  }

  // A merged read failed: its rows one by one, so that only those that are really lost fail.
  void rescue(const PlannedRead& read) {
    const auto bytes = static_cast<std::size_t>(column.layout.row_bytes);
    const File& file = column.file->buffered();
    std::vector<std::byte> row(bytes);
    for (std::int64_t i = read.first; i < read.last; ++i) {
      const RowTarget target = plan.target(i);
      const std::uint64_t offset = offset_of(target.row);
      try {
        if (file.read_at(row.data(), bytes, offset) < bytes) {
          throw OsError("the file was truncated: cannot read", file.path(), EIO);
        }
      } catch (const OsError& error) {
        const std::string what = text_of(error.operation(), " row ", target.row, ", ", bytes,
                                         " bytes at offset ", offset, " of");
        std::exception_ptr& first = errors[static_cast<std::size_t>(target.request)];
        if (!first) first = std::make_exception_ptr(OsError(what, error.path(), error.code()));
        continue;
      }
      copy_rows(row.data(), 1, place_of(target));
    }
  }
};

// A reader and its memory.
class DiskGather::Lane {
 public:
  Lane(const ReaderOptions& options, std::size_t buffer_bytes)
      : buffer_(buffer_bytes),
        reader_(AsyncReader::create(options)),
        depth_(static_cast<std::size_t>(options.depth)) {
    reader_->add_memory(buffer_.memory());
  }

  // Reads and scatters until the plan is read or the call stopped.
  void run(Job& job) {
    // Whatever ends the call, an error too: nothing may be under way into memory used again.
    struct AtRest {
      Lane& lane;
      ~AtRest() {
        lane.reader_->drain();
        lane.buffer_.clear();
      }
    } const at_rest{*this};
    const int file = reader_->add_file(job.column.file);
    std::vector<Completion> done(chunk_sizes.reaped_reads);
    for (;;) {
      start_reads(job, file);
      const std::size_t complete = reader_->wait(done);
      if (complete == 0) return;
      for (std::size_t i = 0; i < complete; ++i) finish(job, done[i]);
    }
  }

  const AsyncReader& reader() const { return *reader_; }
  std::size_t buffer_bytes() const { return buffer_.memory().size(); }

 private:
  void start_reads(Job& job, int file) {
    const std::span<const PlannedRead> reads = job.plan.reads();
    requests_.clear();
    const std::size_t most = depth_ - reader_->under_way();
    while (job.next < reads.size() && requests_.size() < most && !job.stop.stop_requested()) {
      const PlannedRead& read = reads[job.next];
      // Its ticket is the read's number.
      const ReadBuffer::Piece piece = buffer_.take(read.size);
      if (piece.data == nullptr) break;
      requests_.push_back({file, read.offset, read.size, piece.data, piece.ticket});
      ++job.next;
    }
    if (!requests_.empty()) reader_->submit(requests_);
  }

  void finish(Job& job, const Completion& done) {
    const PlannedRead& read = job.plan.reads()[done.tag];
    ++job.complete;
    if (done.error) {
      job.rescue(read);
    } else {
      job.scatter(read, buffer_.at(done.tag));
    }
    buffer_.give_back(done.tag);
  }

  ReadBuffer buffer_;  // outlives the reader, which may have reads under way into it
  std::unique_ptr<AsyncReader> reader_;
  std::size_t depth_;
  std::vector<ReadRequest> requests_;
};

DiskGather::DiskGather(const DiskGatherOptions& options)
    : options_(options), state_(std::make_unique<State>()) {
  prepare(*state_, 0);
}

DiskGather::~DiskGather() {
  if (state_->origin.forked()) state();  // leaks what must not be touched
}

DiskGather::State& DiskGather::state() {
  if (state_->origin.forked()) {
    // If the parent was in the middle of a call, so will this copy be for ever. Otherwise it can be
    // taken down, and its descriptors closed.
    if (!state_->mutex.try_lock()) {
      static_cast<void>(state_.release());
    } else {
      state_->mutex.unlock();
    }
    state_ = std::make_unique<State>();
  }
  return *state_;
}

void DiskGather::prepare(State& state, std::uint64_t largest) const {
  const std::size_t bytes =
      std::max<std::size_t>(options_.buffer_bytes, 2 * (largest + ReadBuffer::kAlignment));
  if (state.lane != nullptr && state.lane->buffer_bytes() >= bytes) return;
  state.lane.reset();  // or both buffers would be there at a time
  state.lane = std::make_unique<Lane>(options_.reader, bytes);
}

ReaderKind DiskGather::reader_kind() {
  State& own = state();
  const std::lock_guard lock(own.mutex);
  prepare(own, 0);
  return own.lane->reader().kind();
}

GatherResult DiskGather::gather(const ColumnFile& column, std::span<const RowRequest> requests,
                                ReadLimits limits, std::stop_token stop) {
  State& own = state();
  const std::lock_guard lock(own.mutex);
  limits.alignment = std::max(limits.alignment, column.file->alignment());
  ReadPlan& plan = own.plan;
  plan.build(column.layout, requests, limits);
  prepare(own, ReadPlan::largest_read(column.layout, limits));

  GatherResult result;
  const Clock::time_point planned = Clock::now();
  Job job{column, requests, plan, std::move(stop),
          std::vector<std::exception_ptr>(requests.size())};
  own.lane->run(job);

  ReadStats& stats = result.stats;
  stats.reads = std::ssize(plan.reads());
  stats.bytes = plan.bytes();
  stats.useful_bytes = static_cast<std::uint64_t>(plan.unique_rows() * column.layout.row_bytes);
  stats.seconds = seconds_since(planned);
  result.errors = std::move(job.errors);
  result.stopped = job.complete < plan.reads().size();
  return result;
}

}  // namespace gz
