// Sums over the in-neighbours of a block of destinations, with the neighbours' column read once
// from front to back: no row is looked up, no batch is sampled.
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

  // Raises std::invalid_argument for a column of other numbers.
  static SummedColumn of(const Column& column, bool direct);
};

struct SumLimits {
  std::int64_t chunk_rows = 1 << 20;   // read at once: a power of two or less, 1 << 24 at most
  std::int64_t max_mapped = 64 << 20;  // of the topology, before it is forgotten
  std::int64_t room = 0;               // bytes for a block's sums and edges, kept for the next one
  int threads = 0;                     // 0: as many as torch uses
};

// A block of destinations after the other. Its edges are sorted into chunks of sources first (4
// bytes each), by destination within. Then step() adds up one chunk while the next one is read.
//
// Thread safety: one thread at a time.
class NeighborSums {
 public:
  // `csc` is in memory or mapped. Raises std::invalid_argument where sizes do not fit.
  NeighborSums(Csc csc, SummedColumn column, const SumLimits& limits);
  ~NeighborSums();

  // Sorts the edges of destinations [first, last); sums of the block before are gone. Takes more
  // than the room where it has to. Raises std::invalid_argument for others than those of the
  // topology, FormatError for a damaged one and OsError for one that was cut short.
  void begin(std::int64_t first, std::int64_t last);

  // Adds the next chunk. False when it was the last. Raises OsError where it cannot be read.
  bool step();

  // Sums of the block, `items` numbers a destination; until the next begin(), which takes their
  // memory.
  std::shared_ptr<const float> sums() const noexcept { return {room_, numbers()}; }
  std::int64_t num_sums() const noexcept { return last_ - first_; }
  std::int64_t items() const noexcept { return column_.items; }

  // Reads of the block until now; rows are read by a thread of its own, whether they have edges or
  // not.
  const ReadStats& stats() const noexcept { return stats_; }
  // Seconds that step() waited for reads.
  double wait_seconds() const noexcept { return wait_seconds_; }

 private:
  // Edges of a part of the destinations into one chunk, a word each: the source's row in the chunk,
  // and in the bits above it the destination's place in the part.
  struct List {
    std::int64_t begin = 0, end = 0;  // among the words
  };
  struct Room {
    std::shared_ptr<std::byte> data;
    std::byte* rows = nullptr;  // where the chunk's first row lies in it
  };

  float* numbers() const noexcept { return reinterpret_cast<float*>(room_.get()); }
  void sort_edges();
  void make_room(std::int64_t words);
  std::int64_t border(std::int64_t part) const noexcept;
  void read_ahead();
  void read(std::int64_t chunk, Room& room);  // the thread's
  void add_list(const List& list, std::int64_t first, const std::byte* rows) const;

  Csc csc_;
  SummedColumn column_;
  AddRows add_;
  int threads_;
  int chunk_bits_ = 0;
  std::int64_t num_chunks_ = 0;
  std::int64_t num_parts_ = 1;
  std::int64_t max_mapped_;
  std::int64_t first_ = 0, last_ = 0;
  std::int64_t room_bytes_;
  std::shared_ptr<std::byte> room_;
  std::uint32_t* words_ = nullptr;    // in it, behind the sums
  std::vector<List> lists_;           // of part p and chunk c: [p * num_chunks_ + c]
  std::vector<std::int64_t> chunks_;  // those that have edges
  std::size_t next_ = 0;              // to add
  std::unique_ptr<AsyncReader> reader_;
  Room rooms_[2];  // chunk number i of chunks_ is read into rooms_[i % 2]
  std::thread reading_;
  std::exception_ptr error_;  // of the read under way, and what it cost
  ReadStats read_;
  ReadStats stats_;
  double wait_seconds_ = 0;
};

}  // namespace gz
