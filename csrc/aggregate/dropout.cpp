#include "aggregate/dropout.h"

#include <algorithm>
#include <cmath>

#include "arrays/parallel.h"
#include "base/rng.h"

namespace gz {
namespace {

// Numbers that share a key; decides which are left out.
constexpr std::int64_t kDropoutChunk = 4096;

// 32 bits that say nothing about each other for neighbouring `at`, in operations that vector units
// have. The constants are of "lowbias32" (Wellons 2018, "Prospecting for Hash Functions").
GZ_INLINE std::uint32_t mix32(std::uint32_t at, std::uint32_t key, std::uint32_t second_key) {
  std::uint32_t bits = at + key;
  bits = (bits ^ (bits >> 16)) * 0x7FEB352DU;
  bits = (bits ^ second_key ^ (bits >> 15)) * 0x846CA68BU;
  return bits ^ (bits >> 16);
}

// Vector code needs arguments that do not overlap, rather than captures of a lambda.
template <class T>
GZ_INLINE void thin(const T* __restrict from, std::int64_t size, std::uint64_t key,
                    std::int32_t dropped, Sum<T> scale, T* __restrict to) {
  const auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 1
  for (std::int64_t i = 0; i < size; ++i) {
    const std::uint32_t bits = mix32(static_cast<std::uint32_t>(i), low, high);
    const bool is_kept = static_cast<std::int32_t>(bits >> 1) >= dropped;
    to[i] = narrow<T>(widen(from[i]) * (is_kept ? scale : Sum<T>{0}));
  }
}

}  // namespace

template <class T>
void dropout(std::span<const T> x, double p, std::uint64_t key, int threads, T* out) {
  // 31 bits are compared, which fit a signed comparison. Where p is 1, all are scaled by 0.
  const auto limit = static_cast<std::int64_t>(std::llround(p * 0x1p31));
  const auto dropped = static_cast<std::int32_t>(std::min<std::int64_t>(limit, INT32_MAX));
  const Sum<T> scale = limit <= INT32_MAX ? static_cast<Sum<T>>(1 / (1 - p)) : Sum<T>{0};
  const std::int64_t count = std::ssize(x);
  const std::int64_t chunks = (count + kDropoutChunk - 1) / kDropoutChunk;
  parallel_for(chunks, 4, threads, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      const std::int64_t begin = chunk * kDropoutChunk;
      const std::int64_t size = std::min(kDropoutChunk, count - begin);
      const std::uint64_t own = derive_key(key, static_cast<std::uint64_t>(chunk));
      run_widest(
          [&]() GZ_INLINED { thin(x.data() + begin, size, own, dropped, scale, out + begin); });
    }
  });
}

#define GZ_DROPOUT(T) template void dropout<T>(std::span<const T>, double, std::uint64_t, int, T*);
GZ_FOR_NUMBERS(GZ_DROPOUT)

}  // namespace gz
