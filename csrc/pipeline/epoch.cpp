#include "pipeline/epoch.h"

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

#include "base/errors.h"
#include "io/origin.h"
#include "io/process.h"
#include "pipeline/entry.h"
#include "pipeline/fork_gate.h"
#include "pipeline/shared_loop.h"
#include "pipeline/window_pace.h"

namespace gz {
namespace {

// Windows of batches that are sampled at the same time, at most: one computes while the other
// reads.
constexpr int kSampledAtOnce = 2;
// Batches of a window of which two halves are worth reading by turns.
constexpr std::size_t kLeastToOverlap = 4;
// The first window is of one batch, so that the consumer has it soon; each later one is at most
// this many times as long as the one before.
constexpr int kWindowGrowth = 4;

using Clock = std::chrono::steady_clock;

std::string unexpected(std::uint64_t number, std::uint64_t expected) {
  return text_of("batch: found number ", number, ", expected ", expected);
}

}  // namespace

struct Epoch::State : Lender {
  State(int num_threads, std::int64_t limit, std::uint64_t first)
      : sampled_at_once(std::min(num_threads, kSampledAtOnce)),
        max_bytes(std::max<std::int64_t>(limit, 1)),
        end(first) {}

  void begin_thread() {
    threads.push_back(start_thread([this] { work(); }));
  }

  bool orphaned() const noexcept { return origin.forked(); }

  void returned(std::int64_t bytes) noexcept override {
    if (orphaned()) return;  // a thread of the parent may have held the lock when it forked
    bool makes_room = false;
    {
      const std::lock_guard lock(mutex);
      lent_bytes -= bytes;
      makes_room = std::exchange(waits_for_room, false);
    }
    if (makes_room) to_do.notify_all();
  }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      std::vector<Entry*> work;
      to_do.wait(lock, [&] {
        return closing || !(work = oldest_to_do()).empty() || shared_loop.is_open();
      });
      if (closing) return;
      if (work.empty()) {
        shared_loop.help(lock);
        continue;
      }
      for (Entry* entry : work) entry->running = true;
      if (work.front()->is_of_window()) {
        longest_sampled = std::max<std::int64_t>(longest_sampled, kWindowGrowth * std::ssize(work));
        sample(work, lock);
        continue;
      }
      lock.unlock();
      run(*work.front(), shared_loop, stop.get_token());
      lock.lock();
      work.front()->running = false;
      advance(*work.front());
    }
  }

  // Takes entries that are sampled together to their next stage. REQUIRES the lock, which is open
  // meanwhile.
  void sample(const std::vector<Entry*>& window, std::unique_lock<std::mutex>& lock) {
    ++sampling;
    lock.unlock();
    std::vector<std::exception_ptr> errors = sample_for(window, stop.get_token());
    lock.lock();
    --sampling;
    if (closing) return;
    for (std::size_t k = 0; k < window.size(); ++k) {
      Entry& entry = *window[k];
      entry.running = false;
      if (errors[k]) entry.fail(errors[k]);
      advance(entry);
    }
    to_do.notify_all();
  }

  // REQUIRES the lock. An entry, or those that are sampled together. Rows are what takes memory: a
  // batch that waits for others, as it is sampled or read for, is bounded by it when it is
  // gathered, others before they are sampled, so that what is sampled can be gathered at once.
  // Rows are gathered in order, or a batch would have the room of one that is needed first.
  std::vector<Entry*> oldest_to_do() {
    std::int64_t begun = 0;  // and not done, so that what it takes is a guess
    bool all_begun = true;   // of those before, or done
    bool may_sample = sampling < sampled_at_once;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      Entry* const entry = entries[i].get();
      if (entry->stage == Stage::kDone) continue;
      const Recipe& recipe = *entry->recipe;
      const bool waits = recipe.waits();
      const bool is_begun = entry->running && (!waits || entry->stage == Stage::kToGather);
      if (is_begun) ++begun;
      const bool is_next = std::exchange(all_begun, all_begun && is_begun);
      if (entry->running) continue;
      if (entry->is_of_window()) {
        // The first of all has the disk for itself: the consumer waits for it.
        may_sample = may_sample && (i == 0 || !recipe.reads() || longest_read > 1);
        if (!may_sample) continue;
        const std::int64_t most =
            std::min<std::int64_t>(longest_sampled, recipe.sampled.max_batches);
        const std::int64_t together = waits ? most : std::min(most, room_for(begun, i));
        if (together == 0) {
          waits_for_room = true;
          return {};
        }
        std::vector<Entry*> window = next_to_sample(i, together);
        if (!window.empty()) return window;
        may_sample = false;  // those behind it are part of it
        continue;
      }
      const bool is_light = entry->stage == (waits ? Stage::kToSample : Stage::kToGather);
      if (is_light) return {entry};
      if (entry->stage != Stage::kToSample && entry->stage != Stage::kToGather) continue;
      if (waits && !is_next) continue;
      if (room_for(begun, i) > 0) return {entry};
      waits_for_room = true;
      if (!waits) return {};
    }
    return {};
  }

  // REQUIRES the lock. How many batches there is room for beside the `begun` ones; one at least
  // where the consumer waits for number i. Until the size of a batch is known, two are begun.
  std::int64_t room_for(std::int64_t begun, std::size_t i) const {
    const std::int64_t each = largest > 0 ? largest : (max_bytes + 1) / 2;
    const std::int64_t room = (max_bytes - lent_bytes - held_bytes) / each - begun;
    return std::max<std::int64_t>(room, awaited && i == 0 ? 1 : 0);
  }

  // REQUIRES the lock. The entries from number i on that are sampled together, or none as long as
  // they should wait for more.
  std::vector<Entry*> next_to_sample(std::size_t i, std::int64_t most) {
    std::vector<Entry*> window;
    const bool is_wanted = awaited && i == 0;
    for (; i < entries.size(); ++i) {
      Entry* const entry = entries[i].get();
      if (entry->running || !entry->is_of_window()) return window;
      window.push_back(entry);
      if (std::ssize(window) >= most || entry->is_last) return window;
    }
    waits_for_more = !is_wanted;
    return is_wanted ? window : std::vector<Entry*>{};
  }

  // REQUIRES the lock.
  bool is_ready() const {
    return closing || entries.empty() || entries.front()->stage == Stage::kDone;
  }

  // REQUIRES the lock.
  void advance(Entry& entry) {
    const bool sampled = entry.stage == Stage::kToSample;
    if (sampled && entry.error == nullptr && entry.recipe->plan != nullptr) {
      if (entry.recipe->reads()) {
        entry.stage = Stage::kToRead;
        to_read.notify_one();
      } else {
        entry.stage = Stage::kToGather;  // for this thread: to wake another would leave it idle
      }
      return;
    }
    finish(entry);
  }

  // REQUIRES the lock.
  void finish(Entry& entry) {
    entry.stage = Stage::kDone;
    if (entry.is_in_window) {
      --in_window;
      to_read.notify_one();
    }
    entry.is_in_window = false;
    const std::int64_t bytes = entry.batch.bytes();
    held_bytes += bytes;
    largest = std::max(largest, bytes);
    if (&entry == entries.front().get()) done.notify_all();
  }

  // The one thread that reads.
  void read() {
    std::unique_lock lock(mutex);
    while (true) {
      std::vector<Entry*> window;
      to_read.wait(lock, [&] { return closing || !(window = next_window()).empty(); });
      if (closing) return;
      for (Entry* entry : window) entry->stage = Stage::kReading;
      const int together = at_once(*window.front());
      lock.unlock();
      const Clock::time_point begin = Clock::now();
      std::vector<std::exception_ptr> errors = read_for(window, stop.get_token(), together);
      const Clock::duration took = Clock::now() - begin;
      lock.lock();
      if (closing) return;
      note_read(took, std::ssize(errors), window, together);
      if (std::exchange(gives_up, false)) {
        for (Entry* entry : window) {
          entry->stage = Stage::kToRead;
          entry->batch.window.reset();
        }
        continue;
      }
      in_window += errors.size();
      longest_read = std::max<std::size_t>(longest_read, kWindowGrowth * errors.size());
      for (std::size_t k = 0; k < window.size(); ++k) {
        Entry& entry = *window[k];
        if (k >= errors.size()) {
          entry.stage = Stage::kToRead;  // the window was full without it
          continue;
        }
        entry.stage = Stage::kToGather;
        entry.is_in_window = true;
        if (errors[k] == nullptr) continue;
        const ReadStats stats = entry.batch.read;
        entry.fail(errors[k]);
        entry.batch.read = stats;
        finish(entry);
      }
      to_do.notify_all();
    }
  }

  // REQUIRES the lock. The next entries to read for, or none as long as they should wait for more:
  // for those that are being sampled, and for those to come unless the consumer waits already.
  std::vector<Entry*> next_window() {
    std::vector<Entry*> window;
    for (const auto& entry : entries) {
      const bool is_read = entry->stage != Stage::kToSample && entry->stage != Stage::kToRead;
      if (window.empty() && (is_read || !entry->recipe->reads())) continue;
      const bool samples = entry->stage == Stage::kToSample;
      if (samples && (entry->running || !entry->is_of_window())) return {};
      if (entry->stage != Stage::kToRead) break;
      if (window.empty() && in_window > 0 && !may_overlap(*entry)) return {};
      if (!window.empty() && window.front()->recipe->plan != entry->recipe->plan) return window;
      window.push_back(entry.get());
      const std::size_t most = entry->recipe->max_window(at_once(*entry));
      if (window.size() >= std::min(most, longest_read) || entry->is_last) return window;
    }
    const bool is_wanted = awaited && !window.empty() && window.front() == entries.front().get();
    return is_wanted ? window : std::vector<Entry*>{};
  }

  // REQUIRES the lock. How many windows are to be there at a time.
  int at_once(const Entry& entry) const {
    return entry.recipe->max_window(1) >= kLeastToOverlap ? pace.at_once() : 1;
  }

  // REQUIRES the lock. Notes the time in which a window was read for `count` batches.
  void note_read(Clock::duration took, std::ptrdiff_t count, const std::vector<Entry*>& window,
                 int together) {
    const bool is_cut = window.back()->is_last && count == std::ssize(window);
    const std::size_t most = window.front()->recipe->max_window(together);
    if (count < 1 || is_cut || longest_read < most) return;  // not as long as it can be
    pace.read(together, took / count);
  }

  bool may_overlap(const Entry& entry) const {
    return at_once(entry) > 1 && entry.recipe->plan->windows->has_half();
  }

  // REQUIRES the lock.
  std::uint64_t next() const { return entries.empty() ? end : entries.front()->number; }

  // Waits for the oldest entry and takes it; null if `patience` ends before it is done.
  std::unique_ptr<Entry> take(std::uint64_t number, std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex);
    if (closing) throw std::logic_error("the epoch is closed");
    if (entries.empty()) throw std::logic_error("no batch was added");
    if (number != next()) throw std::logic_error(unexpected(number, next()));
    if (delivered != Clock::time_point{}) {
      pace.consumed(Clock::now() - delivered);
      delivered = {};
    }
    if (!is_ready()) {
      awaited = true;
      to_read.notify_one();
      const bool waited_for_more = std::exchange(waits_for_more, false);
      const bool waited_for_room = std::exchange(waits_for_room, false);
      if (waited_for_more || waited_for_room) to_do.notify_one();
    }
    const bool is_done = done.wait_for(lock, patience, [&] { return is_ready(); });
    awaited = false;
    if (!is_done) return nullptr;
    if (closing) throw std::logic_error("the epoch is closed");
    std::unique_ptr<Entry> entry = std::move(entries.front());
    entries.pop_front();
    const std::int64_t bytes = entry->batch.bytes();
    held_bytes -= bytes;
    lent_bytes += bytes;
    delivered = Clock::now();
    return entry;
  }

  // REQUIRES the lock. Forgets rows that are read and not gathered.
  void give_up_windows() {
    for (const auto& entry : entries) {
      if (entry->stage == Stage::kReading) gives_up = true;
      if (entry->stage != Stage::kToGather || !entry->is_in_window || entry->running) continue;
      entry->stage = Stage::kToRead;
      entry->batch.window.reset();
      entry->is_in_window = false;
      --in_window;
    }
    to_read.notify_one();
  }

  std::mutex mutex;
  std::condition_variable to_do;
  std::condition_variable to_read;
  std::condition_variable done;
  SharedLoop shared_loop{mutex, to_do};
  std::deque<std::unique_ptr<Entry>> entries;  // the oldest first
  std::vector<std::thread> threads;
  const Origin origin;
  const int sampled_at_once;
  const std::int64_t max_bytes;
  std::int64_t lent_bytes = 0;       // of batches that the consumer has
  std::int64_t held_bytes = 0;       // of those that are done
  std::int64_t largest = 0;          // of the batches so far
  bool waits_for_room = false;       // some thread found work that would take too much
  std::size_t in_window = 0;         // entries that were read for and are not gathered
  bool gives_up = false;             // what is being read is not to be kept
  bool waits_for_more = false;       // some thread found too few entries to sample together
  int sampling = 0;                  // windows that are being sampled
  bool has_spare = false;            // there is a thread beside those that may sample windows
  std::int64_t longest_sampled = 1;  // batches that may be sampled together so far
  std::size_t longest_read = 1;      // the same of those that are read for together
  bool awaited = false;              // the consumer waits
  Clock::time_point delivered;       // when the consumer last got a batch
  WindowPace pace;
  std::thread reader;     // begun with the first batch that reads
  std::stop_source stop;  // of what it reads
  std::uint64_t end;      // number of the batch that is added next
  bool closing = false;
  std::mutex joining;  // of the threads; taken before `mutex`
};

Epoch::Epoch(int threads, std::int64_t max_bytes, std::uint64_t first)
    : state_(std::make_shared<State>(threads, max_bytes, first)) {
  if (threads < 1) {
    throw invalid("epoch: found ", threads, " threads, expected 1 or more");
  }
  const Job starting;  // which no fork falls into
  try {
    for (int i = 0; i < threads; ++i) state_->begin_thread();
  } catch (...) {
    close();
    throw;
  }
}

Epoch::~Epoch() {
  // Threads that are not here can be neither joined nor waited for: what they share is left.
  if (orphaned()) static_cast<void>(new std::shared_ptr<State>(state_));
  close();
}

void Epoch::close() noexcept {
  if (orphaned()) return;
  const std::shared_ptr<State> state = state_;  // for as long as this takes
  {
    const std::lock_guard lock(state->mutex);
    state->closing = true;
    state->stop.request_stop();
  }
  state->to_do.notify_all();
  state->to_read.notify_all();
  state->done.notify_all();
  // If several threads close it, one joins; entries are dropped when no thread has them any more.
  std::deque<std::unique_ptr<Entry>> dropped;
  const std::lock_guard joining(state->joining);
  for (std::thread& thread : state->threads) thread.join();
  state->threads.clear();
  if (state->reader.joinable()) state->reader.join();
  const std::lock_guard lock(state->mutex);
  dropped.swap(state->entries);
}

bool Epoch::orphaned() const noexcept { return state_->orphaned(); }

std::shared_ptr<Epoch::State> Epoch::live() const {
  if (orphaned()) throw std::logic_error("the epoch's threads are in another process");
  return state_;
}

// The state, and its lock.
struct Epoch::Locked {
  const std::shared_ptr<State> state;
  const std::lock_guard<std::mutex> lock{state->mutex};
  State* operator->() const noexcept { return state.get(); }
};

Epoch::Locked Epoch::locked() const { return {live()}; }

void Epoch::add(std::uint64_t number, std::shared_ptr<const Recipe> recipe, BatchRequest request) {
  auto entry = std::make_unique<Entry>();
  entry->recipe = std::move(recipe);
  entry->request = std::move(request);
  entry->number = number;
  const Locked state = locked();
  if (state->closing) throw std::logic_error("the epoch is closed");
  if (number != state->end) throw invalid(unexpected(number, state->end));
  if (entry->recipe->reads() && !state->reader.joinable()) {
    state->reader = start_thread([own = state.state.get()] { own->read(); });
  }
  if (entry->recipe->samples_together && entry->recipe->waits() && !state->has_spare) {
    state->begin_thread();
    state->has_spare = true;
  }
  state->entries.push_back(std::move(entry));
  ++state->end;
  state->to_do.notify_one();
}

std::uint64_t Epoch::end() const { return locked()->end; }

std::uint64_t Epoch::next() const { return locked()->next(); }

bool Epoch::is_ready() const { return locked()->is_ready(); }

void Epoch::flush() {
  const Locked state = locked();
  if (state->entries.empty()) return;
  state->entries.back()->is_last = true;
  state->to_read.notify_one();
  state->to_do.notify_one();
}

void Epoch::give_up_windows() { locked()->give_up_windows(); }

std::unique_ptr<Batch> Epoch::get(std::uint64_t number, std::chrono::milliseconds patience) {
  const std::shared_ptr<State> state = live();
  const std::unique_ptr<Entry> entry = state->take(number, patience);
  if (entry == nullptr) return nullptr;
  entry->batch.loan = Loan(state, entry->batch.bytes());
  if (entry->error) std::rethrow_exception(entry->error);
  return std::make_unique<Batch>(std::move(entry->batch));
}

}  // namespace gz
