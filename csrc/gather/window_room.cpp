#include "gather/window_room.h"

#include <algorithm>

namespace gz {

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
