// A bit for each of n things, set and asked for by ranges.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gz {

class RangeBits {
 public:
  explicit RangeBits(std::uint64_t size);

  std::uint64_t size() const noexcept { return size_; }
  // Bit i is bit i % 64 of word i / 64; those behind the last are 0.
  std::span<std::uint64_t> words() noexcept { return words_; }
  std::span<const std::uint64_t> words() const noexcept { return words_; }

  // REQUIRES: begin <= end <= size(), here and below.
  void set(std::uint64_t begin, std::uint64_t end) noexcept;
  void clear(std::uint64_t begin, std::uint64_t end) noexcept;
  // The first set, or not set, from `begin` on; size() if there is none.
  std::uint64_t first_set(std::uint64_t begin) const noexcept;
  std::uint64_t first_clear(std::uint64_t begin) const noexcept;

 private:
  // The first of [begin, end) that is not as `flip` says; `end` if there is none.
  std::uint64_t find(std::uint64_t begin, std::uint64_t end, std::uint64_t flip) const noexcept;

  std::uint64_t size_;
  std::vector<std::uint64_t> words_;
};

}  // namespace gz
