// Which groups of rows were used lately, where memory holds each, and which makes room for another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

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
  RowCache(std::int64_t num_groups, std::int64_t num_frames);

  // Bytes of a frame beside its rows, at most.
  static constexpr std::int64_t kFrameBytes = 24;

  using Use = std::shared_ptr<const void>;
  // Frames that are found or taken from now on stay until all copies of what is returned are gone.
  Use begin_window();

  std::int64_t num_frames() const noexcept { return num_frames_; }

  // The frame of each of these groups, or -1; those that are there are used by the current window.
  // At most kFindAtOnce of them.
  static constexpr std::size_t kFindAtOnce = 128;
  void find(std::span<const std::uint32_t> groups, std::int32_t* frames) noexcept;

  // A frame for a group that has none, or -1 where all are in use or the window took its share,
  // 1 / kWindowShare: the next one is read while it lives. `again`: the group is used more than
  // once already.
  static constexpr std::int64_t kWindowShare = 2;
  std::int32_t admit(std::uint32_t group, bool again);

  // A group that the current window admitted is not there after all. Its frame is free once no
  // window uses it.
  void drop(std::int32_t frame) noexcept;
  // Drops it, and has the window not want it: another group may be admitted there.
  void undo(std::int32_t frame) noexcept;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Frame {
    std::uint32_t group;
    std::uint32_t used;  // number of the last window that did
  };
  struct Live;

  std::size_t home_of(std::uint32_t group) const noexcept {
    return static_cast<std::size_t>((group * std::uint64_t{0x9E3779B97F4A7C15}) >> shift_);
  }
  void use(std::int32_t frame) noexcept;
  std::int32_t victim() noexcept;
  void enter(std::int32_t frame) noexcept;
  void erase(std::uint32_t group) noexcept;
  void resize_table(std::size_t size);

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
