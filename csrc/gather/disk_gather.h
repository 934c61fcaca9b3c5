// Rows straight from a file to many batches at once: planned, read once, scattered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <vector>

#include "gather/read_plan.h"
#include "gather/read_stats.h"
#include "io/async_reader.h"
#include "io/direct_file.h"
#include "io/origin.h"
#include "storage/column.h"
#include "storage/topology.h"

namespace gz {

// Rows that lie in a file.
struct ColumnFile {
  std::shared_ptr<const DirectFile> file;
  RowLayout layout;

  static ColumnFile of(const Column& column, bool direct = true);
  // The neighbours in the slots of a topology, a row each.
  static ColumnFile of_indices(const Topology& topology, bool direct = true);
};

struct DiskGatherOptions {
  ReaderOptions reader;
  std::uint64_t buffer_bytes = 32 << 20;  // for reads under way
};

struct GatherResult {
  ReadStats stats;  // but for rows and hits, which the caller knows
  // One for each request: null when all its rows are there, else the OsError of the first that is
  // not. A failed read costs only those requests a row of theirs that cannot be read.
  std::vector<std::exception_ptr> errors;
  bool stopped = false;  // by the caller: the destinations are incomplete
};

// A reader and its buffer, which serve one call after the other. The calling thread scatters what
// was read while other reads are under way.
//
// Thread safety: calls from several threads wait for each other. In a forked child the first call
// makes a new reader; it must be alone.
class DiskGather {
 public:
  explicit DiskGather(const DiskGatherOptions& options);
  ~DiskGather();

  // Writes row rows[i] of every request to its `out` + place * row_bytes. Raises std::out_of_range
  // for a row that is not there, before anything is read. `limits.alignment` is raised to what the
  // file needs. A stop ends the call as soon as the reads under way are complete.
  GatherResult gather(const ColumnFile& column, std::span<const RowRequest> requests,
                      ReadLimits limits = {}, std::stop_token stop = {});

  ReaderKind reader_kind();

 private:
  class Lane;
  struct Job;
  struct State {
    std::mutex mutex;
    std::unique_ptr<Lane> lane;
    ReadPlan plan;
    Origin origin;
  };

  // This process's own.
  State& state();
  // A reader for this process, whose buffer holds at least two reads of `largest` bytes.
  void prepare(State& state, std::uint64_t largest) const;

  DiskGatherOptions options_;
  std::unique_ptr<State> state_;
};

}  // namespace gz
