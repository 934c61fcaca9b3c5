// The batches of an epoch, by number, made ahead of their consumer by threads of the engine's own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "pipeline/batch.h"

namespace gz {

// Batches are added in the order of their numbers and asked for in that order. Each thread takes
// the oldest stage that is to be done, of any batch, and does it alone: OpenMP would start a team
// per thread. Threads that have nothing to do help one that gathers.
//
// Batches whose rows are not all in memory wait, sampled, until one more thread has read for a
// window of them. A window is full (GatherPlan::windows), or ends where nothing more is to come; it
// is cut short only where the consumer waits for its first batch and all that were added are
// sampled. The next one is read when all batches of the last are gathered, which the consumer may
// be a few behind of: one large window needs fewer reads than two small ones. But where the
// consumer takes its time for each batch, windows are half as large, and one is read while it is
// busy with the other.
//
// Batches whose topology is not all in memory are sampled together (Recipe::sampled), by the same
// rules; two such windows at a time, one of which computes while the other reads. Sampling a window
// takes seconds, in which one thread more than was asked for gathers batches that are sampled.
//
// Thread safety: add() and get() are one consumer's; close() and give_up_windows() may come from
// other threads, several at once.
// After close(), and in a forked child, which has none of the threads (orphaned() says so), add()
// and get() raise std::logic_error.
class Epoch {
 public:
  // `max_bytes` bounds what the batches made ahead take, together with those that the consumer has
  // and did not free (Batch::loan); the one that it waits for is made whatever that takes.
  // `first` is the number of the batch that is added first. REQUIRES threads >= 1.
  Epoch(int threads, std::int64_t max_bytes, std::uint64_t first = 0);
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;
  ~Epoch();  // as close()

  // Adds the batch of a number. Raises std::invalid_argument unless that is end().
  void add(std::uint64_t number, std::shared_ptr<const Recipe> recipe, BatchRequest request);

  // One past the number of the batch that was added last.
  std::uint64_t end() const;
  // One past the number of the batch that was given last.
  std::uint64_t next() const;

  // Batch next(), or null if `patience` ends before it is done. Rethrows what its stages raised,
  // and has given it then, too. Raises std::logic_error for any other number.
  std::unique_ptr<Batch> get(std::uint64_t number, std::chrono::milliseconds patience);

  // Whether get() would return, or raise, at once; it is not waited for.
  bool is_ready() const;

  // Says that nothing follows for now: batches that were added do not wait for a full window.
  void flush();

  // Forgets rows that were read for batches and are not gathered: another epoch begins that has
  // nothing to read into. They are read again, for a window of the size that is right by then.
  void give_up_windows();

  // Drops stages that are not yet begun, and returns when those under way are done. A second thread
  // that closes it meanwhile waits for that too.
  void close() noexcept;

  bool orphaned() const noexcept;

 private:
  struct State;
  struct Locked;
  std::shared_ptr<State> live() const;
  Locked locked() const;

  const std::shared_ptr<State> state_;
};

}  // namespace gz
