#include "io/async_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "io/read_step.h"

namespace gz {
namespace {

// More threads than this wait for each other rather than for the disk.
constexpr int kMaxPoolThreads = 64;

ReaderKind kind_from_environment() {
  const char* const wanted = std::getenv("GRAPHZERO_READER");
  if (wanted == nullptr || *wanted == '\0') return ReaderKind::kAuto;
  return reader_named(wanted, "GRAPHZERO_READER");
}

}  // namespace

ReaderKind reader_named(std::string_view name, const char* where) {
  if (name == "auto") return ReaderKind::kAuto;
  if (name == "uring") return ReaderKind::kUring;
  if (name == "pool") return ReaderKind::kPool;
  throw invalid(where, ": found '", name, "', expected 'auto', 'uring' or 'pool'");
}

bool ReadStep::direct() const noexcept {
  return !refused_ && file_->takes_direct(offset(), request_.size - done_, to());
}

// Linux reads at most 2 GiB less a page in one call, and io_uring counts in 32 bits.
std::size_t ReadStep::size() const noexcept {
  return std::min(request_.size - done_, chunk_sizes.call_bytes);
}

bool ReadStep::settle(std::int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return false;
  if (result == -EINVAL && direct()) {
    refused_ = true;
    return false;
  }
  if (result <= 0) {
    const std::string place =
        text_of("cannot read ", request_.size - done_, " bytes at offset ", offset(), " of");
    error_ = std::make_exception_ptr(
        result < 0 ? OsError(place, file_->path(), static_cast<int>(-result))
                   : OsError(text_of("the file was truncated: ", place), file_->path(), EIO));
    return true;
  }
  all_direct_ = all_direct_ && direct();
  done_ += static_cast<std::size_t>(result);
  return done_ == request_.size;
}

std::unique_ptr<AsyncReader> AsyncReader::create(const ReaderOptions& options) {
  if (options.depth < 1) {
    throw invalid("depth: found ", options.depth, ", expected at least 1");
  }
  const ReaderKind kind =
      options.kind == ReaderKind::kAuto ? kind_from_environment() : options.kind;
  if (kind == ReaderKind::kUring) return make_uring_reader(options.depth);
  if (kind == ReaderKind::kAuto) {
    try {
      return make_uring_reader(options.depth);
    } catch (const OsError&) {
      // Absent (old kernels), forbidden (seccomp, sysctl) or out of locked memory: uring_refusal()
      // tells whoever asks.
    }
  }
  return make_pool_reader(std::min(options.depth, kMaxPoolThreads));
}

std::string uring_refusal() {
  try {
    make_uring_reader(1);
    return {};
  } catch (const OsError& refused) {
    return refused.what();
  }
}

int AsyncReader::add_file(const std::shared_ptr<const DirectFile>& file) {
  const auto known = std::find(files_.begin(), files_.end(), file);
  const auto number = static_cast<int>(known - files_.begin());
  if (known == files_.end()) {
    files_.push_back(file);
    file_added(number);
  }
  return number;
}

void AsyncReader::submit(std::span<const ReadRequest> requests) {
  if (forked()) throw std::logic_error("a forked child uses its parent's reader");
  for (const ReadRequest& request : requests) {
    if (request.size == 0) throw invalid("found a read of 0 bytes, expected more");
    if (request.file < 0 || static_cast<std::size_t>(request.file) >= files_.size()) {
      throw std::out_of_range(
          text_of("found file ", request.file, ", expected what add_file() returned"));
    }
  }
  start(requests);
  under_way_ += requests.size();
}

std::size_t AsyncReader::wait(std::span<Completion> done) {
  if (under_way_ == 0 || done.empty()) return 0;
  if (forked()) throw std::logic_error("a forked child uses its parent's reader");
  const std::size_t complete = reap(done);
  under_way_ -= complete;
  return complete;
}

void AsyncReader::drain() noexcept {
  if (forked()) return;
  under_way_ -= drop_queued();
  std::array<Completion, 16> dropped;
  while (under_way_ > 0) {
    try {
      wait(dropped);
    } catch (...) {
      std::this_thread::yield();  // the kernel is writing still: there is nothing to do but ask
                                  // again
    }
  }
}

}  // namespace gz
