// Which groups of rows were used lately, where memory holds each, and which makes room for another.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "io/pages.h"

namespace gz {

// Frames for groups of rows. A user begins a window; frames that it found or took in stay where
// they are until the window's Use dies. A hand goes round the others and takes the first that was
// not used since it last came by (CLOCK, with a few rounds' credit for groups that are used again
// and again).
//
// Thread safety: none but that a Use may die in any thread, at any time.
class RowCache {
 public:
  // Raises std::invalid_argument where there are 2^32 - 1 groups or more.
  RowCache(std::int64_t num_groups, std::int64_t num_frames)
      : num_frames_(
            std::clamp<std::int64_t>(num_frames, 0, std::min<std::int64_t>(num_groups, INT32_MAX))),
        live_(std::make_shared<Live>()) {
    if (num_groups >= std::int64_t{kNone}) {
      throw invalid("row cache: found ", num_groups, " groups of rows, expected fewer than ",
                    kNone);
    }
    const auto count = static_cast<std::size_t>(num_frames_);
    frame_pages_ = make_pages(count * sizeof(Frame));
    credit_pages_ = make_pages(count);
    frames_ = reinterpret_cast<Frame*>(frame_pages_.get());
    credit_ = reinterpret_cast<std::uint8_t*>(credit_pages_.get());
    undone_.reserve(count / kWindowShare + 1);
    resize_table(kLeastTable);
  }

  // Bytes of a frame beside its rows, at most.
  static constexpr std::int64_t kFrameBytes = 24;

  using Use = std::shared_ptr<const void>;
  // Frames that are found or taken from now on stay until all copies of what is returned are gone.
  Use begin_window() {
    const std::uint32_t number = ++window_;
    const std::lock_guard lock(live_->mutex);
    live_->windows.insert(number);
    oldest_ = *live_->windows.begin();
    in_use_ = admitted_ = 0;
    return {nullptr, [live = live_, number](const void*) {
              const std::lock_guard guard(live->mutex);
              live->windows.erase(number);
            }};
  }

  std::int64_t num_frames() const noexcept { return num_frames_; }

  // The frame of each of these groups, or -1; those that are there are used by the current window.
  // At most kFindAtOnce of them.
  static constexpr std::size_t kFindAtOnce = 128;
  void find(std::span<const std::uint32_t> groups, std::int32_t* frames) noexcept {
    // The memory that each touches is asked for before the first of them waits for it.
    std::array<std::size_t, kFindAtOnce> homes;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      homes[i] = home_of(groups[i]);
      __builtin_prefetch(&table_[homes[i]]);
    }
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::int32_t frame = table_[homes[i]];
      if (frame >= 0) __builtin_prefetch(&frames_[frame], 1);
    }
    for (std::size_t i = 0; i < groups.size(); ++i) {
      std::size_t at = homes[i];
      while (table_[at] >= 0 && frames_[table_[at]].group != groups[i]) {
        at = (at + 1) & (table_.size() - 1);
      }
      frames[i] = table_[at];
      if (frames[i] >= 0) use(frames[i]);
    }
  }

  // A frame for a group that has none, or -1 where all are in use or the window took its share,
  // 1 / kWindowShare: the next one is read while it lives. `again`: the group is used more than
  // once already.
  static constexpr std::int64_t kWindowShare = 2;
  std::int32_t admit(std::uint32_t group, bool again) {
    if (admitted_ * kWindowShare >= num_frames_) return -1;
    std::int32_t frame;
    if (!undone_.empty()) {
      frame = undone_.back();
      undone_.pop_back();
    } else if (fresh_ == num_frames_) {
      frame = victim();
      if (frame < 0) return frame;
    } else {
      // At most two thirds full.
      if (static_cast<std::size_t>(fresh_) * 3 / 2 >= table_.size())
        resize_table(2 * table_.size());
      frame = static_cast<std::int32_t>(fresh_++);
    }
    ++admitted_;
    frames_[frame] = {group, window_};
    credit_[frame] = again;
    enter(frame);
    return frame;
  }

  // A group that the current window admitted is not there after all. Its frame is free once no
  // window uses it.
  void drop(std::int32_t frame) noexcept {
    Frame& dropped = frames_[frame];
    erase(dropped.group);
    dropped.group = kNone;
  }
  // Drops it, and has the window not want it: another group may be admitted there.
  void undo(std::int32_t frame) noexcept {
    drop(frame);
    frames_[frame].used = UINT32_MAX;
    undone_.push_back(frame);
    --admitted_;
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr std::uint8_t kMostCredit = 15;
  static constexpr std::size_t kLeastTable = 1024;
  struct Frame {
    std::uint32_t group;
    std::uint32_t used;  // number of the last window that did
  };
  // The windows whose Use lives, by number.
  struct Live {
    std::mutex mutex;
    std::set<std::uint32_t> windows;
  };

  std::size_t home_of(std::uint32_t group) const noexcept {
    return static_cast<std::size_t>((group * std::uint64_t{0x9E3779B97F4A7C15}) >> shift_);
  }

  void use(std::int32_t frame) noexcept {
    if (std::exchange(frames_[frame].used, window_) == window_) return;
    if (credit_[frame] < kMostCredit) ++credit_[frame];
  }

  std::int32_t victim() noexcept {
    for (; in_use_ < num_frames_; ++in_use_) {
      const std::int64_t at = hand_;
      hand_ = hand_ + 1 == num_frames_ ? 0 : hand_ + 1;
      if (frames_[at].used >= oldest_) continue;
      in_use_ = 0;
      if (frames_[at].group != kNone) {
        if (credit_[at] > 0) {
          --credit_[at];
          continue;
        }
        erase(frames_[at].group);
      }
      return static_cast<std::int32_t>(at);
    }
    return -1;
  }

  void enter(std::int32_t frame) noexcept {
    std::size_t at = home_of(frames_[frame].group);
    while (table_[at] >= 0) at = (at + 1) & (table_.size() - 1);
    table_[at] = frame;
  }

  void erase(std::uint32_t group) noexcept {
    const std::size_t mask = table_.size() - 1;
    std::size_t at = home_of(group);
    while (frames_[table_[at]].group != group) at = (at + 1) & mask;
    // Entries behind it move up, unless they would come before their own home.
    for (std::size_t next = (at + 1) & mask; table_[next] >= 0; next = (next + 1) & mask) {
      const std::size_t home = home_of(frames_[table_[next]].group);
      if (((next - home) & mask) < ((next - at) & mask)) continue;
      table_[at] = table_[next];
      at = next;
    }
    table_[at] = -1;
  }

  void resize_table(std::size_t size) {
    std::vector<std::int32_t>(size, -1).swap(table_);
    shift_ = 64 - std::countr_zero(size);
    for (std::int64_t frame = 0; frame < fresh_; ++frame) {
      if (frames_[frame].group != kNone) enter(static_cast<std::int32_t>(frame));
    }
  }

  std::int64_t num_frames_;
  std::int64_t fresh_ = 0;  // frames from here on were never taken
  std::int64_t hand_ = 0;
  std::int64_t in_use_ = 0;          // frames in a row that the hand found in use
  std::int64_t admitted_ = 0;        // to the current window
  std::uint32_t window_ = 0;         // number of the current one
  std::uint32_t oldest_ = 0;         // number of the oldest one whose Use lives
  int shift_ = 0;                    // of a hash to a place in table_
  std::vector<std::int32_t> table_;  // a frame for every group that is there, by its hash; -1: none
  // Memory that frames take when they are taken, and not before.
  std::shared_ptr<std::byte> frame_pages_, credit_pages_;
  Frame* frames_ = nullptr;
  std::uint8_t* credit_ = nullptr;    // [frame]: rounds of the hand that it survives
  std::vector<std::int32_t> undone_;  // frames that hold nothing; the hand does not take them
  std::shared_ptr<Live> live_;
};

}  // namespace gz
