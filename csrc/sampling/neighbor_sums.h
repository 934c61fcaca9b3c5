// Sums over the in-neighbours of a run of destinations, with the neighbours' column read once from
// front to back: no row is looked up, no batch is sampled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gather/disk_gather.h"
#include "gather/read_stats.h"
#include "io/async_reader.h"
#include "sampling/graph.h"

namespace gz {

// A column of float32 numbers, as they are stored.
struct SummedColumn {
  ColumnFile file;
  std::int64_t items = 0;  // of a row
  std::optional<Encoding> encoding;
  std::vector<float> scale, zero_point;  // where the encoding has them

  std::int64_t item_bytes() const noexcept { return encoding ? gz::item_bytes(*encoding) : 4; }
};

struct SumLimits {
  std::int64_t chunk_rows = 1 << 20;   // read at once; rounded down to a power of two
  std::int64_t max_mapped = 64 << 20;  // of the topology, before it is forgotten
  int threads = 0;                     // 0: as many as torch uses
};

// Edges are sorted into chunks of sources first (8 bytes each), by destination within. Then step()
// adds up one chunk after the other while the next one is read.
//
// Thread safety: one thread at a time.
class NeighborSums {
 public:
  // Destinations [first, last) of `csc`, which is in memory or mapped. Sums are added to `sums`,
  // `items` numbers a destination, which outlives this. Raises std::invalid_argument where sizes do
  // not fit, FormatError for a damaged topology and OsError for one that was cut short.
  NeighborSums(const Csc& csc, std::int64_t first, std::int64_t last, SummedColumn column,
               const SumLimits& limits, float* sums);
  ~NeighborSums();

  // Adds the next chunk. False when it was the last. Raises OsError where it cannot be read.
  bool step();

  // Until now; rows are read by a thread of its own, whether they have edges or not.
  const ReadStats& stats() const noexcept { return stats_; }
  // Of its seconds, those that step() waited.
  double wait_seconds() const noexcept { return wait_seconds_; }

 private:
  struct Edge {
    std::uint32_t src;  // within the chunk
    std::uint32_t dst;  // from `first` on
  };
  struct Chunk {
    std::int64_t number;
    const Edge* begin;
    const Edge* end;
  };
  struct Room {
    std::shared_ptr<std::byte> data;
    std::byte* rows = nullptr;  // where the chunk's first row lies in it
  };

  void sort_edges(const Csc& csc, std::int64_t first, std::int64_t last, std::int64_t max_mapped);
  void read_ahead();
  void read(std::int64_t chunk, Room& room);  // the thread's
  void add(const Chunk& chunk, const std::byte* rows) const;

  SummedColumn column_;
  AddRows add_;
  float* sums_;
  int threads_;
  int chunk_bits_ = 0;
  std::shared_ptr<std::byte> edges_;
  std::vector<Chunk> chunks_;  // those that have edges
  std::size_t next_ = 0;       // to add
  std::unique_ptr<AsyncReader> reader_;
  Room rooms_[2];  // chunk number i of chunks_ is read into rooms_[i % 2]
  std::thread reading_;
  std::exception_ptr error_;  // of the read under way, and what it cost
  ReadStats read_;
  ReadStats stats_;
  double wait_seconds_ = 0;
};

}  // namespace gz
