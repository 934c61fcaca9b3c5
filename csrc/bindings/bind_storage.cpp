// Columns and topologies: opening, viewing, writing, verifying, publishing.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/errors.h"
#include "bindings/arrays.h"
#include "io/publish.h"
#include "storage/column.h"
#include "storage/row_writer.h"
#include "storage/topology.h"

namespace gz::python {

using namespace nb::literals;

namespace {

std::vector<std::uint64_t> shape_of(const Column& column) {
  return {column.shape().begin(), column.shape().end()};
}

}  // namespace

void init_storage(nb::module_& m) {
  nb::enum_<Encoding> encodings(m, "Encoding",
                                "What float32 may be stored as, in place of itself.");
  for (const EncodingFacts& known : kEncodings) {
    encodings.value(known.name.data(), known.encoding);
  }
  encodings.def_prop_ro("item_bytes", [](Encoding encoding) { return item_bytes(encoding); })
      .def_prop_ro(
          "has_scales", [](Encoding encoding) { return has_scales(encoding); },
          "Whether an item is code * scale + zero_point, with one of each for each item of a row.");

  nb::class_<Column>(m, "Column", "An opened .gd file. Opening reads its header only.")
      .def_static("open", &Column::open, "path"_a)
      .def_static(
          "adopt",
          [](const std::string& path, const std::string& dtype,
             const std::vector<std::uint64_t>& shape, std::uint64_t file_bytes,
             std::uint64_t data_offset, std::uint64_t row_stride) {
            return Column::adopt(path, dtype_named(dtype), shape,
                                 {file_bytes, data_offset, row_stride});
          },
          "path"_a, "dtype"_a, "shape"_a, "file_bytes"_a, "data_offset"_a, "row_stride"_a,
          "Rows in a file of another program.")
      .def_prop_ro("path", &Column::path)
      .def_prop_ro(
          "dtype", [](const Column& c) { return std::string(c.dtype().name); }, "What is stored.")
      .def_prop_ro("encoding", &Column::encoding,
                   "What of float32 is stored; None where items are what they are.")
      .def_prop_ro("scale", &Column::scale,
                   "One number for each item of a row, where the encoding has scales.")
      .def_prop_ro("zero_point", &Column::zero_point)
      .def_prop_ro("shape", &shape_of)
      .def_prop_ro("row_bytes", &Column::row_bytes, "Bytes of one row, as it is stored.")
      .def_prop_ro("data_offset", &Column::data_offset, "Where the first row lies in the file.")
      .def_prop_ro("row_stride", &Column::row_stride, "Bytes from one row to the next.")
      .def_prop_ro("data_bytes", &Column::data_bytes)
      .def(
          "view",
          [](const Column& c) {
            const std::shared_ptr<const Mapping> map = c.map(MapMode::kCopyOnWrite);
            return std::pair(view_bytes(map, c.data_offset(), c.data_bytes()), map->writable());
          },
          "The rows' bytes as a uint8 tensor over a fresh copy-on-write map, and whether it may "
          "be written to.");

  nb::class_<ColumnWriter>(m, "ColumnWriter", "Writes a .gd file front to back.")
      .def(
          "__init__",
          [](ColumnWriter* self, const std::string& path, const std::string& dtype,
             std::vector<std::uint64_t> shape, std::optional<Encoding> encoding,
             std::vector<float> scale, std::vector<float> zero_point) {
            new (self) ColumnWriter(path, dtype_named(dtype), std::move(shape), encoding,
                                    std::move(scale), std::move(zero_point));
          },
          "path"_a, "dtype"_a, "shape"_a, "encoding"_a = nb::none(),
          "scale"_a = std::vector<float>(), "zero_point"_a = std::vector<float>(),
          "The shape is that of what is stored; the others say what of float32 it is, if it is.")
      .def(
          "append",
          [](ColumnWriter& self, std::span<const std::byte> rows) {
            self.append(rows.data(), rows.size());
          },
          "rows"_a, kWithoutGil, "Appends whole rows, given as their bytes.")
      .def("finish", &ColumnWriter::finish, kWithoutGil);

  nb::class_<RowWriter>(m, "RowWriter", "Writes a .gd file's rows in any order, from any thread.")
      .def(
          "__init__",
          [](RowWriter* self, const std::string& path, const std::string& dtype,
             const std::vector<std::uint64_t>& shape, std::optional<Encoding> encoding) {
            new (self) RowWriter(path, dtype_named(dtype), shape, encoding);
          },
          "path"_a, "dtype"_a, "shape"_a, "encoding"_a.none(),
          "Creates the file. `encoding`: what of float32 the rows are, one without scales; or "
          "None.")
      .def("write", &RowWriter::write, "first"_a, "rows"_a, kWithoutGil,
           "Whole rows from `first` on, as their bytes.")
      .def("put", &RowWriter::put, "places"_a, "rows"_a, kWithoutGil,
           "Whole rows in any places, as their bytes; of equal places the last counts.")
      .def("finish", &RowWriter::finish, kWithoutGil,
           "Makes a column of it, once every row is written.")
      .def_prop_ro("first_missing", &RowWriter::first_missing,
                   "The first rows that are not written, [begin, end).");

  nb::class_<Topology>(m, "Topology", "An opened .gl file: CSC over one edge type.")
      .def_static("open", &Topology::open, "path"_a)
      .def_prop_ro("path", &Topology::path)
      .def_prop_ro("num_src", &Topology::num_src)
      .def_prop_ro("num_dst", &Topology::num_dst)
      .def_prop_ro("num_edges", &Topology::num_edges)
      .def_prop_ro("index_bytes", &Topology::index_bytes)
      .def_prop_ro("indptr_offset", &Topology::indptr_offset, "Where the array lies in the file.")
      .def_prop_ro("indices_offset", &Topology::indices_offset, "Likewise.")
      .def(
          "bounds",
          [](const Topology& t, std::uint64_t first, std::uint64_t last) {
            if (first > last || last > t.num_dst()) {
              throw std::out_of_range(text_of("bounds: found rows ", first, " to ", last,
                                              ", expected 0 <= first <= last <= ", t.num_dst()));
            }
            return fill_tensor(last - first + 1,
                               [&](std::int64_t* bounds) { t.read_bounds(first, last, bounds); });
          },
          "first"_a, "last"_a,
          "indptr[first … last], int64 [last - first + 1] in memory: numbers that rise from 0 to "
          "num_edges, or FormatError.")
      .def(
          "check_bounds", [](const Topology& t) { t.read_bounds(0, t.num_dst(), nullptr); },
          kWithoutGil, "Raises what bounds(0, num_dst) would.")
      .def(
          "destinations",
          [](const Topology& t, Int64Span slots) {
            return fill_tensor(slots.size(), [&](std::int64_t* nodes) {
              check_range("slots", "slot", slots, static_cast<std::int64_t>(t.num_edges()));
              t.find_destinations(slots, nodes);
            });
          },
          "slots"_a, "The rows whose neighbours these slots are, int64 [n].")
      .def(
          "write_bounds", [](const Topology& t, const std::string& path) { write_bounds(t, path); },
          "path"_a, kWithoutGil,
          "Writes a topology with these bounds, whose neighbours lie elsewhere.")
      .def("forget_pages", &Topology::forget_pages,
           "Lets go of what samplers have touched, until they touch it again: it no longer counts "
           "as this process's memory.")
      .def(
          "view",
          [](const Topology& t) {
            const std::shared_ptr<const Mapping> map = t.map_for_user();
            return std::pair(view_bytes(map, t.indptr_offset(), (t.num_dst() + 1) * 8),
                             view_bytes(map, t.indices_offset(), t.num_edges() * t.index_bytes()));
          },
          "The bytes of indptr (int64) and indices (uint32 or int64, see index_bytes) as uint8 "
          "tensors over a fresh copy-on-write map.");

  m.def(
      "is_mapped",
      [](std::uintptr_t address) {
        return !find_mapped(reinterpret_cast<const void*>(address)).path.empty();
      },
      "address"_a, "Whether memory at an address is a file of a store.");
  m.def(
      "will_need",
      [](std::uintptr_t address, std::uint64_t size) {
        will_need(reinterpret_cast<const void*>(address), size);
      },
      "address"_a, "size"_a,
      "Has the kernel begin to read these bytes of a mapped file of a store.", kWithoutGil);

  nb::class_<File>(m, "LockFile", "An exclusive advisory lock, held while the object lives.")
      .def_static("acquire", &File::lock, "path"_a)
      .def("is_in_place", &File::is_in_place, "Whether its path still names the file it is on.");

  nb::class_<BadBlock>(m, "BadBlock", "A checksummed block of a file that is not what it was.")
      .def_ro("block", &BadBlock::block, "Its number.")
      .def_ro("offset", &BadBlock::offset, "Where it lies in the file.")
      .def_ro("size", &BadBlock::size, "Bytes.")
      .def_ro("detail", &BadBlock::detail, "What is wrong with it.");
  m.def(
      "count_blocks",
      [](const std::string& path) {
        std::vector<BadBlock> bad;
        const std::uint64_t count = count_blocks(path, &bad);
        return std::pair(count, std::move(bad));
      },
      "path"_a, "Number of checksummed blocks, and what is wrong with the checksum table.");
  m.def(
      "verify_blocks",
      [](const std::string& path, std::uint64_t first, std::uint64_t count) {
        return without_gil([&] { return verify_blocks(path, first, count); });
      },
      "path"_a, "first"_a, "count"_a, "The bad ones among blocks [first, first + count).");
  m.def("sync_directory", &sync_directory, "path"_a);
  m.def(
      "publish_directory",
      [](const std::string& from_path, const std::string& to_path, bool replace) {
        publish_directory(from_path, to_path, replace);
      },
      "from_path"_a, "to_path"_a, "replace"_a, kWithoutGil);
}

}  // namespace gz::python
