#include "gather/dictionary.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "arrays/buffer.h"
#include "arrays/id_map.h"
#include "base/chunk_sizes.h"
#include "base/constants.h"
#include "gather/copy_rows.h"
#include "io/fault_guard.h"

namespace gz {
namespace {

constexpr std::int64_t kPrefetchAhead = 16;

// Calls call(bytes) with a size that rows may have, as a constant; false for another one. A word
// begins with the lowest bytes of its number.
template <class Call>
bool with_size(std::int64_t bytes, const Call& call) {
  return with_constant<1U, 2U, 4U, 8U>(bytes, call);
}

}  // namespace

// Codes take more bits as more values come up.
class Dictionary::Builder {
 public:
  Builder(Dictionary& made, std::int64_t num_rows) : made_(made) {
    made.codes_ = PackedInts(num_rows, 1);
    known_.reserve(kMostValues + 1);
  }

  // False where it is one value too many.
  template <class Size>
  bool add(const std::byte* rows, std::int64_t count, Size row_bytes) {
    PackedInts codes = made_.codes_;  // as in copy(); it shares them
    for (std::int64_t i = 0; i < count; ++i) {
      std::uint64_t value = 0;
      std::memcpy(&value, rows + i * row_bytes, row_bytes);
      if (num_values_ == 0 || value != last_) {
        const int found = find(value, num_rows_ + i);
        if (found < 0) return false;
        last_ = value;
        last_code_ = static_cast<std::uint8_t>(found);
        if (codes.bits() != made_.codes_.bits()) codes = made_.codes_;
      }
      codes.set_in_byte(num_rows_ + i, last_code_);
    }
    num_rows_ += count;
    return true;
  }

 private:
  // The code of the value of row `num_coded`, which gets one if it has none; -1 where there are
  // none left.
  int find(std::uint64_t value, std::int64_t num_coded) {
    const std::uint32_t code = known_.find_or_insert(value, num_values_);
    if (code < num_values_) return static_cast<int>(code);
    if (num_values_ == kMostValues) return -1;
    if (num_values_ >> made_.codes_.bits() > 0) widen(num_coded);
    made_.values_[num_values_++] = value;
    return static_cast<int>(code);
  }

  // Twice as many bits for each.
  void widen(std::int64_t num_coded) {
    const PackedInts codes =
        std::exchange(made_.codes_, PackedInts(made_.num_rows(), 2 * made_.codes_.bits()));
    for (std::int64_t row = 0; row < num_coded; ++row) {
      made_.codes_.set_in_byte(row, codes.in_byte(row));
    }
  }

  Dictionary& made_;
  std::int64_t num_rows_ = 0;  // that have codes
  std::uint32_t num_values_ = 0;
  std::uint64_t last_ = 0;
  std::uint8_t last_code_ = 0;
  IdMap<std::uint64_t> known_;  // codes by value
};

std::shared_ptr<const Dictionary> Dictionary::of(const RowTable& table) {
  const std::int64_t bytes = table.row_bytes;
  if (table.encoding != nullptr || table.dictionary != nullptr || table.rest != nullptr) return {};
  if (!with_size(bytes, [](auto) {})) return {};
  auto made = std::make_shared<Dictionary>();
  made->row_bytes_ = bytes;
  Builder builder(*made, table.num_rows);
  Buffer<std::byte> rows(chunk_sizes.dictionary_rows * bytes);
  renew_guard();
  for (std::int64_t begin = 0; begin < table.num_rows; begin += chunk_sizes.dictionary_rows) {
    const std::int64_t count = std::min(chunk_sizes.dictionary_rows, table.num_rows - begin);
    guarded([&] {
      const std::byte* const from = table.data + begin * table.row_stride;
      if (table.row_stride == bytes) {
        std::memcpy(rows.data(), from, static_cast<std::size_t>(count * bytes));
        return;
      }
      for (std::int64_t i = 0; i < count; ++i) {
        std::memcpy(rows.data() + i * bytes, from + i * table.row_stride,
                    static_cast<std::size_t>(bytes));
      }
    });
    bool is_dictionary = false;
    with_size(bytes, [&](auto size) { is_dictionary = builder.add(rows.data(), count, size); });
    if (!is_dictionary) return {};
  }
  return made;
}

void Dictionary::copy(const std::int64_t* index, std::int64_t count,
                      std::byte* out) const noexcept {
  const PackedInts codes = codes_;  // which no store to `out` can change: it stays in registers
  with_size(row_bytes_, [&](auto size) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (i + kPrefetchAhead < count) codes.prefetch(index[i + kPrefetchAhead]);
      std::memcpy(out + i * size, &values_[codes.in_byte(index[i])], size);
    }
  });
}

}  // namespace gz
