// io/: files, by what Linux tells of its page cache.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "check.h"
#include "io/file.h"
#include "scratch.h"

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
