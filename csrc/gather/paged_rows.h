// Rows of a file of which memory holds a part: some are resident, some are kept because they were
// used lately, the others are read for a window of batches at once and gone with those batches.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "arrays/buffer.h"
#include "arrays/narrow_ids.h"
#include "arrays/packed_ints.h"
#include "gather/copy_rows.h"
#include "gather/disk_gather.h"
#include "gather/read_plan.h"
#include "gather/read_stats.h"
#include "gather/resident_rows.h"
#include "gather/row_cache.h"
#include "gather/row_order.h"
#include "io/pages.h"

namespace gz {

// Where the rows of a window of batches are. A list is what one batch wants.
struct RowWindow {
  Buffer<std::byte> rows;                  // those that are not kept, as they are stored
  std::vector<std::exception_ptr> errors;  // [list]: why a row of it could not be read, or null
  ReadStats stats;
  bool stopped = false;  // by the caller: there is nothing in it

  std::size_t num_lists() const noexcept { return errors.size(); }
  // Only the first `count` lists are used; nothing uses what was read for the others.
  void shorten(std::size_t count);
  std::int64_t bytes() const noexcept { return rows.size(); }
  // Where each row of a list is in PagedRows::table(), in order.
  Buffer<std::int64_t> places_of(std::size_t list) const {
    Buffer<std::int64_t> found(first[list + 1] - first[list]);
    places.read(first[list], {found.data(), static_cast<std::size_t>(found.size())});
    return found;
  }

  NarrowNumbers places;             // of all lists
  std::vector<std::int64_t> first;  // [list + 1]: where a list's begin
  std::vector<std::int64_t> hits;   // [list + 1]: how many of those before are in memory
  RowCache::Use use;                // of the rows that are kept for now
};

// Rows that lie once more, in another order; no order: none do.
struct RowCopies {
  std::shared_ptr<const RowOrder> order = {};
  ColumnFile again = {};
};

// A column that is not kept in memory whole. Resident rows come from
// the file when they are first asked for; there is no time to wait for before the first batch.
// Other rows that are read stay, too, in frames that take in what is used and let go of what is
// not.
//
// Where some rows lie once more in another order, they are read from there. Callers ask for rows by
// their numbers as ever; in here, a row then goes by its place in that order.
//
// Thread safety: read() may be called from several threads, which wait for each other; table() at
// any time for windows that were read. After a fork only the parent may read.
class PagedRows {
 public:
  // Memory that read() takes for each row that is asked for while it sorts them: its key, twice.
  static constexpr std::int64_t kKeyBytes = 2 * sizeof(std::uint64_t);

  // `column` has as many rows as `resident`; with copies, as their order, by whose places
  // resident rows and those in frames are then chosen, in groups that are no larger than the
  // order's. `num_frames` are for other groups, of the same size. Windows are read by `reader`,
  // which may serve others too. Raises std::invalid_argument where numbers or sizes of rows differ,
  // and as map_pages() and RowCache.
  PagedRows(ResidentRows resident, std::int64_t num_frames, ColumnFile column,
            std::shared_ptr<DiskGather> reader, const ReadLimits& limits, RowCopies copies = {});

  std::int64_t num_rows() const noexcept {
    return order_ ? order_->num_rows() : resident_.num_rows();
  }
  const ResidentRows& resident() const noexcept { return resident_; }
  // Groups that may be kept: resident ones and frames.
  std::int64_t num_kept() const noexcept {
    return resident_.num_kept() + (cache_ ? cache_->num_frames() : 0);
  }
  // Bytes of a row, as it is stored.
  std::int64_t row_bytes() const noexcept { return row_bytes_; }

  // Reads what these lists need, or as many first ones of them as need no more than `max_bytes` of
  // memory together; at least one. Raises std::out_of_range for a row that is not there.
  RowWindow read(std::span<const IdList> lists, std::int64_t max_bytes, std::stop_token stop = {});

  // Bytes of memory that the last window took, for each of its lists.
  double bytes_a_list() const noexcept { return bytes_a_list_; }

  // Numbers of a list's items in the order in which their rows lie. Raises as read().
  Buffer<std::uint64_t> order_of(std::span<const std::int64_t> rows) const;

  // Reads the resident rows of group `group` and of those after it, some `max_rows` of them.
  // Returns the group to go on with, num_kept() of those at the end. Raises OsError where one
  // cannot be read.
  std::int64_t load(std::int64_t group, std::int64_t max_rows, ReadStats& stats);

  // Rows by place, as they are stored: those that are kept, then the window's.
  RowTable table(const RowWindow& window) const;

 private:
  // A file, and the place of its first row; the others follow.
  struct Part {
    std::int64_t first;
    ColumnFile file;
  };
  // Groups to be read into kept places: which, and where to, in groups too.
  struct Fill {
    Buffer<std::int64_t> groups, places;
  };
  // A Fill's share in a part: the groups that lie in its file in one piece, by a layout of which a
  // row is one of them; and the rows of the other groups.
  struct Pieces {
    RowLayout layout;
    Buffer<std::int64_t> groups, group_places, rows, row_places;
  };

  std::int64_t num_places() const noexcept { return num_kept() << resident_.group_bits(); }
  std::int64_t place_of(std::int32_t frame) const noexcept {
    return (resident_.num_kept() + frame) << resident_.group_bits();
  }
  // Where these rows are kept, or -1; those in frames are used by the current window. At most
  // RowCache::kFindAtOnce of them.
  void locate(std::span<const std::int64_t> rows, std::int64_t* places);
  // Finds out where the first `count` lists' rows are or will be. Returns those that are to be read
  // for this window alone, sorted by row, each once; `fill`: what is to be read and kept.
  Buffer<std::int64_t> unite(std::span<const IdList> lists, std::size_t count, RowWindow& window,
                             Fill& fill);
  // The rows that are wanted, sorted; and for each place behind what is kept, which then says how
  // far behind only which row it is, where that row will be.
  Buffer<std::int64_t> number(RankedBits& wanted, NarrowNumbers& places) const;
  // Takes back that a Fill was read and kept.
  void forget(const Fill& fill, void (RowCache::*drop)(std::int32_t) = &RowCache::drop) noexcept;
  void add_group(std::int64_t row, std::int64_t place, Fill& fill) const;
  Pieces pieces_of(const Fill& fill, const Part& part) const;
  // Reads rows into a window and groups into their places.
  void fetch(std::span<const std::int64_t> missing, const Fill& fill, RowWindow& window,
             std::stop_token stop);
  void fetch_one_by_one(std::span<const IdList> lists, RowWindow& window, std::stop_token stop);

  const ResidentRows resident_;
  std::shared_ptr<const RowOrder> order_;  // null: rows lie once, as they are numbered
  std::optional<RowCache> cache_;          // guarded by mutex_
  std::atomic<double> bytes_a_list_ = 0;
  const std::int64_t row_bytes_;
  std::shared_ptr<std::byte> kept_;  // resident rows, then those in frames
  std::vector<Part> parts_;          // all places
  std::shared_ptr<DiskGather> reader_;
  ReadLimits limits_;

  std::mutex mutex_;                   // guards what follows
  std::vector<bool> present_;          // [resident group]: it has been read
  Buffer<std::uint64_t> keys_, room_;  // of unite()
};

}  // namespace gz
