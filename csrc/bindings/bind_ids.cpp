// From ids to rows.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <limits>
#include <variant>

#include "arrays/buffer.h"
#include "arrays/packed_ints.h"
#include "base/errors.h"
#include "bindings/arrays.h"
#include "ids/accesses.h"
#include "ids/row_index.h"

namespace gz::python {

using namespace nb::literals;

namespace {

constexpr std::uint64_t kShort = std::numeric_limits<std::uint32_t>::max();

// An index in the narrowest slots, with the arrays it looks into kept alive.
template <class Ids, class... Arrays>
class HeldIndex {
 public:
  HeldIndex(Ids ids, Arrays... arrays) : arrays_(std::move(arrays)...) {
    const nb::gil_scoped_release released;
    if (static_cast<std::uint64_t>(ids.size()) < kShort) {
      index_ = std::make_unique<RowIndex<Ids, std::uint32_t>>(ids);
    } else {
      index_ = std::make_unique<RowIndex<Ids, std::uint64_t>>(ids);
    }
  }

  std::int64_t second() const {
    return std::visit([](const auto& index) { return index->second(); }, index_);
  }

  Int64Tensor find(Ids wanted) const {
    return fill_tensor(static_cast<std::size_t>(wanted.size()), [&](std::int64_t* rows) {
      std::visit([&](const auto& index) { index->find(wanted, rows); }, index_);
    });
  }

  static std::uint64_t num_bytes(std::uint64_t size) {
    return size < kShort ? RowIndex<Ids, std::uint32_t>::num_bytes(size)
                         : RowIndex<Ids, std::uint64_t>::num_bytes(size);
  }

 private:
  std::tuple<Arrays...> arrays_;
  std::variant<std::unique_ptr<RowIndex<Ids, std::uint32_t>>,
               std::unique_ptr<RowIndex<Ids, std::uint64_t>>>
      index_;
};

using IntegerIndex = HeldIndex<IntegerIds, Int64Array>;
using TextIndex = HeldIndex<TextIds, Int64Array, Bytes>;

template <class Index>
nb::class_<Index> index_class(nb::module_& m, const char* name, const char* doc) {
  return nb::class_<Index>(m, name, doc)
      .def_static("num_bytes", &Index::num_bytes, "size"_a,
                  "Bytes that an index of `size` ids takes besides them.")
      .def_prop_ro("second", &Index::second,
                   "The first row whose id stands in a row before, or -1.");
}

TextIds text_ids(const Int64Array& offsets, const Bytes& text) {
  const std::span<const std::int64_t> bounds = as_span(offsets);
  bool ascends = !bounds.empty() && bounds.front() >= 0 &&
                 bounds.back() <= static_cast<std::int64_t>(text.size());
  for (std::size_t i = 1; ascends && i < bounds.size(); ++i) ascends = bounds[i - 1] <= bounds[i];
  if (!ascends) throw invalid("offsets: expected positions in text, ascending");
  return {bounds, reinterpret_cast<const char*>(text.data())};
}

}  // namespace

void init_ids(nb::module_& m) {
  m.def("count_rows", &count_rows, "rows"_a, "counts"_a, kWithoutGil,
        "Adds 1 to the count of every row that occurs in `rows`, however often; counts end at the "
        "most that they can be.");
  m.def("add_rows", &add_rows, "rows"_a, "bits"_a, "list"_a, "met"_a, kWithoutGil,
        "Puts those of `rows` that are not in `list` (`[num_rows]`) yet behind its first `met` "
        "items, in their order, and sets their `bits`; returns how many there are then.");
  m.def("hottest_first", &hottest_first, "counts"_a, "list"_a, "hot"_a, kWithoutGil,
        "Has those rows of a list first that more than `hot` batches use, by how many these are; "
        "equals, and the others, stay in their order.");

  nb::class_<RankedBits>(
      m, "IdBits", "Which of the ids low … low + span - 1 occur, and their numbers among those.")
      .def(nb::init<std::int64_t, std::int64_t>(), "span"_a, "low"_a = 0)
      .def_static("num_bytes", &RankedBits::num_bytes, "span"_a, "Bytes that such an object takes.")
      .def(
          "add", [](RankedBits& self, Int64Span ids) { self.add(ids); }, "ids"_a, kWithoutGil,
          "Notes ids [n]; those outside of the range are left out.")
      .def("rank", &RankedBits::rank, kWithoutGil,
           "Numbers the ids in ascending order, and returns how many there are.")
      .def(
          "find",
          [](const RankedBits& self, Int64Span ids) {
            return fill_tensor(ids.size(), [&](std::int64_t* numbers) { self.find(ids, numbers); });
          },
          "ids"_a, "The number of every id [n], -1 where it does not occur.")
      .def(
          "read",
          [](const RankedBits& self, std::int64_t begin, std::int64_t end) {
            const auto count = static_cast<std::size_t>(end - begin);
            return fill_tensor(count, [&](std::int64_t* ids) { self.read(begin, {ids, count}); });
          },
          "begin"_a, "end"_a, "The ids numbered begin … end - 1.");

  index_class<IntegerIndex>(m, "IntegerIndex", "From integer ids to the rows they stand in.")
      .def(
          "__init__",
          [](IntegerIndex* self, Int64Array ids) {
            const IntegerIds view{as_span(ids)};
            new (self) IntegerIndex(view, std::move(ids));
          },
          "ids"_exact)
      .def(
          "find",
          [](const IntegerIndex& index, Int64Span ids) { return index.find(IntegerIds{ids}); },
          "ids"_a, "The row of every id [n], -1 where it has none.");

  index_class<TextIndex>(m, "TextIndex", "From text ids to the rows they stand in.")
      .def(
          "__init__",
          [](TextIndex* self, Int64Array offsets, Bytes text) {
            const TextIds view = text_ids(offsets, text);
            new (self) TextIndex(view, std::move(offsets), std::move(text));
          },
          "offsets"_exact, "text"_exact, "Id i is text[offsets[i]:offsets[i + 1]].")
      .def(
          "find",
          [](const TextIndex& index, const Int64Array& offsets, const Bytes& text) {
            return index.find(text_ids(offsets, text));
          },
          "offsets"_exact, "text"_exact, "The row of every id, -1 where it has none.");
}

}  // namespace gz::python
