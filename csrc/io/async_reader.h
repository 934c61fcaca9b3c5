// Many reads at once, from one thread, which keep a disk busy at its own queue depth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/direct_file.h"
#include "io/origin.h"

namespace gz {

enum class ReaderKind {
  kAuto,   // io_uring where the kernel lets us, else the pool; GRAPHZERO_READER=uring|pool decides
  kUring,  // io_uring, or an OsError that says why not
  kPool,   // threads that call pread
};

// "auto", "uring" or "pool". Raises std::invalid_argument, naming `where` it stands, for another.
ReaderKind reader_named(std::string_view name, const char* where);

struct ReaderOptions {
  ReaderKind kind = ReaderKind::kAuto;
  int depth = 128;  // reads under way at the same time
};

struct ReadRequest {
  int file;  // what add_file() returned
  std::uint64_t offset;
  std::size_t size;  // REQUIRES > 0
  std::byte* to;     // stays valid until the read is complete or the reader gone
  std::uint64_t tag;
};

struct Completion {
  std::uint64_t tag = 0;
  bool direct = false;       // every byte came past the page cache
  std::exception_ptr error;  // an OsError with the path and offset of this read; null: all is there
};

// Reads complete in any order; each on its own: an error belongs to its request alone. A read is
// complete when all its bytes are there: short reads are continued, EINTR and EAGAIN repeated. The
// end of the file before that is an error (EIO): the file was truncated.
//
// Thread safety: one thread at a time. After a fork the child may only destroy it.
class AsyncReader {
 public:
  static std::unique_ptr<AsyncReader> create(const ReaderOptions& options);

  AsyncReader(const AsyncReader&) = delete;
  AsyncReader& operator=(const AsyncReader&) = delete;
  // Forgets reads that have not been started and waits for the others: once the destructor returns,
  // no read writes to the memory of a request. (Not in a forked child: the reads are the parent's.)
  virtual ~AsyncReader() = default;

  virtual ReaderKind kind() const noexcept = 0;

  // The number of `file` in this reader's requests; the same file always has the same number. The
  // reader keeps it open.
  int add_file(const std::shared_ptr<const DirectFile>& file);

  // A hint that most reads will go to `memory`, which outlives the reader. False when the kernel
  // does not pin it (RLIMIT_MEMLOCK), which costs a little time with every read, nothing else.
  virtual bool add_memory(std::span<std::byte>) { return false; }

  // Starts reads, or queues them where `depth` are under way. Does not wait for any.
  void submit(std::span<const ReadRequest> requests);

  // Waits until a read is complete and returns those that are, at most done.size() of them; 0 when
  // none is under way.
  std::size_t wait(std::span<Completion> done);

  // Forgets what was not started, waits for the rest and drops the results.
  void drain() noexcept;

  // Reads submitted whose completion wait() has not returned yet.
  std::size_t under_way() const noexcept { return under_way_; }
  // True in a child of the process that made the reader.
  bool forked() const noexcept { return origin_.forked(); }

 protected:
  AsyncReader() = default;

  const DirectFile& file(int number) const { return *files_[static_cast<std::size_t>(number)]; }

 private:
  virtual void file_added(int) {}
  // Takes all requests or, by an exception, none.
  virtual void start(std::span<const ReadRequest> requests) = 0;
  // REQUIRES: something is under way. Blocks until it returns at least 1.
  virtual std::size_t reap(std::span<Completion> done) = 0;
  // Drops what was not handed to the kernel yet and returns how many.
  virtual std::size_t drop_queued() = 0;

  std::vector<std::shared_ptr<const DirectFile>> files_;
  std::size_t under_way_ = 0;
  Origin origin_;
};

// Why io_uring is not used in this process ("cannot set up 'io_uring': Operation not permitted"),
// or nothing where it is. Asks the kernel each time.
std::string uring_refusal();

}  // namespace gz
