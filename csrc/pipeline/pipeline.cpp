#include "pipeline/pipeline.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pipeline/fork_gate.h"

namespace gz {
namespace {

enum class Stage { kToSample, kToGather, kDone };

struct Entry {
  std::shared_ptr<const Recipe> recipe;
  BatchRequest request;
  Batch batch;
  std::exception_ptr error;
  Stage stage = Stage::kToSample;
  bool running = false;
};

// Signals are for the threads that know what to do about them; faults are a thread's own.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) sigdelset(&all, fault);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

struct Pipeline::State {
  explicit State(std::int64_t limit) : max_bytes(limit) {}

  void work() {
    block_signals();
    std::unique_lock lock(mutex);
    while (true) {
      Entry* entry = nullptr;
      to_do.wait(lock, [&] { return closing || (entry = oldest_to_do()) != nullptr; });
      if (closing) return;
      entry->running = true;
      lock.unlock();
      run(*entry);
      lock.lock();
      entry->running = false;
      advance(*entry);
    }
  }

  // REQUIRES the lock.
  Entry* oldest_to_do() {
    std::int64_t begun = 0;  // and not done, so that what it takes is a guess
    for (const auto& entry : entries) {
      if (entry->stage == Stage::kDone) continue;
      if (entry->running) {
        ++begun;
        continue;
      }
      const bool fits = entry == entries.front() || entry->stage == Stage::kToGather ||
                        held_bytes + (begun + 1) * largest <= max_bytes;
      if (!fits) waits_for_room = true;
      return fits ? entry.get() : nullptr;
    }
    return nullptr;
  }

  // REQUIRES the lock.
  bool is_ready() const {
    return closing || entries.empty() || entries.front()->stage == Stage::kDone;
  }

  static void run(Entry& entry) noexcept {
    const Job job;
    try {
      if (entry.stage == Stage::kToSample) {
        entry.batch = sample_batch(*entry.recipe, entry.request, 1);
      } else {
        gather_batch(*entry.recipe, entry.batch, 1);
      }
    } catch (...) {
      entry.error = std::current_exception();
      entry.batch = Batch{};
    }
  }

  // REQUIRES the lock.
  void advance(Entry& entry) {
    const bool sampled = entry.stage == Stage::kToSample;
    if (sampled && entry.error == nullptr && entry.recipe->plan != nullptr) {
      entry.stage = Stage::kToGather;  // for this thread: to wake another would leave it idle
      return;
    }
    entry.stage = Stage::kDone;
    const std::int64_t bytes = entry.batch.bytes();
    held_bytes += bytes;
    largest = std::max(largest, bytes);
    if (&entry == entries.front().get()) done.notify_all();
  }

  std::mutex mutex;
  std::condition_variable to_do;
  std::condition_variable done;
  std::deque<std::unique_ptr<Entry>> entries;  // the oldest first
  std::vector<std::thread> threads;
  const std::int64_t max_bytes;
  std::int64_t held_bytes = 0;  // of the batches that are done
  std::int64_t largest = 0;     // of the batches so far
  bool waits_for_room = false;  // some thread found work that would take too much
  bool closing = false;
};

Pipeline::Pipeline(int threads, std::int64_t max_bytes)
    : state_(std::make_shared<State>(max_bytes)), fork_depth_(fork_depth()) {
  if (threads < 1) {
    throw std::invalid_argument("pipeline: found " + std::to_string(threads) +
                                " threads, expected 1 or more");
  }
  try {
    for (int i = 0; i < threads; ++i) {
      state_->threads.emplace_back([state = state_.get()] { state->work(); });
    }
  } catch (...) {
    close();
    throw;
  }
}

Pipeline::~Pipeline() { close(); }

void Pipeline::close() noexcept {
  if (orphaned()) {
    // Threads that are not here can be neither joined nor waited for: what they share is left.
    static_cast<void>(new std::shared_ptr<State>(std::move(state_)));
    state_ = nullptr;
    return;
  }
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
    threads.swap(state_->threads);
  }
  state_->to_do.notify_all();
  state_->done.notify_all();
  for (std::thread& thread : threads) thread.join();
  std::deque<std::unique_ptr<Entry>> dropped;
  const std::lock_guard lock(state_->mutex);
  dropped.swap(state_->entries);
}

bool Pipeline::orphaned() const noexcept { return fork_depth_ != fork_depth(); }

std::shared_ptr<Pipeline::State> Pipeline::live() const {
  if (orphaned()) throw std::logic_error("the pipeline's threads are in another process");
  return state_;
}

void Pipeline::submit(std::shared_ptr<const Recipe> recipe, BatchRequest request) {
  const std::shared_ptr<State> state = live();
  auto entry = std::make_unique<Entry>();
  entry->recipe = std::move(recipe);
  entry->request = std::move(request);
  {
    const std::lock_guard lock(state->mutex);
    if (state->closing) throw std::logic_error("the pipeline is closed");
    state->entries.push_back(std::move(entry));
  }
  state->to_do.notify_one();
}

std::unique_ptr<Batch> Pipeline::next(std::chrono::milliseconds patience) {
  const std::shared_ptr<State> state = live();
  std::unique_ptr<Entry> entry;
  bool makes_room = false;
  {
    std::unique_lock lock(state->mutex);
    if (!state->done.wait_for(lock, patience, [&] { return state->is_ready(); })) return nullptr;
    if (state->closing) throw std::logic_error("the pipeline is closed");
    if (state->entries.empty()) throw std::logic_error("no batch was asked for");
    entry = std::move(state->entries.front());
    state->entries.pop_front();
    state->held_bytes -= entry->batch.bytes();
    makes_room = std::exchange(state->waits_for_room, false);
  }
  if (makes_room) state->to_do.notify_all();
  if (entry->error) std::rethrow_exception(entry->error);
  return std::make_unique<Batch>(std::move(entry->batch));
}

bool Pipeline::is_ready() const {
  const std::shared_ptr<State> state = live();
  const std::lock_guard lock(state->mutex);
  return state->is_ready();
}

std::int64_t Pipeline::num_pending() const {
  const std::shared_ptr<State> state = live();
  const std::lock_guard lock(state->mutex);
  return static_cast<std::int64_t>(state->entries.size());
}

}  // namespace gz
