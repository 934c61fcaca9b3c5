#include "gather/gather.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "gather/sum_rows.h"
#include "io/fault_guard.h"
#include "io/mapping.h"

namespace gz {
namespace {

// Destinations whose sums a thread makes at a time.
constexpr std::int64_t kSumGrain = 256;

void check_index(std::span<const std::int64_t> index, std::int64_t begin, std::int64_t end,
                 std::int64_t num_rows) {
  const auto part =
      index.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  check_range("index", "row", part, num_rows, begin);
}

// Rows per range: some 256 KiB of output, so that threads share evenly and ranges stay cheap.
std::int64_t grain_for(std::int64_t row_bytes) {
  return std::clamp<std::int64_t>((256 << 10) / std::max<std::int64_t>(row_bytes, 1), 16, 16384);
}

// A table, which of its rows, and where they go.
struct Target {
  RowTable table;
  std::span<const std::int64_t> index;
  std::byte* out;
};

// Targets of one index list go together, range by range: a range's indices are read from memory
// once.
void gather_targets(std::span<Target> targets, int threads) {
  renew_guard();
  const auto by = [](const Target& target) {
    return std::pair{target.index.data(), target.index.size()};
  };
  std::stable_sort(targets.begin(), targets.end(),
                   [&](const Target& a, const Target& b) { return std::less{}(by(a), by(b)); });
  for (auto first = targets.begin(); first != targets.end();) {
    const auto last = std::find_if(first, targets.end(),
                                   [&](const Target& target) { return by(target) != by(*first); });
    const std::span<Target> group(first, last);
    std::int64_t row_bytes = 0;
    for (const Target& target : group) row_bytes += target.table.row_bytes;
    const std::span<const std::int64_t> index = first->index;
    parallel_for(std::ssize(index), grain_for(row_bytes), threads,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (const Target& target : group) {
                     const RowTable& table = target.table;
                     check_index(index, begin, end, table.num_rows);
                     guarded([&] {
                       copy_rows(table, index.data() + begin, end - begin,
                                 target.out + begin * table.row_bytes);
                     });
                   }
                 });
    first = last;
  }
}

// How many nodes of a type were sampled before the last hop.
std::size_t inner_of(const SampledHops& hops, int type, std::size_t num_nodes) {
  const std::int64_t count = hops.inner.at(static_cast<std::size_t>(type));
  if (count < 0 || static_cast<std::size_t>(count) > num_nodes) {
    throw invalid("inner: found ", count, " of ", num_nodes, " nodes, expected that many or fewer");
  }
  return static_cast<std::size_t>(count);
}

// Sums over the in-edges of every destination, ranges of destinations by turns.
void gather_sums(const RowTable& table, std::span<const std::int64_t> index, const InEdges& edges,
                 bool is_mean, std::byte* out, int threads) {
  renew_guard();
  parallel_for(std::ssize(index), grain_for(8), threads, [&](std::int64_t begin, std::int64_t end) {
    check_index(index, begin, end, table.num_rows);
  });
  const std::int64_t num_dst = edges.num_dst();
  const std::int64_t* const bounds = edges.bounds.data();
  parallel_for(num_dst, kSumGrain, threads, [&](std::int64_t begin, std::int64_t end) {
    check_index(edges.src, bounds[begin], bounds[end], std::ssize(index));
    guarded([&] {
      sum_rows(table, index.data(), edges, begin, end, is_mean, out + begin * table.row_bytes);
    });
  });
}

// Raises FormatError unless all ids are rows of `table`, which they were read from.
void check_ids(std::span<const std::int64_t> ids, const RowTable& table) {
  const auto bad = find_outside(ids, table.num_rows);
  if (bad == ids.end()) return;
  const std::string path = find_mapped(table.data).path;
  throw FormatError(path.empty() ? "ids in memory" : path, "rows", *bad, "0 <= id < ",
                    table.num_rows, "; run `graphzero verify` on the store");
}

// The rows of `rows`, as those of `source` are to be.
RowTable as(const RowTable& source, RowTable rows) {
  rows.row_bytes = source.row_bytes;
  rows.encoding = source.encoding;
  rows.scale = source.scale;
  rows.zero_point = source.zero_point;
  return rows;
}

// Which paged rows are read by pieces: those that columns have as they are, and nothing else.
std::vector<bool> read_by_pieces(const GatherPlan& plan, bool none_are_read) {
  std::vector<bool> found(plan.paged.size(), none_are_read);
  const auto needs_all = [&](const GatherPlan::Source& source) {
    if (source.paged >= 0) found[static_cast<std::size_t>(source.paged)] = false;
  };
  std::ranges::for_each(plan.lookups, needs_all);
  for (const GatherPlan::Source& column : plan.columns) {
    if (column.sum || column.inner_of >= 0) needs_all(column);
  }
  return found;
}

// Reads what one list needs.
RowWindow read_rows(PagedRows& rows, std::span<const std::int64_t> list,
                    const std::stop_token& stop, ReadStats& stats) {
  const IdList lists[] = {list};
  RowWindow window = rows.read(lists, 0, stop);
  if (window.stopped) throw Stopped();
  stats += window.stats;
  if (window.errors.front()) std::rethrow_exception(window.errors.front());
  return window;
}

// A column that is read by pieces, and where its rows go.
struct Piece {
  const GatherPlan::Source* source;
  std::byte* out;
};

void gather_pieces(PagedRows& rows, std::span<const std::int64_t> list,
                   std::span<const Piece> columns, int threads, const std::stop_token& stop,
                   ReadStats& stats) {
  const Buffer<std::uint64_t> order = rows.order_of(list);
  const std::int64_t most = std::max<std::int64_t>(1, chunk_sizes.piece_bytes / rows.row_bytes());
  for (std::int64_t begin = 0; begin < order.size(); begin += most) {
    const std::uint64_t* const at = order.data() + begin;
    Buffer<std::int64_t> wanted(std::min(most, order.size() - begin));
    for (std::int64_t i = 0; i < wanted.size(); ++i) wanted[i] = list[at[i]];
    const RowWindow window = read_rows(rows, wanted.span(), stop, stats);
    const Buffer<std::int64_t> places = window.places_of(0);
    for (const auto& [source, out] : columns) {
      const RowTable table = as(source->table, rows.table(window));
      parallel_for(places.size(), grain_for(table.row_bytes), threads,
                   [&](std::int64_t first, std::int64_t last) {
                     for (std::int64_t i = first; i < last; ++i) {
                       copy_rows(table, places.data() + i, 1,
                                 out + static_cast<std::int64_t>(at[i]) * table.row_bytes);
                     }
                   });
    }
  }
}

}  // namespace

void check_id_column(const RowTable& table) {
  if (table.row_bytes != 4 && table.row_bytes != 8) {
    throw invalid("column: found items of ", table.row_bytes, " bytes, expected int32 or int64");
  }
  if (table.num_rows > 1 && table.row_stride != table.row_bytes) {
    throw invalid("column: expected contiguous items");
  }
}

Gathered gather(const GatherPlan& plan, std::span<const std::span<const std::int64_t>> given,
                int threads, const WindowPart& part, const SampledHops& hops,
                const std::stop_token& stop) {
  const std::size_t num_windows = part.windows.size();
  if (given.size() != plan.num_lists || (num_windows != 0 && num_windows != plan.paged.size())) {
    throw invalid("gather: found ", given.size(), " index lists, expected ", plan.num_lists,
                  ", and a window for each of the paged rows");
  }
  Gathered out;
  std::vector<std::span<const std::int64_t>> lists(given.begin(), given.end());
  std::vector<Buffer<std::int64_t>> places(plan.paged.size());
  std::vector<RowWindow> own(plan.paged.size());  // where `part` has none
  std::vector<std::vector<Piece>> pieces(plan.paged.size());
  const std::vector<bool> by_pieces = read_by_pieces(plan, num_windows == 0);
  for (std::size_t p = 0; p < plan.paged.size(); ++p) {
    const auto& [by, rows] = plan.paged[p];
    if (num_windows != 0) {
      places[p] = part.windows[p].places_of(part.list);
    } else if (!by_pieces[p]) {
      own[p] = read_rows(*rows, lists[by], stop, out.read);
      places[p] = own[p].places_of(0);
    }
  }
  const std::span<const RowWindow> windows = num_windows != 0 ? part.windows : own;
  // A source's table, and the list that its rows are found by.
  const auto resolve = [&](const GatherPlan::Source& source) {
    if (source.paged < 0) return std::pair{source.table, lists.at(source.by)};
    const auto p = static_cast<std::size_t>(source.paged);
    const auto& [by, rows] = plan.paged[p];
    return std::pair{as(source.table, rows->table(windows[p])),
                     std::span<const std::int64_t>(places[p].span())};
  };

  for (const GatherPlan::Source& lookup : plan.lookups) {
    const auto [column, by] = resolve(lookup);
    Buffer<std::int64_t> ids(std::ssize(by));
    gather_ids(column, lookup.table, by, ids.data(), threads);
    lists.push_back(ids.span());
    out.lists.push_back(std::move(ids));
  }
  std::vector<Target> targets;
  for (const GatherPlan::Source& source : plan.columns) {
    const auto make = [&](std::int64_t num_rows) {
      const std::int64_t row_bytes = source.table.row_bytes;
      out.columns.push_back({Buffer<std::byte>(num_rows * row_bytes), row_bytes});
      return out.columns.back().rows.data();
    };
    if (source.paged >= 0 && by_pieces[static_cast<std::size_t>(source.paged)]) {
      const auto p = static_cast<std::size_t>(source.paged);
      pieces[p].push_back({&source, make(std::ssize(lists[plan.paged[p].by]))});
      continue;
    }
    auto [table, by] = resolve(source);
    if (source.sum) {
      const auto [edge_type, to, is_mean] = *source.sum;
      const SampledHops::Edges& sampled = hops.edges.at(edge_type);
      const InEdges edges = in_edges(sampled.src, sampled.dst, hops.inner.at(to));
      gather_sums(table, by, edges, is_mean, make(edges.num_dst()), threads);
      continue;
    }
    if (source.inner_of >= 0) by = by.first(inner_of(hops, source.inner_of, by.size()));
    targets.push_back({table, by, make(std::ssize(by))});
  }
  gather_targets(targets, threads);
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const auto& [by, rows] = plan.paged[p];
    if (!pieces[p].empty()) gather_pieces(*rows, lists[by], pieces[p], threads, stop, out.read);
  }
  return out;
}

void gather_rows(const RowTable& table, std::span<const std::int64_t> index, std::byte* out,
                 int threads) {
  Target target{table, index, out};
  gather_targets({&target, 1}, threads);
}

void gather_ids(const RowTable& column, const RowTable& whole, std::span<const std::int64_t> index,
                std::int64_t* out, int threads) {
  renew_guard();
  const auto n = static_cast<std::int64_t>(index.size());
  parallel_for(n, grain_for(8), threads, [&](std::int64_t begin, std::int64_t end) {
    check_index(index, begin, end, column.num_rows);
    guarded([&] { copy_ids(column, index.data() + begin, end - begin, out + begin); });
    check_ids({out + begin, out + end}, whole);
  });
}

}  // namespace gz
