// From an id to the row it stands in, for ids in any order: open addressing over row numbers, the
// ids themselves staying where they are.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "arrays/parallel.h"
#include "base/xxh64.h"

namespace gz {

// Integer ids in memory that outlives this.
struct IntegerIds {
  std::span<const std::int64_t> values;

  std::int64_t size() const noexcept { return std::ssize(values); }
  std::int64_t operator[](std::int64_t row) const noexcept {
    return values[static_cast<std::size_t>(row)];
  }
  // Steps of asking for an id ahead of its use; each needs what the one before has brought.
  static constexpr int kSteps = 1;
  void prefetch(std::int64_t row, int) const noexcept {
    __builtin_prefetch(&values[static_cast<std::size_t>(row)]);
  }
  static std::uint64_t hash(std::int64_t id) noexcept {
    return static_cast<std::uint64_t>(id) * 0x9E3779B97F4A7C15ULL;
  }
};

// Text ids, likewise: id i is bytes [offsets[i], offsets[i + 1]).
struct TextIds {
  std::span<const std::int64_t> offsets;
  const char* text;

  std::int64_t size() const noexcept { return std::ssize(offsets) - 1; }
  std::string_view operator[](std::int64_t row) const noexcept {
    const auto at = static_cast<std::size_t>(row);
    return {text + offsets[at], static_cast<std::size_t>(offsets[at + 1] - offsets[at])};
  }
  static constexpr int kSteps = 2;
  void prefetch(std::int64_t row, int step) const noexcept {
    const std::int64_t& at = offsets[static_cast<std::size_t>(row)];
    step == 0 ? __builtin_prefetch(&at) : __builtin_prefetch(text + at);
  }
  static std::uint64_t hash(std::string_view id) noexcept { return xxh64(id.data(), id.size()); }
};

// Slot is an unsigned integer wider than the number of ids; its highest value marks a free slot.
template <class Ids, class Slot>
class RowIndex {
 public:
  // Bytes that an index of `size` ids takes besides the ids.
  static std::uint64_t num_bytes(std::uint64_t size) noexcept {
    return capacity(size) * sizeof(Slot);
  }

  // Keeps `ids`, which must outlive it.
  explicit RowIndex(Ids ids)
      : ids_(ids),
        mask_(capacity(static_cast<std::uint64_t>(ids.size())) - 1),
        shift_(64 - static_cast<int>(std::bit_width(mask_))),
        slots_(new Slot[mask_ + 1]) {
    std::fill_n(slots_.get(), mask_ + 1, kFree);
    for (std::int64_t row = 0; row < ids_.size(); ++row) {
      if (row + kAhead < ids_.size()) __builtin_prefetch(&slots_[home(ids_[row + kAhead])]);
      Slot& slot = slots_[place(ids_[row], home(ids_[row]))];
      if (slot != kFree) {
        second_ = row;
        return;
      }
      slot = static_cast<Slot>(row);
    }
  }

  // The first row whose id another row has before it, or -1; there is no find() then.
  std::int64_t second() const noexcept { return second_; }

  // The row of every id, -1 where it has none.
  void find(Ids wanted, std::int64_t* rows) const {
    parallel_for(wanted.size(), 1 << 14, 0, [&](std::int64_t begin, std::int64_t end) {
      std::array<std::uint64_t, kAhead> homes;
      for (std::int64_t i = begin; i < end; i += kAhead) {
        const auto some = std::span(homes).first(std::min<std::uint64_t>(kAhead, end - i));
        for (std::size_t j = 0; j < some.size(); ++j) {
          some[j] = home(wanted[i + j]);
          __builtin_prefetch(&slots_[some[j]]);
        }
        for (int step = 0; step < Ids::kSteps; ++step) {
          for (const std::uint64_t at : some) {
            if (slots_[at] != kFree) ids_.prefetch(slots_[at], step);
          }
        }
        for (std::size_t j = 0; j < some.size(); ++j) {
          const Slot slot = slots_[place(wanted[i + j], some[j])];
          rows[i + j] = slot == kFree ? -1 : static_cast<std::int64_t>(slot);
        }
      }
    });
  }

 private:
  static constexpr Slot kFree = static_cast<Slot>(-1);
  static constexpr std::int64_t kAhead = 32;

  // At most two thirds full.
  static std::uint64_t capacity(std::uint64_t size) noexcept {
    return std::bit_ceil(std::max<std::uint64_t>(size + size / 2, 2));
  }

  template <class Id>
  std::uint64_t home(Id id) const noexcept {
    return Ids::hash(id) >> shift_;
  }

  // The slot from `at` on that holds the id's row, or the free one where it would go.
  template <class Id>
  std::uint64_t place(Id id, std::uint64_t at) const noexcept {
    while (slots_[at] != kFree && ids_[static_cast<std::int64_t>(slots_[at])] != id) {
      at = (at + 1) & mask_;
    }
    return at;
  }

  Ids ids_;
  std::uint64_t mask_;
  int shift_;
  std::unique_ptr<Slot[]> slots_;
  std::int64_t second_ = -1;
};

}  // namespace gz
