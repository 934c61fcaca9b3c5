// One `.gd` file: the rows of one attribute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/mapping.h"
#include "storage/block_writer.h"
#include "storage/encoding.h"
#include "storage/layout.h"

namespace gz {

// The distance in bytes between rows of `row_bytes`: padded to the next power of two when that
// costs at most 1/32 of the row, so that a row does not straddle pages; else row_bytes itself.
std::uint64_t choose_row_stride(std::uint64_t row_bytes, std::uint64_t item_bytes) noexcept;

// The header of a column that is about to be written, but for what finish_file() completes and the
// places of scales. Raises FormatError for sizes beyond 64 bits or an encoding that the dtype is
// not for, std::invalid_argument for more than kMaxDims dimensions.
ColumnHeader column_header(const DType& dtype, std::span<const std::uint64_t> shape,
                           std::optional<Encoding> encoding, const std::string& path);

// Where rows lie in a file that is not a store's.
struct Placement {
  std::uint64_t file_bytes;
  std::uint64_t data_offset;
  std::uint64_t row_stride;
};

// An opened column. Opening reads the header, and the scales of encoded rows; no row. Thread
// safety: immutable.
class Column {
 public:
  static std::shared_ptr<const Column> open(const std::string& path);
  // The rows of another program's file, which has to be as large as `placement` says.
  static std::shared_ptr<const Column> adopt(const std::string& path, const DType& dtype,
                                             std::span<const std::uint64_t> shape,
                                             const Placement& placement);

  // The dtype of what is stored.
  const DType& dtype() const noexcept { return *dtype_; }
  // The encoding of float32; none where items are stored as themselves.
  std::optional<Encoding> encoding() const noexcept { return encoding_; }
  // One number for each item of a row, where the encoding has scales; else empty.
  const std::vector<float>& scale() const noexcept { return scale_; }
  const std::vector<float>& zero_point() const noexcept { return zero_point_; }
  std::span<const std::uint64_t> shape() const noexcept { return {header_.shape, num_dims()}; }
  std::size_t num_dims() const noexcept { return header_.num_dims; }
  std::uint64_t num_rows() const noexcept { return header_.num_rows(); }
  std::uint64_t row_bytes() const noexcept { return header_.row_bytes; }
  std::uint64_t row_stride() const noexcept { return header_.row_stride; }
  std::uint64_t data_offset() const noexcept { return header_.data_offset; }
  std::uint64_t data_bytes() const noexcept { return header_.data_bytes; }
  const std::string& path() const noexcept { return file_->path(); }
  const std::shared_ptr<const File>& file() const noexcept { return file_; }

  // A fresh map of the whole file. Each call makes its own.
  std::shared_ptr<const Mapping> map(MapMode mode) const;

 private:
  explicit Column(File file) : file_(std::make_shared<const File>(std::move(file))) {}

  // The end of the rows; raises FormatError unless shape, strides and sizes fit each other.
  std::uint64_t check_rows() const;
  // Reads the arrays of an encoding, which follow the rows; returns the end of the last.
  std::uint64_t read_scales(std::uint64_t end);

  std::shared_ptr<const File> file_;
  ColumnHeader header_{};
  const DType* dtype_ = nullptr;
  std::optional<Encoding> encoding_;
  std::vector<float> scale_, zero_point_;
};

// Writes a column row by row; the number of rows is declared up front and checked at finish().
class ColumnWriter {
 public:
  // `scale` and `zero_point` belong to an encoding that has scales; see ColumnHeader.
  ColumnWriter(const std::string& path, const DType& dtype, std::vector<std::uint64_t> shape,
               std::optional<Encoding> encoding = {}, std::vector<float> scale = {},
               std::vector<float> zero_point = {});

  // Replaces the number of rows declared, where it is known at the end only.
  void set_num_rows(std::uint64_t num_rows);
  // Whole rows, C-contiguous: REQUIRES size to be a multiple of a row's.
  void append(const void* rows, std::size_t size);
  void finish();

 private:
  BlockWriter out_;
  ColumnHeader header_{};
  bool has_scales_;
  std::vector<float> scale_, zero_point_;
  std::uint64_t rows_written_ = 0;
};

}  // namespace gz
