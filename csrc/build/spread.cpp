#include "build/spread.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace gz {
namespace {

// Steps between the ends of a range. One fewer than there are, so that the codes can be shifted to
// have one that is exactly 0.
constexpr double kSteps = 254;
// The lowest bin begins this far below the typical distance to the centre.
constexpr int kOctavesBelow = 24;
constexpr std::int64_t kSampledRows = 1024;
// Values are clipped only where that halves the cost at least.
constexpr double kWorthClipping = 0.5;
// The last code may decode to half a step beyond the range, which must be finite.
constexpr double kReach = 0.99 * std::numeric_limits<float>::max();
constexpr double kBulk = 0.99;
constexpr double kFarthest = 8;

constexpr std::size_t kBins = kSpreadBins;
using Counts = std::array<std::int64_t, kBins>;
using Edges = std::array<double, kBins + 1>;

struct Range {
  double low;
  double high;
};

double distance_of(std::int32_t bin) {
  constexpr std::int32_t kLast = 0x7F800000 >> kBinShift;
  return static_cast<double>(
      std::bit_cast<float>(std::clamp<std::int32_t>(bin, 0, kLast - 1) << kBinShift));
}

// The cost of clipping on one side of a profile, by the bin at whose lower edge the limit lies: the
// squared distance of each value beyond the limit, but never more than `most`.
Edges clipping_costs(const Counts& counts, const Edges& edges, double most) {
  Edges costs{};
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

// Minimises A (high - low)^2 + L(low) + R(high): the error of rounding, even over a step, and the
// cost of clipping on either side. Each limit in turn, until neither moves. The cost of one value
// is bounded (by the cost at eight times the distance of 99% of the values), or a single wild one
// would take the resolution from all others.
Range choose_range(const Spread& spread) {
  const double centre = spread.centre;
  const auto edges_up_to = [&](double farthest) {
    Edges edges;
    for (std::size_t b = 0; b < kBins; ++b) {
      const double edge = distance_of(spread.first_bin + static_cast<std::int32_t>(b));
      edges[b] = b == 0 ? 0 : std::min(edge, farthest);
    }
    edges[kBins] = farthest;
    return edges;
  };
  const auto down = edges_up_to(std::max(0.0, centre - spread.lowest));
  const auto up = edges_up_to(std::max(0.0, spread.highest - centre));

  double n = 0;
  for (std::size_t b = 0; b < kBins; ++b) {
    n += static_cast<double>(spread.below[b] + spread.above[b]);
  }
  double near = 0, inside = 0;
  for (std::size_t b = 0; b < kBins && inside < kBulk * n; ++b) {
    inside += static_cast<double>(spread.below[b] + spread.above[b]);
    near = std::max(down[b + 1], up[b + 1]);
  }
  const double most = kFarthest * kFarthest * near * near;
  const auto below = clipping_costs(spread.below, down, most);
  const auto above = clipping_costs(spread.above, up, most);
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
  Range range{spread.lowest, spread.highest};
  if (best < kWorthClipping * whole) range = {centre - down[lo], centre + up[hi]};
  if (spread.zeros > 0) range = {std::min(range.low, 0.0), std::max(range.high, 0.0)};
  return range;
}

float rounded_up(double value) {
  const auto nearest = static_cast<float>(value);
  if (nearest >= value) return nearest;
  return std::nextafter(nearest, std::numeric_limits<float>::infinity());
}

}  // namespace

void Spread::add(const SpreadTile& tile, std::size_t lane) {
  centre = tile.centre[lane];
  first_bin = tile.first_bin[lane];
  lowest = std::min(lowest, tile.lowest[lane]);
  highest = std::max(highest, tile.highest[lane]);
  for (std::size_t b = 0; b < kBins; ++b) {
    below[b] += tile.counts[b][lane];
    above[b] += tile.counts[kBins + b][lane];
  }
  zeros += tile.counts[2 * kBins][lane];
}

Spread start_spread(const float* column, std::int64_t num_rows, std::int64_t stride) {
  Spread spread;
  std::vector<float> sample;
  const std::int64_t step = std::max<std::int64_t>(1, num_rows / kSampledRows);
  for (std::int64_t row = 0; row < num_rows; row += step) {
    if (std::isfinite(column[row * stride])) sample.push_back(column[row * stride]);
  }
  if (sample.empty()) return spread;
  const auto middle = sample.begin() + static_cast<std::ptrdiff_t>(sample.size() / 2);
  std::nth_element(sample.begin(), middle, sample.end());
  spread.centre = *middle;
  for (float& value : sample) value = std::fabs(value - spread.centre);
  const auto same = std::partition(sample.begin(), sample.end(), [](float d) { return d > 0; });
  sample.erase(same, sample.end());
  float typical = spread.centre == 0 ? 1 : std::fabs(spread.centre) * 0x1p-12F;
  if (!sample.empty()) {
    const auto half = sample.begin() + static_cast<std::ptrdiff_t>(sample.size() / 2);
    std::nth_element(sample.begin(), half, sample.end());
    typical = *half;
  }
  const std::int32_t bin = std::bit_cast<std::int32_t>(typical) >> kBinShift;
  spread.first_bin = std::max(0, bin - kOctavesBelow * kBinsPerOctave);
  return spread;
}

Affine choose_affine(const Spread& spread) {
  if (spread.lowest > spread.highest) return {0, 0};
  auto [low, high] = choose_range(spread);
  if (low < high) low = std::max(low, -kReach), high = std::min(high, kReach);
  auto zero_point = static_cast<float>(low + (high - low) / 2);
  // A zero point that had to be rounded is nearer to one end than to the other.
  float scale = rounded_up(std::max(high - zero_point, zero_point - low) / (kSteps / 2));
  if (low <= 0 && high >= 0 && low < high) {
    // The product of the scale and the code for 0 is what the zero point takes back exactly.
    scale = rounded_up((high - low) / kSteps);
    zero_point = static_cast<float>(std::ceil(high / scale - kSteps / 2)) * scale;
  }
  return {scale, zero_point};
}

}  // namespace gz
