// base/: checksum, buffer, threads.
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arrays/buffer.h"
#include "arrays/parallel.h"
#include "base/errors.h"
#include "base/xxh64.h"
#include "check.h"

using namespace gz;

// Digests from the reference implementation (xxhash 0.8), for each branch of the algorithm.
TEST(xxh64_known_vectors) {
  const auto digest = [](const std::string& text) { return xxh64(text.data(), text.size()); };
  CHECK(digest("") == 0xEF46DB3751D8E999ULL);
  CHECK(digest("a") == 0xD24EC4F1A98C6E5BULL);
  CHECK(digest("abc") == 0x44BC2CF5AD770999ULL);
  CHECK(digest("abcdefgh") == 0x3AD351775B4634B7ULL);
  CHECK(digest("0123456789abcdefghijklmnopqrstu") == 0x80ADFC1D42020F39ULL);
  CHECK(digest("0123456789abcdefghijklmnopqrstuv") == 0xBF7C9DBE16B5C6E2ULL);
  CHECK(digest(std::string(1000, 'x')) == 0x4CB9A3B69CB700E1ULL);
}

TEST(xxh64_does_not_need_alignment) {
  std::vector<unsigned char> bytes(200);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  for (std::size_t shift = 0; shift < 8; ++shift) {
    std::vector<unsigned char> moved(208);
    std::memcpy(moved.data() + shift, bytes.data(), bytes.size());
    CHECK(xxh64(moved.data() + shift, bytes.size()) == xxh64(bytes.data(), bytes.size()));
  }
}

TEST(buffer_grows_and_keeps_its_contents) {
  Buffer<std::int64_t> buffer;
  CHECK(buffer.size() == 0 && buffer.data() == nullptr);
  for (std::int64_t i = 0; i < 1000; ++i) buffer.push_back(i * i);
  bool same = buffer.size() == 1000;
  for (std::int64_t i = 0; i < 1000; ++i) same = same && buffer[i] == i * i;
  CHECK(same);
  buffer.resize(10);
  CHECK(buffer.size() == 10 && buffer.capacity() >= 1000 && buffer[9] == 81);
  Buffer<std::int64_t> moved(std::move(buffer));
  CHECK(moved.size() == 10 && moved[3] == 9);
}

TEST(buffer_refuses_what_no_memory_holds) {
  Buffer<std::int64_t> buffer(4);
  CHECK_THROWS(std::bad_alloc, "", buffer.resize(INT64_MAX / 2));
  CHECK_THROWS(std::bad_alloc, "", buffer.reserve(INT64_MAX));
  CHECK(buffer.size() == 4);
}

TEST(parallel_for_covers_every_item_once) {
  for (const std::int64_t n : {0, 1, 7, 1000}) {
    for (const int threads : {1, 2, 4}) {
      std::vector<int> visits(static_cast<std::size_t>(n));
      parallel_for(n, 16, threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      CHECK(visits == std::vector<int>(static_cast<std::size_t>(n), 1));
    }
  }
}

TEST(parallel_for_rethrows_once) {
  for (const int threads : {1, 4}) {
    std::atomic<int> calls{0};
    CHECK_THROWS(std::out_of_range, "range 3",
                 parallel_for(100, 1, threads, [&](std::int64_t begin, std::int64_t) {
                   ++calls;
                   if (begin >= 3) throw std::out_of_range("range 3");
                 }));
    CHECK(calls >= 1 && calls <= 100);
  }
  // All threads may throw at the same time.
  CHECK_THROWS(FormatError, "f: x: found 1, expected 2",
               parallel_for(64, 1, 4, [](std::int64_t, std::int64_t) {
                 throw FormatError("f", "x", "1", "2");
               }));
}

TEST(errors_say_where) {
  const OsError os("cannot open", "/no/such", ENOENT);
  CHECK(std::string(os.what()) == "cannot open '/no/such': No such file or directory");
  CHECK(os.code() == ENOENT && os.path() == "/no/such");
  CHECK(hex(0xAB) == "0x00000000000000ab");
}
