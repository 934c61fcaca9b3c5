#include "sampling/sample_window.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>

#include "base/chunk_sizes.h"

namespace gz {
namespace {

// A list of slots, and the number of the run that wants their sources.
struct Wanted {
  std::size_t run;
  SourceList list;
};

void fill(const SourceList& list, const RowWindow& window, std::size_t number) {
  const PagedRows& paged = *list.csc->paged;
  window.places.read(window.first[number], {list.sources, list.slots.size()});
  const RowTable table = paged.table(0, window);
  const auto copy = list.csc->index_bytes == 4 ? copy_ids<std::uint32_t> : copy_ids<std::int64_t>;
  copy(table, list.sources, std::ssize(list.slots), list.sources);
}

// Lists of one file, as many at a time as may be. False if stopped.
bool read_sources(std::span<const Wanted> wanted, std::int64_t max_bytes, std::stop_token stop,
                  SampleWindow& out) {
  try {
    need_neighbors(*wanted.front().list.csc);
  } catch (...) {
    for (const Wanted& one : wanted) out.errors[one.run] = std::current_exception();
    return true;
  }
  PagedRows& paged = *wanted.front().list.csc->paged;
  std::size_t most = wanted.size();
  while (!wanted.empty()) {
    std::vector<IdList> lists;
    for (const Wanted& one : wanted.first(std::min(most, wanted.size()))) {
      lists.push_back(one.list.slots);
    }
    RowWindow window;
    try {
      window = paged.read(lists, max_bytes, stop);
    } catch (...) {
      if (lists.size() > 1) {
        most = 1;  // whose fault it is cannot be told: each for itself
        continue;
      }
      out.errors[wanted.front().run] = std::current_exception();
      wanted = wanted.subspan(1);
      continue;
    }
    if (window.stopped) return false;
    out.read += window.stats;
    for (std::size_t k = 0; k < window.num_lists(); ++k) {
      std::exception_ptr& error = out.errors[wanted[k].run];
      if (window.errors[k]) error = window.errors[k];
      if (!error) fill(wanted[k].list, window, k);
    }
    wanted = wanted.subspan(window.num_lists());
  }
  return true;
}

}  // namespace

bool SamplingRun::advance() {
  handle_.resume();
  if (handle_.promise().error) std::rethrow_exception(std::exchange(handle_.promise().error, {}));
  return !handle_.done();
}

SampleWindow sample_window(std::span<SamplingRun> runs, std::int64_t max_bytes,
                           const std::function<void(std::size_t, Sample)>& take,
                           std::stop_token stop) {
  SampleWindow out;
  out.errors.resize(runs.size());
  std::vector<std::size_t> going(runs.size());
  std::iota(going.begin(), going.end(), std::size_t{0});
  const auto ends = [&](std::size_t k) {
    if (out.errors[k]) return true;
    try {
      if (runs[k].advance()) return false;
      take(k, runs[k].take());
    } catch (...) {
      out.errors[k] = std::current_exception();
    }
    return true;
  };
  const auto file = [](const Wanted& wanted) { return wanted.list.csc->paged.get(); };
  while (true) {
    std::erase_if(going, ends);
    if (going.empty()) return out;
    std::vector<Wanted> wanted;
    for (const std::size_t k : going) {
      for (const SourceList& list : runs[k].wanted()) {
        if (!list.slots.empty()) wanted.push_back({k, list});
      }
    }
    std::stable_sort(wanted.begin(), wanted.end(), [&](const Wanted& a, const Wanted& b) {
      return std::less{}(file(a), file(b));
    });
    for (auto first = wanted.begin(); first != wanted.end();) {
      const auto last = std::find_if(
          first, wanted.end(), [&](const Wanted& other) { return file(other) != file(*first); });
      out.stopped = !read_sources({first, last}, max_bytes, stop, out);
      if (out.stopped) return out;
      first = last;
    }
  }
}

void read_sources(const SourceList& list, std::int64_t max_bytes,
                  const std::function<void()>& checkpoint) {
  const auto size = static_cast<std::size_t>(chunk_sizes.walked_slots);
  std::vector<Wanted> wanted;
  for (std::size_t first = 0; first < list.slots.size(); first += size) {
    const auto part = list.slots.subspan(first, std::min(size, list.slots.size() - first));
    wanted.push_back({0, {list.csc, part, list.sources + first}});
  }
  for (std::span<const Wanted> left = wanted; !left.empty(); checkpoint()) {
    const auto together = left.first(std::min(left.size(), std::size_t{16}));
    SampleWindow out;
    out.errors.resize(1);
    read_sources(together, max_bytes, {}, out);
    if (out.errors.front()) std::rethrow_exception(out.errors.front());
    left = left.subspan(together.size());
  }
}

Sample sample_alone(SamplingRun run) {
  Sample sample;
  const auto take = [&](std::size_t, Sample made) { sample = std::move(made); };
  const SampleWindow window = sample_window({&run, 1}, 0, take);
  if (window.errors.front()) std::rethrow_exception(window.errors.front());
  return sample;
}

}  // namespace gz
