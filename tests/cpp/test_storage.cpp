// io/ and storage/: what writers, names and published directories refuse; headers:
// tests/store/test_format.py.
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
#include "io/file.h"
#include "io/publish.h"
#include "scratch.h"
#include "storage/block_writer.h"
#include "storage/column.h"
#include "storage/topology.h"

using namespace gz;
using namespace gz::test;

namespace {

std::uint64_t size_of(const std::string& path) { return std::filesystem::file_size(path); }

}  // namespace

TEST(column_writer_checks_its_rows) {
  const Scratch dir;
  const float row[3] = {1, 2, 3};
  ColumnWriter writer(dir / "x.gd", *find_dtype("float32"), {2, 3});
  writer.append(row, sizeof row);
  CHECK_THROWS(std::invalid_argument, "expected a multiple of the row size 12",
               writer.append(row, 8));
  CHECK_THROWS(std::invalid_argument, "found 1 rows, expected 2", writer.finish());
  CHECK_THROWS(OsError, "File exists", ColumnWriter(dir / "x.gd", *find_dtype("bool"), {1}));
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

TEST(publishing_where_no_rename_replaces_a_directory) {
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
