// Global id -> position in the batch, rebuilt for every batch: open addressing with linear probing,
// key and value side by side so that a lookup is one cache line.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

namespace gz {

// Key is uint32_t or uint64_t; its highest value marks an empty slot and is never stored.
// Thread safety: none.
template <class Key>
class IdMap {
 public:
  IdMap() { allocate(1024); }

  void clear() noexcept {
    std::memset(slots_.get(), 0xFF, capacity() * sizeof(Slot));
    size_ = 0;
  }

  // The value stored for `key`; stores `fresh` first if there is none. The caller sees which
  // happened by comparing (values are batch positions, so a stored one is never `fresh`).
  std::uint32_t find_or_insert(Key key, std::uint32_t fresh) {
    for (std::size_t at = home(key);; at = (at + 1) & mask_) {
      Slot& slot = slots_[at];
      if (slot.key == key) return slot.value;
      if (slot.key != kEmpty) continue;
      slot = {key, fresh};
      if (++size_ * 2 > capacity()) grow();
      return fresh;
    }
  }

  // The value stored for `key`, or kNone.
  static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);
  std::uint32_t find(Key key) const noexcept {
    for (std::size_t at = home(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.key == key) return slot.value;
      if (slot.key == kEmpty) return kNone;
    }
  }

  void prefetch(Key key) const noexcept { __builtin_prefetch(&slots_[home(key)], 1); }

 private:
  struct Slot {
    Key key;
    std::uint32_t value;
  };
  static constexpr Key kEmpty = static_cast<Key>(-1);

  std::size_t capacity() const noexcept { return mask_ + 1; }

  std::size_t home(Key key) const noexcept {
    return static_cast<std::size_t>((static_cast<std::uint64_t>(key) * 0x9E3779B97F4A7C15ULL) >>
                                    shift_);
  }

  void allocate(std::size_t capacity) {
    slots_.reset(new Slot[capacity]);
    mask_ = capacity - 1;
    shift_ = 64 - static_cast<int>(std::bit_width(mask_));
    clear();
  }

  void grow() {
    const std::unique_ptr<Slot[]> old = std::move(slots_);
    const std::size_t old_capacity = capacity();
    const std::size_t old_size = size_;
    allocate(old_capacity * 2);
    for (std::size_t i = 0; i < old_capacity; ++i) {
      if (old[i].key == kEmpty) continue;
      std::size_t at = home(old[i].key);
      while (slots_[at].key != kEmpty) at = (at + 1) & mask_;
      slots_[at] = old[i];
    }
    size_ = old_size;
  }

  std::unique_ptr<Slot[]> slots_;
  std::size_t mask_ = 0;
  int shift_ = 0;
  std::size_t size_ = 0;
};

}  // namespace gz
