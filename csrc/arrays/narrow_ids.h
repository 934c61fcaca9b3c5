// Ids that wait for their turn in half the memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "arrays/buffer.h"

namespace gz {

// A list of ids, in 32 bits each where all of them fit.
class NarrowIds {
 public:
  NarrowIds() = default;
  explicit NarrowIds(Buffer<std::int64_t> ids) {
    std::uint64_t highest = 0;  // negative ones are higher than all others
    for (const std::int64_t id : ids.span()) {
      highest = std::max(highest, static_cast<std::uint64_t>(id));
    }
    if (highest > UINT32_MAX) {
      wide_ = std::move(ids);
      return;
    }
    narrow_.resize(ids.size());
    std::copy_n(ids.data(), ids.size(), narrow_.data());
  }

  std::int64_t size() const noexcept { return narrow_.size() + wide_.size(); }

  // `locked`: see Buffer.
  Buffer<std::int64_t> widen(bool locked = false) && {
    if (wide_.size() > 0) return std::move(wide_);
    Buffer<std::int64_t> ids(narrow_.size(), locked);
    std::copy_n(narrow_.data(), narrow_.size(), ids.data());
    return ids;
  }

  // Calls visit(id) for each of them.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const std::uint32_t id : narrow_.span()) visit(static_cast<std::int64_t>(id));
    for (const std::int64_t id : wide_.span()) visit(id);
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
