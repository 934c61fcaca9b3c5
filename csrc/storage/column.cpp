#include "storage/column.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/errors.h"

namespace gz {
namespace {

// Bytes of one row: everything behind the first dimension. No product of dimensions may overflow,
// not even where another dimension is 0.
std::uint64_t row_bytes_of(const DType& dtype, std::span<const std::uint64_t> shape,
                           const std::string& path) {
  std::uint64_t all = dtype.item_bytes, row = all;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 0) all = checked_mul(all, shape[d], path, "shape");
    if (d > 0) row *= shape[d];
  }
  return row;
}

std::string found_encoding(std::uint32_t number, const DType& dtype) {
  return text_of(number, " of ", dtype.name);
}

// The encoding that a header names by this number; raises FormatError unless it is of `dtype`.
std::optional<Encoding> encoding_of(std::uint32_t number, const DType& dtype,
                                    const std::string& path) {
  if (number == 0) return std::nullopt;
  std::string expected;
  std::uint32_t last = 0;
  for (const EncodingFacts& known : kEncodings) {
    last = std::max(last, known.number);
    if (known.number != number) continue;
    if (known.name == dtype.name) return known.encoding;
    expected += text_of(expected.empty() ? "" : " or ", known.name);
  }
  if (expected.empty()) {
    throw FormatError(path, "encoding", number, "0 to ", last,
                      "; the file was written by a newer release: upgrade");
  }
  throw FormatError(path, "encoding", found_encoding(number, dtype), expected);
}

// REQUIRES: a zeroed header.
void set_shape(ColumnHeader& header, const DType& dtype, std::span<const std::uint64_t> shape,
               const std::string& path) {
  if (shape.size() > kMaxDims) {
    throw invalid(path, ": found ", shape.size(), " dimensions, expected at most 8");
  }
  header.num_dims = static_cast<std::uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), header.shape);
  header.row_bytes = row_bytes_of(dtype, shape, path);
}

}  // namespace

std::uint64_t choose_row_stride(std::uint64_t row_bytes, std::uint64_t item_bytes) noexcept {
  constexpr std::uint64_t kPage = 4096;
  if (row_bytes == 0 || row_bytes >= kPage) return row_bytes;
  const std::uint64_t padded = std::bit_ceil(row_bytes);
  const bool cheap = (padded - row_bytes) * 32 <= row_bytes;
  return cheap && padded % item_bytes == 0 ? padded : row_bytes;
}

ColumnHeader column_header(const DType& dtype, std::span<const std::uint64_t> shape,
                           std::optional<Encoding> encoding, const std::string& path) {
  ColumnHeader header{};
  std::memcpy(header.common.magic, ColumnHeader::kMagic, sizeof header.common.magic);
  header.dtype = dtype.code;
  set_shape(header, dtype, shape, path);
  if (encoding) {
    const EncodingFacts& known = facts(*encoding);
    header.encoding = known.number;
    if (known.name != dtype.name) {
      throw FormatError(path, "encoding", found_encoding(known.number, dtype), known.name);
    }
  }
  header.row_stride = choose_row_stride(header.row_bytes, dtype.item_bytes);
  header.data_offset = kHeaderBytes;
  header.data_bytes = checked_mul(header.num_rows(), header.row_stride, path, "shape");
  return header;
}

std::shared_ptr<const Column> Column::open(const std::string& path) {
  std::shared_ptr<Column> column(new Column(File::open(path)));
  ColumnHeader& h = column->header_;
  read_header(*column->file_, ColumnHeader::kMagic, &h, sizeof h);

  column->dtype_ = find_dtype(h.dtype);
  if (column->dtype_ == nullptr) {
    throw FormatError(path, "dtype", h.dtype, "a dtype code of format v1 (1-21)");
  }
  column->encoding_ = encoding_of(h.encoding, *column->dtype_, path);
  if (h.num_dims > kMaxDims) {
    throw FormatError(path, "num_dims", h.num_dims, "at most 8");
  }
  expect(path, "data_offset", h.data_offset, kHeaderBytes);
  const std::uint64_t end = column->read_scales(column->check_rows());
  expect(path, "checksums_offset", h.common.checksums_offset, align_up(end));
  return column;
}

std::shared_ptr<const Column> Column::adopt(const std::string& path, const DType& dtype,
                                            std::span<const std::uint64_t> shape,
                                            const Placement& placement) {
  std::shared_ptr<Column> column(new Column(File::open(path)));
  ColumnHeader& h = column->header_;
  expect_size(*column->file_, placement.file_bytes, "adopted");
  h.common.file_bytes = placement.file_bytes;
  column->dtype_ = &dtype;
  h.dtype = dtype.code;
  set_shape(h, dtype, shape, path);
  h.row_stride = placement.row_stride;
  h.data_offset = placement.data_offset;
  h.data_bytes = checked_mul(column->num_rows(), h.row_stride, path, "shape");
  if (const std::uint64_t end = column->check_rows(); end > placement.file_bytes) {
    throw FormatError(path, "file size", text_of(placement.file_bytes, " bytes"), end,
                      " or more, the end of the rows");
  }
  return column;
}

std::uint64_t Column::check_rows() const {
  const std::string& path = file_->path();
  const ColumnHeader& h = header_;
  expect(path, "row_bytes", h.row_bytes, row_bytes_of(*dtype_, shape(), path));
  if (h.row_stride < h.row_bytes || h.row_stride % dtype_->item_bytes != 0) {
    throw FormatError(path, "row_stride", h.row_stride, "at least row_bytes (", h.row_bytes,
                      ") and a multiple of the item size");
  }
  expect(path, "data_bytes", h.data_bytes,
         checked_mul(num_rows(), h.row_stride, path, "row_stride"));
  return checked_add(h.data_offset, h.data_bytes, path, "data_bytes");
}

std::uint64_t Column::read_scales(std::uint64_t end) {
  const std::string& path = file_->path();
  if (!encoding_ || !has_scales(*encoding_)) {
    expect(path, "scale_offset", header_.scale_offset, 0);
    expect(path, "zero_point_offset", header_.zero_point_offset, 0);
    return end;
  }
  const std::uint64_t items = header_.row_bytes;  // of one byte each
  const std::uint64_t bytes = checked_mul(items, sizeof(float), path, "shape");
  const auto read = [&](const char* field, std::uint64_t offset, std::vector<float>& values) {
    const std::uint64_t start = align_up(end);
    expect(path, field, offset, start);
    end = checked_add(start, bytes, path, field);
    if (end > header_.common.checksums_offset) {
      throw FormatError(path, field, offset, bytes, " bytes in front of the checksums at ",
                        header_.common.checksums_offset);
    }
    values.resize(items);
    read_whole(*file_, field, values.data(), bytes, offset);
    for (std::size_t i = 0; i < items; ++i) {
      if (std::isfinite(values[i])) continue;
      throw FormatError(path, text_of(field, ", item ", i), values[i], "a finite number");
    }
  };
  read("scale_offset", header_.scale_offset, scale_);
  read("zero_point_offset", header_.zero_point_offset, zero_point_);
  return end;
}

std::shared_ptr<const Mapping> Column::map(MapMode mode) const {
  // A file cut short since open() would fault at the first touch; say so now instead.
  expect_size(*file_, header_.common.file_bytes);
  return Mapping::map(*file_, header_.common.file_bytes, mode);
}

ColumnWriter::ColumnWriter(const std::string& path, const DType& dtype,
                           std::vector<std::uint64_t> shape, std::optional<Encoding> encoding,
                           std::vector<float> scale, std::vector<float> zero_point)
    : out_(std::make_shared<File>(File::create(path))),
      header_(column_header(dtype, shape, encoding, path)),
      has_scales_(encoding && has_scales(*encoding)),
      scale_(std::move(scale)),
      zero_point_(std::move(zero_point)) {
  const std::uint64_t scales = has_scales_ ? header_.row_bytes : 0;
  if (scale_.size() != scales || zero_point_.size() != scales) {
    throw invalid(path, ": found ", scale_.size(), " scales and ", zero_point_.size(),
                  " zero points, expected ", scales);
  }
}

void ColumnWriter::set_num_rows(std::uint64_t num_rows) {
  header_.shape[0] = num_rows;
  header_.data_bytes = checked_mul(num_rows, header_.row_stride, out_.path(), "shape");
}

void ColumnWriter::append(const void* rows, std::size_t size) {
  const std::uint64_t row = header_.row_bytes;
  if (row == 0 || size == 0) return;
  if (size % row != 0) {
    throw invalid(out_.path(), ": found ", size, " bytes, expected a multiple of the row size ",
                  row);
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
  const std::uint64_t declared = header_.num_rows();
  if (header_.row_bytes > 0 && rows_written_ != declared) {
    throw invalid(out_.path(), ": found ", rows_written_, " rows, expected ", declared);
  }
  if (has_scales_) {
    out_.align();
    header_.scale_offset = out_.offset();
    out_.append(scale_.data(), scale_.size() * sizeof(float));
    out_.align();
    header_.zero_point_offset = out_.offset();
    out_.append(zero_point_.data(), zero_point_.size() * sizeof(float));
  }
  out_.finish(&header_, sizeof header_);
}

}  // namespace gz
