// LABOR: every source vertex has one variate, and each destination takes the neighbours with the
// smallest, so that destinations choose the same ones where they can (Balin & Catalyurek 2023,
// "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs"; here the sequential Poisson
// variant, which takes exactly min(degree, k)). Costs O(degree) a destination.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <numeric>
#include <vector>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/rng.h"
#include "sampling/draw.h"
#include "sampling/graph.h"
#include "sampling/read_csc.h"
#include "sampling/sample.h"

namespace gz {

// The number below which a standard normal variate falls with probability p, 0 < p < 1; to a
// relative error of 1.2e-9 (Acklam 2003, "An algorithm for computing the inverse normal cumulative
// distribution function").
inline double inverse_normal(double p) noexcept {
  constexpr double kTail = 0.02425;
  const auto polynomial = [](double x, auto... coefficients) {
    double sum = 0;
    ((sum = sum * x + coefficients), ...);
    return sum;
  };
  const auto tail = [&](double x) {
    return polynomial(x, -7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838,
                      -2.549732539343734, 4.374664141464968, 2.938163982698783) /
           polynomial(x, 7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996,
                      3.754408661907416, 1);
  };
  if (p < kTail) [[unlikely]]
    return tail(std::sqrt(-2 * std::log(p)));
  if (p > 1 - kTail) [[unlikely]]
    return -tail(std::sqrt(-2 * std::log1p(-p)));
  const double q = p - 0.5, r = q * q;
  return polynomial(r, -3.969683028665376e+01, 2.209460984245205e+02, -2.759285104469687e+02,
                    1.383577518672690e+02, -3.066479806614716e+01, 2.506628277459239) *
         q /
         polynomial(r, -5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                    6.680131188771972e+01, -1.328068155288572e+01, 1);
}

// The variates of the nodes of one type at one hop: independent, a function of the batch's key.
// With batch dependency the variate is that of cos(a) n + sin(a) m, for standard normal n and m of
// the group of batches and of the next one, and an angle a that grows over the group.
class Variates {
 public:
  Variates(const Labor& labor, BatchKey key, std::uint64_t hop, int node_type) noexcept {
    const auto stream = [&](std::uint64_t of) {
      if (!labor.layer_dependent) of = derive_key(of, hop);
      return derive_key(of, static_cast<std::uint64_t>(node_type));
    };
    if (labor.batch_dependency <= 1) {
      now_ = stream(key.value);
      return;
    }
    const std::uint64_t group = key.number / labor.batch_dependency;
    const std::uint64_t groups = derive_key(key.value - key.number, kGroups);
    now_ = stream(derive_key(groups, group));
    next_ = stream(derive_key(groups, group + 1));
    const double done = static_cast<double>(key.number % labor.batch_dependency) /
                        static_cast<double>(labor.batch_dependency);
    cos_ = std::cos(done * std::numbers::pi / 2);
    sin_ = std::sin(done * std::numbers::pi / 2);
  }

  // A number that increases with exponential(), to compare by, without its costs.
  double order(std::int64_t node) const noexcept {
    return drifts() ? normal(node) : hash(now_, node);
  }

  // Exponential of rate 1.
  double exponential(std::int64_t node) const noexcept {
    return drifts() ? -std::log(std::erfc(normal(node) / std::numbers::sqrt2) / 2)
                    : -std::log1p(-hash(now_, node));
  }

 private:
  static constexpr std::uint64_t kGroups = 0x6C61626F72ULL;  // apart from the batches' own keys

  static double hash(std::uint64_t key, std::int64_t node) noexcept {
    const std::uint64_t bits = derive_key(key, static_cast<std::uint64_t>(node));
    return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  }

  // Whether variates are not hashes as they are, the cheap case.
  bool drifts() const noexcept { return sin_ != 0; }

  double normal(std::int64_t node) const noexcept {
    return cos_ * inverse_normal(hash(now_, node)) + sin_ * inverse_normal(hash(next_, node));
  }

  std::uint64_t now_ = 0;
  std::uint64_t next_ = 0;
  double cos_ = 1;
  double sin_ = 0;
};

// Chooses the neighbours of one destination after the other. Memory is O(k).
// Thread safety: none; keep one per thread.
class NeighborChooser {
 public:
  // No more than `most` are wanted of a destination.
  explicit NeighborChooser(std::int64_t most)
      : scores_(2 * static_cast<std::size_t>(most) + chunk_sizes.labor_slack),
        ranks_(scores_.size()),
        sorted_(scores_.size()) {}

  // Writes those k of the ranks [first, first + n) that have the smallest score(rank), rising;
  // returns how many there were: k, or all whose score is finite. Where scores are equal, the lower
  // rank goes first. May run inside guarded(): all it owns was made before.
  template <class Score>
  std::int64_t choose(std::int64_t first, std::int64_t n, std::int64_t k, const Score& score,
                      std::int64_t* out) {
    double* const scores = scores_.data();
    std::int64_t* const ranks = ranks_.data();
    const std::int64_t room = std::ssize(scores_);
    double bound = std::numeric_limits<double>::infinity();
    std::int64_t count = 0;
    for (std::int64_t rank = first; rank < first + n; ++rank) {
      scores[count] = score(rank);  // written over by the next one if not good enough
      ranks[count] = rank;
      count += scores[count] < bound;
      if (count == room) [[unlikely]]
        bound = keep_best(k, count);
    }
    if (count > k) keep_best(k, count);
    std::copy_n(ranks, count, out);
    return count;
  }

 private:
  // Leaves the k best, in their order; of equal ones the first. Returns the score of the last.
  double keep_best(std::int64_t k, std::int64_t& count) {
    double* const scores = scores_.data();
    std::int64_t* const ranks = ranks_.data();
    double* const sorted = sorted_.data();
    std::copy_n(scores, count, sorted);
    std::nth_element(sorted, sorted + k - 1, sorted + count);
    const double bound = sorted[k - 1];
    // How many of those on the bound there is room for.
    std::int64_t equal =
        k - std::count_if(scores, scores + count, [=](double score) { return score < bound; });
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const bool on_bound = scores[i] == bound;
      const bool keep = scores[i] < bound || (on_bound && equal > 0);
      equal -= on_bound && equal > 0;
      scores[kept] = scores[i];
      ranks[kept] = ranks[i];
      kept += keep;
    }
    count = kept;
    return bound;
  }

  std::vector<double> scores_;  // of those that may be among the k best, by rising rank
  std::vector<std::int64_t> ranks_;
  std::vector<double> sorted_;
};

namespace detail {

constexpr std::int64_t kLaborGrain = 512;  // nodes that a thread takes at a time

template <class Sources>
bool draw_by_variates(const Draw& draw, const Sources& sources, const Variates& variates,
                      std::int64_t from, std::int64_t to) {
  const EdgeOrder& order = draw.order;
  const auto wanted = [&](std::int64_t i) { return draw.in.offset[i + 1] - draw.in.offset[i]; };
  std::int64_t most = 0;
  for (std::int64_t i = from; i < to; ++i) most = std::max(most, wanted(i));
  NeighborChooser chooser(most);
  bool complete = true;
  guarded([&] {
    for (std::int64_t i = from; i < to; ++i) {
      const std::int64_t first = draw.in.first[i], n = draw.in.degree[i], k = wanted(i);
      if (const std::int64_t next = i + kNodesAhead; next < to) {
        const std::int64_t lines = std::min<std::int64_t>(draw.in.degree[next], 64);
        for (std::int64_t j = 0; j < lines; j += 16) sources.prefetch(draw.in.first[next] + j);
      }
      std::int64_t* const out = draw.ranks + draw.in.offset[i];
      std::fill_n(draw.cols + draw.in.offset[i], k, draw.col + i);
      std::int64_t drawn = k;
      if (order.cumulative != nullptr || n > k) {
        // By weight, the smallest of exponential variates of rate w: the first of draws without
        // replacement in proportion to w, which is what the plain weighted sampler does. A weight
        // of 0 makes the score infinite.
        const auto score = [&](std::int64_t rank) {
          const std::int64_t source = sources[order.slot(rank)];
          if (order.cumulative == nullptr) return variates.order(source);
          return variates.exponential(source) / static_cast<double>(order.weight(rank));
        };
        drawn = chooser.choose(first, n, k, score, out);
      } else {
        std::iota(out, out + n, first);
      }
      std::fill(out + drawn, out + k, kMissing);
      complete &= drawn == k;
    }
  });
  return complete;
}

}  // namespace detail

// Like draw_ranks(), by variates. False where some ranks are kMissing. REQUIRES draw.k > 0, without
// replacement, and the topology in memory or mapped. Raises OsError when its file was cut short.
inline bool draw_by_variates(const Draw& draw, const Csc& csc, const Variates& variates,
                             int threads) {
  std::atomic<bool> complete{true};
  with_sources(csc, [&](const auto& sources) {
    parallel_for(draw.in.size(), detail::kLaborGrain, threads,
                 [&](std::int64_t from, std::int64_t to) {
                   if (!detail::draw_by_variates(draw, sources, variates, from, to)) {
                     complete.store(false, std::memory_order_relaxed);
                   }
                 });
  });
  return complete.load();
}

}  // namespace gz
