// How many windows of rows are to be there at a time, by what was measured.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

namespace gz {

// One window, as long as it can be, reads least for a batch; of two, one is read while the other is
// consumed. Times are for one batch, by the clock: they include waits for other users of the disk.
//
// Thread safety: none.
class WindowPace {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // After this many windows of one kind, the other kind is tried out again.
  static constexpr int kWindowsToForget = 32;

  // Notes the consumer's own time for a batch.
  void consumed(Duration took) noexcept { own_ += (took - own_) / kSmooth; }
  // Notes the time of reading a window as long as it can be, with `at_once` windows at a time.
  void read(int at_once, Duration took) noexcept {
    rows_[static_cast<std::size_t>(at_once - 1)] = took;
    alike_ = at_once == last_ ? alike_ + 1 : 0;
    last_ = at_once;
    if (alike_ < kWindowsToForget) return;
    rows_[static_cast<std::size_t>(2 - at_once)] = {};
    alike_ = 0;
  }

  // Two if that never keeps the consumer waiting, or saves a tenth of the time. A kind whose time
  // is not known is tried out where it may be the better one.
  int at_once() const noexcept {
    auto [one, two] = rows_;
    if (one == one.zero() && two == two.zero()) return 1;
    if (two == two.zero()) two = one;      // at least: they are shorter
    if (one == one.zero()) one = two / 2;  // at least: two halves read no more than twice as much
    return two <= own_ || 10 * two < 9 * (one + own_) ? 2 : 1;
  }

 private:
  static constexpr int kSmooth = 4;  // weight of a batch's time in the consumer's: 1 / kSmooth

  Duration own_{0};
  // Reading times with one window at a time, and with two. Zero: not known, or too long ago.
  std::array<Duration, 2> rows_{};
  int last_ = 0;
  int alike_ = 0;  // windows in a row of the same kind
};

}  // namespace gz
