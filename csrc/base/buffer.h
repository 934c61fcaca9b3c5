// A growable array that is never zero-filled: what batches are built in before they become tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

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
  ~Buffer() { std::free(data_); }

  // Grows or shrinks; elements that are new hold no defined value.
  void resize(std::int64_t size) {
    if (size > capacity_) reserve(std::max(size, capacity_ + capacity_ / 2));
    size_ = size;
  }

  void reserve(std::int64_t capacity) {
    if (capacity <= capacity_) return;
    if (capacity > PTRDIFF_MAX / static_cast<std::int64_t>(sizeof(T))) throw std::bad_alloc();
    void* grown = std::realloc(data_, static_cast<std::size_t>(capacity) * sizeof(T));
    if (grown == nullptr) throw std::bad_alloc();
    data_ = static_cast<T*>(grown);
    capacity_ = capacity;
  }

  void push_back(T value) {
    const std::int64_t at = size_;
    resize(at + 1);
    data_[at] = value;
  }

  void clear() noexcept { size_ = 0; }
  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  std::int64_t size() const noexcept { return size_; }
  std::int64_t capacity() const noexcept { return capacity_; }
  T& operator[](std::int64_t i) noexcept { return data_[i]; }
  const T& operator[](std::int64_t i) const noexcept { return data_[i]; }
  std::span<const T> span() const noexcept { return {data_, static_cast<std::size_t>(size_)}; }

  // Gives the memory up to the caller, who frees it with std::free.
  T* release() noexcept {
    size_ = capacity_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  T* data_ = nullptr;
  std::int64_t size_ = 0;
  std::int64_t capacity_ = 0;
};

}  // namespace gz
