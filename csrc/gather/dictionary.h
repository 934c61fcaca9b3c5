// A column whose rows have few different values (labels, masks, years), in memory of its own: each
// row in as few bits as tell them apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace gz {

struct RowTable;

// Thread safety: immutable.
class Dictionary {
 public:
  static constexpr std::size_t kMostValues = 256;

  // Of all rows of a table; null where there are more values, or rows of another size than 1, 2, 4
  // or 8 bytes, or encoded ones. Raises OsError where its file was truncated under its map.
  static std::shared_ptr<const Dictionary> of(const RowTable& table);

  std::int64_t num_rows() const noexcept { return num_rows_; }
  std::int64_t row_bytes() const noexcept { return row_bytes_; }
  std::int64_t num_bytes() const noexcept { return (num_rows_ << bits_shift_) / 8 + 1; }

  // Puts rows index[0 … count) one behind the other at `out`. REQUIRES: every index is a row.
  void copy(const std::int64_t* index, std::int64_t count, std::byte* out) const noexcept;

 private:
  class Builder;

  std::uint8_t code(std::int64_t row) const noexcept {
    const std::int64_t bit = row << bits_shift_;
    return static_cast<std::uint8_t>(codes_[bit >> 3] >> (bit & 7)) & mask();
  }
  std::uint8_t mask() const noexcept {
    return static_cast<std::uint8_t>((1U << (1U << bits_shift_)) - 1);
  }
  template <class Value>
  void copy_as(const std::int64_t* index, std::int64_t count, std::byte* out) const noexcept;

  std::int64_t num_rows_ = 0;
  std::int64_t row_bytes_ = 0;
  int bits_shift_ = 0;  // a code has 1, 2, 4 or 8 bits: 1 << bits_shift_
  std::shared_ptr<std::byte> pages_;
  std::uint8_t* codes_ = nullptr;  // in pages_
  std::array<std::uint64_t, kMostValues> values_{};
};

}  // namespace gz
