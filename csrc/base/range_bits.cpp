#include "base/range_bits.h"

#include <algorithm>
#include <bit>

namespace gz {
namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};

// Calls body(word, mask) for every word that has bits of [begin, end).
template <class Body>
void for_words(std::uint64_t begin, std::uint64_t end, const Body& body) {
  if (begin == end) return;
  const std::uint64_t last = (end - 1) / 64;
  for (std::uint64_t word = begin / 64; word <= last; ++word) {
    std::uint64_t mask = kAll;
    if (word == begin / 64) mask &= kAll << (begin % 64);
    if (word == last) mask &= kAll >> (63 - (end - 1) % 64);
    body(word, mask);
  }
}

}  // namespace

RangeBits::RangeBits(std::uint64_t size) : size_(size), words_((size + 63) / 64) {}

void RangeBits::set(std::uint64_t begin, std::uint64_t end) noexcept {
  for_words(begin, end, [&](std::uint64_t word, std::uint64_t mask) { words_[word] |= mask; });
}

void RangeBits::clear(std::uint64_t begin, std::uint64_t end) noexcept {
  for_words(begin, end, [&](std::uint64_t word, std::uint64_t mask) { words_[word] &= ~mask; });
}

std::uint64_t RangeBits::first_set(std::uint64_t begin) const noexcept {
  return find(begin, size_, 0);
}

std::uint64_t RangeBits::first_clear(std::uint64_t begin) const noexcept {
  return find(begin, size_, kAll);
}

std::uint64_t RangeBits::find(std::uint64_t begin, std::uint64_t end,
                              std::uint64_t flip) const noexcept {
  if (begin >= end) return end;
  std::uint64_t mask = kAll << (begin % 64);
  for (std::uint64_t word = begin / 64; word <= (end - 1) / 64; ++word, mask = kAll) {
    const std::uint64_t found = (words_[word] ^ flip) & mask;
    if (found != 0) {
      return std::min(end, 64 * word + static_cast<std::uint64_t>(std::countr_zero(found)));
    }
  }
  return end;
}

}  // namespace gz
