#include "pipeline/shared_loop.h"

namespace gz {

void SharedLoop::run(std::int64_t ranges, RangeBody body) {
  if (ranges < kLeastToShare) return body(0, ranges);
  SharedRanges shared(ranges, body);
  std::unique_lock lock(mutex_);
  const bool is_taken = ranges_ != nullptr;
  if (!is_taken) ranges_ = &shared;
  lock.unlock();
  if (is_taken) return body(0, ranges);
  idle_.notify_all();
  shared.take_part();
  lock.lock();
  left_.wait(lock, [&] { return helpers_ == 0; });
  ranges_ = nullptr;
}

void SharedLoop::help(std::unique_lock<std::mutex>& lock) {
  SharedRanges& shared = *ranges_;
  ++helpers_;
  lock.unlock();
  shared.take_part();
  lock.lock();
  if (--helpers_ == 0) left_.notify_all();
}

}  // namespace gz
