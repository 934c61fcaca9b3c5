// The samplers.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "bindings/arrays.h"
#include "sampling/edge_prints.h"
#include "sampling/hgt_sampler.h"
#include "sampling/neighbor_sampler.h"
#include "sampling/neighbor_sums.h"
#include "sampling/packed_sources.h"
#include "sampling/walks.h"

namespace gz::python {

using namespace nb::literals;

namespace {

using Int64s = std::optional<Int64Array>;
using IndexArray = nb::ndarray<nb::pytorch, nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Csc csc_of(const Int64Array& indptr, const IndexArray& indices, std::int64_t num_src,
           std::string name) {
  if (indptr.size() == 0) throw invalid(name, ": indptr is empty");
  const auto bytes = static_cast<std::uint32_t>(indices.itemsize());
  const auto kind = static_cast<nb::dlpack::dtype_code>(indices.dtype().code);
  if ((bytes != 4 && bytes != 8) ||
      (kind != nb::dlpack::dtype_code::Int && kind != nb::dlpack::dtype_code::UInt)) {
    throw invalid(name, ": indices must be 32- or 64-bit integers");
  }
  return {indptr.data(),
          indices.data(),
          bytes,
          num_src,
          static_cast<std::int64_t>(indptr.size()) - 1,
          static_cast<std::int64_t>(indices.size()),
          std::move(name),
          nullptr,
          hold(std::pair(indptr, indices))};
}

const std::int64_t* checked(const Int64s& values, const SampledEdgeType& type, const char* what) {
  if (!values) return nullptr;
  if (static_cast<std::int64_t>(values->size()) != type.csc.num_edges) {
    throw invalid(type.csc.name, ": ", what, ": found ", values->size(), " values, expected ",
                  type.csc.num_edges);
  }
  return values->data();
}

// Has a signal end what the engine does on this thread.
void check_signals() {
  const nb::gil_scoped_acquire acquired;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace

void init_sampling(nb::module_& m) {
  nb::class_<PackedBounds>(m, "PackedBounds",
                           "Where neighbourhoods begin, in a quarter of what a file takes for it.")
      .def(nb::init<const Topology&>(), "topology"_a, kWithoutGil,
           "Reads the bounds of a topology.")
      .def_static("num_bytes", &PackedBounds::num_bytes, "num_nodes"_a, "num_edges"_a,
                  "Bytes of the bounds of `num_nodes` nodes with `num_edges` edges, at most.");

  nb::class_<PackedInts>(m, "PackedSources",
                         "Neighbours in memory, in no more bits than a node's number has.")
      .def(
          "__init__",
          [](PackedInts* self, const Topology& topology) {
            new (self) PackedInts(pack_sources(topology));
          },
          "topology"_a, kWithoutGil, "Reads the neighbours of a topology.")
      .def_static("num_bytes", &packed_sources_bytes, "num_src"_a, "num_edges"_a,
                  "Bytes of the neighbours of `num_edges` edges from `num_src` nodes.");

  // Collects edge types before the sampler is built, which is immutable.
  nb::class_<SampledGraph>(m, "SamplerBuilder", "Collects the edge types of a sampler.")
      .def(nb::init<std::vector<std::int64_t>>(), "num_nodes"_a)
      .def(
          "add_file",
          [](SampledGraph& self, int src_type, int dst_type, std::shared_ptr<const Topology> file,
             std::shared_ptr<PagedRows> paged, std::shared_ptr<const PackedBounds> bounds,
             std::shared_ptr<const PackedInts> packed, const Int64s& starts) {
            Csc csc =
                csc_of(std::move(file), std::move(paged), std::move(bounds), std::move(packed));
            if (starts) {
              if (static_cast<std::int64_t>(starts->size()) != csc.num_dst) {
                throw invalid(csc.name, ": starts: found ", starts->size(), ", expected ",
                              csc.num_dst);
              }
              csc.starts = {hold(*starts), starts->data()};
            }
            self.edge_types.push_back({src_type, dst_type, std::move(csc)});
          },
          "src_type"_a, "dst_type"_a, "topology"_a, "paged"_a.none() = nb::none(),
          "bounds"_a.none() = nb::none(), "packed"_a.none() = nb::none(),
          "starts"_exact.none() = nb::none(),
          "`paged`: ColumnFile.of_indices of the topology, of which memory holds a part. `bounds` "
          "and `packed`: in place of what the file says, which is then not touched. `starts`: "
          "where the slots of each node begin, in place of what its bounds say.")
      .def(
          "add_arrays",
          [](SampledGraph& self, int src_type, int dst_type, const Int64Array& indptr,
             const IndexArray& indices, std::int64_t num_src, std::string name) {
            self.edge_types.push_back(
                {src_type, dst_type, csc_of(indptr, indices, num_src, std::move(name))});
          },
          "src_type"_a, "dst_type"_a, "indptr"_exact, "indices"_exact, "num_src"_a, "name"_a)
      .def(
          "set_order",
          [](SampledGraph& self, std::size_t edge_type, const Int64s& slots, const Int64s& times,
             const Int64s& cumulative) {
            SampledEdgeType& type = self.edge_types.at(edge_type);
            const auto* const sums = checked(cumulative, type, "cumulative");
            type.order = {checked(slots, type, "slots"), checked(times, type, "times"),
                          reinterpret_cast<const std::uint64_t*>(sums),
                          hold(std::tuple(slots, times, cumulative))};
          },
          "edge_type"_a, "slots"_exact.none(), "times"_exact.none(), "cumulative"_exact.none(),
          "Ranks the edges of a type: rank -> slot, times rising within a neighbourhood, running "
          "sums of integer weights; each int64 [num_edges] or None.");

  nb::class_<NeighborSums>(m, "NeighborSums",
                           "Sums over the in-neighbours of blocks of destinations, a chunk of "
                           "their column at a time.")
      .def(
          "__init__",
          [](NeighborSums* self, std::shared_ptr<const Topology> topology, const Column& column,
             bool direct, std::int64_t chunk_rows, std::int64_t max_mapped, std::int64_t room,
             int num_threads) {
            new (self)
                NeighborSums(gz::csc_of(std::move(topology)), SummedColumn::of(column, direct),
                             {chunk_rows, max_mapped, room, num_threads});
          },
          "topology"_a, "column"_a, "direct"_a, "chunk_rows"_a, "max_mapped"_a, "room"_a,
          "num_threads"_a = 0,
          "`direct`: reads past the page cache; `room`: bytes for a block's sums and edges.")
      .def("begin", &NeighborSums::begin, "first"_a, "last"_a, kWithoutGil,
           "Sorts the edges of destinations [first, last).")
      .def("step", &NeighborSums::step, kWithoutGil,
           "Adds the next chunk; False when it was the last.")
      .def(
          "sums",
          [](const NeighborSums& self) {
            const std::size_t shape[] = {static_cast<std::size_t>(self.num_sums()),
                                         static_cast<std::size_t>(self.items())};
            const std::shared_ptr<const float> sums = self.sums();
            return FloatMatrix(const_cast<float*>(sums.get()), 2, shape, keep_alive(sums));
          },
          "float32 [last - first, items], until the next begin().")
      .def_prop_ro("stats", &NeighborSums::stats, "What was read of the block until now.")
      .def_prop_ro("wait_seconds", &NeighborSums::wait_seconds,
                   "Of the seconds of reading, those that step() waited.");

  nb::class_<NeighborSampler>(m, "NeighborSampler", "Multi-hop neighbour sampling over CSC.")
      .def(nb::init<const SampledGraph&>(), "builder"_a);
  nb::class_<HgtSampler>(m, "HgtSampler", "Budgeted sampling over node types.")
      .def(nb::init<const SampledGraph&>(), "builder"_a);

  nb::class_<Walker>(m, "Walker", "Random walks, from destination to source of a CSC.")
      .def(nb::init<const SampledGraph&, std::vector<bool>>(), "builder"_a, "is_sorted"_a,
           "`is_sorted`: of which edge types the neighbours of every node ascend.")
      .def(
          "walk",
          [](const Walker& self, Int64Span start, std::vector<std::size_t> steps, double p,
             double q, double restart, bool stay, bool return_slots, std::uint64_t key,
             std::int64_t max_bytes, int num_threads, const std::optional<Int64Span>& latest,
             const std::optional<Int64Span>& earliest) {
            const std::size_t length = steps.size();
            WalkRequest request;
            request.start = start;
            request.steps = std::move(steps);
            request.p = p;
            request.q = q;
            request.latest = latest.value_or(Int64Span());
            request.earliest = earliest.value_or(Int64Span());
            request.restart = restart;
            request.stay = stay;
            request.wants_slots = return_slots;
            request.key = key;
            request.threads = num_threads;
            request.max_bytes = max_bytes;
            Walks found = without_gil([&] { return self.walk(request, check_signals); });
            std::optional<Int64Matrix> slots;
            if (return_slots) {
              slots = to_array<Int64Matrix>(std::move(found.slots), {start.size(), length});
            }
            return std::pair(
                to_array<Int64Matrix>(std::move(found.nodes), {start.size(), length + 1}),
                std::move(slots));
          },
          "start"_a, "steps"_a, "p"_a = 1.0, "q"_a = 1.0, "restart"_a = 0.0, "stay"_a = false,
          "return_slots"_a = false, "key"_a = 0, "max_bytes"_a = 0, "num_threads"_a = 0,
          "latest"_a.none() = nb::none(), "earliest"_a.none() = nb::none(),
          "Rows, int64 [walk, step + 1], and slots, int64 [walk, step], or None. `steps`: the edge "
          "type of each; `max_bytes`: of neighbours that are read at once; `latest`, `earliest`: "
          "int64 [walk], of the edges that each may take where they have times.");
  m.def(
      "edge_prints",
      [](const SampledGraph& builder, std::size_t edge_type) {
        const Csc& csc = builder.edge_types.at(edge_type).csc;
        const auto [along, against] =
            without_gil([&] { return edge_prints(csc, 0, check_signals); });
        return std::pair(along, against);
      },
      "builder"_a, "edge_type"_a,
      "Two numbers that stand for all edges, from source to destination and with these exchanged.");
}

}  // namespace gz::python
