#include "gather/paged_rows.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "arrays/radix_sort.h"
#include "base/errors.h"

namespace gz {
namespace {

void check_file(const ColumnFile& file, std::int64_t num_rows, std::int64_t row_bytes) {
  const RowLayout& found = file.layout;
  if (found.num_rows == num_rows && found.row_bytes == row_bytes) return;
  throw invalid(file.file->path(), ": found ", found.num_rows, " rows of ", found.row_bytes,
                " bytes, expected ", num_rows, " of ", row_bytes);
}

}  // namespace

void RowWindow::shorten(std::size_t count) {
  errors.resize(count);
  stats.rows = first[count];
  stats.hits = hits[count];
}

PagedRows::PagedRows(ResidentRows resident, std::int64_t num_frames, ColumnFile column,
                     std::shared_ptr<DiskGather> reader, const ReadLimits& limits, RowCopies copies)
    : resident_(std::move(resident)),
      order_(std::move(copies.order)),
      row_bytes_(column.layout.row_bytes),
      reader_(std::move(reader)),
      limits_(limits),
      present_(static_cast<std::size_t>(resident_.num_kept())) {
  if (num_frames > 0) {
    const std::int64_t groups = count_groups(resident_.num_rows(), resident_.group_bits());
    cache_.emplace(groups, std::min(num_frames, groups - resident_.num_kept()));
  }
  check_file(column, num_rows(), row_bytes_);
  if (order_) {
    check_file(copies.again, order_->num_again(), row_bytes_);
    parts_.push_back({0, std::move(copies.again)});
  }
  parts_.push_back({order_ ? order_->num_again() : 0, std::move(column)});
  kept_ = make_pages(static_cast<std::size_t>(num_places() * row_bytes_));
}

void PagedRows::locate(std::span<const std::int64_t> rows, std::int64_t* places) {
  std::array<std::uint32_t, RowCache::kFindAtOnce> groups;
  std::array<std::int32_t, RowCache::kFindAtOnce> frames;
  std::array<std::size_t, RowCache::kFindAtOnce> at;
  std::size_t others = 0;
  const int bits = resident_.group_bits();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    places[i] = resident_.find(rows[i]);
    if (places[i] >= 0) continue;
    groups[others] = static_cast<std::uint32_t>(rows[i] >> bits);
    at[others++] = i;
  }
  if (!cache_) return;
  cache_->find({groups.data(), others}, frames.data());
  for (std::size_t j = 0; j < others; ++j) {
    if (frames[j] < 0) continue;
    places[at[j]] = place_of(frames[j]) + (rows[at[j]] - (std::int64_t{groups[j]} << bits));
  }
}

Buffer<std::int64_t> PagedRows::unite(std::span<const IdList> lists, std::size_t count,
                                      RowWindow& window, Fill& fill) {
  std::int64_t total = 0;
  window.first.assign(1, 0);
  window.hits.assign(1, 0);
  for (std::size_t k = 0; k < count; ++k) window.first.push_back(total += lists[k].size());
  window.places.reset(total, num_places() + std::max(total, resident_.num_rows()));
  // Which rows are wanted, a bit for each, unless sorting what is asked for takes less memory.
  std::optional<RankedBits> wanted;
  if (const std::int64_t bytes = RankedBits::num_bytes(resident_.num_rows());
      !cache_ && bytes <= kKeyBytes * total) {
    wanted.emplace(resident_.num_rows());
  }
  const int ordinal_bits = wanted ? 0 : bits_for(static_cast<std::uint64_t>(total));
  const int row_bits = bits_for(static_cast<std::uint64_t>(resident_.num_rows()));
  if (row_bits + ordinal_bits > 64) {
    throw invalid("found ", total, " of ", resident_.num_rows(),
                  " rows in one window, expected fewer: the bits of both counts "
                  "together must be at most 64");
  }
  std::int64_t found = 0, at = 0;
  std::array<std::int64_t, RowCache::kFindAtOnce> block, places, others;
  std::size_t filled = 0;
  const auto place_block = [&] {
    if (order_) order_->find_places({block.data(), filled});
    locate({block.data(), filled}, places.data());
    std::size_t num_others = 0;
    for (std::size_t i = 0; i < filled; ++i, ++at) {
      if (places[i] < 0) {
        window.places.set(at, num_places() + block[i]);  // until the rows are numbered
        others[num_others++] = block[i];
        continue;
      }
      window.places.set(at, places[i]);
      const auto group = static_cast<std::size_t>(places[i] >> resident_.group_bits());
      if (group >= present_.size() || present_[group]) continue;
      present_[group] = true;
      add_group(block[i], places[i], fill);
    }
    if (wanted) wanted->add({others.data(), num_others});
    found += static_cast<std::int64_t>(num_others);
    filled = 0;
  };
  for (std::size_t k = 0; k < count; ++k) {
    lists[k].for_each([&](std::int64_t row) {
      if (row < 0 || row >= num_rows()) throw_out_of_range("index", "row", row, num_rows());
      block[filled++] = row;
      if (filled == block.size()) place_block();
    });
    place_block();
    window.hits.push_back(at - found - fill.groups.size());
  }
  window.stats.rows = total;
  window.stats.hits = window.hits.back();
  if (wanted) return number(*wanted, window.places);
  keys_.resize(found);
  for (std::int64_t i = 0, next = 0; i < total; ++i) {
    const std::int64_t row = window.places[i] - num_places();
    if (row < 0) continue;
    keys_[next++] = static_cast<std::uint64_t>(row) << ordinal_bits | static_cast<std::uint64_t>(i);
  }
  radix_sort(keys_, room_, ordinal_bits, row_bits);

  const std::uint64_t ordinal_mask = (std::uint64_t{1} << ordinal_bits) - 1;
  const int bits = resident_.group_bits();
  Buffer<std::int64_t> missing(found);
  std::int64_t unique = 0, last = -1, last_group = -1, place = -1;
  std::int64_t first = -1;  // where the group is kept, if it is
  for (std::int64_t i = 0; i < found; ++i) {
    const std::uint64_t key = keys_[i];
    const auto row = static_cast<std::int64_t>(key >> ordinal_bits);
    if (row != last) {
      last = row;
      if (cache_ && row >> bits != last_group) {
        last_group = row >> bits;
        const bool again = i + 1 < found && key >> ordinal_bits == keys_[i + 1] >> ordinal_bits;
        const std::int32_t frame = cache_->admit(static_cast<std::uint32_t>(last_group), again);
        first = frame < 0 ? -1 : place_of(frame);
        if (frame >= 0) add_group(last_group << bits, first, fill);
      }
      if (first >= 0) {
        place = first + (row - (last_group << bits));
      } else {
        place = num_places() + unique;
        missing[unique++] = row;
      }
    }
    window.places.set(static_cast<std::int64_t>(key & ordinal_mask), place);
  }
  missing.resize(unique);
  return missing;
}

Buffer<std::int64_t> PagedRows::number(RankedBits& wanted, NarrowNumbers& places) const {
  Buffer<std::int64_t> missing(wanted.rank());
  wanted.read(0, {missing.data(), static_cast<std::size_t>(missing.size())});
  std::array<std::int64_t, RowCache::kFindAtOnce> rows, numbers, at;
  for (std::int64_t i = 0; i < places.size();) {
    std::size_t filled = 0;
    for (; i < places.size() && filled < rows.size(); ++i) {
      const std::int64_t beyond = places[i] - num_places();
      if (beyond < 0) continue;
      rows[filled] = beyond;
      at[filled++] = i;
    }
    wanted.find({rows.data(), filled}, numbers.data());
    for (std::size_t j = 0; j < filled; ++j) places.set(at[j], num_places() + numbers[j]);
  }
  return missing;
}

void PagedRows::add_group(std::int64_t row, std::int64_t place, Fill& fill) const {
  fill.groups.push_back(row >> resident_.group_bits());
  fill.places.push_back(place >> resident_.group_bits());
}

PagedRows::Pieces PagedRows::pieces_of(const Fill& fill, const Part& part) const {
  const int bits = resident_.group_bits();
  const RowLayout& layout = part.file.layout;
  Pieces pieces{layout, {}, {}, {}, {}};
  pieces.layout.num_rows = layout.row_stride == layout.row_bytes ? layout.num_rows >> bits : 0;
  pieces.layout.row_bytes = pieces.layout.row_stride = layout.row_bytes << bits;
  for (std::int64_t i = 0; i < fill.groups.size(); ++i) {
    const std::int64_t group = fill.groups[i] - (part.first >> bits);
    if (group < 0) continue;  // as one behind the last, it lies in another part
    if (bits > 0 && group < pieces.layout.num_rows) {
      pieces.groups.push_back(group);
      pieces.group_places.push_back(fill.places[i]);
      continue;
    }
    const std::int64_t last = std::min((group + 1) << bits, layout.num_rows);
    for (std::int64_t row = group << bits; row < last; ++row) {
      pieces.rows.push_back(row);
      pieces.row_places.push_back((fill.places[i] << bits) + (row - (group << bits)));
    }
  }
  return pieces;
}

void PagedRows::forget(const Fill& fill, void (RowCache::*drop)(std::int32_t)) noexcept {
  for (const std::int64_t group : fill.places.span()) {
    if (group < resident_.num_kept()) {
      present_[static_cast<std::size_t>(group)] = false;
    } else {
      ((*cache_).*drop)(static_cast<std::int32_t>(group - resident_.num_kept()));
    }
  }
}

RowWindow PagedRows::read(std::span<const IdList> lists, std::int64_t max_bytes,
                          std::stop_token stop) {
  const std::lock_guard lock(mutex_);
  RowWindow window;
  if (cache_) window.use = cache_->begin_window();
  std::size_t count = lists.size();
  Fill fill;
  try {
    Buffer<std::int64_t> missing = unite(lists, count, window, fill);
    // Lists share rows, and fewer of them find as many frames: once is not always enough.
    while (count > 1 && missing.size() * row_bytes_ > max_bytes) {
      const std::int64_t kept =
          cache_ ? (fill.groups.size() << resident_.group_bits()) * row_bytes_ : 0;
      const double share = static_cast<double>(kept + max_bytes) /
                           static_cast<double>(kept + missing.size() * row_bytes_);
      count = std::clamp<std::size_t>(static_cast<std::size_t>(static_cast<double>(count) * share),
                                      1, count - 1);
      forget(std::exchange(fill, {}), &RowCache::undo);
      missing = unite(lists, count, window, fill);
    }
    lists = lists.first(count);
    window.errors.resize(count);
    window.rows.resize(missing.size() * row_bytes_);
    if (count > 0) bytes_a_list_ = static_cast<double>(window.bytes()) / static_cast<double>(count);
    fetch(missing.span(), fill, window, stop);
    const bool failed = std::any_of(window.errors.begin(), window.errors.end(),
                                    [](const auto& error) { return error != nullptr; });
    if (failed) fetch_one_by_one(lists, window, stop);
    if (failed || window.stopped) forget(fill);
  } catch (...) {
    forget(fill);
    throw;
  }
  return window;
}

Buffer<std::uint64_t> PagedRows::order_of(std::span<const std::int64_t> rows) const {
  const auto count = std::ssize(rows);
  const int ordinal_bits = bits_for(rows.size());
  const int row_bits = bits_for(static_cast<std::uint64_t>(resident_.num_rows()));
  Buffer<std::uint64_t> keys(count), room;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = rows[static_cast<std::size_t>(i)];
    if (row < 0 || row >= num_rows()) throw_out_of_range("index", "row", row, num_rows());
    const std::int64_t place = order_ ? order_->place_of(row) : row;
    keys[i] = static_cast<std::uint64_t>(place) << ordinal_bits | static_cast<std::uint64_t>(i);
  }
  radix_sort(keys, room, ordinal_bits, row_bits);
  for (std::int64_t i = 0; i < count; ++i) keys[i] &= (std::uint64_t{1} << ordinal_bits) - 1;
  return keys;
}

void PagedRows::fetch(std::span<const std::int64_t> missing, const Fill& fill, RowWindow& window,
                      std::stop_token stop) {
  const auto read = [&](const ColumnFile& file, std::span<const RowRequest> requests) {
    if (window.stopped) return;
    const GatherResult got = reader_->gather(file, requests, limits_, stop);
    window.stats += got.stats;
    window.stopped = got.stopped;
    for (const std::exception_ptr& error : got.errors) {
      // fetch_one_by_one() finds out which row cannot be read.
      if (error && !window.errors.empty()) window.errors.front() = error;
    }
  };
  for (const Part& part : parts_) {
    const auto& [first, file] = part;
    const auto begin = std::ranges::lower_bound(missing, first);
    const auto end = std::ranges::lower_bound(missing, first + file.layout.num_rows);
    std::byte* const out = window.rows.data() + (begin - missing.begin()) * row_bytes_;
    const Pieces pieces = pieces_of(fill, part);
    const std::array<RowRequest, 2> rows{{
        {{begin, end}, {}, out, first},
        {pieces.rows.span(), pieces.row_places.span(), kept_.get()},
    }};
    read(file, rows);
    if (pieces.groups.size() == 0) continue;
    const RowRequest groups{pieces.groups.span(), pieces.group_places.span(), kept_.get()};
    read({file.file, pieces.layout}, {&groups, 1});
  }
}

// After an error: every list for itself, so that only those fail that need a row that is lost.
void PagedRows::fetch_one_by_one(std::span<const IdList> lists, RowWindow& window,
                                 std::stop_token stop) {
  std::fill(window.errors.begin(), window.errors.end(), nullptr);
  for (const auto& [first, file] : parts_) {
    if (window.stopped) return;
    std::vector<Buffer<std::int64_t>> rows(2 * lists.size()), places(2 * lists.size());
    std::vector<RowRequest> requests;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool is_kept = i % 2 != 0;
      std::int64_t at_place = window.first[i / 2];
      lists[i / 2].for_each([&, first = first, end = first + file.layout.num_rows](auto row) {
        const std::int64_t place = window.places[at_place++];
        if (order_) row = order_->place_of(row);
        if (row < first || row >= end || (place < num_places()) != is_kept) return;
        rows[i].push_back(row);
        places[i].push_back(is_kept ? place : place - num_places());
      });
      std::byte* const out = is_kept ? kept_.get() : window.rows.data();
      requests.push_back({rows[i].span(), places[i].span(), out, first});
    }
    const GatherResult got = reader_->gather(file, requests, limits_, stop);
    window.stopped = got.stopped;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (got.errors[i] && !window.errors[i / 2]) window.errors[i / 2] = got.errors[i];
    }
  }
}

std::int64_t PagedRows::load(std::int64_t group, std::int64_t max_rows, ReadStats& stats) {
  const std::lock_guard lock(mutex_);
  const int bits = resident_.group_bits();
  Fill fill;
  for (; group < resident_.num_kept() &&
         fill.groups.size() << bits < std::max<std::int64_t>(1, max_rows);
       ++group) {
    std::vector<bool>::reference is_there = present_[static_cast<std::size_t>(group)];
    if (!is_there) add_group(group << bits, group << bits, fill);
    is_there = true;
  }
  RowWindow window;
  window.errors.resize(1);
  const std::int64_t end = fill.groups.size() == 0 ? 0 : fill.groups.span().back() + 1;
  const std::int64_t beyond = (end << bits) - resident_.num_rows();
  window.stats.rows = (fill.groups.size() << bits) - std::max<std::int64_t>(0, beyond);
  try {
    fetch({}, fill, window, {});
    if (window.errors[0]) std::rethrow_exception(window.errors[0]);
  } catch (...) {
    forget(fill);
    throw;
  }
  stats += window.stats;
  return group;
}

RowTable PagedRows::table(const RowWindow& window) const {
  const std::int64_t in_window = row_bytes_ == 0 ? 0 : window.rows.size() / row_bytes_;
  RowTable found{kept_.get(), num_places() + in_window, row_bytes_, row_bytes_};
  found.split = num_places();
  found.rest = window.rows.data();
  return found;
}

}  // namespace gz
