// One `.gd` file: the rows of one attribute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/mapping.h"
#include "storage/block_writer.h"
#include "storage/layout.h"

namespace gz {

// The distance in bytes between rows of `row_bytes`: padded to the next power of two when that
// costs at most 1/32 of the row, so that a row does not straddle pages; else row_bytes itself.
std::uint64_t choose_row_stride(std::uint64_t row_bytes, std::uint64_t item_bytes) noexcept;

// An opened column. Opening reads the header only. Thread safety: immutable.
class Column {
 public:
  static std::shared_ptr<const Column> open(const std::string& path);

  const DType& dtype() const noexcept { return *dtype_; }
  std::span<const std::uint64_t> shape() const noexcept { return {header_.shape, num_dims()}; }
  std::size_t num_dims() const noexcept { return header_.num_dims; }
  std::uint64_t num_rows() const noexcept { return header_.num_dims == 0 ? 1 : header_.shape[0]; }
  std::uint64_t row_bytes() const noexcept { return header_.row_bytes; }
  std::uint64_t row_stride() const noexcept { return header_.row_stride; }
  std::uint64_t data_offset() const noexcept { return header_.data_offset; }
  std::uint64_t data_bytes() const noexcept { return header_.data_bytes; }
  const std::string& path() const noexcept { return file_.path(); }
  const File& file() const noexcept { return file_; }

  // A fresh map of the whole file. Each call makes its own.
  std::shared_ptr<const Mapping> map(MapMode mode) const;

 private:
  explicit Column(File file) : file_(std::move(file)) {}

  File file_;
  ColumnHeader header_{};
  const DType* dtype_ = nullptr;
};

// Writes a column row by row; the number of rows is declared up front and checked at finish().
class ColumnWriter {
 public:
  ColumnWriter(const std::string& path, const DType& dtype, std::vector<std::uint64_t> shape);

  // Whole rows, C-contiguous: REQUIRES size to be a multiple of row_bytes().
  void append(const void* rows, std::size_t size);
  void finish();
  std::uint64_t row_bytes() const noexcept { return header_.row_bytes; }

 private:
  BlockWriter out_;
  ColumnHeader header_{};
  std::uint64_t rows_written_ = 0;
};

}  // namespace gz
