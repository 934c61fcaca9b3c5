// One read on its way, call by call: what both readers do with what the kernel answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>

#include "io/async_reader.h"

namespace gz {

class ReadStep {
 public:
  ReadStep() = default;
  ReadStep(const ReadRequest& request, const DirectFile& file) : request_(request), file_(&file) {}

  // The next system call.
  bool direct() const noexcept;
  FileHandle handle() const noexcept {
    return direct() ? file_->direct_handle() : file_->buffered().handle();
  }
  std::byte* to() const noexcept { return request_.to + done_; }
  std::size_t size() const noexcept;
  std::uint64_t offset() const noexcept { return request_.offset + done_; }
  int file() const noexcept { return request_.file; }

  // Takes what the call returned, bytes or -errno. True when the read is over, false when there is
  // another call to make.
  bool settle(std::int64_t result);
  // REQUIRES: the read is over.
  Completion completion() const { return {request_.tag, all_direct_, error_}; }

 private:
  ReadRequest request_{};
  const DirectFile* file_ = nullptr;
  std::size_t done_ = 0;
  bool refused_ = false;  // the filesystem took direct reads when opening, but not this one
  bool all_direct_ = true;
  std::exception_ptr error_;
};

// The two readers. Raises OsError where the kernel does not let us have a ring.
std::unique_ptr<AsyncReader> make_uring_reader(int depth);
std::unique_ptr<AsyncReader> make_pool_reader(int threads);

}  // namespace gz
