#include "gather/resident_rows.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace gz {

ResidentRows::ResidentRows(std::int64_t num_rows, int group_bits)
    : num_rows_(num_rows),
      num_groups_((num_rows + (std::int64_t{1} << group_bits) - 1) >> group_bits),
      group_bits_(group_bits) {}

ResidentRows ResidentRows::first(std::int64_t num_rows, int group_bits, std::int64_t count) {
  ResidentRows rows(num_rows, group_bits);
  rows.num_kept_ = std::clamp<std::int64_t>(count, 0, rows.num_groups_);
  return rows;
}

ResidentRows ResidentRows::of(std::int64_t num_rows, int group_bits,
                              std::span<const std::int64_t> groups) {
  ResidentRows rows(num_rows, group_bits);
  if (groups.empty()) return rows;
  rows.words_.resize(static_cast<std::size_t>((rows.num_groups_ + 63) >> 6));
  for (const std::int64_t group : groups) {
    if (group < 0 || group >= rows.num_groups_) {
      throw std::out_of_range("resident rows: found group " + std::to_string(group) +
                              ", expected 0 <= group < " + std::to_string(rows.num_groups_));
    }
    rows.words_[static_cast<std::size_t>(group >> 6)].bits |= std::uint64_t{1} << (group & 63);
  }
  rows.count();
  return rows;
}

ResidentRows ResidentRows::of_bits(std::int64_t num_rows, std::span<const std::uint64_t> bits) {
  ResidentRows rows(num_rows, 0);
  rows.words_.resize(static_cast<std::size_t>((num_rows + 63) >> 6));
  if (bits.size() != rows.words_.size()) {
    throw std::invalid_argument("resident rows: found " + std::to_string(bits.size()) +
                                " words of bits, expected " + std::to_string(rows.words_.size()));
  }
  for (std::size_t i = 0; i < bits.size(); ++i) rows.words_[i].bits = bits[i];
  rows.count();
  return rows;
}

void ResidentRows::count() noexcept {
  for (Word& word : words_) {
    word.before = num_kept_;
    num_kept_ += std::popcount(word.bits);
  }
}

std::int64_t ResidentRows::next_kept(std::int64_t group) const noexcept {
  if (words_.empty()) return group < num_kept_ ? group : num_groups_;
  auto at = static_cast<std::size_t>(group >> 6);
  if (at >= words_.size()) return num_groups_;
  std::uint64_t bits = words_[at].bits & (~std::uint64_t{0} << (group & 63));
  while (bits == 0) {
    if (++at == words_.size()) return num_groups_;
    bits = words_[at].bits;
  }
  return static_cast<std::int64_t>(at) * 64 + std::countr_zero(bits);
}

}  // namespace gz
