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
#include <memory>
#include <numbers>
#include <span>
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
  const auto tail = [](double q) {
    return (((((-7.784894002430293e-03 * q - 3.223964580411365e-01) * q - 2.400758277161838) * q -
              2.549732539343734) *
                 q +
             4.374664141464968) *
                q +
            2.938163982698783) /
           ((((7.784695709041462e-03 * q + 3.224671290700398e-01) * q + 2.445134137142996) * q +
             3.754408661907416) *
                q +
            1.0);
  };
  if (p < kTail) [[unlikely]]
    return tail(std::sqrt(-2 * std::log(p)));
  if (p > 1 - kTail) [[unlikely]]
    return -tail(std::sqrt(-2 * std::log1p(-p)));
  const double q = p - 0.5, r = q * q;
  return (((((-3.969683028665376e+01 * r + 2.209460984245205e+02) * r - 2.759285104469687e+02) * r +
            1.383577518672690e+02) *
               r -
           3.066479806614716e+01) *
              r +
          2.506628277459239) *
         q /
         (((((-5.447609879822406e+01 * r + 1.615858368580409e+02) * r - 1.556989798598866e+02) * r +
            6.680131188771972e+01) *
               r -
           1.328068155288572e+01) *
              r +
          1);
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

// Chooses neighbours of one destination after the other: begin(), their sources in as many pieces
// as one likes, finish(). The pieces do not matter to the result. Memory is O(k).
// Thread safety: none; keep one per thread.
class NeighborChooser {
 public:
  // The ranks that are offered are those of `order`; both are kept by reference.
  NeighborChooser(const Variates& variates, const EdgeOrder& order)
      : variates_(variates), order_(order) {}

  // The k smallest are wanted, k > 0.
  void begin(std::int64_t k) {
    k_ = static_cast<std::size_t>(k);
    const std::size_t room = std::max(scores_.size(), 2 * k_ + chunk_sizes.labor_slack);
    scores_.resize(room);
    ranks_.resize(room);
    sorted_.resize(room);
    count_ = 0;
    bound_ = std::numeric_limits<double>::infinity();
  }

  // Neighbours of ranks first … first + sources.size(), after those that were offered before.
  void offer(std::int64_t first, std::span<const std::int64_t> sources) {
    if (order_.cumulative != nullptr) {
      // The smallest of exponential variates of rate w: the first of draws without replacement in
      // proportion to w, which is what the plain weighted sampler does.
      add_all(first, sources, [&](std::int64_t rank, std::int64_t source) {
        const std::uint64_t weight = order_.cumulative[rank] - order_.weight_before(rank);
        return variates_.exponential(source) / static_cast<double>(weight);
      });
    } else {
      add_all(first, sources, [&](auto, std::int64_t source) { return variates_.order(source); });
    }
  }

  // Writes the ranks of the k smallest, rising; returns how many there were: k, or all that have a
  // weight above 0. Edges of one source have the same variate: the lower rank goes first.
  std::int64_t finish(std::int64_t* ranks) {
    if (count_ > k_) keep_best();
    std::copy_n(ranks_.data(), count_, ranks);
    return static_cast<std::int64_t>(count_);
  }

 private:
  // A weight of 0 makes the score infinite, which is never below the bound.
  template <class Score>
  void add_all(std::int64_t first, std::span<const std::int64_t> sources, const Score& score) {
    double* const scores = scores_.data();
    std::int64_t* const ranks = ranks_.data();
    const std::size_t room = scores_.size();
    std::int64_t rank = first;
    std::size_t count = count_;
    for (const std::int64_t source : sources) {
      scores[count] = score(rank, source);  // written over by the next one if not good enough
      ranks[count] = rank++;
      count += scores[count] < bound_;
      if (count == room) [[unlikely]] {
        count_ = count;
        keep_best();
        count = count_;
      }
    }
    count_ = count;
  }

  // Leaves the k best, in their order; of equal ones the first.
  void keep_best() {
    double* const scores = scores_.data();
    std::int64_t* const ranks = ranks_.data();
    std::copy_n(scores, count_, sorted_.data());
    const auto kth = sorted_.begin() + static_cast<std::ptrdiff_t>(k_) - 1;
    std::nth_element(sorted_.begin(), kth, sorted_.begin() + static_cast<std::ptrdiff_t>(count_));
    bound_ = *kth;
    std::size_t equal = k_;  // how many of those on the bound there is room for
    for (std::size_t i = 0; i < count_; ++i) equal -= scores[i] < bound_;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const bool on_bound = scores[i] == bound_;
      const bool keep = scores[i] < bound_ || (on_bound && equal > 0);
      equal -= on_bound && equal > 0;
      scores[kept] = scores[i];
      ranks[kept] = ranks[i];
      kept += keep;
    }
    count_ = kept;
  }

  const Variates& variates_;
  const EdgeOrder& order_;
  std::vector<double> scores_;  // of those that may be among the k best, by rising rank
  std::vector<std::int64_t> ranks_;
  std::vector<double> sorted_;
  std::size_t k_ = 0;
  std::size_t count_ = 0;
  double bound_ = 0;
};

namespace detail {

constexpr std::int64_t kLaborGrain = 512;  // nodes that a thread takes at a time

// Lists neighbours of many nodes, or a part of a hub's, fetches their sources together, chooses.
inline bool draw_by_variates(const Draw& draw, const SampledEdgeType& type,
                             const Variates& variates, std::int64_t from, std::int64_t to) {
  NeighborChooser chooser(variates, type.order);
  const std::int64_t piece = chunk_sizes.labor_neighbors;
  const auto room = static_cast<std::size_t>(piece);
  const auto slots = std::make_unique_for_overwrite<std::int64_t[]>(room);
  const auto sources = std::make_unique_for_overwrite<std::int64_t[]>(room);
  // All of a small neighbourhood are taken unseen, unless some may have a weight of 0.
  const auto listed = [&](std::int64_t i) {
    return type.order.cumulative == nullptr && draw.degree[i] <= draw.k ? 0 : draw.degree[i];
  };
  bool complete = true;
  const auto write = [&](std::int64_t i) {
    const std::int64_t wanted = draw.offset[i + 1] - draw.offset[i];
    std::int64_t* const out = draw.ranks + draw.offset[i];
    std::fill_n(draw.cols + draw.offset[i], wanted, draw.col + i);
    if (listed(i) == 0) {
      for (std::int64_t j = 0; j < wanted; ++j) out[j] = draw.first[i] + j;
    } else if (const std::int64_t drawn = chooser.finish(out); drawn < wanted) {
      std::fill(out + drawn, out + wanted, kMissing);
      complete = false;
    }
  };
  std::int64_t next = from, next_done = 0;  // the node to list from, and how many of it are
  std::int64_t node = from, done = 0;       // the same for choosing
  while (node < to) {
    std::int64_t size = 0;
    while (next < to && size < piece) {
      const std::int64_t step = std::min(listed(next) - next_done, piece - size);
      for (std::int64_t j = 0; j < step; ++j)
        slots.get()[size + j] = draw.first[next] + next_done + j;
      size += step;
      next_done += step;
      if (next_done == listed(next)) {
        ++next;
        next_done = 0;
      }
    }
    std::vector<SourceList> none;  // REQUIRES the topology in memory
    fetch_sources(type, slots.get(), sources.get(), size, 1, none);
    for (std::int64_t at = 0; node < to && (at < size || listed(node) == 0);) {
      if (done == 0 && listed(node) > 0) {
        chooser.begin(draw.offset[node + 1] - draw.offset[node]);
      }
      const std::int64_t step = std::min(listed(node) - done, size - at);
      chooser.offer(draw.first[node] + done, {sources.get() + at, static_cast<std::size_t>(step)});
      at += step;
      done += step;
      if (done == listed(node)) {
        write(node++);
        done = 0;
      }
    }
  }
  return complete;
}

}  // namespace detail

// Like draw_ranks(), by variates. False where some ranks are kMissing. REQUIRES draw.k > 0, without
// replacement. Raises OsError when the topology's file was cut short.
inline bool draw_by_variates(const Draw& draw, const SampledEdgeType& type,
                             const Variates& variates, int threads) {
  std::atomic<bool> complete{true};
  parallel_for(draw.count, detail::kLaborGrain, threads, [&](std::int64_t from, std::int64_t to) {
    if (!detail::draw_by_variates(draw, type, variates, from, to)) {
      complete.store(false, std::memory_order_relaxed);
    }
  });
  return complete.load();
}

}  // namespace gz
