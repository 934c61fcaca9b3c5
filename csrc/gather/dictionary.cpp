#include "gather/dictionary.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "arrays/id_map.h"
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

std::shared_ptr<const Dictionary> Dictionary::of(const RowTable& table) {
  const std::int64_t bytes = table.row_bytes;
  if (table.encoding != nullptr || table.dictionary != nullptr || table.rest != nullptr) return {};
  if (!with_size(bytes, [](auto) {})) return {};
  auto made = std::make_shared<Dictionary>();
  made->row_bytes_ = bytes;
  IdMap<std::uint64_t> known;  // codes by value
  known.reserve(kMostValues + 1);
  std::uint32_t num_values = 0;  // or one too many
  const auto num_rows = static_cast<std::size_t>(table.num_rows);
  const auto codes = std::make_unique_for_overwrite<std::uint8_t[]>(num_rows);
  const auto add_all = [&](auto size) {
    for (std::size_t row = 0; row < num_rows && num_values <= kMostValues; ++row) {
      std::uint64_t value = 0;
      std::memcpy(&value, table.data + static_cast<std::int64_t>(row) * table.row_stride, size);
      const std::uint32_t code = known.find_or_insert(value, num_values);
      codes[row] = static_cast<std::uint8_t>(code);
      if (code < num_values) continue;
      if (num_values < kMostValues) made->values_[num_values] = value;
      ++num_values;
    }
  };
  renew_guard();
  guarded([&] { with_size(bytes, add_all); });
  if (num_values > kMostValues) return {};
  int bits = 1;
  while (num_values > std::uint32_t{1} << bits) bits *= 2;
  made->codes_ = PackedInts(table.num_rows, bits);
  made->codes_.write(0, std::span<const std::uint8_t>(codes.get(), num_rows));
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
