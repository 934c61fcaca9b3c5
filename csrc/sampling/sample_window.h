// Batches sampled together, where the topology does not fit in memory: each goes on until it needs
// neighbours that lie in a file, and those are read for all of them at once.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "arrays/narrow_ids.h"
#include "gather/paged_rows.h"
#include "sampling/graph.h"
#include "sampling/sample.h"

namespace gz {

// Slots of an edge type whose samplers ask for sources, and where their sources go: to an array of
// as many, or to numbers that many batches keep at a time.
struct SourceList {
  const Csc* csc;
  IdList slots;
  std::int64_t* sources;
  NarrowNumbers* narrow = nullptr;  // in place of `sources`

  // Takes the sources, `source(i)` of each slot.
  template <class Source>
  void fill(const Source& source) const {
    const std::int64_t count = slots.size();
    if (narrow == nullptr) {
      for (std::int64_t i = 0; i < count; ++i) sources[i] = source(i);
      return;
    }
    // Any number of a damaged file has to be kept as it is.
    const bool is_short = csc->paged != nullptr && csc->index_bytes == 4;
    narrow->reset(count,
                  is_short ? std::int64_t{1} << 32 : std::numeric_limits<std::int64_t>::max());
    for (std::int64_t i = 0; i < count; ++i) narrow->set(i, source(i));
  }
};

// One batch that is being sampled: a coroutine that a sampler begins. It yields the lists that it
// cannot go on without, or none and goes on, and returns the sample.
// Thread safety: one thread at a time.
class SamplingRun {
 public:
  struct promise_type {
    std::span<const SourceList> wanted;
    Sample sample;
    std::exception_ptr error;

    SamplingRun get_return_object() {
      return SamplingRun(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    struct Wait : std::suspend_always {
      bool is_over;
      bool await_ready() const noexcept { return is_over; }
    };
    Wait yield_value(std::span<const SourceList> lists) noexcept {
      wanted = lists;
      return {{}, lists.empty()};
    }
    void return_value(Sample made) noexcept { sample = std::move(made); }
    void unhandled_exception() noexcept { error = std::current_exception(); }
  };

  SamplingRun(SamplingRun&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  SamplingRun& operator=(SamplingRun&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~SamplingRun() {
    if (handle_) handle_.destroy();
  }

  // Goes on until sources are wanted, or to the end: false. REQUIRES the sources wanted last.
  // Raises what the sampler does.
  bool advance();
  // Until the next advance().
  std::span<const SourceList> wanted() const noexcept { return handle_.promise().wanted; }
  // REQUIRES the end.
  Sample take() { return std::move(handle_.promise().sample); }

 private:
  explicit SamplingRun(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

// A list, and the number of the run that wants it.
struct WantedList {
  std::size_t run;
  SourceList list;
};

// Takes the runs that `going` has the numbers of a step on, and those that end out of it: with
// take(number, sample), or an error. Returns what the others want, which may be nothing yet.
std::vector<WantedList> advance(std::span<SamplingRun> runs, std::vector<std::size_t>& going,
                                std::vector<std::exception_ptr>& errors,
                                const std::function<void(std::size_t, Sample)>& take);

struct SampleWindow {
  std::vector<std::exception_ptr> errors;  // [run]: why there is no sample, or null
  ReadStats read;
  bool stopped = false;  // by the caller: there is nothing in it
};

// Takes all runs to their ends, step by step, and calls take(number of the run, its sample) at
// each; `max_bytes` is what the sources read at once may take (of one run they take what they
// take). An error, of a sampler, of a read or of take(), costs only the runs concerned: OsError
// where a neighbour cannot be read. The samples are those that each run alone would give.
SampleWindow sample_window(std::span<SamplingRun> runs, std::int64_t max_bytes,
                           const std::function<void(std::size_t, Sample)>& take,
                           std::stop_token stop = {});

// Reads the sources of slots into an array of as many, for callers without runs; what is read at
// once takes about `max_bytes`. `checkpoint` is called between reads and may raise. Raises OsError
// where a neighbour cannot be read.
void read_sources(const Csc& csc, std::span<const std::int64_t> slots, std::int64_t* sources,
                  std::int64_t max_bytes, const std::function<void()>& checkpoint);

}  // namespace gz
