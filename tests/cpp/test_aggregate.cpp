// Sums, products and softmax over the edges of a batch: against plain loops, with any number of
// threads and with the instructions that every machine has.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "aggregate/dropout.h"
#include "aggregate/edges.h"
#include "aggregate/neighbor_max.h"
#include "aggregate/neighbor_score.h"
#include "aggregate/neighbor_softmax.h"
#include "aggregate/neighbor_sum.h"
#include "check.h"

using namespace gz;
using namespace gz::test;

namespace {

// A batch with a hub on each side, and edges before and behind its own that lead nowhere.
struct Batch {
  Batch(std::uint64_t seed, std::int64_t num_dst, std::int64_t sources) : num_src(sources) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    src.assign(2, -7);
    for (std::int64_t d = 0; d < num_dst; ++d) {
      bounds.push_back(std::ssize(src));
      const std::int64_t degree = sources == 0 ? 0 : d == 5 ? 700 : below(8);
      for (std::int64_t i = 0; i < degree; ++i) src.push_back(below(3) == 0 ? 0 : below(sources));
    }
    bounds.push_back(std::ssize(src));
    src.push_back(1 << 30);
  }

  GroupedEdges edges(int threads = 1, bool is_portable = false) const {
    return {src, bounds, num_src, threads, is_portable};
  }
  // Calls visit(destination, edge).
  template <class Visit>
  void each(const Visit& visit) const {
    for (std::size_t d = 0; d + 1 < bounds.size(); ++d) {
      for (std::int64_t e = bounds[d]; e < bounds[d + 1]; ++e) {
        visit(d, static_cast<std::size_t>(e));
      }
    }
  }

  std::int64_t num_src;
  std::vector<std::int64_t> src, bounds;
};

template <class T>
std::vector<T> numbers(std::int64_t count, double scale = 1) {
  std::vector<T> made;
  for (std::int64_t i = 0; i < count; ++i) {
    made.push_back(narrow<T>(static_cast<Sum<T>>(scale * std::sin(static_cast<double>(i)))));
  }
  return made;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](T x, T y) { return widen(x) == widen(y); });
}

template <class T>
bool near(const std::vector<T>& a, const std::vector<double>& b, double tolerance) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](T x, double y) {
    return std::abs(static_cast<double>(widen(x)) - y) <= tolerance * (1 + std::abs(y));
  });
}

// Runs with several numbers of threads and both kinds of instructions: the same bits.
template <class T, class Run>
std::vector<T> ran(const Batch& batch, std::int64_t size, const Run& run) {
  std::vector<T> first;
  for (const int threads : {1, 2, 5}) {
    for (const bool is_portable : {false, true}) {
      std::vector<T> out(static_cast<std::size_t>(size));
      run(batch.edges(threads, is_portable), out.data());
      if (first.empty()) first = out;
      CHECK(same(first, out));
    }
  }
  return first;
}

template <class T>
void check_type(double tolerance) {
  constexpr std::int64_t kHeads = 3, kGap = 5;
  for (const std::int64_t channels : {1, 13, 32, 70}) {
    for (const std::int64_t num_dst : {0, 1, 300}) {
      const Batch batch(static_cast<std::uint64_t>(channels), num_dst, num_dst == 1 ? 0 : 900);
      const RowShape shape{kHeads, channels};
      const std::int64_t stride = shape.size() + kGap;
      const auto num_edges = std::ssize(batch.src);
      const std::vector<T> x = numbers<T>(batch.num_src * stride);
      const std::vector<T> g = numbers<T>(num_dst * stride);
      const std::vector<Sum<T>> weight = numbers<Sum<T>>(num_edges * kHeads);
      const Rows<const T> of_src{x.data(), stride}, of_dst{g.data(), stride};
      for (const bool is_mean : {false, true}) {
        for (const Sum<T>* const weights : {static_cast<const Sum<T>*>(nullptr), weight.data()}) {
          std::vector<double> sums(static_cast<std::size_t>(num_dst * shape.size()));
          std::vector<double> back(static_cast<std::size_t>(batch.num_src * shape.size()));
          std::vector<double> dots(static_cast<std::size_t>(num_edges * kHeads));
          batch.each([&](std::size_t d, std::size_t e) {
            const auto s = static_cast<std::size_t>(batch.src[e]);
            const auto degree = static_cast<double>(batch.bounds[d + 1] - batch.bounds[d]);
            for (std::size_t at = 0; at < static_cast<std::size_t>(shape.size()); ++at) {
              const std::size_t h = e * kHeads + at / static_cast<std::size_t>(channels);
              const double w =
                  (weights == nullptr ? 1 : double{weights[h]}) / (is_mean ? degree : 1);
              const auto size = static_cast<std::size_t>(shape.size());
              const double xs{widen(x[s * static_cast<std::size_t>(stride) + at])};
              const double gd{widen(g[d * static_cast<std::size_t>(stride) + at])};
              sums[d * size + at] += w * xs;
              back[s * size + at] += w * gd;
              dots[h] += xs * gd / (is_mean ? degree : 1);
            }
          });
          CHECK(near(ran<T>(batch, std::ssize(sums),
                            [&](const GroupedEdges& edges, T* out) {
                              neighbor_sum(edges, shape, of_src, weights, is_mean, out);
                            }),
                     sums, tolerance));
          CHECK(near(ran<T>(batch, std::ssize(back),
                            [&](const GroupedEdges& edges, T* out) {
                              source_sum(edges, shape, of_dst, weights, is_mean, out);
                            }),
                     back, tolerance));
          CHECK(near(ran<Sum<T>>(batch, std::ssize(dots),
                                 [&](const GroupedEdges& edges, Sum<T>* out) {
                                   edge_dot(edges, shape, of_dst, of_src, is_mean, out);
                                 }),
                     dots, 1e-4));
        }
      }
    }
  }
}

template <class S>
void check_softmax(double tolerance) {
  constexpr std::int64_t kHeads = 3;
  for (const std::int64_t num_dst : {0, 1, 300}) {
    const Batch batch(1, num_dst, 50);
    const auto size = std::ssize(batch.src) * kHeads;
    const std::vector<S> scores = numbers<S>(size, 30);
    const std::vector<S> grad = numbers<S>(size);
    std::vector<double> expected(static_cast<std::size_t>(size));
    std::vector<double> back(static_cast<std::size_t>(size));
    for (std::size_t d = 0; d + 1 < batch.bounds.size(); ++d) {
      for (std::int64_t h = 0; h < kHeads; ++h) {
        double sum = 0, product = 0;
        const auto each = [&](const auto& visit) {
          for (std::int64_t e = batch.bounds[d]; e < batch.bounds[d + 1]; ++e) {
            visit(static_cast<std::size_t>(e * kHeads + h));
          }
        };
        each([&](std::size_t at) { sum += expected[at] = std::exp(double{scores[at]}); });
        each([&](std::size_t at) { product += (expected[at] /= sum) * double{grad[at]}; });
        each([&](std::size_t at) { back[at] = expected[at] * (double{grad[at]} - product); });
      }
    }
    const std::vector<S> made = ran<S>(batch, size, [&](const GroupedEdges& edges, S* out) {
      neighbor_softmax(edges, kHeads, scores.data(), out);
    });
    CHECK(near(made, expected, tolerance));
    CHECK(near(ran<S>(batch, size,
                      [&](const GroupedEdges& edges, S* out) {
                        neighbor_softmax_backward(edges, kHeads, made.data(), grad.data(), out);
                      }),
               back, tolerance));
  }
}

// Scores of edges, and all gradients.
template <class T>
void check_scores(double tolerance) {
  constexpr std::int64_t kHeads = 2;
  constexpr double kSlope = 0.25;
  for (const std::int64_t channels : {1, 13, 32}) {
    for (const std::int64_t num_dst : {0, 1, 300}) {
      const Batch batch(7, num_dst, num_dst == 1 ? 0 : 900);
      const auto num_edges = std::ssize(batch.src);
      const RowShape shape{kHeads, channels};
      const auto size = static_cast<std::size_t>(shape.size());
      const std::vector<T> x = numbers<T>(batch.num_src * shape.size());
      const std::vector<T> y = numbers<T>(num_dst * shape.size(), 0.7);
      const std::vector<Sum<T>> attention = numbers<Sum<T>>(shape.size(), 2);
      const std::vector<Sum<T>> grad = numbers<Sum<T>>(num_edges * kHeads, 0.1);
      const ScoreInputs<T> inputs{shape,
                                  {x.data(), shape.size()},
                                  {y.data(), shape.size()},
                                  attention.data(),
                                  Sum<T>{kSlope}};
      std::vector<double> scores(static_cast<std::size_t>(num_edges * kHeads));
      std::vector<double> to_src(x.size()), to_dst(y.size()), to_all(size);
      batch.each([&](std::size_t d, std::size_t e) {
        const auto s = static_cast<std::size_t>(batch.src[e]);
        for (std::size_t j = 0; j < size; ++j) {
          const std::size_t at = e * kHeads + j / static_cast<std::size_t>(channels);
          const double sum = double{widen(x[s * size + j])} + double{widen(y[d * size + j])};
          const double slope = sum > 0 ? 1 : kSlope;
          scores[at] += double{attention[j]} * sum * slope;
          const double back = double{grad[at]} * double{attention[j]} * slope;
          to_src[s * size + j] += back;
          to_dst[d * size + j] += back;
          to_all[j] += double{grad[at]} * sum * slope;
        }
      });
      CHECK(near(ran<Sum<T>>(batch, std::ssize(scores),
                             [&](const GroupedEdges& edges, Sum<T>* out) {
                               neighbor_score(edges, inputs, out);
                             }),
                 scores, 1e-4));
      std::vector<T> of_src(x.size()), of_dst(y.size());
      CHECK(near(ran<Sum<T>>(batch, shape.size(),
                             [&](const GroupedEdges& edges, Sum<T>* out) {
                               neighbor_score_backward(edges, inputs, grad.data(), of_src.data(),
                                                       of_dst.data(), out);
                             }),
                 to_all, 1e-4));
      CHECK(near(of_src, to_src, tolerance));
      CHECK(near(of_dst, to_dst, tolerance));
    }
  }
}

template <class T>
void check_largest(double tolerance) {
  for (const std::int64_t size : {1, 13, 40}) {
    for (const std::int64_t num_dst : {0, 1, 300}) {
      const Batch batch(9, num_dst, num_dst == 1 ? 0 : 50);
      std::vector<T> x = numbers<T>(batch.num_src * size, 3);
      for (T& value : x) value = narrow<T>(std::round(widen(value)));  // several are alike
      const std::vector<T> grad = numbers<T>(num_dst * size);
      const RowShape shape{1, size};
      const Rows<const T> rows{x.data(), size}, grads{grad.data(), size};
      const auto at = [&](std::size_t row, std::size_t j) {
        return row * static_cast<std::size_t>(size) + j;
      };
      for (const bool is_min : {false, true}) {
        std::vector<double> largest(grad.size()), winners(grad.size()), to_src(x.size());
        const auto each = [&](const auto& visit) {
          batch.each([&](std::size_t d, std::size_t e) {
            for (std::size_t j = 0; j < static_cast<std::size_t>(size); ++j) {
              const std::size_t from = at(static_cast<std::size_t>(batch.src[e]), j);
              visit(at(d, j), from, double{widen(x[from])},
                    static_cast<std::int64_t>(e) == batch.bounds[d]);
            }
          });
        };
        each([&](std::size_t to, std::size_t, double value, bool is_first) {
          const bool is_better = is_min ? value < largest[to] : value > largest[to];
          if (is_first || is_better) largest[to] = value;
        });
        for (std::size_t i = 0; i < winners.size(); ++i) winners[i] = largest[i] == 0;
        each([&](std::size_t to, std::size_t, double value, bool) {
          winners[to] += value == largest[to];
        });
        each([&](std::size_t to, std::size_t from, double value, bool) {
          if (value == largest[to]) to_src[from] += double{widen(grad[to])} / winners[to];
        });
        const std::vector<T> made =
            ran<T>(batch, num_dst * size, [&](const GroupedEdges& edges, T* out) {
              neighbor_max(edges, shape, rows, is_min, out);
            });
        CHECK(near(made, largest, 0));
        const Rows<const T> winning{made.data(), size};
        CHECK(near(ran<T>(batch, std::ssize(x),
                          [&](const GroupedEdges& edges, T* out) {
                            neighbor_max_backward(edges, shape, rows, winning, grads, out);
                          }),
                   to_src, tolerance));
      }
    }
  }
}

}  // namespace

TEST(scores_of_edges) {
  check_scores<float>(1e-4);
  check_scores<double>(1e-12);
  check_scores<BFloat16>(1e-2);
  check_scores<Float16>(2e-3);
}

TEST(the_largest_and_the_smallest_over_edges) {
  check_largest<float>(1e-4);
  check_largest<double>(1e-12);
  check_largest<BFloat16>(1e-2);
  check_largest<Float16>(2e-3);
}

TEST(sums_and_products_over_edges) {
  check_type<float>(1e-4);
  check_type<double>(1e-12);
  check_type<BFloat16>(1e-2);
  check_type<Float16>(2e-3);
}

TEST(softmax_over_edges) {
  check_softmax<float>(1e-5);
  check_softmax<double>(1e-12);
}

TEST(edges_by_source_keep_their_order) {
  const Batch batch(3, 400, 1000);
  for (const int threads : {1, 3}) {
    const GroupedEdges edges = batch.edges(threads);
    check_edges(edges);
    std::vector<std::vector<std::uint32_t>> found(1000);
    EdgesBySource(edges).for_sources([&](const OutEdges& run) {
      std::uint32_t at = 0;
      for (std::int64_t s = run.first; s < run.last; ++s) {
        for (; at < run.ends[s - run.first]; ++at) {
          found[static_cast<std::size_t>(s)].push_back(run.edges[at].edge);
          found[static_cast<std::size_t>(s)].push_back(run.edges[at].dst);
        }
      }
    });
    std::vector<std::vector<std::uint32_t>> expected(1000);
    batch.each([&](std::size_t d, std::size_t e) {
      auto& of = expected[static_cast<std::size_t>(batch.src[e])];
      of.push_back(static_cast<std::uint32_t>(e));
      of.push_back(static_cast<std::uint32_t>(d));
    });
    CHECK(found == expected);
  }
}

TEST(edges_that_do_not_fit_are_refused) {
  const std::vector<std::int64_t> src{0, 4, 1}, bounds{0, 2, 1}, negative{-1, 3}, many{0, 4};
  const std::vector<std::int64_t> whole{0, 3}, before{2, 3};
  CHECK_THROWS(std::invalid_argument, "found none", check_bounds({src, {}, 3}));
  CHECK_THROWS(std::invalid_argument, "bounds[2]: found 1 after 2", check_edges({src, bounds, 5}));
  CHECK_THROWS(std::invalid_argument, "found -1 to 3", check_edges({src, negative, 5}));
  CHECK_THROWS(std::invalid_argument, "the 3 edges of src", check_edges({src, many, 5}));
  CHECK_THROWS(std::out_of_range, "src[1]: found 4, expected a row of the 4",
               check_edges({src, whole, 4}));
  check_edges({src, before, 4});  // the wrong edge belongs to no destination
}

TEST(halves_round_as_torch_does) {
  CHECK(std::isinf(widen(narrow<Float16>(65520.0F))) && widen(narrow<Float16>(65519.0F)) == 65504);
  CHECK(std::isinf(widen(narrow<BFloat16>(std::numeric_limits<float>::max()))));
  CHECK(std::isnan(widen(narrow<BFloat16>(std::numeric_limits<float>::quiet_NaN()))));
}

// Each number is kept or not by its place and the key alone, as often as p says, and neighbours say
// nothing about each other.
TEST(dropout_leaves_out_what_the_key_says) {
  constexpr std::int64_t count = 3 * 4096 + 77;
  std::vector<float> x(count), out(count), again(count);
  for (std::int64_t i = 0; i < count; ++i)
    x[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);
  for (const double p : {0.0, 0.1, 0.5, 0.75, 1.0}) {
    dropout<float>(x, p, 7, 1, true, out.data());
    std::int64_t kept = 0, pairs = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float scaled = x[i] * static_cast<float>(1 / (1 - p));
      CHECK(out[i] == 0 || out[i] == scaled);
      kept += out[i] != 0;
      pairs += i > 0 && out[i] != 0 && out[i - 1] != 0;
    }
    const double share = 1 - p, n = static_cast<double>(count);
    CHECK(std::abs(static_cast<double>(kept) - n * share) <= 5 * std::sqrt(n * p * share));
    CHECK(std::abs(static_cast<double>(pairs) - n * share * share) <=
          8 * std::sqrt(n * p * share) + 1);
    for (const int threads : {1, 3}) {
      dropout<float>(x, p, 7, threads, false, again.data());
      CHECK(again == out);
    }
    dropout<float>({x.data(), 5000}, p, 7, 1, false, again.data());
    CHECK(std::equal(out.begin(), out.begin() + 5000, again.begin()));
  }
  dropout<float>(x, 0.5, 7, 1, false, out.data());
  dropout<float>(x, 0.5, 8, 1, false, again.data());
  std::int64_t same = 0;
  for (std::size_t i = 0; i < x.size(); ++i) same += (out[i] == 0) == (again[i] == 0);
  CHECK(std::abs(2 * same - count) <= 5 * static_cast<std::int64_t>(std::sqrt(count)));
  std::int64_t repeated = 0;
  for (std::size_t i = 4096; i < x.size(); ++i) repeated += (out[i] == 0) == (out[i - 4096] == 0);
  CHECK(std::abs(2 * repeated - (count - 4096)) <= 5 * static_cast<std::int64_t>(std::sqrt(count)));
  const std::vector<BFloat16> halves(100, BFloat16{0x3F80});  // 1
  std::vector<BFloat16> thinned(100);
  dropout<BFloat16>(halves, 0.75, 7, 1, false, thinned.data());
  for (const BFloat16 half : thinned) CHECK(half.bits == 0 || half.bits == 0x4080);  // 4
}
