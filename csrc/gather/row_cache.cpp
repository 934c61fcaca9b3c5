#include "gather/row_cache.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/errors.h"
#include "io/pages.h"

namespace gz {
namespace {

constexpr std::uint8_t kMostCredit = 15;
constexpr std::size_t kLeastTable = 1024;

}  // namespace

// The windows whose Use lives, by number.
struct RowCache::Live {
  std::mutex mutex;
  std::set<std::uint32_t> windows;
};

RowCache::RowCache(std::int64_t num_groups, std::int64_t num_frames)
    : num_frames_(
          std::clamp<std::int64_t>(num_frames, 0, std::min<std::int64_t>(num_groups, INT32_MAX))),
      live_(std::make_shared<Live>()) {
  if (num_groups >= std::int64_t{kNone}) {
    throw invalid("row cache: found ", num_groups, " groups of rows, expected fewer than ", kNone);
  }
  const auto count = static_cast<std::size_t>(num_frames_);
  frame_pages_ = make_pages(count * sizeof(Frame));
  credit_pages_ = make_pages(count);
  frames_ = reinterpret_cast<Frame*>(frame_pages_.get());
  credit_ = reinterpret_cast<std::uint8_t*>(credit_pages_.get());
  undone_.reserve(count / kWindowShare + 1);
  resize_table(kLeastTable);
}

void RowCache::resize_table(std::size_t size) {
  std::vector<std::int32_t>(size, -1).swap(table_);
  shift_ = 64 - std::countr_zero(size);
  for (std::int64_t frame = 0; frame < fresh_; ++frame) {
    if (frames_[frame].group != kNone) enter(static_cast<std::int32_t>(frame));
  }
}

void RowCache::enter(std::int32_t frame) noexcept {
  std::size_t at = home_of(frames_[frame].group);
  while (table_[at] >= 0) at = (at + 1) & (table_.size() - 1);
  table_[at] = frame;
}

RowCache::Use RowCache::begin_window() {
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

void RowCache::find(std::span<const std::uint32_t> groups, std::int32_t* frames) noexcept {
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

void RowCache::use(std::int32_t frame) noexcept {
  if (std::exchange(frames_[frame].used, window_) == window_) return;
  if (credit_[frame] < kMostCredit) ++credit_[frame];
}

std::int32_t RowCache::admit(std::uint32_t group, bool again) {
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
    if (static_cast<std::size_t>(fresh_) * 3 / 2 >= table_.size()) resize_table(2 * table_.size());
    frame = static_cast<std::int32_t>(fresh_++);
  }
  ++admitted_;
  frames_[frame] = {group, window_};
  credit_[frame] = again;
  enter(frame);
  return frame;
}

std::int32_t RowCache::victim() noexcept {
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

void RowCache::drop(std::int32_t frame) noexcept {
  Frame& dropped = frames_[frame];
  erase(dropped.group);
  dropped.group = kNone;
}

void RowCache::undo(std::int32_t frame) noexcept {
  drop(frame);
  frames_[frame].used = UINT32_MAX;
  undone_.push_back(frame);
  --admitted_;
}

void RowCache::erase(std::uint32_t group) noexcept {
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

}  // namespace gz
