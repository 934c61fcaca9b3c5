// A column whose rows have few different values (labels, masks, years), in memory of its own: each
// row in as few bits as tell them apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "arrays/packed_ints.h"

namespace gz {

struct RowTable;

// Thread safety: immutable.
class Dictionary {
 public:
  static constexpr std::size_t kMostValues = 256;

  // Reads all rows of a table; null where there are more values, or rows of another size than 1, 2,
  // 4 or 8 bytes, or encoded ones. Raises OsError where its file was truncated under its map.
  static std::shared_ptr<const Dictionary> of(const RowTable& table);

  std::int64_t num_rows() const noexcept { return codes_.size(); }
  std::int64_t row_bytes() const noexcept { return row_bytes_; }
  std::int64_t num_bytes() const noexcept { return codes_.num_bytes(); }

  // Puts rows index[0 … count) one behind the other at `out`. REQUIRES: every index is a row.
  void copy(const std::int64_t* index, std::int64_t count, std::byte* out) const noexcept;

 private:
  std::int64_t row_bytes_ = 0;
  PackedInts codes_;  // [row], in 1, 2, 4 or 8 bits
  std::array<std::uint64_t, kMostValues> values_{};
};

}  // namespace gz
