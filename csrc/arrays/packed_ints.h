// Integers in as few bits as they need, and sets of numbers in a bit each, in pages of their own.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "arrays/buffer.h"

namespace gz {

// An array of unsigned integers, all of 1 to 57 bits or of 64; zeros at first. Copies share
// it.
// Thread safety: write() may come from several threads if each begins at a multiple of 8.
class PackedInts {
 public:
  PackedInts() = default;
  PackedInts(std::int64_t size, int bits);

  // Bits of numbers up to `largest`.
  static int bits_for(std::uint64_t largest) noexcept;
  // Bytes of an array of integers of bits_for() bits.
  static std::int64_t num_bytes(std::int64_t size, int bits) noexcept;

  std::int64_t size() const noexcept { return size_; }
  std::int64_t num_bytes() const noexcept { return num_bytes(size_, bits_); }

  // REQUIRES of every i: 0 <= i < size(); of every value, that it fits the bits.
  std::int64_t operator[](std::int64_t i) const noexcept {
    const std::int64_t bit = i * bits_;
    std::uint64_t word;
    std::memcpy(&word, pages_.get() + (bit >> 3), sizeof word);
    return static_cast<std::int64_t>(word >> (bit & 7) & mask_);
  }
  void prefetch(std::int64_t i) const noexcept {
    __builtin_prefetch(pages_.get() + (i * bits_ >> 3));
  }
  // REQUIRES that integer i was not set before.
  void set(std::int64_t i, std::uint64_t value) noexcept {
    std::byte* const at = pages_.get() + (i * bits_ >> 3);
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    word |= value << (i * bits_ & 7);
    std::memcpy(at, &word, sizeof word);
  }
  // operator[] of numbers of 1, 2, 4 or 8 bits: each is within one byte and cache line.
  std::uint8_t in_byte(std::int64_t i) const noexcept {
    const std::int64_t bit = i * bits_;
    const auto byte = static_cast<std::uint64_t>(pages_.get()[bit >> 3]);
    return static_cast<std::uint8_t>(byte >> (bit & 7) & mask_);
  }
  // Integers from number `first` on. REQUIRES that those before `first` were written, and none
  // behind it.
  template <class Value>
  void write(std::int64_t first, std::span<const Value> values) noexcept {
    std::byte* at = pages_.get() + (first * bits_ >> 3);
    int filled = static_cast<int>(first * bits_ & 7);
    std::uint64_t word = filled > 0 ? static_cast<std::uint64_t>(*at) : 0;
    for (const Value each : values) {
      const auto value = static_cast<std::uint64_t>(each);
      word |= value << filled;
      filled += bits_;
      if (filled < 64) continue;
      std::memcpy(at, &word, sizeof word);
      at += sizeof word;
      filled -= 64;
      word = filled > 0 ? value >> (bits_ - filled) : 0;
    }
    std::memcpy(at, &word, static_cast<std::size_t>(filled + 7) / 8);
  }

 private:
  std::int64_t size_ = 0;
  int bits_ = 1;
  std::uint64_t mask_ = 1;
  std::shared_ptr<std::byte> pages_;
};

// Which of the numbers 0 … size - 1 are in a set, and how many before each: a bit each, and as much
// again for its rank. They stand for the ids low … low + size - 1. First come set() and add(),
// then rank(), then the rest.
// Thread safety: none before rank(); then immutable.
class RankedBits {
 public:
  RankedBits() = default;
  explicit RankedBits(std::int64_t size, std::int64_t low = 0);

  static std::int64_t num_bytes(std::int64_t size) noexcept;

  std::int64_t size() const noexcept { return size_; }

  // REQUIRES of every i: 0 <= i < size().
  bool has(std::int64_t i) const noexcept { return (words_[i >> 6].bits & bit_of(i)) != 0; }
  void prefetch(std::int64_t i) const noexcept { __builtin_prefetch(&words_[i >> 6]); }
  void set(std::int64_t i) noexcept { words_[i >> 6].bits |= bit_of(i); }
  // Sets ids, on several threads. Leaves out those of no number.
  void add(std::span<const std::int64_t> ids, int threads = 0);

  // Counts the set; how many are in it.
  std::int64_t rank() noexcept;
  // How many are before i; and that, if i is in the set, or -1.
  std::int64_t before(std::int64_t i) const noexcept {
    const Word& word = words_[i >> 6];
    return word.before + std::popcount(word.bits & (bit_of(i) - 1));
  }
  std::int64_t find(std::int64_t i) const noexcept { return has(i) ? before(i) : -1; }
  // find() of ids, on several threads; -1 for those of no number.
  void find(std::span<const std::int64_t> ids, std::int64_t* found) const;
  // Ids of ranks `begin` … begin + ids.size() - 1.
  void read(std::int64_t begin, std::span<std::int64_t> ids) const noexcept;

 private:
  struct Word {
    std::uint64_t bits;
    std::int64_t before;  // in the set, of the words before
  };

  static std::uint64_t bit_of(std::int64_t i) noexcept { return std::uint64_t{1} << (i & 63); }
  // The number of an id; beyond size() for one that has none, as it is unsigned.
  std::uint64_t number_of(std::int64_t id) const noexcept {
    return static_cast<std::uint64_t>(id) - static_cast<std::uint64_t>(low_);
  }

  std::int64_t size_ = 0, low_ = 0;
  Buffer<Word> words_;  // [size / 64]
};

}  // namespace gz
