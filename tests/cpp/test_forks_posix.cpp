// Forks while batches are made and files are read; what the environment says of readers.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "io/read_buffer.h"
#include "pipeline/fork_gate.h"
#include "pipeline_support.h"
#include "reader_support.h"
#include "scratch.h"

using namespace gz;
using namespace gz::test;

TEST(the_environment_chooses_a_reader) {
  ::setenv("GRAPHZERO_READER", "pool", 1);
  CHECK(AsyncReader::create({})->kind() == ReaderKind::kPool);
  ::setenv("GRAPHZERO_READER", "threads", 1);
  CHECK_THROWS(std::invalid_argument, "GRAPHZERO_READER: found 'threads', expected",
               AsyncReader::create({}));
  ::unsetenv("GRAPHZERO_READER");
  CHECK(AsyncReader::create({})->kind() == kinds().back());
}

TEST(reader_is_left_alone_by_a_forked_child) {
  const Scratch dir;
  const std::string bytes = make_file(dir / "f", 1 << 20);
  for (const ReaderKind kind : kinds()) {
    auto memory = std::make_unique<ReadBuffer>(1 << 20);
    auto reader = AsyncReader::create({kind, 8});
    reader->add_memory(memory->memory());
    const int number = reader->add_file(DirectFile::open(dir / "f"));
    std::vector<ReadRequest> requests;
    for (std::uint64_t i = 0; i < 256; ++i) {
      requests.push_back({number, i * 4096, 4096, memory->memory().data() + i * 4096, i});
    }
    reader->submit(requests);
    const pid_t child = ::fork();
    if (child == 0) {
      int refused = 0;
      std::array<Completion, 1> done;
      try {
        reader->submit(requests);
      } catch (const std::logic_error&) {
        ++refused;
      }
      try {
        reader->wait(done);
      } catch (const std::logic_error&) {
        ++refused;
      }
      reader->drain();
      reader.reset();
      memory.reset();
      ::_exit(refused == 2 ? 0 : 1);
    }
    int status = 1;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
    for (const Completion& done : finish(*reader, 256)) CHECK(!done.error);
    CHECK(std::memcmp(memory->memory().data(), bytes.data(), bytes.size()) == 0);
  }
}

TEST(a_loan_may_outlive_its_pipeline) {
  std::unique_ptr<Batch> batch;
  {
    Batches epoch(1, 1);
    epoch.add(doing([](std::uint64_t) {}), batch_request(0));
    batch = wait(epoch);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    batch.reset();
    ::_exit(0);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child && status == 0);
  batch.reset();
}

#if !defined(__SANITIZE_THREAD__)  // which cannot follow a fork of several threads
TEST(a_child_has_none_of_the_threads_and_all_of_the_memory) {
  const RingLoading loading;
  const Recycling recycling(true);
  Batches epoch(3, kPlenty);
  for (int round = 0; round < 20; ++round) {
    for (std::uint64_t key = 0; key < 8; ++key) epoch.add(loading.recipe, batch_request(key));
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);
      bool good = epoch.orphaned();
      const Batch expected = loading.inline_batch(3);  // no lock was left behind
      Batches own(2, kPlenty);
      own.add(loading.recipe, batch_request(3));
      good = good && !own.orphaned() && test::same(*wait(own), expected);
      epoch.close();
      own.close();
      ::_exit(good ? 0 : 1);
    }
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < 8; ++i) wait(epoch);
  }
}
#endif
