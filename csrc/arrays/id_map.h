// Global id -> position in the batch, rebuilt for every batch: open addressing with linear probing,
// key and value side by side so that a lookup is one cache line. Whether an id is new is as good as
// random, so nothing branches on it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "arrays/buffer.h"
#include "base/chunk_sizes.h"

namespace gz {

// Key is uint32_t or uint64_t, and any value of it may be stored. Thread safety: none, but for
// find().
template <class Key>
class IdMap {
 public:
  IdMap() {
    use(chunk_sizes.id_map_slots);
    clear();
  }

  // Forgets all keys. The table shrinks when the keys before needed much less of it, so that a
  // small batch after a large one does not pay for it each time.
  void clear() {
    const std::size_t needed = capacity_for(std::exchange(most_, 0));
    if (needed * 4 <= capacity()) use(needed);
    std::memset(slots_.data(), 0, capacity() * sizeof(Slot));
  }

  // Makes room for `count` keys in all; a third full at most, so that seven in eight lie at their
  // home.
  void reserve(std::size_t count) {
    most_ = std::max(most_, count);
    if (capacity_for(count) > capacity()) grow(capacity_for(count));
  }

  // The value stored for `key`; stores `fresh` first if there is none. The caller sees which
  // happened by comparing (values are batch positions, so a stored one is never `fresh`).
  // REQUIRES: reserved room, fresh < kNone.
  std::uint32_t find_or_insert(Key key, std::uint32_t fresh) noexcept {
    Slot& slot = slots_.data()[find_slot(key)];
    const std::uint32_t is_new = slot.tag == 0;
    const std::uint32_t tag = slot.tag | ((fresh + 1) & (0 - is_new));
    slot = {key, tag};
    return tag - 1;
  }

  // The value stored for `key`, or kNone.
  static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);
  std::uint32_t find(Key key) const noexcept { return slots_.data()[find_slot(key)].tag - 1; }

  void prefetch(Key key) const noexcept { __builtin_prefetch(slots_.data() + home(key), 1); }

 private:
  struct Slot {
    Key key;
    std::uint32_t tag;  // value + 1; 0: empty
  };

  static std::size_t capacity_for(std::size_t count) noexcept {
    return std::max(chunk_sizes.id_map_slots, std::bit_ceil(count * 3));
  }

  std::size_t capacity() const noexcept { return mask_ + 1; }

  std::size_t home(Key key) const noexcept {
    return static_cast<std::size_t>((static_cast<std::uint64_t>(key) * 0x9E3779B97F4A7C15ULL) >>
                                    shift_);
  }

  // Where `key` is, or the empty slot where it belongs.
  std::size_t find_slot(Key key) const noexcept {
    std::size_t at = home(key);
    while (holds_other(slots_.data()[at], key)) [[unlikely]] {
      at = (at + 1) & mask_;
    }
    return at;
  }

  // Not empty, and not `key`. The product is one condition where && would be two branches, one of
  // them a coin toss.
  static bool holds_other(const Slot& slot, Key key) noexcept {
    const auto differing = static_cast<std::uint64_t>(slot.key ^ key);
    const auto differs = static_cast<std::uint32_t>(differing | (differing >> 32));
    return static_cast<std::uint64_t>(differs) * slot.tag != 0;
  }

  // Sets the capacity, a power of two. Memory is kept when it shrinks.
  void use(std::size_t capacity) {
    slots_.resize(static_cast<std::int64_t>(capacity));
    mask_ = capacity - 1;
    shift_ = 64 - static_cast<int>(std::bit_width(mask_));
  }

  void grow(std::size_t wanted) {
    const std::vector<Slot> old(slots_.data(), slots_.data() + capacity());
    use(wanted);
    std::memset(slots_.data(), 0, capacity() * sizeof(Slot));
    for (const Slot& slot : old) {
      if (slot.tag != 0) slots_.data()[find_slot(slot.key)] = slot;
    }
  }

  Buffer<Slot> slots_;
  std::size_t mask_ = 0;
  int shift_ = 0;
  std::size_t most_ = 0;  // keys reserved for since clear()
};

}  // namespace gz
