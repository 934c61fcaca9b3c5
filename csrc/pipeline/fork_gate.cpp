#include "pipeline/fork_gate.h"

#include <condition_variable>
#include <mutex>

#include "arrays/memory_pool.h"
#include "io/process.h"

namespace gz {
namespace {

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
  bool forking = false;
};

Gate*& gate() {
  static Gate* current = [] {
    // Handlers before a fork run in the opposite order: the pool's lock, which jobs take, comes
    // last.
    pool_state();
    at_fork(
        [] {
          Gate& open = *gate();
          std::unique_lock lock(open.mutex);
          open.forking = true;
          open.changed.wait(lock, [&] { return open.running == 0; });
          lock.release();  // held across the fork
        },
        [] {
          Gate& shut = *gate();
          shut.forking = false;
          shut.mutex.unlock();
          shut.changed.notify_all();
        },
        [] {
          gate() = new Gate;  // the parent's has waiters that are not here; it is left to them
        });
    return new Gate;
  }();
  return current;
}

}  // namespace

Job::Job() {
  Gate& open = *gate();
  std::unique_lock lock(open.mutex);
  open.changed.wait(lock, [&] { return !open.forking; });
  ++open.running;
}

Job::~Job() {
  Gate& open = *gate();
  const std::lock_guard lock(open.mutex);
  --open.running;
  if (open.forking) open.changed.notify_all();
}

}  // namespace gz
