// io/ and storage/: writing, opening, damaging and verifying files; maps whose file goes away.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/errors.h"
#include "check.h"
#include "gather/gather.h"
#include "io/fault_guard.h"
#include "io/file.h"
#include "io/mapping.h"
#include "io/publish.h"
#include "scratch.h"
#include "storage/block_writer.h"
#include "storage/column.h"
#include "storage/topology.h"

using namespace gz;
using namespace gz::test;

namespace {

std::uint64_t size_of(const std::string& path) { return std::filesystem::file_size(path); }

// The header of `path` with one field changed, its hash made right again.
template <class Header, class T>
void forge(const std::string& path, std::size_t offset, T value) {
  Header header;
  unsigned char raw[kHeaderBytes];
  CHECK(File::open(path).read_at(raw, sizeof raw, 0) == sizeof raw);
  std::memcpy(raw + offset, &value, sizeof value);
  std::memcpy(&header, raw, sizeof header);
  const std::string fresh = path + ".forged";
  {
    File file = File::create(fresh);
    write_header(file, &header, sizeof header);
    std::memcpy(raw, &header, sizeof header);
  }
  unsigned char forged[kHeaderBytes];
  CHECK(File::open(fresh).read_at(forged, sizeof forged, 0) == sizeof forged);
  std::filesystem::remove(fresh);
  overwrite(path, 0, std::string(reinterpret_cast<char*>(forged), sizeof forged));
}

}  // namespace

TEST(column_round_trip) {
  const Scratch dir;
  write_column(dir / "x.gd", 1000, 125);
  const auto column = Column::open(dir / "x.gd");
  CHECK(column->dtype().name == "float32");
  CHECK(column->num_rows() == 1000 && column->row_bytes() == 500 && column->row_stride() == 512);
  const auto map = column->map(MapMode::kReadOnly);
  bool same = true;
  for (std::size_t row = 0; row < 1000; ++row) {
    float values[125];
    std::memcpy(values, map->data() + column->data_offset() + 512 * row, sizeof values);
    for (std::size_t i = 0; i < 125; ++i)
      same = same && values[i] == static_cast<float>(row * 125 + i);
  }
  CHECK(same);
}

TEST(column_writer_checks_its_rows) {
  const Scratch dir;
  const float row[3] = {1, 2, 3};
  ColumnWriter writer(dir / "x.gd", dtype_named("float32"), {2, 3});
  writer.append(row, sizeof row);
  CHECK_THROWS(std::invalid_argument, "expected a multiple of the row size 12",
               writer.append(row, 8));
  CHECK_THROWS(std::invalid_argument, "found 1 rows, expected 2", writer.finish());
  CHECK_THROWS(OsError, "File exists", ColumnWriter(dir / "x.gd", dtype_named("bool"), {1}));
  CHECK_THROWS(FormatError, "file size: found 0 bytes", Column::open(dir / "x.gd"));
}

TEST(column_row_stride) {
  CHECK(choose_row_stride(500, 4) == 512);
  CHECK(choose_row_stride(496, 4) == 496);
  CHECK(choose_row_stride(4092, 4) == 4096);
  CHECK(choose_row_stride(4096, 4) == 4096);
  CHECK(choose_row_stride(5000, 4) == 5000);
  CHECK(choose_row_stride(0, 4) == 0);
  CHECK(choose_row_stride(1, 1) == 1);
}

TEST(column_with_a_forged_header) {
  const Scratch dir;
  const std::string path = dir / "x.gd";
  using H = ColumnHeader;
  for (const std::size_t field :
       {offsetof(H, common.version), offsetof(H, common.byte_order), offsetof(H, common.file_bytes),
        offsetof(H, common.header_bytes), offsetof(H, common.section_alignment),
        offsetof(H, common.block_bytes), offsetof(H, common.checksums_offset),
        offsetof(H, common.num_blocks), offsetof(H, dtype), offsetof(H, encoding),
        offsetof(H, num_dims), offsetof(H, shape), offsetof(H, shape) + 8, offsetof(H, row_bytes),
        offsetof(H, row_stride), offsetof(H, data_offset), offsetof(H, data_bytes)}) {
    write_column(path, 10, 4);
    forge<H>(path, field, 0xDEADBEEFU);
    CHECK_THROWS(FormatError, "x.gd: ", Column::open(path));
    std::filesystem::remove(path);
  }
  write_column(path, 10, 4);
  forge<H>(path, offsetof(H, num_dims), std::uint32_t{9});
  CHECK_THROWS(FormatError, "num_dims: found 9, expected at most 8", Column::open(path));
}

TEST(topology_round_trip) {
  const Scratch dir;
  write_ring(dir / "t.gl", 100, 3);
  const auto topology = Topology::open(dir / "t.gl");
  CHECK(topology->num_src() == 100 && topology->num_dst() == 100 && topology->num_edges() == 300);
  CHECK(topology->index_bytes() == 4);
  CHECK(topology->indptr()[100] == 300);
  CHECK(static_cast<const std::uint32_t*>(topology->indices())[299] == 2);
  topology->forget_pages();
  CHECK(topology->indptr()[100] == 300);
  CHECK(index_bytes_for(1ULL << 32) == 4 && index_bytes_for((1ULL << 32) + 1) == 8);
}

TEST(topology_without_edges_or_nodes) {
  const Scratch dir;
  const std::int64_t zero = 0;
  TopologyWriter writer(dir / "t.gl", 0, 0);
  writer.append_indptr(&zero, 1);
  writer.finish();
  CHECK(Topology::open(dir / "t.gl")->num_edges() == 0);
}

TEST(topology_writer_checks_its_counts) {
  const Scratch dir;
  const std::int64_t indptr[2] = {0, 1};
  TopologyWriter writer(dir / "t.gl", 5, 2);
  writer.append_indptr(indptr, 2);
  CHECK_THROWS(std::invalid_argument, "indptr: found 2 values, expected 3", writer.finish());
}

TEST(file_errors_name_the_path) {
  const Scratch dir;
  CHECK_THROWS(OsError, "cannot open '" + (dir / "no") + "': No such file", File::open(dir / "no"));
  CHECK_THROWS(OsError, "Is a directory", File::open(dir / ""));
  const File held = File::lock(dir / "lock");
  CHECK_THROWS(OsError, "cannot lock '" + (dir / "lock"), File::lock(dir / "lock"));
}

TEST(a_file_knows_whether_it_is_in_place) {
  const Scratch dir;
  const File file = File::lock(dir / "lock");
  CHECK(file.is_in_place());
  std::filesystem::rename(dir / "lock", dir / "moved");
  CHECK(!file.is_in_place());
  File::create(dir / "lock");
  CHECK(!file.is_in_place());
}

TEST(temporary_files_are_gone_when_closed) {
  const Scratch dir;
  {
    File file = File::temporary(dir / "t");
    file.write_at("abc", 3, 0);
    char back[3];
    CHECK(file.read_at(back, 3, 0) == 3 && std::memcmp(back, "abc", 3) == 0);
  }
  CHECK(std::filesystem::is_empty(dir / ""));
  CHECK_THROWS(OsError, "No such file", File::temporary(dir / "no/t"));
}

void check_publishing(RenameInOneStep rename) {
  const Scratch dir;
  for (const char* name : {"new", "old", "newer"}) {
    std::filesystem::create_directory(dir / name);
    write_column(dir / (std::string(name) + "/x.gd"), 1, 1);
    File::create(dir / (std::string(name) + "/" + name));
  }
  CHECK_THROWS(OsError, "File exists", publish_directory(dir / "new", dir / "old", false, rename));
  CHECK(std::filesystem::exists(dir / "old/old") && std::filesystem::exists(dir / "new/new"));
  publish_directory(dir / "new", dir / "store", false, rename);
  CHECK(std::filesystem::exists(dir / "store/new") && !std::filesystem::exists(dir / "new"));
  publish_directory(dir / "newer", dir / "store", true, rename);
  CHECK(std::filesystem::exists(dir / "newer/new") && std::filesystem::exists(dir / "store/newer"));
  CHECK_THROWS(OsError, "cannot", publish_directory(dir / "no", dir / "store", true, rename));
  CHECK(std::filesystem::exists(dir / "store/newer"));
}

TEST(publishing_is_all_or_nothing) { check_publishing(rename_in_one_step); }

TEST(x) {
  const RenameInOneStep refuses = [](const char*, const char*, Renaming) {
    errno = EINVAL;
    return -1;
  };
  check_publishing(refuses);
  // A store that a kill left aside is in the way, and stays.
  const Scratch dir;
  for (const char* name : {"new", "store", "store.replaced"}) {
    std::filesystem::create_directory(dir / name);
    File::create(dir / (std::string(name) + "/x"));
  }
  CHECK_THROWS(OsError, "cannot move",
               publish_directory(dir / "new", dir / "store", true, refuses));
  for (const char* name : {"new/x", "store/x", "store.replaced/x"}) {
    CHECK(std::filesystem::exists(dir / name));
  }
}

TEST(gather_checks_its_index) {
  const std::int32_t column[3] = {1, 0, 2};
  const std::int32_t wrong[3] = {0, -1, INT32_MAX};
  const auto* const bytes = reinterpret_cast<const std::byte*>(column);
  std::int64_t out[3] = {};
  const std::vector<std::int64_t> good{2, 0, 1}, negative{0, -1}, beyond{0, 1, 3};
  const RowTable ids{bytes, 3, 4, 4};
  check_id_column(ids);
  gather_ids(ids, ids, good, out, 1);
  CHECK(out[0] == 2 && out[1] == 1 && out[2] == 0);
  CHECK_THROWS(std::out_of_range, "index[1]: found row -1, expected 0 <= row < 3",
               gather_ids(ids, ids, negative, out, 1));
  CHECK_THROWS(std::out_of_range, "index[2]: found row 3", gather_ids(ids, ids, beyond, out, 1));
  const RowTable damaged{reinterpret_cast<const std::byte*>(wrong), 3, 4, 4};
  CHECK_THROWS(FormatError, "found 2147483647, expected 0 <= id < 3",
               gather_ids(damaged, damaged, good, out, 1));
  const std::vector<std::int64_t> second{1};
  CHECK_THROWS(FormatError, "found -1, expected 0 <= id < 3",
               gather_ids(damaged, damaged, second, out, 1));
  CHECK_THROWS(std::invalid_argument, "items of 2 bytes", check_id_column({bytes, 3, 2, 2}));
  CHECK_THROWS(std::invalid_argument, "contiguous items", check_id_column({bytes, 3, 4, 8}));
}
