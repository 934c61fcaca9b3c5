// Ids that wait for their turn in half the memory, or in an eighth.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include "arrays/buffer.h"

namespace gz {

// A list of ids: as steps of 8 bits where it rises by small ones, in 32 bits each where all of them
// fit, else as it is.
class NarrowIds {
 public:
  NarrowIds() = default;
  explicit NarrowIds(std::span<const std::int64_t> ids) {
    const std::int64_t bytes = bytes_for(ids);
    const auto size = static_cast<std::int64_t>(ids.size());
    if (bytes == 1 && size > 0) {
      steps_.resize(size);
      std::adjacent_difference(ids.begin(), ids.end(), steps_.data());
      first_ = ids[0];
      steps_[0] = 0;
    } else if (bytes == 4) {
      narrow_.resize(size);
      std::copy_n(ids.data(), size, narrow_.data());
    } else {
      wide_.resize(size);
      std::copy_n(ids.data(), size, wide_.data());
    }
  }
  explicit NarrowIds(Buffer<std::int64_t> ids) {
    if (bytes_for(ids.span()) == 8) {
      wide_ = std::move(ids);
    } else {
      *this = NarrowIds(ids.span());
    }
  }

  // Bytes that each of these ids takes.
  static std::int64_t bytes_for(std::span<const std::int64_t> ids) noexcept {
    std::uint64_t highest = 0, farthest = 0;  // negative ones are higher than all others
    std::uint64_t last = ids.empty() ? 0 : static_cast<std::uint64_t>(ids[0]);
    for (const std::int64_t id : ids) {
      const auto now = static_cast<std::uint64_t>(id);
      highest = std::max(highest, now);
      farthest = std::max(farthest, now - std::exchange(last, now));
    }
    return farthest <= UINT8_MAX ? 1 : highest <= UINT32_MAX ? 4 : 8;
  }

  std::int64_t size() const noexcept { return steps_.size() + narrow_.size() + wide_.size(); }

  Buffer<std::int64_t> widen() && {
    if (wide_.size() > 0) return std::move(wide_);
    Buffer<std::int64_t> ids(size());
    widen_to(ids.data());
    return ids;
  }

  // Writes all ids to `out`. REQUIRES room for size() of them.
  void widen_to(std::int64_t* out) const {
    for_each([&](std::int64_t id) { *out++ = id; });
  }

  // Calls visit(id) for each of them.
  template <class Visit>
  void for_each(const Visit& visit) const {
    std::int64_t at = first_;
    for (const std::uint8_t step : steps_.span()) visit(at += step);
    for (const std::uint32_t id : narrow_.span()) visit(static_cast<std::int64_t>(id));
    for (const std::int64_t id : wide_.span()) visit(id);
  }

 private:
  std::int64_t first_ = 0;
  Buffer<std::uint8_t> steps_;  // from the one before; the first one's is 0
  Buffer<std::uint32_t> narrow_;
  Buffer<std::int64_t> wide_;
};

// Numbers that are not negative, changed one by one: in 32 bits each where all of them fit.
class NarrowNumbers {
 public:
  // Makes room for `count` numbers below `end`. Numbers that were there are gone.
  void reset(std::int64_t count, std::int64_t end) {
    const bool fits = end <= std::int64_t{1} << 32;
    narrow_.resize(fits ? count : 0);
    wide_.resize(fits ? 0 : count);
  }

  std::int64_t size() const noexcept { return narrow_.size() + wide_.size(); }

  std::int64_t operator[](std::int64_t i) const noexcept {
    return wide_.size() > 0 ? wide_[i] : std::int64_t{narrow_[i]};
  }
  void set(std::int64_t i, std::int64_t number) noexcept {
    if (wide_.size() > 0) {
      wide_[i] = number;
    } else {
      narrow_[i] = static_cast<std::uint32_t>(number);
    }
  }
  // Copies the numbers from `first` on, out.size() of them.
  void read(std::int64_t first, std::span<std::int64_t> out) const noexcept {
    for (std::int64_t& number : out) number = (*this)[first++];
  }

 private:
  Buffer<std::uint32_t> narrow_;
  Buffer<std::int64_t> wide_;
};

// Either kind of list, borrowed.
class IdList {
 public:
  IdList(std::span<const std::int64_t> ids) : wide_(ids) {}  // NOLINT: both stand for the list
  IdList(const NarrowIds& ids) : narrow_(&ids) {}            // NOLINT

  std::int64_t size() const noexcept {
    return narrow_ != nullptr ? narrow_->size() : static_cast<std::int64_t>(wide_.size());
  }

  template <class Visit>
  void for_each(const Visit& visit) const {
    if (narrow_ != nullptr) return narrow_->for_each(visit);
    for (const std::int64_t id : wide_) visit(id);
  }

 private:
  std::span<const std::int64_t> wide_;
  const NarrowIds* narrow_ = nullptr;
};

}  // namespace gz
