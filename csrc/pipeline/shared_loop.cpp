#include "pipeline/shared_loop.h"

namespace gz {

void SharedLoop::run(std::int64_t ranges, RangeBody body) {
  if (!share(ranges, body)) {
    body(0, ranges);
    return;
  }
  idle_.notify_all();
  take_part(ranges, body);
  std::unique_lock lock(mutex_);
  left_.wait(lock, [&] { return helpers_ == 0; });
  body_ = nullptr;
}

void SharedLoop::help(std::unique_lock<std::mutex>& lock) {
  const std::int64_t ranges = ranges_;
  const RangeBody& body = *body_;
  ++helpers_;
  lock.unlock();
  take_part(ranges, body);
  lock.lock();
  if (--helpers_ == 0) left_.notify_all();
}

bool SharedLoop::share(std::int64_t ranges, const RangeBody& body) {
  if (ranges < kLeastToShare) return false;
  const std::lock_guard lock(mutex_);
  if (body_ != nullptr) return false;
  body_ = &body;
  ranges_ = ranges;
  next_.store(0, std::memory_order_relaxed);
  return true;
}

void SharedLoop::take_part(std::int64_t ranges, const RangeBody& body) {
  for (std::int64_t range; (range = next_.fetch_add(1, std::memory_order_relaxed)) < ranges;) {
    body(range, range + 1);
  }
}

}  // namespace gz
