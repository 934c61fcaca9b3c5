// Rows of a file of which memory holds a part: some are resident, the others are read for a window
// of batches at once, and kept no longer than those batches need them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <vector>

#include "arrays/buffer.h"
#include "arrays/narrow_ids.h"
#include "gather/copy_rows.h"
#include "gather/disk_gather.h"
#include "gather/read_plan.h"
#include "gather/read_stats.h"
#include "gather/resident_rows.h"
#include "io/pages.h"

namespace gz {

// The rows that a window of batches needs and that are not resident. A list is what one batch
// wants.
struct RowWindow {
  std::vector<Buffer<std::byte>> rows;     // [column]: as they are stored, one behind the other
  std::vector<std::exception_ptr> errors;  // [list]: why a row of it could not be read, or null
  ReadStats stats;
  bool stopped = false;  // by the caller: there is nothing in it

  std::size_t num_lists() const noexcept { return errors.size(); }
  std::int64_t bytes() const noexcept;  // of the rows too where they were only planned
  // For each row of a list that is not resident, in order: which of `rows` it is.
  std::span<const std::int64_t> missing(std::size_t list) const noexcept {
    return places.span().subspan(static_cast<std::size_t>(first[list]),
                                 static_cast<std::size_t>(first[list + 1] - first[list]));
  }

  Buffer<std::int64_t> places;      // of all lists
  std::vector<std::int64_t> first;  // [list + 1]: where a list's begin
  std::int64_t planned_bytes = 0;   // what `rows` would take; 0 where they are there
};

// The columns of one node or edge type that are not kept in memory whole. Resident rows come from
// the file when they are first asked for; there is no time to wait for before the first batch.
//
// Thread safety: read() may be called from several threads, which wait for each other; table() and
// find_places() at any time for windows that were read. After a fork only the parent may read.
class PagedRows {
 public:
  // `columns` have as many rows as `resident`. Windows are read by `reader`, which may serve others
  // too. Raises std::invalid_argument where numbers of rows differ, and as map_pages().
  PagedRows(ResidentRows resident, std::vector<ColumnFile> columns,
            std::shared_ptr<DiskGather> reader, const ReadLimits& limits);

  // A rehearsal: windows have the same stats and no rows, nothing is read, no file need be there.
  // `limits.alignment` is the file's. table(), find_places() and preload() are not for it.
  PagedRows(ResidentRows resident, const std::vector<RowLayout>& layouts, const ReadLimits& limits);

  std::size_t num_columns() const noexcept { return columns_.size(); }
  std::int64_t num_rows() const noexcept { return resident_.num_rows(); }
  const ResidentRows& resident() const noexcept { return resident_; }
  // Of a row in all columns, as it is stored.
  std::int64_t row_bytes() const noexcept { return row_bytes_; }

  // Reads what these lists need, or as many first ones of them as need no more than `max_bytes` of
  // memory together; at least one. Raises std::out_of_range for a row that is not there.
  RowWindow read(std::span<const IdList> lists, std::int64_t max_bytes, std::stop_token stop = {});

  // Reads resident rows ahead of their first use: whole groups, from the first to the last.
  // An error is left to the batch that needs the row.
  void preload(std::stop_token stop = {});

  // Reads the resident rows of group `group` and of those after it, some `max_rows` of them.
  // Returns the group to go on with, num_groups() at the end. Raises OsError where one cannot be
  // read.
  std::int64_t load(std::int64_t group, std::int64_t max_rows, ReadStats& stats);

  // From now on, all resident rows count as read. REQUIRES a rehearsal.
  void assume_present();

  // Where the rows of list number `list` of a window are among table()'s.
  void find_places(std::span<const std::int64_t> rows, const RowWindow& window, std::size_t list,
                   std::int64_t* places) const;

  // A column's rows by place, as they are stored: the resident ones, then the window's.
  RowTable table(std::size_t column, const RowWindow& window) const;

  // The same where all rows that are asked for are resident and were loaded. Raises
  // std::out_of_range for one that is not resident.
  void find_places(std::span<const std::int64_t> rows, std::int64_t* places) const;
  RowTable table(std::size_t column) const;

 private:
  struct Column {
    ColumnFile file;
    std::shared_ptr<std::byte> kept;  // resident rows
  };
  struct Fill {
    Buffer<std::int64_t> rows, places;
    std::vector<std::int64_t> groups;  // by place
  };

  // The first `count` lists' missing rows, sorted by row, each once; fills in window.places.
  Buffer<std::int64_t> unite(std::span<const IdList> lists, std::size_t count, RowWindow& window);
  Fill absent(std::span<const IdList> lists);
  // The next `max_rows` or so from `group` on that are resident and were not read; advances it.
  Fill absent(std::int64_t& group, std::int64_t max_rows);
  void add_group(std::int64_t row, std::int64_t place, Fill& fill);
  void fetch(const Buffer<std::int64_t>& missing, const Fill& fill, RowWindow& window,
             std::stop_token stop);
  void rehearse(const Buffer<std::int64_t>& missing, const Fill& fill, RowWindow& window);
  void fetch_one_by_one(std::span<const IdList> lists, RowWindow& window, std::stop_token stop);

  const ResidentRows resident_;
  std::vector<Column> columns_;
  std::int64_t row_bytes_ = 0;
  std::shared_ptr<DiskGather> reader_;  // null: a rehearsal
  ReadLimits limits_;

  std::mutex mutex_;                   // guards what follows
  std::vector<bool> present_;          // [group kept]: it has been read
  Buffer<std::uint64_t> keys_, room_;  // of unite()
  ReadPlan plan_;                      // of rehearse()
};

}  // namespace gz
