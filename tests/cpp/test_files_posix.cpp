// io/: files that are none; maps whose file is truncated.
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "check.h"
#include "gather/gather.h"
#include "io/fault_guard.h"
#include "io/file.h"
#include "io/mapping.h"
#include "scratch.h"
#include "storage/column.h"

using namespace gz;
using namespace gz::test;

namespace {

void cut(const std::string& path, std::uint64_t size) { std::filesystem::resize_file(path, size); }

}  // namespace

TEST(files_that_are_none) {
  const Scratch dir;
  const std::string fifo = dir / "fifo", link = dir / "link", file = dir / "file";
  CHECK(::mkfifo(fifo.c_str(), 0600) == 0);
  File::create(file);
  std::filesystem::create_symlink(file, link);
  CHECK_THROWS(FormatError, "found a FIFO, expected a regular file", File::open(fifo));
  CHECK_THROWS(FormatError, "found a FIFO", File::lock(fifo));
  CHECK_THROWS(FormatError, "found a device", File::open("/dev/null"));
  CHECK(File::open(link).size() == 0);  // reading may follow links, writing not
  CHECK_THROWS(FormatError, "found a symbolic link", File::lock(link));
}

TEST(temporary_files_have_no_name) {
  const Scratch dir;
  const File file = File::temporary(dir / "t");
  CHECK(std::filesystem::is_empty(dir / ""));
}

TEST(a_file_truncated_under_its_map) {
  const Scratch dir;
  const std::string path = dir / "x.gd";
  write_column(path, 100'000, 4);
  const auto map = Column::open(path)->map(MapMode::kReadOnly);
  cut(path, 8192);
  const auto read = [&](std::size_t at) {
    volatile std::byte seen{};
    guarded([&] { seen = map->data()[at]; });
  };
  read(5000);
  for (int again = 0; again < 3; ++again) {
    CHECK_THROWS(OsError, "cannot read offset 70000 of '" + path + "'", read(70'000));
  }
  const RowTable rows{map->data() + kHeaderBytes, 100'000, 16, 16};
  std::vector<std::int64_t> index(100'000);
  for (std::size_t i = 0; i < index.size(); ++i) index[i] = static_cast<std::int64_t>(i);
  std::vector<std::byte> out(index.size() * 16);
  for (const int threads : {1, 4}) {
    CHECK_THROWS(OsError, "was truncated", gather_rows(rows, index, out.data(), threads));
  }
  gather_rows(rows, std::span(index).first(256), out.data(), 1);
}

TEST(guards_nest_and_are_per_thread) {
  const Scratch dir;
  write_column(dir / "x.gd", 100'000, 4);
  const auto map = Column::open(dir / "x.gd")->map(MapMode::kCopyOnWrite);
  CHECK(map->writable());
  cut(dir / "x.gd", 0);
  const auto fault = [&](std::size_t at) {
    volatile std::byte seen{};
    guarded([&] { seen = map->data()[at]; });
  };
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 50; ++i) {
        CHECK_THROWS(OsError, "x.gd", fault(4096 * (50 * t + i)));
        guarded([&] { CHECK_THROWS(OsError, "x.gd", fault(4096 * i)); });
      }
    });
  }
  threads.clear();
  // An exception of the body's own passes through.
  CHECK_THROWS(std::out_of_range, "mine", guarded([] { throw std::out_of_range("mine"); }));
}
