// io/: files, by what Linux tells of its page cache.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "check.h"
#include "io/file.h"
#include "scratch.h"
#include "storage/topology.h"

using namespace gz;
using namespace gz::test;

namespace {

// How many pages of a file are in the page cache.
std::size_t cached_pages(const File& file, std::size_t size) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const map =
      ::mmap(nullptr, size, PROT_READ, MAP_SHARED, static_cast<int>(file.handle()), 0);
  if (map == MAP_FAILED) return 0;
  std::vector<unsigned char> pages(size / page);
  ::mincore(map, size, pages.data());
  ::munmap(map, size);
  return static_cast<std::size_t>(
      std::ranges::count_if(pages, [](unsigned char each) { return (each & 1) != 0; }));
}

}  // namespace

TEST(asking_for_no_bytes_reads_none) {
  const Scratch dir;
  const std::vector<char> bytes(4 << 20, 'x');
  File file = File::create(dir / "f");
  file.write_at(bytes.data(), bytes.size(), 0);
  file.sync();
  ::posix_fadvise(static_cast<int>(file.handle()), 0, 0, POSIX_FADV_DONTNEED);
  if (cached_pages(file, bytes.size()) > 0) return;  // a filesystem that has nothing but memory
  file.will_need(0, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(cached_pages(file, bytes.size()) == 0);
  file.will_need(1 << 20, 1 << 20);
  while (cached_pages(file, bytes.size()) < (1 << 20) / 4096) std::this_thread::yield();
}

TEST(bounds_are_not_read_page_by_page) {
  const Scratch dir;
  // Files of this size are mapped without read-ahead.
  const std::vector<std::int64_t> indptr(std::size_t{9} << 20);
  TopologyWriter writer(dir / "t.gl", 0, indptr.size() - 1);
  writer.append_indptr(indptr.data(), indptr.size());
  writer.finish();
  const File file = File::open(dir / "t.gl");
  ::posix_fadvise(static_cast<int>(file.handle()), 0, 0, POSIX_FADV_DONTNEED);
  const auto faults = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_majflt;
  };
  const long before = faults();
  Topology::open(dir / "t.gl")->read_bounds(0, indptr.size() - 1, nullptr);
  CHECK(faults() - before < 4000);  // of 18,432 pages
}
