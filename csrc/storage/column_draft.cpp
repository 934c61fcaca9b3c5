#include "storage/column_draft.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "arrays/parallel.h"
#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "base/xxh64.h"
#include "storage/block_writer.h"
#include "storage/column.h"

namespace gz {
namespace {

constexpr std::uint64_t kPage = 4096;
// Blocks that one thread reads at a time where checksums are missing.
constexpr std::int64_t kGrain = 8;

std::string rows_named(std::uint64_t begin, std::uint64_t end) {
  return "rows " + std::to_string(begin) + " to " + std::to_string(end);
}

std::uint64_t rows_file_bytes(const DraftLayout& layout) {
  return 8 * ((layout.num_rows + 63) / 64);
}

}  // namespace

DraftLayout::DraftLayout(const std::string& path_, const std::string& rows_path_,
                         const DType& dtype, std::span<const std::uint64_t> shape,
                         std::optional<Encoding> encoding)
    : path(path_), rows_path(rows_path_), header(column_header(dtype, shape, encoding, path_)) {
  if (shape.empty() || (encoding && has_scales(*encoding))) {
    throw std::invalid_argument(path + ": found a single item or int8 codes, expected rows");
  }
  num_rows = shape[0];
  checksums_offset = align_up(checked_add(kHeaderBytes, header.data_bytes, path, "shape"));
  num_blocks = (checksums_offset - kHeaderBytes + kBlockBytes - 1) / kBlockBytes;
}

ColumnDraft::ColumnDraft(const DraftLayout& layout, File file, File rows_file)
    : layout_(layout),
      file_(std::move(file)),
      rows_file_(std::move(rows_file)),
      written_(layout.num_rows),
      durable_(layout.num_rows),
      hashes_(layout.num_blocks),
      changed_begin_(layout.num_blocks),
      buffer_(new unsigned char[kBlockBytes]) {}

std::unique_ptr<ColumnDraft> ColumnDraft::create(const DraftLayout& layout) {
  File file = File::create(layout.path);
  file.resize(layout.checksums_offset + 8 * layout.num_blocks);
  file.sync();
  // Its size says that both are complete.
  File rows_file = File::create(layout.rows_path);
  rows_file.resize(rows_file_bytes(layout));
  rows_file.sync();
  return std::unique_ptr<ColumnDraft>(
      new ColumnDraft(layout, std::move(file), std::move(rows_file)));
}

std::unique_ptr<ColumnDraft> ColumnDraft::resume(const DraftLayout& layout) {
  std::unique_ptr<ColumnDraft> draft(new ColumnDraft(layout, File::open_for_update(layout.path),
                                                     File::open_for_update(layout.rows_path)));
  expect_size(draft->file_, layout.checksums_offset + 8 * layout.num_blocks);
  expect_size(draft->rows_file_, rows_file_bytes(layout));
  // A process killed between finish() and the record in store.json leaves a finished header.
  const std::vector<unsigned char> zeros(kHeaderBytes);
  draft->file_.write_at(zeros.data(), zeros.size(), 0);
  draft->file_.sync_data();
  const auto words = draft->durable_.words();
  draft->rows_file_.read_at(words.data(), words.size_bytes(), 0);
  draft->durable_.trim();
  draft->written_ = draft->durable_;
  draft->file_.read_at(draft->hashes_.data(), 8 * layout.num_blocks, layout.checksums_offset);
  // Checksums get there before the bits of their rows; what is without them may have changed since.
  draft->drop_uncommitted();
  return draft;
}

std::uint64_t ColumnDraft::block_bytes(std::uint64_t block) const noexcept {
  return std::min(kBlockBytes, layout_.checksums_offset - kHeaderBytes - block * kBlockBytes);
}

std::pair<std::uint64_t, std::uint64_t> ColumnDraft::rows_of(std::uint64_t block) const noexcept {
  const std::uint64_t stride = layout_.header.row_stride;
  const std::uint64_t begin = block * kBlockBytes;
  const std::uint64_t end = std::min(begin + kBlockBytes, layout_.header.data_bytes);
  return {begin / stride, (end + stride - 1) / stride};
}

std::uint64_t ColumnDraft::checked_count(std::size_t size) const {
  if (row_bytes() == 0) {
    throw std::invalid_argument(layout_.path + ": rows without items cannot be written");
  }
  if (size % row_bytes() != 0) {
    throw std::invalid_argument(layout_.path + ": found " + std::to_string(size) +
                                " bytes, expected a multiple of the row size " +
                                std::to_string(row_bytes()));
  }
  return size / row_bytes();
}

void ColumnDraft::write(std::uint64_t first, const void* rows, std::size_t size) {
  const std::uint64_t count = checked_count(size);
  if (first > num_rows() || count > num_rows() - first) {
    throw std::out_of_range(layout_.path + ": found " + rows_named(first, first + count) +
                            ", expected 0 <= row < " + std::to_string(num_rows()));
  }
  const std::lock_guard lock(mutex_);
  write_locked(first, static_cast<const unsigned char*>(rows), count);
}

void ColumnDraft::put(std::span<const std::int64_t> places, const void* rows, std::size_t size) {
  if (const std::uint64_t count = checked_count(size); count != places.size()) {
    throw std::invalid_argument(layout_.path + ": found " + std::to_string(count) +
                                " rows, expected " + std::to_string(places.size()));
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= 0 && static_cast<std::uint64_t>(places[i]) < num_rows()) continue;
    throw std::out_of_range("index[" + std::to_string(i) + "]: found " + std::to_string(places[i]) +
                            ", expected 0 <= row < " + std::to_string(num_rows()));
  }
  std::vector<std::size_t> order(places.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!std::is_sorted(places.begin(), places.end())) {
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return places[a] < places[b]; });
  }
  const auto* const from = static_cast<const unsigned char*>(rows);
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < order.size();) {
    std::size_t next = i + 1;
    // Rows that follow each other both in what is given and in the file are one write.
    while (next < order.size() && order[next] == order[next - 1] + 1 &&
           places[order[next]] == places[order[next - 1]] + 1) {
      ++next;
    }
    // Of equal places the last counts: each is written over the one before.
    write_locked(static_cast<std::uint64_t>(places[order[i]]), from + order[i] * row_bytes(),
                 next - i);
    i = next;
  }
}

void ColumnDraft::write_locked(std::uint64_t first, const unsigned char* rows,
                               std::uint64_t count) {
  if (count == 0) return;
  const std::uint64_t row = row_bytes(), stride = layout_.header.row_stride;
  demote(first, first + count);
  written_.clear(first, first + count);
  try {
    if (block_ * kBlockBytes + filled_ != first * stride) start_run(first * stride);
    if (row == stride) {
      append(rows, count * row);
    } else {
      static constexpr unsigned char kZeros[kPage] = {};
      for (std::uint64_t i = 0; i < count; ++i) {
        append(rows + i * row, row);
        append(kZeros, stride - row);
      }
    }
    if ((first + count) == num_rows() && filled_ > 0) {
      // The last block also has what is between the rows and the checksums: zeros.
      std::memset(buffer_.get() + filled_, 0, block_bytes(block_) - filled_);
      complete_block(block_bytes(block_));
    }
  } catch (...) {
    drop_buffer();
    throw;
  }
  written_.set(first, first + count);
}

void ColumnDraft::demote(std::uint64_t first, std::uint64_t end) {
  if (!durable_.any(first, end)) return;
  durable_.clear(first, end);
  write_rows(durable_.words(), first / 64, (end + 63) / 64);
}

void ColumnDraft::start_run(std::uint64_t offset) {
  flush();
  block_ = offset / kBlockBytes;
  start_ = flushed_ = filled_ = offset % kBlockBytes;
}

void ColumnDraft::append(const unsigned char* data, std::size_t size) {
  while (size > 0) {
    if (filled_ == start_) begin_block();
    if (filled_ == 0 && size >= kBlockBytes) {
      write_body(data, kBlockBytes, block_ * kBlockBytes);
      hashes_[block_++] = xxh64(data, kBlockBytes);
      data += kBlockBytes;
      size -= kBlockBytes;
      continue;
    }
    const std::size_t n = std::min<std::size_t>(size, kBlockBytes - filled_);
    std::memcpy(buffer_.get() + filled_, data, n);
    filled_ += n;
    data += n;
    size -= n;
    if (filled_ == kBlockBytes) complete_block(kBlockBytes);
  }
}

void ColumnDraft::begin_block() {
  hashes_[block_] = 0;
  changed_begin_ = std::min(changed_begin_, block_);
  changed_end_ = std::max(changed_end_, block_ + 1);
}

void ColumnDraft::complete_block(std::uint64_t size) {
  flush();
  if (start_ == 0) hashes_[block_] = xxh64(buffer_.get(), size);
  ++block_;
  start_ = flushed_ = filled_ = 0;
}

void ColumnDraft::flush() {
  if (flushed_ == filled_) return;
  write_body(buffer_.get() + flushed_, filled_ - flushed_, block_ * kBlockBytes + flushed_);
  flushed_ = filled_;
}

void ColumnDraft::write_body(const unsigned char* data, std::size_t size, std::uint64_t offset) {
  file_.write_at(data, size, kHeaderBytes + offset);
  pace(kHeaderBytes + offset, kHeaderBytes + offset + size);
}

void ColumnDraft::pace(std::uint64_t begin, std::uint64_t end) {
  piece_.begin = piece_.bytes == 0 ? begin : std::min(piece_.begin, begin);
  piece_.end = std::max(piece_.end, end);
  piece_.bytes += std::max(end - begin, kPage);
  if (piece_.bytes < chunk_sizes.draft_piece_bytes) return;
  try {
    file_.start_writing(piece_.begin, piece_.end - piece_.begin);
    pieces_.push_back(std::exchange(piece_, {}));
    if (pieces_.size() <= chunk_sizes.draft_pieces) return;
    const Piece oldest = pieces_.front();
    pieces_.pop_front();
    file_.finish_writing(oldest.begin, oldest.end - oldest.begin);
  } catch (...) {
    // Whatever was not durable may be lost, and sync_data() would not say so a second time.
    drop_uncommitted();
    throw;
  }
}

// After a failed write: rows in the buffer that are not in the file have to be written again.
void ColumnDraft::drop_buffer() noexcept {
  if (flushed_ < filled_) {
    const std::uint64_t stride = layout_.header.row_stride, at = block_ * kBlockBytes;
    written_.clear((at + flushed_) / stride,
                   std::min(num_rows(), (at + filled_ + stride - 1) / stride));
  }
  block_ = 0;
  start_ = flushed_ = filled_ = 0;
}

void ColumnDraft::drop_uncommitted() noexcept {
  drop_buffer();
  written_ = durable_;
  for (std::uint64_t block = 0; block < hashes_.size(); ++block) {
    const auto [begin, end] = rows_of(block);
    if (hashes_[block] == 0 || durable_.all(begin, end)) continue;
    hashes_[block] = 0;
    changed_begin_ = std::min(changed_begin_, block);
    changed_end_ = std::max(changed_end_, block + 1);
  }
}

void ColumnDraft::write_checksums() {
  if (changed_begin_ >= changed_end_) return;
  file_.write_at(hashes_.data() + changed_begin_, 8 * (changed_end_ - changed_begin_),
                 layout_.checksums_offset + 8 * changed_begin_);
  changed_begin_ = layout_.num_blocks;
  changed_end_ = 0;
}

void ColumnDraft::write_rows(std::span<const std::uint64_t> words, std::uint64_t first,
                             std::uint64_t last) {
  if (first >= last) return;
  rows_file_.write_at(words.data() + first, 8 * (last - first), 8 * first);
  rows_file_.sync_data();
}

void ColumnDraft::commit() {
  const std::lock_guard lock(mutex_);
  commit_locked();
}

void ColumnDraft::commit_locked() {
  try {
    flush();
    write_checksums();
    file_.sync_data();
  } catch (...) {
    drop_uncommitted();
    throw;
  }
  pieces_.clear();
  piece_ = {};
  const auto fresh = std::as_const(written_).words();
  const auto known = durable_.words();
  std::uint64_t first = 0, last = fresh.size();
  while (first < last && fresh[first] == known[first]) ++first;
  while (last > first && fresh[last - 1] == known[last - 1]) --last;
  write_rows(fresh, first, last);
  std::copy_n(fresh.data() + first, last - first, known.data() + first);
}

void ColumnDraft::hash_missing_blocks() {
  std::vector<std::uint64_t> missing;
  for (std::uint64_t block = 0; block < hashes_.size(); ++block) {
    if (hashes_[block] == 0) missing.push_back(block);
  }
  if (missing.empty()) return;
  const auto count = static_cast<std::int64_t>(missing.size());
  parallel_for(count, kGrain, 0, [&](std::int64_t begin, std::int64_t end) {
    const std::unique_ptr<unsigned char[]> bytes(new unsigned char[kBlockBytes]);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint64_t block = missing[static_cast<std::size_t>(i)];
      const std::uint64_t size = block_bytes(block), offset = kHeaderBytes + block * kBlockBytes;
      if (file_.read_at(bytes.get(), size, offset) != size) {
        throw FormatError(layout_.path, "rows", "end of file",
                          std::to_string(size) + " bytes at offset " + std::to_string(offset));
      }
      hashes_[block] = xxh64(bytes.get(), size);
    }
  });
}

void ColumnDraft::finish() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t begin = written_.first_clear(0);
  if (begin < num_rows() && row_bytes() > 0) {
    throw std::invalid_argument(layout_.path + ": found nothing in " +
                                rows_named(begin, written_.first_set(begin)) +
                                ", expected every row to be written");
  }
  // Durable first: finish_file() writes a header that says all of it is there.
  commit_locked();
  hash_missing_blocks();
  ColumnHeader header = layout_.header;
  finish_file(file_, layout_.checksums_offset, hashes_, &header, sizeof header);
}

std::uint64_t ColumnDraft::durable_front() const {
  const std::lock_guard lock(mutex_);
  return row_bytes() == 0 ? num_rows() : durable_.first_clear(0);
}

bool ColumnDraft::is_written(std::uint64_t begin, std::uint64_t end) const {
  const std::lock_guard lock(mutex_);
  return row_bytes() == 0 || written_.all(begin, end);
}

std::pair<std::uint64_t, std::uint64_t> ColumnDraft::first_missing() const {
  const std::lock_guard lock(mutex_);
  if (row_bytes() == 0) return {num_rows(), num_rows()};
  const std::uint64_t begin = written_.first_clear(0);
  return {begin, written_.first_set(begin)};
}

}  // namespace gz
