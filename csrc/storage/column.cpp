#include "storage/column.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "base/errors.h"

namespace gz {
namespace {

// No product of dimensions may overflow, not even where another dimension is 0.
void check_shape(const DType& dtype, std::span<const std::uint64_t> shape,
                 const std::string& path) {
  std::uint64_t bytes = dtype.item_bytes;
  for (const std::uint64_t dim : shape) {
    if (dim > 0) bytes = checked_mul(bytes, dim, path, "shape");
  }
}

// Bytes of one row: everything behind the first dimension.
std::uint64_t row_bytes_of(const DType& dtype, std::span<const std::uint64_t> shape,
                           const std::string& path) {
  std::uint64_t bytes = dtype.item_bytes;
  for (std::size_t d = 1; d < shape.size(); ++d) {
    bytes = checked_mul(bytes, shape[d], path, "shape");
  }
  return bytes;
}

}  // namespace

std::uint64_t choose_row_stride(std::uint64_t row_bytes, std::uint64_t item_bytes) noexcept {
  constexpr std::uint64_t kPage = 4096;
  if (row_bytes == 0 || row_bytes >= kPage) return row_bytes;
  const std::uint64_t padded = std::bit_ceil(row_bytes);
  const bool cheap = (padded - row_bytes) * 32 <= row_bytes;
  return cheap && padded % item_bytes == 0 ? padded : row_bytes;
}

std::shared_ptr<const Column> Column::open(const std::string& path) {
  std::shared_ptr<Column> column(new Column(File::open(path)));
  ColumnHeader& h = column->header_;
  read_header(column->file_, ColumnHeader::kMagic, &h, sizeof h);

  column->dtype_ = find_dtype(h.dtype);
  if (column->dtype_ == nullptr) {
    throw FormatError(path, "dtype", std::to_string(h.dtype), "a dtype code of format v1 (1-21)");
  }
  expect(path, "encoding", h.encoding, 0);
  if (h.num_dims > kMaxDims) {
    throw FormatError(path, "num_dims", std::to_string(h.num_dims), "at most 8");
  }
  check_shape(*column->dtype_, column->shape(), path);
  expect(path, "row_bytes", h.row_bytes, row_bytes_of(*column->dtype_, column->shape(), path));
  if (h.row_stride < h.row_bytes || h.row_stride % column->dtype_->item_bytes != 0) {
    throw FormatError(
        path, "row_stride", std::to_string(h.row_stride),
        "at least row_bytes (" + std::to_string(h.row_bytes) + ") and a multiple of the item size");
  }
  expect(path, "data_bytes", h.data_bytes,
         checked_mul(column->num_rows(), h.row_stride, path, "row_stride"));
  expect(path, "data_offset", h.data_offset, kHeaderBytes);
  const std::uint64_t end = checked_add(h.data_offset, h.data_bytes, path, "data_bytes");
  expect(path, "checksums_offset", h.common.checksums_offset, align_up(end));
  return column;
}

std::shared_ptr<const Mapping> Column::map(MapMode mode) const {
  // A file cut short since open() would fault at the first touch; say so now instead.
  expect_size(file_, header_.common.file_bytes);
  return Mapping::map(file_, header_.common.file_bytes, mode);
}

ColumnWriter::ColumnWriter(const std::string& path, const DType& dtype,
                           std::vector<std::uint64_t> shape)
    : out_(path) {
  if (shape.size() > kMaxDims) {
    throw std::invalid_argument(path + ": found " + std::to_string(shape.size()) +
                                " dimensions, expected at most 8");
  }
  check_shape(dtype, shape, path);
  std::memcpy(header_.common.magic, ColumnHeader::kMagic, sizeof header_.common.magic);
  header_.dtype = dtype.code;
  header_.num_dims = static_cast<std::uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), header_.shape);
  header_.row_bytes = row_bytes_of(dtype, shape, path);
  header_.row_stride = choose_row_stride(header_.row_bytes, dtype.item_bytes);
  header_.data_offset = kHeaderBytes;
  header_.data_bytes = checked_mul(shape.empty() ? 1 : shape[0], header_.row_stride, path, "shape");
}

void ColumnWriter::set_num_rows(std::uint64_t num_rows) {
  header_.shape[0] = num_rows;
  header_.data_bytes = checked_mul(num_rows, header_.row_stride, out_.path(), "shape");
}

void ColumnWriter::append(const void* rows, std::size_t size) {
  const std::uint64_t row = header_.row_bytes;
  if (row == 0 || size == 0) return;
  if (size % row != 0) {
    throw std::invalid_argument(out_.path() + ": found " + std::to_string(size) +
                                " bytes, expected a multiple of the row size " +
                                std::to_string(row));
  }
  rows_written_ += size / row;
  if (header_.row_stride == row) {
    out_.append(rows, size);
    return;
  }
  static constexpr unsigned char kZeros[kSectionAlignment] = {};
  const auto* at = static_cast<const unsigned char*>(rows);
  for (std::size_t done = 0; done < size; done += row) {
    out_.append(at + done, row);
    out_.append(kZeros, header_.row_stride - row);
  }
}

void ColumnWriter::finish() {
  const std::uint64_t declared = header_.num_dims == 0 ? 1 : header_.shape[0];
  if (header_.row_bytes > 0 && rows_written_ != declared) {
    throw std::invalid_argument(out_.path() + ": found " + std::to_string(rows_written_) +
                                " rows, expected " + std::to_string(declared));
  }
  out_.finish(&header_, sizeof header_);
}

}  // namespace gz
