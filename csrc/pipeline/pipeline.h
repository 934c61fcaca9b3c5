// Batches made ahead of whoever trains on them, by threads of the engine's own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "pipeline/batch.h"

namespace gz {

// A queue of batches: requests in at one end, finished batches out at the other, in the same order.
// Each thread takes the oldest stage that is to be done, of any batch, and does it alone: OpenMP
// would start a team per thread. Threads that have nothing to do help one that gathers.
//
// Batches whose rows are not all in memory wait, sampled, until one more thread has read for a
// window of them. A window is full (GatherPlan::windows), or ends where nothing more is to come; it
// is cut short only where the consumer waits for its first batch and all that was submitted is
// sampled. The next one is read when all batches of the last are gathered, which the consumer may
// be a few behind of: one large window needs fewer reads than two small ones. But where the
// consumer takes its time for each batch, windows are half as large, and one is read while it is
// busy with the other.
//
// Batches whose topology is not all in memory are sampled together (Recipe::sampled), by the same
// rules; two such windows at a time, one of which computes while the other reads. Sampling a window
// takes seconds, in which one thread more than was asked for gathers batches that are sampled.
//
// Thread safety: submit() and next() are one consumer's; close() and give_up_windows() may come
// from other threads, several at once.
// After it, and in a forked child, which has none of the threads (orphaned() says so), submit() and
// next() raise std::logic_error.
class Pipeline {
 public:
  // `max_bytes` bounds what the batches made ahead take, together with those that the consumer has
  // and did not free (Batch::loan); the one that it waits for is made whatever that takes.
  // REQUIRES threads >= 1.
  Pipeline(int threads, std::int64_t max_bytes);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  ~Pipeline();  // as close()

  // REQUIRES a ticket above newest(); 0 is the one after it.
  void submit(std::shared_ptr<const Recipe> recipe, BatchRequest request, std::uint64_t ticket = 0);

  // The ticket of the batch that was submitted last, or 0.
  std::uint64_t newest() const;
  // The ticket of the batch that next() would return, or 0 where none is left: for a consumer that
  // does not know whether it took a batch.
  std::uint64_t oldest() const;

  // The oldest batch that was submitted and not yet returned, or null if `patience` ends before it
  // is done. Rethrows what its stages raised; the batch after it is then the oldest.
  // Raises std::logic_error where none is left.
  std::unique_ptr<Batch> next(std::chrono::milliseconds patience);

  // Says that for now nothing follows what was submitted: it is not to wait for a full window.
  void flush();

  // Forgets rows that were read for batches and are not gathered: another epoch begins that has
  // nothing to read into. They are read again, for a window of the size that is right by then.
  void give_up_windows();

  // Whether next() would return, or raise, at once.
  bool is_ready() const;

  // How many were submitted and not returned.
  std::int64_t num_pending() const;

  // Drops stages that are not yet begun, and returns when those under way are done. A second thread
  // that closes it meanwhile waits for that too.
  void close() noexcept;

  bool orphaned() const noexcept;

 private:
  struct State;
  std::shared_ptr<State> live() const;

  const std::shared_ptr<State> state_;
};

}  // namespace gz
