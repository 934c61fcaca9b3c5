// Records split into buckets by a range of keys: what does not fit into memory goes to files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "arrays/buffer.h"
#include "build/records.h"
#include "io/file.h"

namespace gz {

// Where records go, and how much of them may stay in memory. One for all the runs of a build.
struct ScratchSpace {
  std::string directory;
  std::uint64_t keep_bytes;     // that may stay in memory, all runs together
  std::uint64_t run_bytes;      // of one run at most
  std::uint64_t segment_bytes;  // buckets are so few that a run has this much for each
  std::uint64_t kept = 0;
  std::uint64_t written = 0;  // to files, over all
  std::uint64_t on_disk = 0;  // of that, not given back yet
  std::uint64_t peak = 0;     // the most that ever was
  std::uint64_t files = 0;
  Buffer<Byte> spare;  // of a run that was written: memory for the next one

  void wrote(std::uint64_t bytes) noexcept;
};

// Keys lo … hi, both included, in buckets of 2^shift keys.
struct KeyRange {
  std::uint64_t lo;
  std::uint64_t hi;
  std::uint32_t shift;

  // At most `max_buckets` buckets.
  KeyRange(std::uint64_t first, std::uint64_t last, std::uint64_t max_buckets) noexcept;

  std::uint64_t bucket(std::uint64_t key) const noexcept { return (key - lo) >> shift; }
  std::uint64_t num_buckets() const noexcept { return bucket(hi) + 1; }
  std::uint64_t first_key(std::uint64_t bucket) const noexcept { return lo + (bucket << shift); }
  std::uint64_t last_key(std::uint64_t bucket) const noexcept;
};

// A sequence of runs, each sorted by bucket and otherwise in the order of the input. So the records
// of a bucket, run after run, are in the order of the input too.
class Runs {
 public:
  Runs(ScratchSpace& space, const KeyRange& range, std::uint32_t record_bytes);
  Runs(Runs&&) = default;
  ~Runs();

  const KeyRange& range() const noexcept { return range_; }
  std::uint32_t record_bytes() const noexcept { return record_bytes_; }
  // Memory for a run's records.
  Buffer<Byte> make_records(std::int64_t bytes) const;
  // `starts` [num_buckets + 1] says, in records, where each bucket begins in `records`.
  void add(Buffer<Byte> records, std::vector<std::uint32_t> starts);
  std::uint64_t num_records(std::uint64_t bucket) const noexcept { return bucket_records_[bucket]; }
  // The first `buckets` buckets are not read again: gives the files back that hold no others.
  // Thread safety: no reader.
  void done_with(std::uint64_t buckets) noexcept;

  // The records of one bucket, front to back. Thread safety: several readers at once.
  class Reader {
   public:
    Reader(const Runs& runs, std::uint64_t bucket) : runs_(runs), bucket_(bucket) {}
    // Copies up to `max_records` to `to`; 0 at the end.
    std::uint64_t next(Byte* to, std::uint64_t max_records);

   private:
    const Runs& runs_;
    std::uint64_t bucket_;
    std::size_t run_ = 0;
    std::uint64_t done_ = 0;  // records of the bucket taken from that run
  };
  // Buckets first … last are going to be read.
  void will_read(std::uint64_t first, std::uint64_t last) const noexcept;

 private:
  struct Run {
    Buffer<Byte> records;                // in memory, or
    std::vector<std::uint64_t> offsets;  // in the file of each part
    std::vector<std::uint32_t> starts;
  };
  // Some buckets have a file together, which goes when they have been read.
  struct Part {
    std::unique_ptr<File> file;
    std::uint64_t bytes = 0;
  };
  static constexpr std::uint64_t kMaxParts = 32;
  std::uint64_t first_bucket(std::uint64_t part) const noexcept {
    return std::min(part * part_buckets_, range_.num_buckets());
  }
  void write(Run& run);
  void give_back(Part& part) noexcept;

  ScratchSpace* space_;
  KeyRange range_;
  std::uint32_t record_bytes_;
  std::vector<Run> runs_;
  std::vector<std::uint64_t> bucket_records_;
  std::uint64_t part_buckets_;
  std::vector<Part> parts_;      // none: all is in memory
  std::uint64_t num_given_ = 0;  // parts that were given back
  std::uint64_t kept_ = 0;
};

}  // namespace gz
