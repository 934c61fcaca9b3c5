#include "gather/gather.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/parallel.h"
#include "io/fault_guard.h"

namespace gz {
namespace {

constexpr std::int64_t kPrefetchAhead = 16;

void check_index(std::span<const std::int64_t> index, std::int64_t begin, std::int64_t end,
                 std::int64_t num_rows) {
  const std::int64_t* const at = index.data();
  std::uint64_t highest = 0;  // negative ones are higher than all others
  for (std::int64_t i = begin; i < end; ++i) {
    highest = std::max(highest, static_cast<std::uint64_t>(at[i]));
  }
  if (begin == end || highest < static_cast<std::uint64_t>(num_rows)) return;
  for (std::int64_t i = begin; i < end; ++i) {
    if (at[i] >= 0 && at[i] < num_rows) continue;
    throw std::out_of_range("index[" + std::to_string(i) + "]: found row " + std::to_string(at[i]) +
                            ", expected 0 <= row < " + std::to_string(num_rows));
  }
}

// Rows per range: some 256 KiB of output, so that threads share evenly and ranges stay cheap.
std::int64_t grain_for(std::int64_t row_bytes) {
  return std::clamp<std::int64_t>((256 << 10) / std::max<std::int64_t>(row_bytes, 1), 16, 16384);
}

// A table and where its rows go.
struct Target {
  const RowTable* table;
  std::byte* out;
};

// All targets by one index list, range by range: a range's indices are read from memory once.
void gather_targets(std::span<const Target> targets, std::span<const std::int64_t> index,
                    int threads) {
  const auto n = static_cast<std::int64_t>(index.size());
  std::int64_t row_bytes = 0;
  for (const Target& target : targets) row_bytes += target.table->row_bytes;
  parallel_for(n, grain_for(row_bytes), threads, [&](std::int64_t begin, std::int64_t end) {
    for (const auto& [table, out] : targets) {
      check_index(index, begin, end, table->num_rows);
      guarded([&] {
        copy_rows(*table, index.data() + begin, end - begin, out + begin * table->row_bytes);
      });
    }
  });
}

template <class Item>
void widen(const Item* column, const std::int64_t* index, std::int64_t count, std::int64_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kPrefetchAhead < count) __builtin_prefetch(column + index[i + kPrefetchAhead]);
    out[i] = column[index[i]];
  }
}

}  // namespace

IdColumn id_column(const RowTable& table) {
  if (table.row_bytes != 4 && table.row_bytes != 8) {
    throw std::invalid_argument("column: found items of " + std::to_string(table.row_bytes) +
                                " bytes, expected int32 or int64");
  }
  if (table.num_rows > 1 && table.row_stride != table.row_bytes) {
    throw std::invalid_argument("column: expected contiguous items");
  }
  return {table.data, table.num_rows, static_cast<int>(table.row_bytes)};
}

Gathered gather(const GatherPlan& plan, std::span<const std::span<const std::int64_t>> given,
                int threads) {
  if (given.size() != plan.num_lists) {
    throw std::invalid_argument("gather: found " + std::to_string(given.size()) +
                                " index lists, expected " + std::to_string(plan.num_lists));
  }
  std::vector<std::span<const std::int64_t>> lists(given.begin(), given.end());
  Gathered out;
  for (const GatherPlan::Lookup& lookup : plan.lookups) {
    const std::span<const std::int64_t> by = lists.at(lookup.by);
    Buffer<std::int64_t> ids(static_cast<std::int64_t>(by.size()));
    gather_ids(lookup.ids, by, ids.data(), threads);
    lists.push_back(ids.span());
    out.lists.push_back(std::move(ids));
  }
  for (const auto& [by, table] : plan.columns) {
    const auto rows = static_cast<std::int64_t>(lists.at(by).size());
    out.columns.push_back(
        {Buffer<std::byte>(rows * table.row_bytes, plan.locked), table.row_bytes});
  }
  std::vector<Target> targets;
  for (std::size_t list = 0; list < lists.size(); ++list) {
    targets.clear();
    for (std::size_t c = 0; c < plan.columns.size(); ++c) {
      if (plan.columns[c].by != list) continue;
      targets.push_back({&plan.columns[c].table, out.columns[c].rows.data()});
    }
    if (!targets.empty()) gather_targets(targets, lists[list], threads);
  }
  return out;
}

void gather_rows(const RowTable& table, std::span<const std::int64_t> index, std::byte* out,
                 int threads) {
  const Target target{&table, out};
  gather_targets({&target, 1}, index, threads);
}

void gather_ids(const IdColumn& column, std::span<const std::int64_t> index, std::int64_t* out,
                int threads) {
  const auto n = static_cast<std::int64_t>(index.size());
  parallel_for(n, grain_for(8), threads, [&](std::int64_t begin, std::int64_t end) {
    check_index(index, begin, end, column.num_rows);
    guarded([&] {
      const std::int64_t* at = index.data() + begin;
      if (column.item_bytes == 4) {
        widen(reinterpret_cast<const std::int32_t*>(column.data), at, end - begin, out + begin);
      } else {
        widen(reinterpret_cast<const std::int64_t*>(column.data), at, end - begin, out + begin);
      }
    });
  });
}

}  // namespace gz
