#include "build/parallel_edges.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <type_traits>

#include "base/errors.h"
#include "build/numbers.h"

namespace gz {

void SourceTable::clear(std::uint64_t max_sources) {
  const std::uint64_t size = std::bit_ceil(std::max<std::uint64_t>(2 * max_sources, 4));
  slots_.assign(size, kNone);
  mask_ = size - 1;
  shift_ = static_cast<std::uint32_t>(64 - std::countr_zero(size));
  sources_.clear();
}

std::uint32_t SourceTable::find_or_add(std::uint64_t src) {
  // Fibonacci hashing: the golden ratio spreads consecutive ids.
  std::uint64_t at = (src * 0x9E3779B97F4A7C15ULL) >> shift_;
  while (slots_[at] != kNone) {
    if (sources_[slots_[at]] == src) return slots_[at];
    at = (at + 1) & mask_;
  }
  slots_[at] = size();
  sources_.push_back(src);
  return slots_[at];
}

namespace {

const char* name_of(Coalesce how) noexcept { return kCoalesceNames[static_cast<int>(how)]; }

[[noreturn]] void throw_no_fit(Coalesce how, const PayloadColumn& column,
                               const std::string& found) {
  throw invalid("coalesce='", name_of(how), "' of '", column.name, "': found ", found, ", which ",
                column.dtype->name, " cannot hold; convert it to a wider dtype");
}

template <class Wide>
Wide combine(Coalesce how, Wide a, Wide b, const PayloadColumn& column) {
  if constexpr (std::is_same_v<Wide, double>) {
    if (how == Coalesce::kMin) return std::isnan(a) || a < b ? a : b;
    if (how == Coalesce::kMax) return std::isnan(a) || a > b ? a : b;
    return a + b;
  } else {
    if (how == Coalesce::kMin) return std::min(a, b);
    if (how == Coalesce::kMax) return std::max(a, b);
    Wide sum;
    if (__builtin_add_overflow(a, b, &sum)) {
      throw_no_fit(how, column, text_of(a, " + ", b));
    }
    return sum;
  }
}

template <class Wide>
Wide divide(Wide sum, std::uint64_t count) noexcept {
  if constexpr (std::is_same_v<Wide, double>) {
    return sum / static_cast<double>(count);
  } else {
    const auto divisor = static_cast<Wide>(count);
    const Wide quotient = sum / divisor;
    return quotient * divisor > sum ? quotient - 1 : quotient;  // down, as torch's mean
  }
}

}  // namespace

EdgeMerger::EdgeMerger(const RecordLayout& layout, const CscOptions& options)
    : layout_(layout), how_(options.coalesce.value_or(Coalesce::kFirst)) {
  if (how_ == Coalesce::kFirst) return;
  for (std::size_t c = 0; c < options.columns.size(); ++c) {
    const PayloadColumn& column = options.columns[c];
    if (!with_type(*column.dtype, [](auto) {})) {
      throw invalid("coalesce='", name_of(how_), "': column '", column.name, "' is ",
                    column.dtype->name, "; use coalesce='first'");
    }
    for (std::uint32_t i = 0; i < column.num_items(); ++i) {
      items_.push_back({layout.column_at(c) + i * column.dtype->item_bytes, &column});
    }
  }
}

std::uint64_t EdgeMerger::bytes_per_record(const RecordLayout& layout, const CscOptions& options) {
  std::uint64_t items = 0;
  for (const PayloadColumn& column : options.columns) items += column.num_items();
  const bool joins = options.coalesce.value_or(Coalesce::kFirst) != Coalesce::kFirst;
  return 2 * (layout.size() + 8 + 8 + 8 + (joins ? 8 * items : 0)) + 16;
}

void EdgeMerger::clear(std::uint64_t max_edges) {
  table_.clear(max_edges);
  records_.clear();
  counts_.clear();
  joined_.clear();
}

void EdgeMerger::add(const Byte* record) {
  const std::uint32_t merged = table_.find_or_add(layout_.src(record));
  const std::uint32_t size = layout_.size();
  if (merged == counts_.size()) {
    counts_.push_back(1);
    records_.resize(records_.size() + size);
    std::memcpy(records_.data() + std::int64_t{merged} * size, record, size);
    for (const Item& item : items_) {
      with_type(*item.column->dtype, [&]<class T>(T) {
        const auto wide = Number<T>::widen(read_as<T>(record + item.at));
        joined_.push_back(std::bit_cast<std::uint64_t>(wide));
      });
    }
    return;
  }
  ++counts_[merged];
  Byte* const first = records_.data() + std::int64_t{merged} * size;
  join(merged, record);
  if (layout_.number(record) >= layout_.number(first)) return;
  if (items_.empty()) {
    std::memcpy(first, record, size);
  } else {
    layout_.set_number(first, layout_.number(record));
  }
}

void EdgeMerger::join(std::uint32_t merged, const Byte* record) {
  std::uint64_t* bits = joined_.data() + merged * items_.size();
  for (const Item& item : items_) {
    with_type(*item.column->dtype, [&]<class T>(T) {
      using Wide = typename Number<T>::Wide;
      const Wide value = Number<T>::widen(read_as<T>(record + item.at));
      const Wide joined = combine(how_, std::bit_cast<Wide>(*bits), value, *item.column);
      *bits = std::bit_cast<std::uint64_t>(joined);
    });
    ++bits;
  }
}

std::span<const Byte* const> EdgeMerger::finish() {
  const std::uint32_t size = layout_.size();
  order_.clear();
  for (std::size_t merged = 0; merged < counts_.size(); ++merged) {
    Byte* const record = records_.data() + static_cast<std::int64_t>(merged) * size;
    order_.push_back(record);
    if (counts_[merged] == 1) continue;
    const std::uint64_t* bits = joined_.data() + merged * items_.size();
    for (const Item& item : items_) {
      with_type(*item.column->dtype, [&]<class T>(T) {
        using Wide = typename Number<T>::Wide;
        Wide value = std::bit_cast<Wide>(*bits);
        if (how_ == Coalesce::kMean) value = divide(value, counts_[merged]);
        if (!Number<T>::fits(value)) throw_no_fit(how_, *item.column, std::to_string(value));
        const T narrow = Number<T>::narrow(value);
        std::memcpy(record + item.at, &narrow, sizeof narrow);
      });
      ++bits;
    }
  }
  const auto number = [&](const Byte* record) { return layout_.number(record); };
  if (!std::ranges::is_sorted(order_, {}, number)) std::ranges::sort(order_, {}, number);
  return order_;
}

}  // namespace gz
