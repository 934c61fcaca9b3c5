#include "pipeline/batch.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

namespace gz {
namespace {

using Clock = std::chrono::steady_clock;

Buffer<std::int64_t> stacked(const Buffer<std::int64_t>& first,
                             const Buffer<std::int64_t>& second) {
  const std::int64_t n = first.size();
  Buffer<std::int64_t> both(2 * n);
  std::copy_n(first.data(), n, both.data());
  std::copy_n(second.data(), n, both.data() + n);
  return both;
}

template <class T>
std::int64_t bytes_of(const Buffer<T>& buffer) noexcept {
  return static_cast<std::int64_t>(buffer.span().size_bytes());
}

template <class T>
std::int64_t bytes_of(const std::vector<Buffer<T>>& buffers) noexcept {
  std::int64_t bytes = 0;
  for (const auto& buffer : buffers) bytes += bytes_of(buffer);
  return bytes;
}

// The lists that a plan gathers by.
std::vector<std::span<const std::int64_t>> index_lists(const Batch& batch) {
  std::vector<std::span<const std::int64_t>> lists;
  for (const auto& nodes : batch.nodes) lists.push_back(nodes.span());
  for (const Batch::Edges& e : batch.edges) lists.push_back(e.slot.span());
  return lists;
}

SampledHops hops_of(const Batch& batch) {
  SampledHops hops;
  for (const std::vector<std::int64_t>& counts : batch.num_sampled_nodes) {
    const auto last = counts.empty() ? counts.end() : std::prev(counts.end());
    hops.inner.push_back(std::accumulate(counts.begin(), last, std::int64_t{0}));
  }
  for (const Batch::Edges& e : batch.edges) {
    const std::span<const std::int64_t> both = e.index.span();
    hops.edges.push_back({both.first(both.size() / 2), both.last(both.size() / 2)});
  }
  return hops;
}

// One of them, of a batch that is packed or not.
IdList index_list(const Batch& batch, std::size_t number) {
  if (batch.packed == nullptr) return index_lists(batch)[number];
  const std::size_t num_node_types = batch.packed->nodes.size();
  if (number < num_node_types) return batch.packed->nodes[number];
  return batch.packed->edges[number - num_node_types].slot;
}

void unpack(Batch& batch) {
  if (batch.packed == nullptr) return;
  for (NarrowIds& nodes : batch.packed->nodes) batch.nodes.push_back(std::move(nodes).widen());
  for (NarrowIds& trees : batch.packed->trees) batch.trees.push_back(std::move(trees).widen());
  for (auto& [first, second, slot] : batch.packed->edges) {
    Buffer<std::int64_t> index(first.size() + second.size());
    first.widen_to(index.data());
    second.widen_to(index.data() + first.size());
    batch.edges.push_back({std::move(index), std::move(slot).widen()});
  }
  batch.packed.reset();
}

}  // namespace

void take_sample(const Recipe& recipe, Sample sample, Batch& batch) {
  for (Sample::Edges& e : sample.edges) {
    const auto& [src, dst] = recipe.backward ? std::tie(e.col, e.row) : std::tie(e.row, e.col);
    const bool has_slots = recipe.plan == nullptr || recipe.plan->keeps_slots;
    batch.edges.push_back(
        {stacked(src, dst), has_slots ? std::move(e.slot) : Buffer<std::int64_t>()});
    if (recipe.plan == nullptr) continue;
    batch.spent.push_back(std::move(e.row));
    batch.spent.push_back(std::move(e.col));
  }
  batch.nodes = std::move(sample.nodes);
  batch.trees = std::move(sample.trees);
  batch.num_sampled_nodes = std::move(sample.num_sampled_nodes);
  batch.num_sampled_edges = std::move(sample.num_sampled_edges);
}

std::int64_t Batch::num_nodes() const noexcept {
  std::int64_t count = 0;
  for (const auto& n : nodes) count += n.size();
  return count;
}

std::int64_t Batch::num_edges() const noexcept {
  std::int64_t count = 0;
  for (const Edges& e : edges) count += e.index.size() / 2;
  return count;
}

std::int64_t Batch::bytes() const noexcept {
  std::int64_t bytes = bytes_of(nodes) + bytes_of(trees) + bytes_of(gathered.lists);
  for (const Edges& e : edges) bytes += bytes_of(e.index) + bytes_of(e.slot);
  for (const Gathered::Column& column : gathered.columns) bytes += bytes_of(column.rows);
  return bytes;
}

Batch sample_batch(const Recipe& recipe, const BatchRequest& request, int threads) {
  Batch batch;
  const BatchToSample alone{&recipe, &request, &batch};
  const auto errors = sample_together({&alone, 1}, threads);
  if (errors.front()) std::rethrow_exception(errors.front());
  return batch;
}

std::vector<std::exception_ptr> sample_together(std::span<const BatchToSample> batches, int threads,
                                                std::stop_token stop) {
  const Clock::time_point begin = Clock::now();
  std::vector<SamplingRun> runs;
  for (const BatchToSample& one : batches) {
    runs.push_back(one.recipe->begin(*one.request, threads));
  }
  // Each is taken, and packed, once it is done, so that few lie unpacked in memory.
  const auto take = [&](std::size_t k, Sample sample) {
    take_sample(*batches[k].recipe, std::move(sample), *batches[k].batch);
    if (batches[k].waits) pack_batch(*batches[k].batch);
  };
  SampleWindow window =
      sample_window(runs, batches.front().recipe->sampled.max_bytes, take, std::move(stop));
  if (window.stopped) return {};
  const auto made = std::find(window.errors.begin(), window.errors.end(), nullptr);
  if (made != window.errors.end()) {
    batches[static_cast<std::size_t>(made - window.errors.begin())].batch->topology_read =
        window.read;
  }
  const Clock::duration each = (Clock::now() - begin) / std::ssize(batches);
  for (const BatchToSample& one : batches) one.batch->sample_time = each;
  return std::move(window.errors);
}

std::vector<std::exception_ptr> read_window(const Recipe& recipe, std::span<Batch* const> batches,
                                            std::stop_token stop, int at_once) {
  const std::vector<GatherPlan::Paged>& paged = recipe.plan->paged;
  auto window = std::make_shared<BatchWindow>();
  window->room = recipe.plan->windows->take(at_once);
  std::size_t count = std::min(batches.size(), recipe.max_window(at_once));
  std::int64_t room = window->room.bytes();
  // Files share the room as in the last window. One that took all it could get would leave the next
  // one room for few batches, and what it read for the others would be lost. A file whose rows were
  // all in memory has some nevertheless.
  std::vector<double> weights;
  for (const GatherPlan::Paged& each : paged) weights.push_back(each.rows->bytes_a_list());
  const double least = std::ranges::max(weights) / 64 + 1;
  for (double& weight : weights) weight = std::max(weight, least);
  std::vector<std::exception_ptr> errors;
  for (const auto& [by, rows] : paged) {
    std::vector<IdList> lists;
    for (const Batch* batch : batches.first(count)) lists.push_back(index_list(*batch, by));
    const auto own = weights.begin() + std::ssize(window->rows);
    const double share = *own / std::accumulate(own, weights.end(), 0.0);  // 1 for the last file
    const auto most = static_cast<std::int64_t>(share * static_cast<double>(room));
    window->rows.push_back(rows->read(lists, most, stop));
    const RowWindow& part = window->rows.back();
    if (part.stopped) return {};
    count = part.num_lists();
    room = std::max<std::int64_t>(0, room - part.bytes());
  }
  window->room.shrink(window->room.bytes() - room);
  errors.resize(count);
  ReadStats stats;
  for (RowWindow& part : window->rows) {
    part.shorten(count);
    stats += part.stats;
    // The window outlives the batch that fails: an error is the batch's alone.
    for (std::size_t k = 0; k < count; ++k) {
      std::exception_ptr error = std::move(part.errors[k]);
      if (!errors[k]) errors[k] = std::move(error);
    }
  }
  batches.front()->read += stats;
  for (std::size_t k = 0; k < count; ++k) {
    batches[k]->window = window;
    batches[k]->place_in_window = k;
  }
  return errors;
}

void pack_batch(Batch& batch) {
  auto packed = std::make_unique<Batch::Packed>();
  for (auto& nodes : batch.nodes) packed->nodes.emplace_back(std::move(nodes));
  for (auto& trees : batch.trees) packed->trees.emplace_back(std::move(trees));
  for (auto& [index, slot] : batch.edges) {
    const std::span<const std::int64_t> both = index.span();
    const std::size_t half = both.size() / 2;
    packed->edges.push_back(
        {NarrowIds(both.first(half)), NarrowIds(both.last(half)), NarrowIds(std::move(slot))});
    index = {};
  }
  batch.nodes.clear();
  batch.trees.clear();
  batch.edges.clear();
  batch.spent.clear();
  batch.packed = std::move(packed);
}

void gather_batch(const Recipe& recipe, Batch& batch, int threads, const std::stop_token& stop) {
  if (recipe.plan == nullptr) return;
  unpack(batch);
  const Clock::time_point begin = Clock::now();
  WindowPart part;
  if (batch.window != nullptr) part = {batch.window->rows, batch.place_in_window};
  const SampledHops hops = recipe.plan->needs_hops() ? hops_of(batch) : SampledHops{};
  std::vector<std::span<const std::int64_t>> lists = index_lists(batch);
  // A sampler that draws edges of each type both ways has as many lists again, without rows.
  lists.resize(std::min(lists.size(), recipe.plan->num_lists));
  batch.gathered = gather(*recipe.plan, lists, threads, part, hops, stop);
  batch.read += batch.gathered.read;
  batch.window.reset();
  batch.spent.clear();
  batch.gather_time = Clock::now() - begin;
}

}  // namespace gz
