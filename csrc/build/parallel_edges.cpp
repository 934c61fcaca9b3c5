#include "build/parallel_edges.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <type_traits>

#include "base/errors.h"
#include "build/numbers.h"

namespace gz {
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

EdgeMerger::EdgeMerger(const BuildPlan& plan)
    : layout_(plan.layout), how_(plan.options.coalesce.value_or(Coalesce::kFirst)) {
  if (how_ == Coalesce::kFirst) return;
  for (std::size_t c = 0; c < plan.options.columns.size(); ++c) {
    const PayloadColumn& column = plan.options.columns[c];
    if (!with_type(*column.dtype, [](auto) {})) {
      throw invalid("coalesce='", name_of(how_), "': column '", column.name, "' is ",
                    column.dtype->name, "; use coalesce='first'");
    }
    for (std::uint32_t i = 0; i < column.num_items(); ++i) {
      items_.push_back({layout_.column_at(c) + i * column.dtype->item_bytes, &column});
    }
  }
}

void EdgeMerger::join(const Byte* record) {
  const bool is_first = count_++ == 0;
  if (is_first) first_.assign(record, record + layout_.size());
  for (Item& item : items_) {
    with_type(*item.column->dtype, [&]<class T>(T) {
      using Wide = typename Number<T>::Wide;
      Wide value = Number<T>::widen(read_as<T>(record + item.at));
      if (!is_first) value = combine(how_, std::bit_cast<Wide>(item.joined), value, *item.column);
      item.joined = std::bit_cast<std::uint64_t>(value);
    });
  }
}

const Byte* EdgeMerger::finish() {
  if (count_ == 1) return first_.data();
  for (const Item& item : items_) {
    with_type(*item.column->dtype, [&]<class T>(T) {
      using Wide = typename Number<T>::Wide;
      Wide value = std::bit_cast<Wide>(item.joined);
      if (how_ == Coalesce::kMean) value = divide(value, count_);
      if (!Number<T>::fits(value)) throw_no_fit(how_, *item.column, std::to_string(value));
      const T narrow = Number<T>::narrow(value);
      std::memcpy(first_.data() + item.at, &narrow, sizeof narrow);
    });
  }
  return first_.data();
}

}  // namespace gz
