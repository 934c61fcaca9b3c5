// Batches: how they are made, the threads that make them ahead, and the tensors they become.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <optional>
#include <tuple>

#include "arrays/memory_pool.h"
#include "arrays/narrow_ids.h"
#include "base/errors.h"
#include "bindings/gathered.h"
#include "pipeline/epoch.h"
#include "pipeline/stepped_window.h"
#include "sampling/hgt_sampler.h"
#include "sampling/neighbor_sampler.h"

namespace gz::python {

using namespace nb::literals;

namespace {

using Fanouts = std::vector<std::vector<std::int64_t>>;
// (node type, nodes, their times or None, as in Seeds) each.
using SeedArrays = std::vector<std::tuple<int, Int64Array, std::optional<Int64Array>>>;

// (edge type, sources, destinations, their times or None, as in ExcludedPairs) each.
using ExcludedArrays =
    std::vector<std::tuple<int, Int64Array, Int64Array, std::optional<Int64Array>>>;

// These in the signatures that users read.
#define GZ_SEEDS "Sequence[tuple[int, torch.Tensor, torch.Tensor | None]]"
#define GZ_EXCLUDED "Sequence[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor | None]]"

BatchRequest request_of(const SeedArrays& seeds, const ExcludedArrays& excluded, BatchKey key) {
  BatchRequest request;
  request.key = key;
  const auto copied = [](const Int64Array& array) {
    const auto all = as_span(array);
    return std::vector<std::int64_t>(all.begin(), all.end());
  };
  for (const auto& [type, src, dst, times] : excluded) {
    request.excluded.push_back(
        {type, copied(src), copied(dst), times ? copied(*times) : std::vector<std::int64_t>{}});
  }
  for (const auto& [type, nodes, times] : seeds) {
    request.seeds.push_back(
        {type, copied(nodes), times ? copied(*times) : std::vector<std::int64_t>{}});
  }
  return request;
}

// A finished batch, its arrays handed over to tensors: `Batch` in Python.
struct TensorBatch {
  Int64Tensors nodes, trees;
  nb::typed<nb::list, Int64Matrix> edge_index;
  Int64Tensors slots;
  std::vector<std::vector<std::int64_t>> num_sampled_nodes, num_sampled_edges;
  GatheredTensors gathered;

  double sample_seconds = 0, gather_seconds = 0;
  std::int64_t num_nodes = 0, num_edges = 0, num_bytes = 0;
  std::optional<ReadStats> read, topology_read;

  static TensorBatch of(Batch batch);
};

// Reads of a batch; most batches have none, and say nothing.
std::optional<ReadStats> told(const ReadStats& stats) {
  return stats.rows == 0 ? std::nullopt : std::optional(stats);
}

TensorBatch TensorBatch::of(Batch batch) {
  using Seconds = std::chrono::duration<double>;
  TensorBatch made{.num_sampled_nodes = std::move(batch.num_sampled_nodes),
                   .num_sampled_edges = std::move(batch.num_sampled_edges),
                   .sample_seconds = Seconds(batch.sample_time).count(),
                   .gather_seconds = Seconds(batch.gather_time).count(),
                   .num_nodes = batch.num_nodes(),
                   .num_edges = batch.num_edges(),
                   .num_bytes = batch.bytes(),
                   .read = told(batch.read),
                   .topology_read = told(batch.topology_read)};
  Loan* const loan = &batch.loan;
  made.nodes = to_tensors(std::move(batch.nodes), loan);
  made.trees = to_tensors(std::move(batch.trees), loan);
  for (auto& [index, slot] : batch.edges) {
    const auto count = static_cast<std::size_t>(index.size()) / 2;
    made.edge_index.append(to_array<Int64Matrix>(std::move(index), {2, count}, loan));
    made.slots.append(to_tensor(std::move(slot), loan));
  }
  made.gathered = GatheredTensors::of(std::move(batch.gathered), loan);
  return made;
}

// (batches, bytes) of WindowLimits.
using Window = std::tuple<int, std::int64_t>;
const Window kWindow{Recipe::kSampledTogether.max_batches, Recipe::kSampledTogether.max_bytes};

// `request` is that of every batch, but for seeds, key and threads.
template <class Sampler, class Request>
std::shared_ptr<Recipe> recipe_of(std::shared_ptr<const Sampler> sampler, Request request,
                                  std::shared_ptr<const GatherPlan> plan, bool backward,
                                  const Window& window) {
  Recipe recipe{{}, std::move(plan), backward, sampler->reads()};
  std::tie(recipe.sampled.max_batches, recipe.sampled.max_bytes) = window;
  if (recipe.sampled.max_batches < 1) {
    throw invalid("window: found ", recipe.sampled.max_batches, " batches, expected 1 or more");
  }
  recipe.begin = [sampler = std::move(sampler), request = std::move(request)](BatchRequest batch,
                                                                              int threads) {
    Request one = request;
    static_cast<BatchRequest&>(one) = std::move(batch);
    one.threads = threads;
    return sampler->begin(std::move(one));
  };
  return std::make_shared<Recipe>(std::move(recipe));
}

// Waits in slices: a signal is seen between them.
constexpr std::chrono::milliseconds kSlice{50};

std::unique_ptr<Batch> wait(Epoch& epoch, std::uint64_t number, double timeout) {
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    auto batch = without_gil([&] { return epoch.get(number, kSlice); });
    if (batch != nullptr) return batch;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (timeout > 0 && waited.count() >= timeout) return nullptr;
  }
}

// One that Python has dropped: other threads go on while its own end.
class OwnedEpoch : public Epoch {
 public:
  using Epoch::Epoch;
  OwnedEpoch(const OwnedEpoch&) = delete;
  OwnedEpoch& operator=(const OwnedEpoch&) = delete;
  ~OwnedEpoch() {
    const nb::gil_scoped_release released;
    close();
  }
};

}  // namespace

void init_pipeline(nb::module_& m) {
  nb::class_<Recycling>(m, "Recycling", "While one lives, memory of dead batches is kept.")
      .def(nb::init<bool>(), "is_bounded"_a);
  m.def("free_idle_blocks", &free_idle_blocks,
        "Frees the memory of dead batches that is kept; returns how many bytes it was.");
  m.def(
      "narrow_bytes", [](Int64Span ids) { return NarrowIds::bytes_for(ids) * std::ssize(ids); },
      "ids"_a, "What these ids take while they wait for their batch's rows.");

  nb::class_<Labor>(m, "Labor", "Sampling by variates that destinations share.")
      .def(nb::init<bool, std::uint64_t>(), "layer_dependent"_a = false, "batch_dependency"_a = 1);

  nb::class_<TensorBatch>(
      m, "Batch",
      "Sample and rows of one batch, and their cost. Lists are by the number of "
      "a node or edge type.")
      .def_ro("nodes", &TensorBatch::nodes, "Rows of the store by node type, seeds first.")
      .def_ro("trees", &TensorBatch::trees,
              "The seed that each of them was reached from, by node type; none unless disjoint.")
      .def_ro("edge_index", &TensorBatch::edge_index, "Places in `nodes`, by edge type.")
      .def_ro("slots", &TensorBatch::slots,
              "Where the edges lie in CSC, by edge type; empty where the plan keeps none.")
      .def_ro("num_sampled_nodes", &TensorBatch::num_sampled_nodes, "By node type and hop.")
      .def_ro("num_sampled_edges", &TensorBatch::num_sampled_edges,
              "By edge type and hop; no hops if induced.")
      .def_ro("gathered", &TensorBatch::gathered, "By the recipe's plan; empty without one.")
      .def_ro("sample_seconds", &TensorBatch::sample_seconds, "Of a thread, reading included.")
      .def_ro("gather_seconds", &TensorBatch::gather_seconds, "Of a thread.")
      .def_ro("num_nodes", &TensorBatch::num_nodes, "Of all types.")
      .def_ro("num_edges", &TensorBatch::num_edges, "Of all types.")
      .def_ro("num_bytes", &TensorBatch::num_bytes, "Of all arrays.")
      .def_ro("read", &TensorBatch::read,
              "What was read of columns for its window, where it is the first in it; else None.")
      .def_ro("topology_read", &TensorBatch::topology_read,
              "Likewise of topologies, for the batches that were sampled together.");

  nb::class_<Recipe>(m, "Recipe", "How every batch of an epoch is made.")
      .def_static(
          "neighbors",
          [](std::shared_ptr<const NeighborSampler> sampler, Fanouts num_neighbors, bool replace,
             bool disjoint, bool last, bool induced, bool whole_frontier,
             std::shared_ptr<const GatherPlan> plan, bool backward, std::optional<Labor> labor,
             const Window& window) {
            SampleRequest request;
            request.num_neighbors = std::move(num_neighbors);
            request.replace = replace;
            request.disjoint = disjoint;
            request.last = last;
            request.induced = induced;
            request.whole_frontier = whole_frontier;
            request.labor = labor;
            return recipe_of(std::move(sampler), std::move(request), std::move(plan), backward,
                             window);
          },
          "sampler"_a, "num_neighbors"_a, "replace"_a = false, "disjoint"_a = false,
          "last"_a = false, "induced"_a = false, "whole_frontier"_a = false,
          "plan"_a.none() = nb::none(), "backward"_a = false, "labor"_a.none() = nb::none(),
          "window"_a = kWindow,
          "`window`: of a topology that is not all in memory, for how many batches neighbours are "
          "read at once, and how many bytes.")
      .def_static(
          "hgt",
          [](std::shared_ptr<const HgtSampler> sampler, Fanouts num_samples,
             std::shared_ptr<const GatherPlan> plan, const Window& window) {
            HgtRequest request;
            request.num_samples = std::move(num_samples);
            return recipe_of(std::move(sampler), std::move(request), std::move(plan), false,
                             window);
          },
          "sampler"_a, "num_samples"_a, "plan"_a.none() = nb::none(), "window"_a = kWindow,
          "`window`: as of `neighbors`.")
      .def(
          "make",
          [](const Recipe& self, const SeedArrays& seeds, std::uint64_t key, int num_threads,
             std::uint64_t number, const ExcludedArrays& excluded) {
            const BatchRequest request = request_of(seeds, excluded, {key, number});
            return TensorBatch::of(without_gil([&] {
              Batch batch = sample_batch(self, request, num_threads);
              gather_batch(self, batch, num_threads);
              return batch;
            }));
          },
          "seeds"_a, "key"_a, "num_threads"_a = 0, "number"_a = 0, "excluded"_a = ExcludedArrays(),
          nb::sig("def make(self, seeds: " GZ_SEEDS ", key: int, num_threads: int = 0, "
                  "number: int = 0, excluded: " GZ_EXCLUDED " = ()) -> Batch"),
          "One batch, the `number`th of its epoch, made at once by the caller. `excluded`: edges "
          "by edge type that are in no sample of `neighbors`, by their ends, and by their time "
          "unless "
          "that is None.");

  using Requests = std::vector<std::tuple<std::shared_ptr<const Recipe>, SeedArrays, std::uint64_t,
                                          std::uint64_t, ExcludedArrays>>;
  nb::class_<SteppedWindow>(m, "SteppedWindow",
                            "Batches over neighbours in shards, sampled together step by step.")
      .def(
          "__init__",
          [](SteppedWindow* self, const Requests& requests, int num_threads) {
            std::vector<SteppedWindow::Wanted> batches;
            for (const auto& [recipe, seeds, key, number, excluded] : requests) {
              batches.push_back({recipe, request_of(seeds, excluded, {key, number})});
            }
            new (self) SteppedWindow(std::move(batches), num_threads);
          },
          "requests"_a, "num_threads"_a = 0,
          nb::sig("def __init__(self, requests: Sequence[tuple[Recipe, " GZ_SEEDS
                  ", int, int, " GZ_EXCLUDED "]], num_threads: int = 0) -> None"),
          "(recipe, seeds, key, number, excluded) of each batch, as of Recipe.make().")
      .def(
          "step",
          [](SteppedWindow& self) {
            std::vector<std::pair<std::string, Int64Tensor>> lists;
            for (const auto& [run, list] : without_gil([&] { return self.step(); })) {
              lists.emplace_back(list.csc->name,
                                 fill_tensor(list.slots.size(), [&](std::int64_t* to) {
                                   list.slots.for_each([&](std::int64_t slot) { *to++ = slot; });
                                 }));
            }
            return lists;
          },
          "Goes on until sources are wanted: the path of a topology and its slots, int64 [n], for "
          "each list of them. None at the end.")
      .def(
          "fill",
          [](SteppedWindow& self, const std::vector<Int64Array>& sources) {
            const auto lists = self.lists();
            bool fits = sources.size() == lists.size();
            for (std::size_t i = 0; fits && i < lists.size(); ++i) {
              fits = static_cast<std::int64_t>(sources[i].size()) == lists[i].list.slots.size();
            }
            if (!fits) throw invalid("sources: expected one of each slot");
            for (std::size_t i = 0; i < lists.size(); ++i) {
              lists[i].list.fill([&](std::int64_t j) { return sources[i].data()[j]; });
            }
          },
          "sources"_a, "The sources of what step() has listed, int64 [n] each.")
      .def(
          "take",
          [](SteppedWindow& self, std::size_t number) {
            return TensorBatch::of(self.take(number));
          },
          "number"_a, "A batch, once there is nothing to step; raises its error.");

  nb::class_<OwnedEpoch>(m, "Epoch", nb::is_weak_referenceable(),
                         "Batches by number, made ahead by threads.")
      .def(nb::init<int, std::int64_t, std::uint64_t>(), "num_threads"_a, "max_bytes"_a,
           "first"_a = 0, "`first`: the first number.")
      .def(
          "add",
          [](OwnedEpoch& self, std::uint64_t number, std::shared_ptr<const Recipe> recipe,
             const SeedArrays& seeds, std::uint64_t key, const ExcludedArrays& excluded) {
            self.add(number, std::move(recipe), request_of(seeds, excluded, {key, number}));
          },
          "number"_a, "recipe"_a, "seeds"_a, "key"_a, "excluded"_a = ExcludedArrays(),
          nb::sig("def add(self, number: int, recipe: Recipe, seeds: " GZ_SEEDS ", key: int, "
                  "excluded: " GZ_EXCLUDED " = ()) -> None"),
          "Adds batch `number`, which is `end`; `excluded` as in Recipe.make().")
      .def(
          "get",
          [](OwnedEpoch& self, std::uint64_t number, double timeout) -> std::optional<TensorBatch> {
            const std::unique_ptr<Batch> batch = wait(self, number, timeout);
            if (batch == nullptr) return std::nullopt;
            return TensorBatch::of(std::move(*batch));
          },
          "number"_a, "timeout"_a = 0.0,
          "Batch `number`, which is `next`; None after `timeout` seconds, unless that is 0.")
      .def("flush", &Epoch::flush, kWithoutGil,
           "Batches that were added do not wait for a full window.")
      .def("give_up_windows", &Epoch::give_up_windows, kWithoutGil,
           "Forgets rows that were read and not gathered.")
      .def("close", &Epoch::close, kWithoutGil)
      .def_prop_ro("end", &Epoch::end, "One past the last number added.")
      .def_prop_ro("next", &Epoch::next, "One past the last number given.");
}

}  // namespace gz::python
