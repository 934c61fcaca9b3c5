// A growable array that is never zero-filled: what batches are built in before they become tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "arrays/memory_pool.h"

namespace gz {

template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  explicit Buffer(std::int64_t size) { resize(size); }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() { return_block(block_); }

  // Grows or shrinks; elements that are new hold no defined value.
  void resize(std::int64_t size) {
    if (size > capacity()) reserve(std::max(size, capacity() + capacity() / 2));
    size_ = size;
  }

  void reserve(std::int64_t wanted) {
    if (wanted <= capacity()) return;
    if (wanted > PTRDIFF_MAX / static_cast<std::int64_t>(sizeof(T))) throw std::bad_alloc();
    const Block grown = take_block(static_cast<std::size_t>(wanted) * sizeof(T));
    if (size_ > 0)
      std::memcpy(grown.data, block_.data, static_cast<std::size_t>(size_) * sizeof(T));
    return_block(std::exchange(block_, grown));
  }

  void push_back(T value) {
    const std::int64_t at = size_;
    resize(at + 1);
    data()[at] = value;
  }

  void clear() noexcept { size_ = 0; }
  T* data() noexcept { return static_cast<T*>(block_.data); }
  const T* data() const noexcept { return static_cast<const T*>(block_.data); }
  std::int64_t size() const noexcept { return size_; }
  std::int64_t capacity() const noexcept {
    return static_cast<std::int64_t>(block_.size / sizeof(T));
  }
  T& operator[](std::int64_t i) noexcept { return data()[i]; }
  const T& operator[](std::int64_t i) const noexcept { return data()[i]; }
  std::span<const T> span() const noexcept { return {data(), static_cast<std::size_t>(size_)}; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(size_, other.size_);
  }

  Block block_;
  std::int64_t size_ = 0;
};

}  // namespace gz
