#include "arrays/packed_ints.h"

#include <algorithm>
#include <atomic>

#include "arrays/parallel.h"
#include "io/pages.h"

namespace gz {
namespace {

constexpr std::int64_t kGrain = 1 << 16;
// A word that begins at any bit of a byte holds as many whole bits.
constexpr int kMostBits = 57;

}  // namespace

int PackedInts::bits_for(std::uint64_t largest) noexcept {
  const auto bits = static_cast<int>(std::bit_width(largest | 1));
  return bits <= kMostBits ? bits : 64;
}

std::int64_t PackedInts::num_bytes(std::int64_t size, int bits) noexcept {
  // The last word is read whole.
  constexpr auto kWord = static_cast<std::int64_t>(sizeof(std::uint64_t));
  return size / 8 * bits + (size % 8 * bits + 7) / 8 + kWord;
}

PackedInts::PackedInts(std::int64_t size, int bits)
    : size_(size),
      bits_(bits),
      mask_(~std::uint64_t{0} >> (64 - bits)),
      pages_(make_pages(static_cast<std::size_t>(num_bytes(size, bits)))) {}

std::int64_t RankedBits::num_bytes(std::int64_t size) noexcept {
  return (size / 64 + 1) * static_cast<std::int64_t>(sizeof(Word));
}

RankedBits::RankedBits(std::int64_t size, std::int64_t low)
    : size_(size), low_(low), words_((size + 63) / 64) {
  std::fill_n(words_.data(), words_.size(), Word{});
}

void RankedBits::add(std::span<const std::int64_t> ids, int threads) {
  parallel_for(std::ssize(ids), kGrain, threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint64_t at = number_of(ids[static_cast<std::size_t>(i)]);
      if (at >= static_cast<std::uint64_t>(size_)) continue;
      const std::atomic_ref<std::uint64_t> word(words_[static_cast<std::int64_t>(at / 64)].bits);
      const std::uint64_t bit = std::uint64_t{1} << (at % 64);
      // Most ids have occurred before, and reading does not take the cache line from others.
      if ((word.load(std::memory_order_relaxed) & bit) == 0) {
        word.fetch_or(bit, std::memory_order_relaxed);
      }
    }
  });
}

std::int64_t RankedBits::rank() noexcept {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < words_.size(); ++i) {
    Word& word = words_[i];
    word.before = count;
    count += std::popcount(word.bits);
  }
  return count;
}

void RankedBits::find(std::span<const std::int64_t> ids, std::int64_t* found) const {
  parallel_for(std::ssize(ids), kGrain, 0, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint64_t at = number_of(ids[static_cast<std::size_t>(i)]);
      const bool is_below = at < static_cast<std::uint64_t>(size_);
      found[i] = is_below ? find(static_cast<std::int64_t>(at)) : -1;
    }
  });
}

void RankedBits::read(std::int64_t begin, std::span<std::int64_t> ids) const noexcept {
  // The last word with no more before it than `begin`; empty words before it have as many.
  auto word = std::ranges::upper_bound(words_.span(), begin, {}, &Word::before);
  if (word == words_.span().begin()) return;
  std::int64_t skip = begin - (--word)->before;
  std::size_t done = 0;
  for (; word != words_.span().end() && done < ids.size(); ++word) {
    const std::int64_t first = low_ + (word - words_.span().begin()) * 64;
    for (std::uint64_t bits = word->bits; bits != 0 && done < ids.size(); bits &= bits - 1) {
      if (skip-- <= 0) ids[done++] = first + std::countr_zero(bits);
    }
  }
}

}  // namespace gz
