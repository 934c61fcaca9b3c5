// Memory in which the epochs under way read ahead together, and the share of each.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "gather/loan.h"
#include "io/origin.h"

namespace gz {

// Limits of one read for batches whose rows are not all in memory.
struct WindowLimits {
  int max_batches = 1;
  // Bytes of the rows read for one window; a window of one batch may take more.
  std::int64_t max_bytes = 0;
};

// Memory for the rows of windows. One epoch has all of it; of several, each window takes an equal
// share when it begins (a half of that, if two are to be there at a time), or what the others'
// windows have left of that. None waits: a window that is left nothing is read for one batch.
//
// Thread safety: all functions, from any thread, and without locks: a child of a fork goes on with
// what it needs alone, since the windows that its parent had are not given back there.
class WindowRoom final : public Lender, public std::enable_shared_from_this<WindowRoom> {
 public:
  explicit WindowRoom(WindowLimits all) : all_(all) {}

  // `epochs` are under way. Windows that begin from now on are of the size for that.
  void divide_among(int epochs) noexcept { epochs_ = std::max(1, epochs); }

  // Number of batches that the next window is read for, where `at_once` windows are to be there.
  int max_batches(int at_once = 1) const noexcept {
    return std::max(1, all_.max_batches / (epochs_ * at_once));
  }

  // Whether there is room for one of two windows now.
  bool has_half() const noexcept {
    return all_.max_bytes - taken_ >= all_.max_bytes / (epochs_ * 2);
  }

  // Room of one window; given back when it dies. REQUIRES that a shared_ptr owns this.
  Loan take(int at_once = 1);

  void returned(std::int64_t bytes) noexcept override { taken_ -= bytes; }

 private:
  const WindowLimits all_;
  const Origin origin_;
  std::atomic<int> epochs_ = 1;
  std::atomic<std::int64_t> taken_ = 0;
};

}  // namespace gz
