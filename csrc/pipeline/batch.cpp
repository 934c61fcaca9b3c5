#include "pipeline/batch.h"

#include <cstring>
#include <tuple>
#include <utility>

namespace gz {
namespace {

using Clock = std::chrono::steady_clock;

Buffer<std::int64_t> stacked(const Buffer<std::int64_t>& first, const Buffer<std::int64_t>& second,
                             bool locked) {
  const std::int64_t n = first.size();
  Buffer<std::int64_t> both(2 * n, locked);
  if (n > 0) {
    const auto bytes = static_cast<std::size_t>(n) * sizeof(std::int64_t);
    std::memcpy(both.data(), first.data(), bytes);
    std::memcpy(both.data() + n, second.data(), bytes);
  }
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

}  // namespace

std::int64_t Batch::num_nodes() const noexcept {
  std::int64_t count = 0;
  for (const auto& n : nodes) count += n.size();
  return count;
}

std::int64_t Batch::num_edges() const noexcept {
  std::int64_t count = 0;
  for (const Edges& e : edges) count += e.slot.size();
  return count;
}

std::int64_t Batch::bytes() const noexcept {
  std::int64_t bytes = bytes_of(nodes) + bytes_of(trees) + bytes_of(gathered.lists);
  for (const Edges& e : edges) bytes += bytes_of(e.index) + bytes_of(e.slot);
  for (const Gathered::Column& column : gathered.columns) bytes += bytes_of(column.rows);
  return bytes;
}

Batch sample_batch(const Recipe& recipe, const BatchRequest& request, int threads) {
  const Clock::time_point begin = Clock::now();
  std::vector<Seeds> seeds;
  for (const auto& [type, nodes, times] : request.seeds) seeds.push_back({type, nodes, times});
  Sample sample = recipe.sample(std::move(seeds), request.key, threads);
  const bool locked = recipe.plan != nullptr && recipe.plan->locked;
  Batch batch;
  for (Sample::Edges& e : sample.edges) {
    const auto& [src, dst] = recipe.backward ? std::tie(e.col, e.row) : std::tie(e.row, e.col);
    batch.edges.push_back({stacked(src, dst, locked), std::move(e.slot)});
  }
  batch.nodes = std::move(sample.nodes);
  batch.trees = std::move(sample.trees);
  batch.num_sampled_nodes = std::move(sample.num_sampled_nodes);
  batch.num_sampled_edges = std::move(sample.num_sampled_edges);
  batch.sample_time = Clock::now() - begin;
  return batch;
}

void gather_batch(const Recipe& recipe, Batch& batch, int threads) {
  if (recipe.plan == nullptr) return;
  const Clock::time_point begin = Clock::now();
  std::vector<std::span<const std::int64_t>> lists;
  for (const auto& nodes : batch.nodes) lists.push_back(nodes.span());
  for (const Batch::Edges& e : batch.edges) lists.push_back(e.slot.span());
  batch.gathered = gather(*recipe.plan, lists, threads);
  batch.gather_time = Clock::now() - begin;
}

}  // namespace gz
