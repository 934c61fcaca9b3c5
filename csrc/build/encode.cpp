#include "build/encode.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "base/parallel.h"

namespace gz {
namespace {

// Columns per range of a loop: a cache line of every row.
constexpr std::int64_t kColumnGrain = 16;
// Steps between the ends of a range. One fewer than there are, so that the codes can be shifted to
// have one that is exactly 0.
constexpr double kSteps = 254;
// Eight bins to an octave: the exponent and three bits of the mantissa.
constexpr int kKeyShift = 20;
constexpr int kKeysPerOctave = 8;
// The lowest bin begins this far below the typical distance to the centre.
constexpr int kOctavesBelow = 24;
constexpr std::int64_t kSampledRows = 1024;
// Values are clipped only where that halves the cost at least.
constexpr double kWorthClipping = 0.5;
// What the last code decodes to may lie half a step beyond the range, and must be finite.
constexpr double kReach = 0.99 * std::numeric_limits<float>::max();
constexpr double kBulk = 0.99;
constexpr double kFarthest = 8;

std::int32_t key_of(float distance) {
  return std::bit_cast<std::int32_t>(std::fabs(distance)) >> kKeyShift;
}

double distance_of(std::int32_t key) {
  constexpr std::int32_t kLast = 0x7F800000 >> kKeyShift;
  return static_cast<double>(
      std::bit_cast<float>(std::clamp<std::int32_t>(key, 0, kLast - 1) << kKeyShift));
}

// What clipping costs on one side of a profile, by the bin at whose lower edge the limit lies: the
// squared distance to it, of each value beyond it, but never more than `most`.
template <std::size_t kBins>
std::array<double, kBins + 1> clipping_costs(const std::int64_t (&counts)[kBins],
                                             const std::array<double, kBins + 1>& edges,
                                             double most) {
  std::array<double, kBins + 1> costs{};
  for (std::size_t outer = 0; outer < kBins; ++outer) {
    if (counts[outer] == 0) continue;
    const double middle = (edges[outer] + edges[outer + 1]) / 2;
    const auto n = static_cast<double>(counts[outer]);
    for (std::size_t limit = 0; limit <= outer; ++limit) {
      const double beyond = middle - edges[limit];
      costs[limit] += n * std::min(beyond * beyond, most);
    }
  }
  return costs;
}

// Half a step beyond the largest number of a code, as bits: there rounding ends and clipping
// begins.
constexpr std::uint32_t kFloat16Limit = 0x477FF000U;
constexpr std::uint32_t kBFloat16Limit = 0x7F7F8000U;
constexpr std::uint32_t kInfinity = 0x7F800000U;

// To nearest, ties to even, without a call. REQUIRES |value| < 2^51.
double round_to_even(double value) {
  constexpr double kMagic = 0x1.8p52;
  return (value + kMagic) - kMagic;
}

struct Coded {
  float decoded;
  bool clipped;
};

// One column's constants for encoding its items.
struct ItemEncoder {
  float scale = 0;
  float zero_point = 0;
  double per_step = 0;  // 1 / scale, or 0 where the column is constant

  template <RowCode kCode>
  Coded encode(float value, std::byte* out) const {
    if constexpr (kCode == RowCode::kInt8) {
      const double exact = (static_cast<double>(value) - zero_point) * per_step;
      const double rounded = round_to_even(std::clamp(exact, -1000.0, 1000.0));
      const double kept = std::clamp(rounded, -128.0, 127.0);
      const auto stored = static_cast<std::int8_t>(kept);
      std::memcpy(out, &stored, sizeof stored);
      return {static_cast<float>(stored) * scale + zero_point, kept != rounded};
    } else {
      constexpr bool kIsFloat16 = kCode == RowCode::kFloat16;
      const std::uint16_t stored = kIsFloat16 ? to_float16(value) : to_bfloat16(value);
      std::memcpy(out, &stored, sizeof stored);
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
      const std::uint32_t limit = kIsFloat16 ? kFloat16Limit : kBFloat16Limit;
      return {kIsFloat16 ? from_float16(stored) : from_bfloat16(stored),
              magnitude >= limit && magnitude < kInfinity};
    }
  }
};

float rounded_up(double value) {
  const auto nearest = static_cast<float>(value);
  if (nearest >= value) return nearest;
  return std::nextafter(nearest, std::numeric_limits<float>::infinity());
}

}  // namespace

double ColumnLoss::variance() const noexcept {
  if (count == 0) return 0;
  const auto n = static_cast<double>(count);
  return std::max(0.0, (sum_of_squares - sum * sum / n) / n);
}

RowEncoder::RowEncoder(RowCode code, std::int64_t num_columns)
    : code_(code), num_columns_(num_columns), losses_(static_cast<std::size_t>(num_columns)) {}

std::int64_t RowEncoder::profile(const float* rows, std::int64_t num_rows, int threads) {
  if (num_rows == 0) return -1;
  std::atomic<std::int64_t> first_bad{std::numeric_limits<std::int64_t>::max()};
  parallel_for(num_columns_, kColumnGrain, threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < num_rows; ++row) {
      for (std::int64_t c = begin; c < end; ++c) {
        if (std::isfinite(rows[row * num_columns_ + c])) continue;
        std::int64_t seen = first_bad.load();
        while (row < seen && !first_bad.compare_exchange_weak(seen, row)) {
        }
        return;
      }
    }
  });
  if (first_bad.load() < num_rows) return first_bad.load();
  const bool is_first = profiles_.empty();
  if (is_first) profiles_.resize(static_cast<std::size_t>(num_columns_));
  parallel_for(num_columns_, kColumnGrain, threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      Profile& profile = profiles_[static_cast<std::size_t>(c)];
      if (is_first) start(profile, rows + c, num_rows, num_columns_);
      count(profile, rows + c, num_rows, num_columns_);
    }
  });
  return -1;
}

void RowEncoder::start(Profile& profile, const float* column, std::int64_t num_rows,
                       std::int64_t stride) {
  std::vector<float> sample;
  const std::int64_t step = std::max<std::int64_t>(1, num_rows / kSampledRows);
  for (std::int64_t row = 0; row < num_rows; row += step) sample.push_back(column[row * stride]);
  const auto middle = sample.begin() + static_cast<std::ptrdiff_t>(sample.size() / 2);
  std::nth_element(sample.begin(), middle, sample.end());
  profile.centre = *middle;
  for (float& value : sample) value = std::fabs(value - profile.centre);
  const auto same = std::partition(sample.begin(), sample.end(), [](float d) { return d > 0; });
  sample.erase(same, sample.end());
  float typical = profile.centre == 0 ? 1 : std::fabs(profile.centre) * 0x1p-12F;
  if (!sample.empty()) {
    const auto half = sample.begin() + static_cast<std::ptrdiff_t>(sample.size() / 2);
    std::nth_element(sample.begin(), half, sample.end());
    typical = *half;
  }
  profile.first_key = std::max(0, key_of(typical) - kOctavesBelow * kKeysPerOctave);
  profile.lowest = profile.highest = column[0];
}

void RowEncoder::count(Profile& profile, const float* column, std::int64_t num_rows,
                       std::int64_t stride) {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const float value = column[row * stride];
    profile.lowest = std::min(profile.lowest, value);
    profile.highest = std::max(profile.highest, value);
    if (value == 0) {
      ++profile.zeros;
      continue;
    }
    const float distance = value - profile.centre;
    const auto bin = static_cast<std::size_t>(
        std::clamp(key_of(distance) - profile.first_key, 0, Profile::kBins - 1));
    ++(distance < 0 ? profile.below : profile.above)[bin];
  }
}

// Minimises A (high - low)^2 + L(low) + R(high): the error of rounding, even over a step, and what
// clipping costs on either side. Each limit in turn, until neither moves. One value costs at most
// what eight times the distance of 99% of the values would, or a single wild one would take the
// resolution from all others.
RowEncoder::Range RowEncoder::choose_range(const Profile& profile) {
  constexpr std::size_t kBins = Profile::kBins;
  const double centre = profile.centre;
  const auto edges_up_to = [&](double farthest) {
    std::array<double, kBins + 1> edges;
    for (std::size_t b = 0; b < kBins; ++b) {
      const double edge = distance_of(profile.first_key + static_cast<std::int32_t>(b));
      edges[b] = b == 0 ? 0 : std::min(edge, farthest);
    }
    edges[kBins] = farthest;
    return edges;
  };
  const auto down = edges_up_to(std::max(0.0, centre - profile.lowest));
  const auto up = edges_up_to(std::max(0.0, profile.highest - centre));

  double n = 0;
  for (std::size_t b = 0; b < kBins; ++b) {
    n += static_cast<double>(profile.below[b] + profile.above[b]);
  }
  double near = 0, inside = 0;
  for (std::size_t b = 0; b < kBins && inside < kBulk * n; ++b) {
    inside += static_cast<double>(profile.below[b] + profile.above[b]);
    near = std::max(down[b + 1], up[b + 1]);
  }
  const double most = kFarthest * kFarthest * near * near;
  const auto below = clipping_costs(profile.below, down, most);
  const auto above = clipping_costs(profile.above, up, most);
  const auto cost = [&](std::size_t lo, std::size_t hi) {
    const double step = (down[lo] + up[hi]) / kSteps;
    return n * step * step / 12 + below[lo] + above[hi];
  };

  std::size_t lo = kBins, hi = kBins;
  const double whole = cost(lo, hi);
  double best = whole;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t b = 0; b <= kBins; ++b) {
      if (const double c = cost(b, hi); c < best) best = c, lo = b, moved = true;
    }
    for (std::size_t b = 0; b <= kBins; ++b) {
      if (const double c = cost(lo, b); c < best) best = c, hi = b, moved = true;
    }
  }
  Range range{profile.lowest, profile.highest};
  if (best < kWorthClipping * whole) range = {centre - down[lo], centre + up[hi]};
  if (profile.zeros > 0) range = {std::min(range.low, 0.0), std::max(range.high, 0.0)};
  return range;
}

void RowEncoder::fit() {
  profiles_.resize(static_cast<std::size_t>(num_columns_));  // no rows: all zeros
  for (const Profile& profile : profiles_) {
    auto [low, high] = choose_range(profile);
    if (low < high) low = std::max(low, -kReach), high = std::min(high, kReach);
    auto zero_point = static_cast<float>(low + (high - low) / 2);
    // A zero point that had to be rounded is nearer to one end than to the other.
    float scale = rounded_up(std::max(high - zero_point, zero_point - low) / (kSteps / 2));
    if (low <= 0 && high >= 0 && low < high) {
      // The product of the scale and the code for 0 is what the zero point takes back exactly.
      scale = rounded_up((high - low) / kSteps);
      zero_point = static_cast<float>(std::ceil(high / scale - kSteps / 2)) * scale;
    }
    scale_.push_back(scale);
    zero_point_.push_back(zero_point);
  }
  profiles_ = {};
}

template <RowCode kCode>
void RowEncoder::encode_columns(std::int64_t begin, std::int64_t end, const float* rows,
                                std::int64_t num_rows, std::byte* out) {
  std::array<ItemEncoder, kColumnGrain> encoders;
  for (std::int64_t c = begin; c < end && kCode == RowCode::kInt8; ++c) {
    const float scale = scale_[static_cast<std::size_t>(c)];
    encoders[static_cast<std::size_t>(c - begin)] = {
        scale, zero_point_[static_cast<std::size_t>(c)], scale > 0 ? 1.0 / scale : 0.0};
  }
  const std::int64_t width = code_bytes(kCode);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t c = begin; c < end; ++c) {
      const std::int64_t at = row * num_columns_ + c;
      const float value = rows[at];
      const auto [decoded, clipped] =
          encoders[static_cast<std::size_t>(c - begin)].encode<kCode>(value, out + at * width);
      if (!std::isfinite(value)) continue;
      ColumnLoss& loss = losses_[static_cast<std::size_t>(c)];
      if (loss.count++ == 0) loss.first = value;
      const double moved = value - loss.first;
      const double error = std::fabs(static_cast<double>(decoded) - value);
      loss.sum += moved;
      loss.sum_of_squares += moved * moved;
      loss.max_abs_error = std::max(loss.max_abs_error, error);
      loss.squared_error += error * error;
      loss.clipped += clipped;
    }
  }
}

void RowEncoder::encode(const float* rows, std::int64_t num_rows, std::byte* out, int threads) {
  parallel_for(num_columns_, kColumnGrain, threads, [&](std::int64_t begin, std::int64_t end) {
    switch (code_) {
      case RowCode::kFloat16:
        return encode_columns<RowCode::kFloat16>(begin, end, rows, num_rows, out);
      case RowCode::kBFloat16:
        return encode_columns<RowCode::kBFloat16>(begin, end, rows, num_rows, out);
      case RowCode::kInt8:
        return encode_columns<RowCode::kInt8>(begin, end, rows, num_rows, out);
    }
  });
}

}  // namespace gz
