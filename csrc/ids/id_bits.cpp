#include "ids/id_bits.h"

#include <algorithm>
#include <bit>

#include "arrays/parallel.h"

namespace gz {
namespace {

constexpr std::int64_t kGrain = 1 << 16;

}  // namespace

IdBits::IdBits(std::int64_t low, std::uint64_t span)
    : low_(low),
      span_(span),
      num_words_((span + 63) / 64),
      words_(std::make_unique<std::uint64_t[]>(num_words_)) {}

std::uint64_t IdBits::num_bytes(std::uint64_t span) noexcept {
  return (span / 64 + 1) * (sizeof(std::uint64_t) + sizeof(std::int64_t));
}

void IdBits::add(std::span<const std::int64_t> ids) {
  const auto low = static_cast<std::uint64_t>(low_);
  parallel_for(std::ssize(ids), kGrain, 0, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      // Unsigned, what lies below the range lies beyond it.
      const std::uint64_t at = static_cast<std::uint64_t>(ids[static_cast<std::size_t>(i)]) - low;
      if (at >= span_) continue;
      const std::atomic_ref<std::uint64_t> word(words_[at / 64]);
      const std::uint64_t bit = 1ULL << (at % 64);
      // Most ids have occurred before, and reading does not take the cache line from others.
      if ((word.load(std::memory_order_relaxed) & bit) == 0) {
        word.fetch_or(bit, std::memory_order_relaxed);
      }
    }
  });
}

std::int64_t IdBits::rank() {
  ranks_.resize(static_cast<std::int64_t>(num_words_));
  std::int64_t count = 0;
  for (std::uint64_t word = 0; word < num_words_; ++word) {
    ranks_[static_cast<std::int64_t>(word)] = count;
    count += std::popcount(words_[word]);
  }
  return count;
}

void IdBits::find(std::span<const std::int64_t> ids, std::int64_t* numbers) const {
  const auto low = static_cast<std::uint64_t>(low_);
  parallel_for(std::ssize(ids), kGrain, 0, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint64_t at = static_cast<std::uint64_t>(ids[static_cast<std::size_t>(i)]) - low;
      numbers[i] = -1;
      if (at >= span_) continue;
      const std::uint64_t word = words_[at / 64];
      const std::uint64_t bit = 1ULL << (at % 64);
      if ((word & bit) == 0) continue;
      numbers[i] = ranks_[static_cast<std::int64_t>(at / 64)] + std::popcount(word & (bit - 1));
    }
  });
}

void IdBits::read(std::int64_t begin, std::span<std::int64_t> ids) const {
  const std::span<const std::int64_t> ranks = ranks_.span();
  // The last word with no more ids than `begin` before it; empty words before it have as many.
  const auto after = std::upper_bound(ranks.begin(), ranks.end(), begin);
  if (after == ranks.begin()) return;
  auto word = static_cast<std::uint64_t>(after - ranks.begin() - 1);
  std::int64_t skip = begin - ranks[word];
  std::size_t done = 0;
  for (; word < num_words_ && done < ids.size(); ++word) {
    for (std::uint64_t bits = words_[word]; bits != 0 && done < ids.size(); bits &= bits - 1) {
      if (skip-- > 0) continue;
      const auto bit = static_cast<std::uint64_t>(std::countr_zero(bits));
      ids[done++] = static_cast<std::int64_t>(static_cast<std::uint64_t>(low_) + word * 64 + bit);
    }
  }
}

}  // namespace gz
