// Sums, products and softmax over the edges of a batch: of every type, with any number of threads
// and with the instructions that every machine has.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "aggregate/dropout.h"
#include "aggregate/edges.h"
#include "aggregate/neighbor_max.h"
#include "aggregate/neighbor_score.h"
#include "aggregate/neighbor_softmax.h"
#include "aggregate/neighbor_sum.h"
#include "base/isa.h"
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

  GroupedEdges edges(int threads = 1) const { return {src, bounds, num_src, threads}; }
  std::int64_t num_src;
  std::vector<std::int64_t> src, bounds;
};

// Numbers that halves have too.
template <class T>
std::vector<T> numbers(std::int64_t count, double scale = 1) {
  std::vector<T> made;
  for (std::int64_t i = 0; i < count; ++i) {
    const double number = std::round(64 * std::sin(static_cast<double>(i))) / 64;
    made.push_back(narrow<T>(static_cast<Sum<T>>(scale * number)));
  }
  return made;
}

template <class T>
std::vector<double> widened(const std::vector<T>& numbers) {
  std::vector<double> made;
  for (const T number : numbers) made.push_back(double{widen(number)});
  return made;
}

// Runs with several numbers of threads and both kinds of instructions: the same bits.
template <class T, class Run>
std::vector<T> ran(const Batch& batch, std::int64_t size, const Run& run) {
  std::vector<T> first;
  for (const int threads : {1, 2, 5}) {
    for (const bool portable : {false, true}) {
      std::vector<T> out(static_cast<std::size_t>(size));
      is_portable = portable;
      run(batch.edges(threads), out.data());
      is_portable = false;
      if (first.empty()) first = out;
      CHECK(widened(first) == widened(out));
    }
  }
  return first;
}

using Outputs = std::vector<std::vector<double>>;

// Sums and products, with rows that lie apart.
template <class T>
Outputs sums_of(const Batch& batch, RowShape shape) {
  constexpr std::int64_t kGap = 5;
  const std::int64_t stride = shape.size() + kGap, num_dst = std::ssize(batch.bounds) - 1;
  const auto num_weights = std::ssize(batch.src) * shape.heads;
  const std::vector<T> x = numbers<T>(batch.num_src * stride), g = numbers<T>(num_dst * stride);
  const std::vector<Sum<T>> weight = numbers<Sum<T>>(num_weights);
  const Rows<const T> of_src{x.data(), stride}, of_dst{g.data(), stride};
  Outputs found;
  for (const bool is_mean : {false, true}) {
    for (const Sum<T>* const weights : {static_cast<const Sum<T>*>(nullptr), weight.data()}) {
      found.push_back(
          widened(ran<T>(batch, num_dst * shape.size(), [&](const GroupedEdges& edges, T* out) {
            neighbor_sum(edges, shape, of_src, weights, is_mean, out);
          })));
      found.push_back(widened(
          ran<T>(batch, batch.num_src * shape.size(), [&](const GroupedEdges& edges, T* out) {
            source_sum(edges, shape, of_dst, weights, is_mean, out);
          })));
    }
    found.push_back(
        widened(ran<Sum<T>>(batch, num_weights, [&](const GroupedEdges& edges, Sum<T>* out) {
          edge_dot(edges, shape, of_dst, of_src, is_mean, out);
        })));
  }
  return found;
}

template <class T>
Outputs softmax_of(const Batch& batch, RowShape shape) {
  const auto size = std::ssize(batch.src) * shape.heads;
  const std::vector<Sum<T>> scores = numbers<Sum<T>>(size, 32), grad = numbers<Sum<T>>(size);
  const auto made = ran<Sum<T>>(batch, size, [&](const GroupedEdges& edges, Sum<T>* out) {
    neighbor_softmax(edges, shape.heads, scores.data(), out);
  });
  const auto back = ran<Sum<T>>(batch, size, [&](const GroupedEdges& edges, Sum<T>* out) {
    neighbor_softmax_backward(edges, shape.heads, made.data(), grad.data(), out);
  });
  return {widened(made), widened(back)};
}

// Scores of edges, and all gradients.
template <class T>
Outputs scores_of(const Batch& batch, RowShape shape) {
  const std::int64_t num_dst = std::ssize(batch.bounds) - 1;
  const auto num_scores = std::ssize(batch.src) * shape.heads;
  const std::vector<T> x = numbers<T>(batch.num_src * shape.size());
  const std::vector<T> y = numbers<T>(num_dst * shape.size(), 0.5);
  const std::vector<Sum<T>> attention = numbers<Sum<T>>(shape.size(), 2);
  const std::vector<Sum<T>> grad = numbers<Sum<T>>(num_scores, 0.125);
  const Rows<const T> of_src{x.data(), shape.size()}, of_dst{y.data(), shape.size()};
  const ScoreInputs<T> inputs{shape, of_src, of_dst, attention.data(), Sum<T>{0.25}};
  const auto scores = ran<Sum<T>>(batch, num_scores, [&](const GroupedEdges& edges, Sum<T>* out) {
    neighbor_score(edges, inputs, out);
  });
  std::vector<T> to_src(x.size()), to_dst(y.size());
  const auto to_all = ran<Sum<T>>(batch, shape.size(), [&](const GroupedEdges& edges, Sum<T>* out) {
    neighbor_score_backward(edges, inputs, grad.data(), to_src.data(), to_dst.data(), out);
  });
  return {widened(scores), widened(to_all), widened(to_src), widened(to_dst)};
}

// The largest and the smallest, several of which are alike.
template <class T>
Outputs largest_of(const Batch& batch, RowShape shape) {
  const std::int64_t size = shape.size(), num_dst = std::ssize(batch.bounds) - 1;
  std::vector<T> x = numbers<T>(batch.num_src * size, 4);
  for (T& value : x) value = narrow<T>(std::round(widen(value)));
  const std::vector<T> grad = numbers<T>(num_dst * size);
  const Rows<const T> rows{x.data(), size}, grads{grad.data(), size};
  Outputs found;
  for (const bool is_min : {false, true}) {
    const auto made = ran<T>(batch, num_dst * size, [&](const GroupedEdges& edges, T* out) {
      neighbor_max(edges, shape, rows, is_min, out);
    });
    const Rows<const T> winning{made.data(), size};
    found.push_back(widened(made));
    found.push_back(widened(ran<T>(batch, std::ssize(x), [&](const GroupedEdges& edges, T* out) {
      neighbor_max_backward(edges, shape, rows, winning, grads, out);
    })));
  }
  return found;
}

template <class T>
Outputs outputs_of(const Batch& batch, RowShape shape) {
  Outputs found;
  for (const auto& some : {sums_of<T>, softmax_of<T>, scores_of<T>, largest_of<T>}) {
    for (std::vector<double>& output : some(batch, shape)) found.push_back(std::move(output));
  }
  return found;
}

// Of `found` and `expected`.
double largest_error(const std::vector<double>& found, const std::vector<double>& expected) {
  double most = found.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    most = std::max(most, std::abs(found[i] - expected[i]) / (1 + std::abs(expected[i])));
  }
  return most;
}

template <class T>
void check_type(const Batch& batch, RowShape shape, const Outputs& expected, double tolerance) {
  const Outputs found = outputs_of<T>(batch, shape);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(largest_error(found[i], expected[i]) <= tolerance);
  }
}

}  // namespace

// Those of doubles are held against their definition in tests/nn/test_ops.py.
TEST(kernels_of_all_types_agree) {
  for (const std::int64_t channels : {1, 13, 32, 70}) {
    for (const std::int64_t num_dst : {0, 1, 300}) {
      const Batch batch(static_cast<std::uint64_t>(channels), num_dst, num_dst == 1 ? 0 : 900);
      const RowShape shape{3, channels};
      const Outputs expected = outputs_of<double>(batch, shape);
      check_type<float>(batch, shape, expected, 1e-4);
      check_type<BFloat16>(batch, shape, expected, 1e-2);
      check_type<Float16>(batch, shape, expected, 2e-3);
    }
  }
}

// Each number is kept or not by its place and the key alone, as often as p says, and neighbours say
// nothing about each other.
TEST(dropout_leaves_out_what_the_key_says) {
  constexpr std::int64_t count = 3 * 4096 + 77;
  std::vector<float> x(count), out(count), again(count);
  for (std::int64_t i = 0; i < count; ++i)
    x[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);
  for (const double p : {0.0, 0.1, 0.5, 0.75, 1.0}) {
    is_portable = true;
    dropout<float>(x, p, 7, 1, out.data());
    is_portable = false;
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
      dropout<float>(x, p, 7, threads, again.data());
      CHECK(again == out);
    }
    dropout<float>({x.data(), 5000}, p, 7, 1, again.data());
    CHECK(std::equal(out.begin(), out.begin() + 5000, again.begin()));
  }
  dropout<float>(x, 0.5, 7, 1, out.data());
  dropout<float>(x, 0.5, 8, 1, again.data());
  std::int64_t same = 0;
  for (std::size_t i = 0; i < x.size(); ++i) same += (out[i] == 0) == (again[i] == 0);
  CHECK(std::abs(2 * same - count) <= 5 * static_cast<std::int64_t>(std::sqrt(count)));
  std::int64_t repeated = 0;
  for (std::size_t i = 4096; i < x.size(); ++i) repeated += (out[i] == 0) == (out[i - 4096] == 0);
  CHECK(std::abs(2 * repeated - (count - 4096)) <= 5 * static_cast<std::int64_t>(std::sqrt(count)));
}
