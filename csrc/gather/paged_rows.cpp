#include "gather/paged_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

#include "arrays/radix_sort.h"
#include "base/chunk_sizes.h"

namespace gz {
namespace {

int bits_for(std::int64_t largest) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(largest)));
}

}  // namespace

std::int64_t RowWindow::bytes() const noexcept {
  auto sum = planned_bytes + static_cast<std::int64_t>(places.span().size_bytes());
  for (const auto& column : rows) sum += static_cast<std::int64_t>(column.span().size_bytes());
  return sum;
}

PagedRows::PagedRows(ResidentRows resident, std::vector<ColumnFile> columns,
                     std::shared_ptr<DiskGather> reader, const ReadLimits& limits)
    : resident_(std::move(resident)),
      reader_(std::move(reader)),
      limits_(limits),
      present_(static_cast<std::size_t>(resident_.num_kept())) {
  for (ColumnFile& file : columns) {
    if (file.layout.num_rows != resident_.num_rows()) {
      throw std::invalid_argument(file.file->path() + ": found " +
                                  std::to_string(file.layout.num_rows) + " rows, expected " +
                                  std::to_string(resident_.num_rows()));
    }
    const std::int64_t bytes = file.layout.row_bytes;
    row_bytes_ += bytes;
    columns_.push_back(
        {std::move(file), make_pages(static_cast<std::size_t>(resident_.num_places() * bytes))});
  }
}

PagedRows::PagedRows(ResidentRows resident, const std::vector<RowLayout>& layouts,
                     const ReadLimits& limits)
    : resident_(std::move(resident)),
      limits_(limits),
      present_(static_cast<std::size_t>(resident_.num_kept())) {
  for (const RowLayout& layout : layouts) {
    row_bytes_ += layout.row_bytes;
    columns_.push_back({{nullptr, layout}, nullptr});
  }
}

void PagedRows::assume_present() {
  const std::lock_guard lock(mutex_);
  std::fill(present_.begin(), present_.end(), true);
}

Buffer<std::int64_t> PagedRows::unite(std::span<const IdList> lists, std::size_t count,
                                      RowWindow& window) {
  std::int64_t total = 0;
  for (std::size_t k = 0; k < count; ++k) total += lists[k].size();
  const int ordinal_bits = bits_for(total);
  const int row_bits = bits_for(resident_.num_rows());
  if (row_bits + ordinal_bits > 64) {
    throw std::invalid_argument("found " + std::to_string(total) + " of " +
                                std::to_string(resident_.num_rows()) +
                                " rows in one window, expected fewer: the bits of both counts "
                                "together must be at most 64");
  }
  keys_.resize(total);
  std::uint64_t* const keys = keys_.data();
  std::int64_t found = 0;
  window.first.assign(1, 0);
  for (std::size_t k = 0; k < count; ++k) {
    lists[k].for_each([&](std::int64_t row) {
      if (row < 0 || row >= resident_.num_rows()) {
        throw std::out_of_range("index: found row " + std::to_string(row) +
                                ", expected 0 <= row < " + std::to_string(resident_.num_rows()));
      }
      keys[found] =
          static_cast<std::uint64_t>(row) << ordinal_bits | static_cast<std::uint64_t>(found);
      found += resident_.find(row) < 0;
    });
    window.first.push_back(found);
  }
  keys_.resize(found);
  radix_sort(keys_, room_, ordinal_bits, row_bits);

  const std::uint64_t ordinal_mask = (std::uint64_t{1} << ordinal_bits) - 1;
  Buffer<std::int64_t> missing(found);
  window.places.resize(found);
  std::int64_t unique = 0;
  std::int64_t last = -1;
  for (std::int64_t i = 0; i < found; ++i) {
    const std::uint64_t key = keys_[i];
    const auto row = static_cast<std::int64_t>(key >> ordinal_bits);
    if (row != last) missing[unique++] = last = row;
    window.places[static_cast<std::int64_t>(key & ordinal_mask)] = unique - 1;
  }
  missing.resize(unique);
  return missing;
}

void PagedRows::add_group(std::int64_t row, std::int64_t place, Fill& fill) {
  const int bits = resident_.group_bits();
  fill.groups.push_back(place >> bits);
  const std::int64_t first = row >> bits << bits;
  const std::int64_t last = std::min(first + (std::int64_t{1} << bits), resident_.num_rows());
  for (std::int64_t r = first; r < last; ++r) {
    fill.rows.push_back(r);
    fill.places.push_back(place + (r - row));
  }
}

PagedRows::Fill PagedRows::absent(std::span<const IdList> lists) {
  Fill fill;
  for (const auto& list : lists) {
    list.for_each([&](std::int64_t row) {
      const std::int64_t place = resident_.find(row);
      if (place < 0) return;
      const auto group = static_cast<std::size_t>(place >> resident_.group_bits());
      if (present_[group]) return;
      present_[group] = true;
      add_group(row, place, fill);
    });
  }
  return fill;
}

RowWindow PagedRows::read(std::span<const IdList> lists, std::int64_t max_bytes,
                          std::stop_token stop) {
  const std::lock_guard lock(mutex_);
  RowWindow window;
  std::size_t count = lists.size();
  Buffer<std::int64_t> missing = unite(lists, count, window);
  // Lists share rows, so that fewer of them need more than their share: once is not always enough.
  while (count > 1 && missing.size() * row_bytes_ > max_bytes) {
    const double share =
        static_cast<double>(max_bytes) / static_cast<double>(missing.size() * row_bytes_);
    count = std::clamp<std::size_t>(static_cast<std::size_t>(static_cast<double>(count) * share), 1,
                                    count - 1);
    missing = unite(lists, count, window);
  }
  lists = lists.first(count);
  const Fill fill = absent(lists);
  window.errors.resize(count);
  for (const auto& list : lists) window.stats.rows += list.size();
  window.stats.hits = window.stats.rows - window.places.size() - std::ssize(fill.groups);
  if (reader_ == nullptr) {
    rehearse(missing, fill, window);
    return window;
  }
  for (const Column& column : columns_) {
    window.rows.emplace_back(missing.size() * column.file.layout.row_bytes);
  }
  const auto forget = [&] {
    for (const std::int64_t group : fill.groups) present_[static_cast<std::size_t>(group)] = false;
  };
  try {
    fetch(missing, fill, window, stop);
    const bool failed = std::any_of(window.errors.begin(), window.errors.end(),
                                    [](const auto& error) { return error != nullptr; });
    if (failed) fetch_one_by_one(lists, window, stop);
    if (failed || window.stopped) forget();
  } catch (...) {
    forget();
    throw;
  }
  return window;
}

void PagedRows::fetch(const Buffer<std::int64_t>& missing, const Fill& fill, RowWindow& window,
                      std::stop_token stop) {
  for (std::size_t c = 0; c < columns_.size() && !window.stopped; ++c) {
    const Column& column = columns_[c];
    const std::array<RowRequest, 2> requests{{
        {missing.span(), {}, window.rows[c].data()},
        {fill.rows.span(), fill.places.span(), column.kept.get()},
    }};
    const GatherResult got = reader_->gather(column.file, requests, limits_, {}, stop);
    window.stats.reads += got.stats.reads;
    window.stats.bytes += got.stats.bytes;
    window.stats.useful_bytes += got.stats.useful_bytes;
    window.stats.seconds += got.stats.read_seconds;
    window.stopped = got.stopped;
    for (const std::exception_ptr& error : got.errors) {
      // fetch_one_by_one() finds out which row cannot be read.
      if (error && !window.errors.empty()) window.errors.front() = error;
    }
  }
}

void PagedRows::rehearse(const Buffer<std::int64_t>& missing, const Fill& fill, RowWindow& window) {
  window.planned_bytes = missing.size() * row_bytes_;
  const std::array<RowRequest, 2> requests{{{missing.span(), {}}, {fill.rows.span(), {}}}};
  for (const Column& column : columns_) {
    plan_.build(column.file.layout, requests, limits_);
    window.stats.reads += std::ssize(plan_.reads());
    window.stats.bytes += plan_.bytes();
    window.stats.useful_bytes +=
        static_cast<std::uint64_t>(plan_.unique_rows() * column.file.layout.row_bytes);
  }
}

// After an error: every list for itself, so that only those fail that need a row that is lost.
void PagedRows::fetch_one_by_one(std::span<const IdList> lists, RowWindow& window,
                                 std::stop_token stop) {
  std::vector<Buffer<std::int64_t>> rows(2 * lists.size()), places(2 * lists.size());
  for (std::size_t k = 0; k < lists.size(); ++k) {
    const std::span<const std::int64_t> missing = window.missing(k);
    std::size_t next = 0;
    lists[k].for_each([&](std::int64_t row) {
      const std::int64_t place = resident_.find(row);
      const std::size_t at = 2 * k + (place >= 0);
      rows[at].push_back(row);
      places[at].push_back(place >= 0 ? place : missing[next++]);
    });
  }
  std::fill(window.errors.begin(), window.errors.end(), nullptr);
  for (std::size_t c = 0; c < columns_.size() && !window.stopped; ++c) {
    const Column& column = columns_[c];
    std::vector<RowRequest> requests;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::byte* const out = i % 2 == 0 ? window.rows[c].data() : column.kept.get();
      requests.push_back({rows[i].span(), places[i].span(), out});
    }
    const GatherResult got = reader_->gather(column.file, requests, limits_, {}, stop);
    window.stopped = got.stopped;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (got.errors[i] && !window.errors[i / 2]) window.errors[i / 2] = got.errors[i];
    }
  }
}

PagedRows::Fill PagedRows::absent(std::int64_t& group, std::int64_t max_rows) {
  const std::int64_t group_rows = std::int64_t{1} << resident_.group_bits();
  Fill fill;
  for (group = resident_.next_kept(group);
       group < resident_.num_groups() && fill.rows.size() < max_rows;
       group = resident_.next_kept(group + 1)) {
    const std::int64_t place = resident_.find(group * group_rows);
    if (!present_[static_cast<std::size_t>(place / group_rows)]) {
      add_group(group * group_rows, place, fill);
    }
  }
  return fill;
}

void PagedRows::preload(std::stop_token stop) {
  const std::lock_guard lock(mutex_);
  for (std::int64_t group = 0; group < resident_.num_groups() && !stop.stop_requested();) {
    const Fill fill = absent(group, chunk_sizes.preloaded_rows);
    RowWindow window;
    window.rows.resize(columns_.size());
    window.errors.resize(1);
    fetch({}, fill, window, stop);
    if (window.stopped || window.errors[0]) continue;
    for (const std::int64_t kept : fill.groups) present_[static_cast<std::size_t>(kept)] = true;
  }
}

std::int64_t PagedRows::load(std::int64_t group, std::int64_t max_rows, ReadStats& stats) {
  const std::lock_guard lock(mutex_);
  const Fill fill = absent(group, std::max<std::int64_t>(1, max_rows));
  RowWindow window;
  window.rows.resize(columns_.size());
  window.errors.resize(1);
  window.stats.rows = fill.rows.size();
  fetch({}, fill, window, {});
  if (window.errors[0]) std::rethrow_exception(window.errors[0]);
  for (const std::int64_t kept : fill.groups) present_[static_cast<std::size_t>(kept)] = true;
  stats += window.stats;
  return group;
}

void PagedRows::find_places(std::span<const std::int64_t> rows, const RowWindow& window,
                            std::size_t list, std::int64_t* places) const {
  const std::int64_t kept = resident_.num_places();
  const std::int64_t* missing = window.missing(list).data();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t place = resident_.find(rows[i]);
    places[i] = place >= 0 ? place : kept + *missing++;
  }
}

RowTable PagedRows::table(std::size_t column, const RowWindow& window) const {
  const std::int64_t bytes = columns_[column].file.layout.row_bytes;
  const Buffer<std::byte>& rows = window.rows[column];
  const std::int64_t in_window = bytes == 0 ? 0 : rows.size() / bytes;
  RowTable table{columns_[column].kept.get(), resident_.num_places() + in_window, bytes, bytes};
  table.split = resident_.num_places();
  table.rest = rows.data();
  return table;
}

void PagedRows::find_places(std::span<const std::int64_t> rows, std::int64_t* places) const {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    places[i] = rows[i] < 0 || rows[i] >= num_rows() ? -1 : resident_.find(rows[i]);
    if (places[i] < 0) {
      throw std::out_of_range("index[" + std::to_string(i) + "]: found row " +
                              std::to_string(rows[i]) + ", expected one that was loaded");
    }
  }
}

RowTable PagedRows::table(std::size_t column) const {
  const std::int64_t bytes = columns_[column].file.layout.row_bytes;
  return {columns_[column].kept.get(), resident_.num_places(), bytes, bytes};
}

}  // namespace gz
