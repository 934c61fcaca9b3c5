// A loop of one thread in which others take part that have nothing else to do.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "arrays/team.h"

namespace gz {

// One such loop at a time: meanwhile those of other threads are theirs alone.
//
// Thread safety: run() may be called from any thread; the others REQUIRE the lock.
class SharedLoop final : public Helpers {
 public:
  // Threads that have nothing to do wait for `idle` with this lock.
  SharedLoop(std::mutex& mutex, std::condition_variable& idle) : mutex_(mutex), idle_(idle) {}

  void run(std::int64_t ranges, RangeBody body) override;

  // Whether there is a range that no thread has begun.
  bool is_open() const noexcept { return ranges_ != nullptr && ranges_->is_open(); }

  // Takes part until none is left; the lock is open meanwhile. REQUIRES is_open().
  void help(std::unique_lock<std::mutex>& lock);

 private:
  // Fewest ranges that are worth waking other threads for.
  static constexpr std::int64_t kLeastToShare = 8;

  std::mutex& mutex_;
  std::condition_variable& idle_;
  std::condition_variable left_;  // the last of those that took part
  SharedRanges* ranges_ = nullptr;
  int helpers_ = 0;
};

}  // namespace gz
