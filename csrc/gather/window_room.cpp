#include "gather/window_room.h"

#include <algorithm>

namespace gz {

void WindowRoom::divide_among(int epochs) noexcept { epochs_ = std::max(1, epochs); }

int WindowRoom::max_batches(int at_once) const noexcept {
  return std::max(1, all_.max_batches / (epochs_ * at_once));
}

bool WindowRoom::has_half() const noexcept {
  return all_.max_bytes - taken_ >= all_.max_bytes / (epochs_ * 2);
}

Loan WindowRoom::take(int at_once) {
  const std::int64_t share = all_.max_bytes / (epochs_ * at_once);
  if (origin_.forked()) return {nullptr, share};
  std::int64_t taken = taken_;
  std::int64_t bytes = 0;
  do {
    bytes = std::clamp<std::int64_t>(all_.max_bytes - taken, 0, share);
  } while (!taken_.compare_exchange_weak(taken, taken + bytes));
  return {shared_from_this(), bytes};
}

}  // namespace gz
