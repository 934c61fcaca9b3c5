#include "sampling/sample_window.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>

#include "base/chunk_sizes.h"

namespace gz {
namespace {

// The list with this number in a window, from a table of indices.
template <class Index>
void fill(const SourceList& list, const RowWindow& window, std::size_t number) {
  const RowTable table = list.csc->paged->table(window);
  const auto* const kept = reinterpret_cast<const Index*>(table.data);
  const auto* const read = reinterpret_cast<const Index*>(table.rest);
  list.fill([&, first = window.first[number]](std::int64_t i) {
    const std::int64_t place = window.places[first + i];
    return static_cast<std::int64_t>(place < table.split ? kept[place] : read[place - table.split]);
  });
}

// Lists of one file, as many at a time as may be. False if stopped.
bool read_sources(std::span<const WantedList> wanted, std::int64_t max_bytes, std::stop_token stop,
                  SampleWindow& out) {
  const Csc& csc = *wanted.front().list.csc;
  std::size_t most = wanted.size();
  while (!wanted.empty()) {
    std::vector<IdList> lists;
    for (const WantedList& one : wanted.first(std::min(most, wanted.size()))) {
      lists.push_back(one.list.slots);
    }
    RowWindow window;
    try {
      need_neighbors(csc);
      window = csc.paged->read(lists, max_bytes, stop);
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
      if (error) continue;
      const SourceList& list = wanted[k].list;
      list.csc->index_bytes == 4 ? fill<std::uint32_t>(list, window, k)
                                 : fill<std::int64_t>(list, window, k);
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

std::vector<WantedList> advance(std::span<SamplingRun> runs, std::vector<std::size_t>& going,
                                std::vector<std::exception_ptr>& errors,
                                const std::function<void(std::size_t, Sample)>& take) {
  std::erase_if(going, [&](std::size_t k) {
    if (errors[k]) return true;
    try {
      if (runs[k].advance()) return false;
      take(k, runs[k].take());
    } catch (...) {
      errors[k] = std::current_exception();
    }
    return true;
  });
  std::vector<WantedList> wanted;
  for (const std::size_t k : going) {
    for (const SourceList& list : runs[k].wanted()) {
      if (list.slots.size() > 0) wanted.push_back({k, list});
    }
  }
  return wanted;
}

SampleWindow sample_window(std::span<SamplingRun> runs, std::int64_t max_bytes,
                           const std::function<void(std::size_t, Sample)>& take,
                           std::stop_token stop) {
  SampleWindow out;
  out.errors.resize(runs.size());
  std::vector<std::size_t> going(runs.size());
  std::iota(going.begin(), going.end(), std::size_t{0});
  while (!going.empty()) {
    std::map<const PagedRows*, std::vector<WantedList>> by_file;
    for (const WantedList& wanted : advance(runs, going, out.errors, take)) {
      by_file[wanted.list.csc->paged.get()].push_back(wanted);
    }
    for (const auto& [file, wanted] : by_file) {
      out.stopped = !read_sources(wanted, max_bytes, stop, out);
      if (out.stopped) return out;
    }
  }
  return out;
}

void read_sources(const Csc& csc, std::span<const std::int64_t> slots, std::int64_t* sources,
                  std::int64_t max_bytes, const std::function<void()>& checkpoint) {
  const auto size = static_cast<std::size_t>(chunk_sizes.walked_slots);
  std::vector<WantedList> wanted;
  for (std::size_t first = 0; first < slots.size(); first += size) {
    const auto part = slots.subspan(first, std::min(size, slots.size() - first));
    wanted.push_back({0, {&csc, part, sources + first}});
  }
  for (std::span<const WantedList> left = wanted; !left.empty(); checkpoint()) {
    const auto together = left.first(std::min(left.size(), std::size_t{16}));
    SampleWindow out;
    out.errors.resize(1);
    read_sources(together, max_bytes, {}, out);
    if (out.errors.front()) std::rethrow_exception(out.errors.front());
    left = left.subspan(together.size());
  }
}

}  // namespace gz
