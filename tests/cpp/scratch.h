// A directory that goes away with the test, and files to damage in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "storage/column.h"
#include "storage/topology.h"

namespace gz::test {

class Scratch {
 public:
  Scratch() {
    std::random_device random;
    do {
      path_ = std::filesystem::temp_directory_path() / ("graphzero-" + std::to_string(random()));
    } while (!std::filesystem::create_directory(path_));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline void overwrite(const std::string& path, std::uint64_t offset, const std::string& bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline constexpr char kCannotBeCut[] = "Windows keeps a mapped file's size";

// A file that is cut short as long as this lives: whoever reads on fails until then.
class CutShort {
 public:
  CutShort(const std::string& path, std::uint64_t bytes) : path_(path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    end_.resize(static_cast<std::size_t>(file.tellg()) - bytes);
    offset_ = bytes;
    file.seekg(static_cast<std::streamoff>(bytes));
    file.read(end_.data(), static_cast<std::streamsize>(end_.size()));
    std::filesystem::resize_file(path, bytes);
  }
  CutShort(const CutShort&) = delete;
  CutShort& operator=(const CutShort&) = delete;
  ~CutShort() { overwrite(path_, offset_, end_); }

 private:
  std::string path_, end_;
  std::uint64_t offset_;
};

// A float32 column [rows, items] that holds 0, 1, 2 …
inline void write_column(const std::string& path, std::uint64_t rows, std::uint64_t items) {
  std::vector<float> values(rows * items);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  ColumnWriter writer(path, dtype_named("float32"), {rows, items});
  writer.append(values.data(), values.size() * sizeof(float));
  writer.finish();
}

// A ring of chords: node v has in-neighbours v + 1 … v + degree (modulo the number of nodes).
inline void write_ring(const std::string& path, std::int64_t nodes, std::int64_t degree) {
  const auto n = static_cast<std::uint64_t>(nodes);
  std::vector<std::int64_t> indptr;
  std::vector<std::uint32_t> indices;
  for (std::int64_t v = 0; v <= nodes; ++v) indptr.push_back(v * degree);
  for (std::int64_t v = 0; v < nodes; ++v) {
    for (std::int64_t i = 1; i <= degree; ++i) {
      indices.push_back(static_cast<std::uint32_t>((v + i) % nodes));
    }
  }
  TopologyWriter writer(path, n, n);
  writer.append_indptr(indptr.data(), indptr.size());
  writer.append_indices(indices.data(), indices.size());
  writer.finish();
}

}  // namespace gz::test
