// io/: asynchronous reads, by io_uring and by the pool alike, their buffers, and the disk probe.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "check.h"
#include "io/async_reader.h"
#include "io/direct_file.h"
#include "io/probe.h"
#include "io/read_buffer.h"
#include "io/read_step.h"
#include "reader_support.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;

namespace {

std::string message_of(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const OsError& os) {
    return os.what();
  }
}

std::byte* aligned(std::vector<std::byte>& memory) {
  const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (4096 - at % 4096) % 4096;
}

}  // namespace

TEST(reader_kinds) {
  for (const ReaderKind kind : kinds()) CHECK(AsyncReader::create({kind, 4})->kind() == kind);
  CHECK_THROWS(std::invalid_argument, "depth: found 0", AsyncReader::create({.depth = 0}));
}

// Aligned and not, in the middle and at the end, many more than fit the queue.
TEST(reader_reads_what_is_there) {
  const Scratch dir;
  for (const std::size_t size : {1UL, 511UL, 4096UL, 100'003UL, 3'000'000UL}) {
    const std::string path = dir / ("f" + std::to_string(size));
    const std::string bytes = make_file(path, size);
    for (const ReaderKind kind : kinds()) {
      for (const int depth : {1, 3, 128}) {
        const auto reader = AsyncReader::create({kind, depth});
        const int direct = reader->add_file(DirectFile::open(path));
        const int cached = reader->add_file(DirectFile::open(path, false));
        std::mt19937_64 random(size);
        std::vector<std::byte> memory(6 << 20);
        std::byte* to = aligned(memory);
        reader->add_memory({to, 1 << 20});  // some reads go there, some do not
        std::vector<ReadRequest> requests;
        for (std::uint64_t tag = 0; tag < 300; ++tag) {
          std::uint64_t offset = random() % size;
          std::size_t length = 1 + random() % std::min<std::uint64_t>(size - offset, 12'000);
          if (tag % 2 == 0) {
            offset = offset / 512 * 512;
            length = std::min<std::size_t>((length + 511) / 512 * 512, size - offset);
          }
          requests.push_back({tag % 3 == 0 ? cached : direct, offset, length, to, tag});
          to += (length + 511) / 512 * 512;
        }
        for (std::size_t at = 0; at < requests.size(); at += 100) {
          reader->submit(std::span(requests).subspan(at, 100));
        }
        const auto found = finish(*reader, requests.size());
        bool same = true;
        for (const ReadRequest& r : requests) {
          same = same && !found[r.tag].error &&
                 std::memcmp(r.to, bytes.data() + r.offset, r.size) == 0 &&
                 (r.file == direct || !found[r.tag].direct);
        }
        CHECK(same);
      }
    }
  }
}

TEST(reader_says_what_went_past_the_page_cache) {
  const Scratch dir;
  make_file(dir / "f", 10'000);
  const auto file = DirectFile::open(dir / "f");
  if (!file->direct()) return;  // a scratch directory in memory
  CHECK(file->alignment() > 1);
  std::vector<std::byte> memory(3 * 4096);
  for (const ReaderKind kind : kinds()) {
    const auto reader = AsyncReader::create({kind, 4});
    const int number = reader->add_file(file);
    CHECK(reader->add_file(file) == number);
    const std::vector<ReadRequest> requests{{number, 4096, 4096, aligned(memory), 0},
                                            {number, 4097, 4096, aligned(memory) + 4096, 1}};
    reader->submit(requests);
    const auto found = finish(*reader, 2);
    CHECK(found[0].direct && !found[1].direct);
  }
}

TEST(reader_gives_an_error_to_the_read_it_belongs_to) {
  if (needs("linux", "/proc/self/mem is a file with holes that fail")) return;
  const Scratch dir;
  const std::string path = dir / "f";
  const std::string bytes = make_file(path, 20'000);
  for (const ReaderKind kind : kinds()) {
    const auto reader = AsyncReader::create({kind, 2});
    const int cut = reader->add_file(DirectFile::open(path));
    // A file with holes that fail: this process's memory, where nothing is mapped at 0.
    const int broken = reader->add_file(DirectFile::open("/proc/self/mem", false));
    std::vector<std::byte> memory(8 * 4096);
    std::byte* const to = aligned(memory);
    const auto here = reinterpret_cast<std::uintptr_t>(bytes.data());
    const std::vector<ReadRequest> requests{
        {cut, 16'384, 4096, to, 0},        {cut, 40'960, 4096, to + 4096, 1},
        {broken, 4096, 512, to + 8192, 2}, {broken, here, 512, to + 12'288, 3},
        {cut, 8192, 4096, to + 16'384, 4}, {cut, 19'999, 2, to + 20'480, 5},
    };
    reader->submit(requests);
    const auto found = finish(*reader, requests.size());
    // The message names the first missing byte, however the bytes before it were read.
    const std::string end = "the file was truncated: cannot read 480 bytes at offset 20000 of '";
    CHECK(message_of(found[0].error) == end + path + "': Input/output error");
    CHECK(message_of(found[1].error).find("truncated: cannot read 4096 bytes at offset 40960") !=
          std::string::npos);
    CHECK(message_of(found[2].error) ==
          "cannot read 512 bytes at offset 4096 of '/proc/self/mem': Input/output error");
    CHECK(!found[3].error && std::memcmp(requests[3].to, bytes.data(), 512) == 0);
    CHECK(!found[4].error && std::memcmp(requests[4].to, bytes.data() + 8192, 4096) == 0);
    CHECK(message_of(found[5].error).find("cannot read 1 bytes at offset 20000") !=
          std::string::npos);
  }
}

TEST(reader_takes_many_files) {
  const Scratch dir;
  const std::string bytes = make_file(dir / "f", 70 * 4096);
  for (const ReaderKind kind : kinds()) {
    const auto reader = AsyncReader::create({kind, 16});
    ReadBuffer memory(70 * 4096);
    std::vector<ReadRequest> requests;
    for (std::uint64_t i = 0; i < 70; ++i) {
      const int number = reader->add_file(DirectFile::open(dir / "f", i % 3 != 0));
      CHECK(number == static_cast<int>(i));
      requests.push_back({number, i * 4096, 4096, memory.memory().data() + i * 4096, i});
    }
    reader->submit(requests);
    for (const Completion& done : finish(*reader, 70)) CHECK(!done.error);
    CHECK(std::memcmp(memory.memory().data(), bytes.data(), bytes.size()) == 0);
  }
}

TEST(reader_refuses_what_is_no_read) {
  const Scratch dir;
  make_file(dir / "f", 1);
  for (const ReaderKind kind : kinds()) {
    const auto reader = AsyncReader::create({kind, 2});
    std::byte to;
    const std::vector<ReadRequest> unknown{{0, 0, 1, &to, 0}};
    CHECK_THROWS(std::out_of_range, "found file 0", reader->submit(unknown));
    const int number = reader->add_file(DirectFile::open(dir / "f", false));
    const std::vector<ReadRequest> empty{{number, 0, 0, &to, 0}};
    CHECK_THROWS(std::invalid_argument, "a read of 0 bytes", reader->submit(empty));
    std::array<Completion, 1> done;
    CHECK(reader->wait(done) == 0);
  }
}

// Nothing may be written to memory that its owner has taken back.
TEST(reader_leaves_nothing_under_way) {
  const Scratch dir;
  make_file(dir / "f", 8 << 20);
  const auto file = DirectFile::open(dir / "f");
  for (const ReaderKind kind : kinds()) {
    for (const bool drained : {false, true}) {
      auto memory = std::make_unique<ReadBuffer>(8 << 20);
      auto reader = AsyncReader::create({kind, 16});
      const int number = reader->add_file(file);
      std::vector<ReadRequest> requests;
      for (std::uint64_t i = 0; i < 2048; ++i) {
        requests.push_back({number, i * 4096, 4096, memory->memory().data() + i * 4096, i});
      }
      reader->submit(requests);
      if (drained) {
        reader->drain();
        CHECK(reader->under_way() == 0);
        reader->submit(std::span(requests).first(10));
        for (const Completion& done : finish(*reader, 10)) CHECK(!done.error);
      }
      reader.reset();
      memory.reset();  // a write of the kernel's would have nowhere to go from here
    }
  }
}

// Answers of the kernel that are allowed and rare.
TEST(reader_takes_every_answer) {
  const Scratch dir;
  make_file(dir / "f", 1 << 20);
  const auto file = DirectFile::open(dir / "f");
  std::vector<std::byte> memory(5 * 4096);
  std::byte* const to = aligned(memory);
  {
    ReadStep step({0, 8192, 16'384, to, 7}, *file);
    CHECK(step.direct() == file->direct());
    CHECK(!step.settle(-EINTR) && !step.settle(-EAGAIN) && !step.settle(4096));
    CHECK(step.offset() == 12'288 &&
          step.size() == std::min<std::size_t>(12'288, chunk_sizes.call_bytes) &&
          step.to() == to + 4096);
    CHECK(!step.settle(100) && step.offset() == 12'388 && !step.direct());
    CHECK(step.settle(12'188));
    CHECK(step.completion().tag == 7 && !step.completion().direct && !step.completion().error);
  }
  {
    ReadStep step({0, 0, 4096, to, 0}, *file);
    CHECK(!step.settle(4095) && step.settle(-EIO));
    CHECK(message_of(step.completion().error).find("cannot read 1 bytes at offset 4095 of") == 0);
  }
  {
    ReadStep step({0, 0, 4096, to, 0}, *file);
    CHECK(step.settle(0));
    CHECK(message_of(step.completion().error).find("the file was truncated: ") == 0);
  }
  if (file->direct()) {  // opened with O_DIRECT, but the read is refused: through the page cache
    ReadStep step({0, 0, 4096, to, 0}, *file);
    CHECK(step.handle() == file->direct_handle() && !step.settle(-EINVAL));
    CHECK(step.handle() == file->buffered().handle() && step.settle(4096) &&
          !step.completion().error);
  }
  {
    ReadStep step({0, 1, 4096, to, 0}, *file);
    CHECK(!step.direct() && step.settle(-EINVAL) && step.completion().error);
  }
  {
    ReadStep step({0, 0, std::size_t{5} << 30, to, 0}, *file);  // more than one call may read
    CHECK(step.size() == chunk_sizes.call_bytes);
  }
}

TEST(direct_file_is_the_file_that_was_opened) {
  const Scratch dir;
  const std::string first = make_file(dir / "f", 4096);
  const auto open = std::make_shared<const File>(File::open(dir / "f"));
  std::filesystem::rename(dir / "f", dir / "old");
  make_file(dir / "f", 8192);
  const auto file = DirectFile::of(open);
  CHECK(file->size() == 4096 && file->path() == open->path());
  std::vector<std::byte> memory(2 * 4096);
  for (const ReaderKind kind : kinds()) {
    const auto reader = AsyncReader::create({kind, 1});
    const std::vector<ReadRequest> whole{{reader->add_file(file), 0, 4096, aligned(memory), 0}};
    reader->submit(whole);
    CHECK(!finish(*reader, 1)[0].error);
    CHECK(std::memcmp(aligned(memory), first.data(), 4096) == 0);
  }
  CHECK_THROWS(OsError, "No such file", DirectFile::open(dir / "none"));
}

TEST(read_buffer_hands_out_what_is_free) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    ReadBuffer buffer(1 + random() % 200'000);
    const std::size_t capacity = buffer.memory().size();
    struct Used {
      std::byte* data;
      std::size_t size;
      std::uint64_t ticket;
    };
    std::vector<Used> used;
    bool good = true;
    for (int step = 0; step < 2000; ++step) {
      const std::size_t size = 1 + random() % (capacity / (random() % 2 == 0 ? 1 : 8) + 1);
      const ReadBuffer::Piece piece = buffer.take(std::min(size, capacity));
      if (piece.data != nullptr) {
        const Used now{piece.data, std::min(size, capacity), piece.ticket};
        good = good && reinterpret_cast<std::uintptr_t>(now.data) % 4096 == 0 &&
               now.data >= buffer.memory().data() &&
               now.data + now.size <= buffer.memory().data() + capacity;
        for (const Used& other : used) {
          good = good && (now.data + now.size <= other.data || other.data + other.size <= now.data);
        }
        used.push_back(now);
      } else {
        good = good && !used.empty();  // an empty buffer has room for anything that fits
      }
      while (!used.empty() && random() % 3 != 0) {
        const std::size_t which = random() % std::min<std::size_t>(used.size(), 4);
        buffer.give_back(used[which].ticket);
        used.erase(used.begin() + static_cast<std::ptrdiff_t>(which));
      }
    }
    CHECK(good);
    CHECK(used.empty() || buffer.take(capacity).data == nullptr);
    buffer.clear();
    CHECK(buffer.take(capacity).data == buffer.memory().data());
  }
}
