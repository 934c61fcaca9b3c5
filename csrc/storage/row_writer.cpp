#include "storage/row_writer.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "storage/block_writer.h"
#include "storage/column.h"

namespace gz {
namespace {

std::string rows_named(std::uint64_t begin, std::uint64_t end) {
  return text_of("rows ", begin, " to ", end);
}

ColumnHeader checked_header(const std::string& path, const DType& dtype,
                            std::span<const std::uint64_t> shape,
                            std::optional<Encoding> encoding) {
  if (shape.empty() || (encoding && has_scales(*encoding))) {
    throw invalid(path, ": found a single item or int8 codes, expected rows");
  }
  return column_header(dtype, shape, encoding, path);
}

}  // namespace

RowWriter::RowWriter(const std::string& path, const DType& dtype,
                     std::span<const std::uint64_t> shape, std::optional<Encoding> encoding)
    : header_(checked_header(path, dtype, shape, encoding)),
      num_rows_(shape[0]),
      checksums_offset_(align_up(checked_add(kHeaderBytes, header_.data_bytes, path, "shape"))),
      num_blocks_((checksums_offset_ - kHeaderBytes + kBlockBytes - 1) / kBlockBytes),
      file_(File::create(path)),
      written_(num_rows_) {
  file_.resize(checksums_offset_ + 8 * num_blocks_);
}

std::uint64_t RowWriter::checked_count(std::size_t size) const {
  if (row_bytes() == 0) {
    throw invalid(file_.path(), ": rows without items cannot be written");
  }
  if (size % row_bytes() != 0) {
    throw invalid(file_.path(), ": found ", size, " bytes, expected a multiple of the row size ",
                  row_bytes());
  }
  return size / row_bytes();
}

void RowWriter::write(std::uint64_t first, std::span<const std::byte> rows) {
  const std::uint64_t count = checked_count(rows.size());
  if (first > num_rows_ || count > num_rows_ - first) {
    throw std::out_of_range(text_of(file_.path(), ": found ", rows_named(first, first + count),
                                    ", expected 0 <= row < ", num_rows_));
  }
  write_run(first, rows.data(), count);
}

void RowWriter::put(std::span<const std::int64_t> places, std::span<const std::byte> rows) {
  if (const std::uint64_t count = checked_count(rows.size()); count != places.size()) {
    throw invalid(file_.path(), ": found ", count, " rows, expected ", places.size());
  }
  check_range("index", "row", places, static_cast<std::int64_t>(num_rows_));
  for (std::size_t i = 0, next = 1; i < places.size(); i = next++) {
    // Rows that follow each other both in what is given and in the file are one write.
    while (next < places.size() && places[next] == places[next - 1] + 1) ++next;
    write_run(static_cast<std::uint64_t>(places[i]), rows.data() + i * row_bytes(), next - i);
  }
}

void RowWriter::write_run(std::uint64_t first, const std::byte* rows, std::uint64_t count) {
  if (count == 0) return;
  const std::uint64_t row = row_bytes(), stride = header_.row_stride;
  note(first, first + count, false);
  const std::uint64_t at_once = std::max<std::uint64_t>(1, chunk_sizes.rows_bytes / stride);
  std::vector<std::byte> padded(row == stride ? 0 : std::min(count, at_once) * stride);
  for (std::uint64_t at = 0; at < count; at += at_once) {
    const std::uint64_t n = std::min(at_once, count - at);
    const std::byte* from = rows + at * row;
    if (row != stride) {
      for (std::uint64_t i = 0; i < n; ++i) {
        std::memcpy(padded.data() + i * stride, from + i * row, row);
      }
      from = padded.data();
    }
    file_.write_at(from, n * stride, kHeaderBytes + (first + at) * stride);
  }
  note(first, first + count, true);
}

void RowWriter::note(std::uint64_t begin, std::uint64_t end, bool is_written) {
  const std::lock_guard lock(mutex_);
  const auto rows = written_.begin();
  std::fill(rows + static_cast<std::ptrdiff_t>(begin), rows + static_cast<std::ptrdiff_t>(end),
            is_written);
}

void RowWriter::finish() {
  if (const auto [begin, end] = first_missing(); begin < num_rows_) {
    throw invalid(file_.path(), ": found nothing in ", rows_named(begin, end),
                  ", expected every row to be written");
  }
  const std::vector<std::uint64_t> hashes = hash_blocks(file_, 0, num_blocks_, checksums_offset_);
  ColumnHeader header = header_;
  try {
    // Rows first: a header says that all of them are there.
    file_.sync();
    finish_file(file_, checksums_offset_, hashes, &header, sizeof header);
  } catch (...) {
    // A second sync would not report rows that the device has lost.
    note(0, num_rows_, false);
    throw;
  }
}

std::pair<std::uint64_t, std::uint64_t> RowWriter::first_missing() const {
  const std::lock_guard lock(mutex_);
  if (row_bytes() == 0) return {num_rows_, num_rows_};
  const auto begin = std::find(written_.begin(), written_.end(), false);
  const auto end = std::find(begin, written_.end(), true);
  return {begin - written_.begin(), end - written_.begin()};
}

}  // namespace gz
