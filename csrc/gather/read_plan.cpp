#include "gather/read_plan.h"

#include <algorithm>

#include "arrays/radix_sort.h"
#include "base/errors.h"

namespace gz {
namespace {

std::uint64_t low_bits(int bits) { return bits == 64 ? ~0ULL : (1ULL << bits) - 1; }

std::uint64_t round_down(std::uint64_t n, std::uint64_t to) { return n & ~(to - 1); }

}  // namespace

std::uint64_t ReadPlan::largest_read(const RowLayout& layout, const ReadLimits& limits) noexcept {
  // A row may begin and end anywhere between two multiples of the alignment.
  const auto row = static_cast<std::uint64_t>(layout.row_bytes) + 2 * limits.alignment;
  return round_down(std::max(limits.max_read, row), limits.alignment);
}

void ReadPlan::build(const RowLayout& layout, std::span<const RowRequest> requests,
                     const ReadLimits& limits) {
  std::uint64_t longest = 0;
  for (const RowRequest& request : requests) {
    if (!request.positions.empty() && request.positions.size() != request.rows.size()) {
      throw invalid("positions: found ", request.positions.size(), ", expected one for each of ",
                    request.rows.size(), " rows");
    }
    longest = std::max<std::uint64_t>(longest, request.rows.size());
  }
  const int index_bits = bits_for(longest);
  const int request_bits = bits_for(requests.size());
  const int row_bits =
      bits_for(static_cast<std::uint64_t>(std::max<std::int64_t>(layout.num_rows, 0)));
  if (row_bits + request_bits + index_bits > 64) {
    throw invalid("found ", requests.size(), " requests of up to ", longest, " of ",
                  layout.num_rows, " rows, expected counts whose bits add up to at most 64");
  }
  request_shift_ = index_bits;
  row_shift_ = index_bits + request_bits;
  index_mask_ = low_bits(index_bits);
  request_mask_ = low_bits(request_bits);
  collect(layout, requests);
  // Requests come in order already; so do rows of windows, most of the time.
  const auto keys = keys_.span();
  if (!std::is_sorted(keys.begin(), keys.end())) radix_sort(keys_, scratch_, row_shift_, row_bits);
  merge(layout, limits);
}

void ReadPlan::collect(const RowLayout& layout, std::span<const RowRequest> requests) {
  std::int64_t total = 0;
  for (const RowRequest& request : requests) total += std::ssize(request.rows);
  keys_.resize(total);
  std::uint64_t* to = keys_.data();
  for (std::size_t k = 0; k < requests.size(); ++k) {
    const std::span<const std::int64_t> rows = requests[k].rows;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int64_t row = rows[i] - requests[k].first;
      if (row < 0 || row >= layout.num_rows) {
        keys_.clear();
        reads_.clear();
        throw_out_of_range(text_of("requests[", k, "].rows[", i, "]"), "row", row, layout.num_rows);
      }
      *to++ = static_cast<std::uint64_t>(row) << row_shift_ |
              static_cast<std::uint64_t>(k) << request_shift_ | i;
    }
  }
}

void ReadPlan::merge(const RowLayout& layout, const ReadLimits& limits) {
  reads_.clear();
  unique_rows_ = 0;
  bytes_ = 0;
  if (layout.row_bytes == 0) return;
  const std::uint64_t most = largest_read(layout, limits);
  const auto bytes = static_cast<std::uint64_t>(layout.row_bytes);
  const auto stride = static_cast<std::uint64_t>(layout.row_stride);
  std::int64_t previous = -1;
  for (std::int64_t i = 0; i < keys_.size(); ++i) {
    const std::int64_t row = target(i).row;
    if (row == previous) {
      ++reads_.back().last;
      continue;
    }
    previous = row;
    ++unique_rows_;
    const std::uint64_t start = layout.data_offset + static_cast<std::uint64_t>(row) * stride;
    const std::uint64_t end = start + bytes;
    const std::uint64_t begin = round_down(start, limits.alignment);
    // The end of the file need not be a multiple of anything.
    const std::uint64_t stop = std::max(
        end, std::min(round_down(end + limits.alignment - 1, limits.alignment), layout.file_bytes));
    if (!reads_.empty()) {
      PlannedRead& open = reads_.back();
      const std::uint64_t reached = open.offset + open.size;
      const bool near = begin <= reached || begin - reached <= limits.merge_gap;
      if (near && std::max(stop, reached) - open.offset <= most) {
        open.size = std::max(stop, reached) - open.offset;
        open.last = i + 1;
        continue;
      }
    }
    reads_.push_back({begin, stop - begin, i, i + 1});
  }
  for (const PlannedRead& read : reads_) bytes_ += read.size;
}

}  // namespace gz
