// gather/dictionary: columns of few values, in a bit to a byte a row.
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "gather/copy_rows.h"
#include "gather/dictionary.h"

namespace gz {
namespace {

template <class Value>
RowTable table_of(const std::vector<Value>& rows, std::int64_t apart = 1) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Value));
  return {reinterpret_cast<const std::byte*>(rows.data()), std::ssize(rows) / apart, kBytes,
          kBytes * apart};
}

// Rows of num_values different values, the last one late.
template <class Value>
std::vector<Value> rows_of(std::size_t num_values, std::mt19937_64& random) {
  std::vector<Value> values(num_values);
  for (std::size_t v = 0; v < num_values; ++v) {
    values[v] = static_cast<Value>(std::numeric_limits<Value>::max() - v * 37);
  }
  std::vector<Value> rows;
  for (std::size_t i = 0; i < 2000; ++i) {
    const std::size_t known = 1 + i * num_values / 2000;
    rows.push_back(values[i % 3 == 0 && i > 0 ? known - 1 : random() % known]);
  }
  rows.push_back(values.back());
  return rows;
}

template <class Value>
void check_all(std::size_t num_values, int bits, std::mt19937_64& random) {
  const std::vector<Value> rows = rows_of<Value>(num_values, random);
  const auto made = Dictionary::of(table_of(rows));
  CHECK(made != nullptr);
  CHECK(made->num_rows() == std::ssize(rows));
  CHECK(made->num_bytes() == PackedInts::num_bytes(std::ssize(rows), bits));
  std::vector<std::int64_t> index;
  for (std::size_t i = 0; i < 3000; ++i) {
    index.push_back(static_cast<std::int64_t>(random() % rows.size()));
  }
  std::vector<Value> found(index.size());
  RowTable table{nullptr, made->num_rows(), sizeof(Value), sizeof(Value)};
  table.dictionary = made.get();
  copy_rows(table, index.data(), std::ssize(index), reinterpret_cast<std::byte*>(found.data()));
  bool same = true;
  for (std::size_t i = 0; i < index.size(); ++i) {
    same = same && found[i] == rows[static_cast<std::size_t>(index[i])];
  }
  CHECK(same);
}

}  // namespace

TEST(dictionaries_have_the_rows_they_were_made_of) {
  std::mt19937_64 random(3);
  for (const auto& [count, bits] :
       {std::pair{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 4}, {16, 4}, {17, 8}, {255, 8}, {256, 8}}) {
    const auto values = static_cast<std::size_t>(count);
    check_all<std::uint64_t>(values, bits, random);
    check_all<std::uint32_t>(values, bits, random);
    check_all<std::uint16_t>(values, bits, random);
    if (values * 37 <= 256) check_all<std::uint8_t>(values, bits, random);
  }
  CHECK(Dictionary::of(table_of(rows_of<std::uint64_t>(257, random))) == nullptr);
}

TEST(dictionaries_are_of_rows_of_one_number) {
  const std::vector<std::uint32_t> rows(60, 7);
  RowTable table = table_of(rows, 3);  // two of three numbers belong to other columns
  CHECK(Dictionary::of(table)->num_rows() == 20);
  table.row_bytes = 12;
  CHECK(Dictionary::of(table) == nullptr);
  table.row_bytes = 4;
  table.encoding = &kernels(Encoding::kFloat16);
  CHECK(Dictionary::of(table) == nullptr);
  CHECK(Dictionary::of(table_of(std::vector<std::uint32_t>{}))->num_rows() == 0);
}

}  // namespace gz
