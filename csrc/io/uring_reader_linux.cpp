// The reader over io_uring, by its kernel interface alone. No SQPOLL (its thread fights the
// engine's for cores), no IOPOLL (virtual disks have none). The man pages io_uring(7),
// io_uring_setup(2), io_uring_enter(2) and io_uring_register(2) say what the kernel promises.
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "base/chunk_sizes.h"
#include "base/errors.h"
#include "io/read_step.h"

namespace gz {
namespace {

constexpr const char* kName = "io_uring";

// Registered descriptors: two for each of the first files. Later ones are looked up by every read.
constexpr unsigned kFixedFiles = 64;  // places for them

unsigned fixed_files() { return std::min(kFixedFiles, chunk_sizes.fixed_files); }

int setup(unsigned entries, io_uring_params* params) {
  return static_cast<int>(::syscall(__NR_io_uring_setup, entries, params));
}
int enter(int ring, unsigned submit, unsigned complete, unsigned flags) {
  return static_cast<int>(
      ::syscall(__NR_io_uring_enter, ring, submit, complete, flags, nullptr, std::size_t{0}));
}
int enroll(int ring, unsigned what, const void* argument, unsigned count) {
  return static_cast<int>(::syscall(__NR_io_uring_register, ring, what, argument, count));
}

class UringReader final : public AsyncReader {
 public:
  explicit UringReader(int depth) {
    params_.flags = IORING_SETUP_CLAMP;
    ring_ = setup(std::bit_ceil(static_cast<unsigned>(depth)), &params_);
    if (ring_ < 0) throw OsError("cannot set up", kName, errno);
    try {
      // A kernel without these (before 5.6) has not the plain read either.
      constexpr unsigned kNeeded = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP;
      if ((params_.features & kNeeded) != kNeeded) throw OsError("cannot use", kName, ENOSYS);
      rings_bytes_ = std::max(params_.sq_off.array + params_.sq_entries * sizeof(unsigned),
                              params_.cq_off.cqes + params_.cq_entries * sizeof(io_uring_cqe));
      rings_ = map(rings_bytes_, IORING_OFF_SQ_RING);
      entries_ = static_cast<io_uring_sqe*>(
          map(params_.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
      for (unsigned i = 0; i < params_.sq_entries; ++i) at<unsigned>(params_.sq_off.array)[i] = i;
      check_operations();
      const std::vector<int> none(kFixedFiles, -1);
      if (enroll(ring_, IORING_REGISTER_FILES, none.data(), kFixedFiles) != 0) {
        throw OsError("cannot register files with", kName, errno);
      }
      const unsigned slots = std::min(static_cast<unsigned>(depth), params_.sq_entries);
      steps_.resize(slots);
      for (unsigned slot = slots; slot-- > 0;) free_slots_.push_back(slot);
    } catch (...) {
      close();
      throw;
    }
  }

  ~UringReader() override {
    if (!forked()) drain();
    close();
  }

  ReaderKind kind() const noexcept override { return ReaderKind::kUring; }

  bool add_memory(std::span<std::byte> memory) override {
    if (!fixed_memory_.empty()) return false;
    const iovec whole{memory.data(), memory.size()};
    if (enroll(ring_, IORING_REGISTER_BUFFERS, &whole, 1) != 0) return false;
    fixed_memory_ = memory;
    return true;
  }

 private:
  void file_added(int number) override {
    const auto first = 2 * static_cast<unsigned>(number);
    if (!fixed_files_ || first + 2 > fixed_files()) return;
    const int fds[2] = {static_cast<int>(file(number).buffered().handle()),
                        static_cast<int>(file(number).direct_handle())};
    io_uring_files_update update{};
    update.offset = first;
    update.fds = reinterpret_cast<std::uintptr_t>(fds);
    fixed_files_ = enroll(ring_, IORING_REGISTER_FILES_UPDATE, &update, 2) == 2;
  }

  void start(std::span<const ReadRequest> requests) override {
    queue_.insert(queue_.end(), requests.begin(), requests.end());
    fill();
    // Requests that the kernel did not take, for whatever reason, reap() offers again.
    if (unsent_ > 0) tell(0);
  }

  std::size_t reap(std::span<Completion> done) override {
    for (;;) {
      const std::size_t n = collect(done);
      fill();
      if (n > 0) {
        if (unsent_ > 0) tell(0);
        return n;
      }
      if (const int error = tell(1)) throw OsError("cannot wait for", kName, error);
    }
  }

  std::size_t drop_queued() override {
    const std::size_t dropped = queue_.size() + unsent_;
    queue_.clear();
    // The kernel looks at entries in io_uring_enter only.
    for (; unsent_ > 0; --unsent_) {
      free_slots_.push_back(static_cast<unsigned>(entry_at(--tail_).user_data));
    }
    return dropped;
  }

  void* map(std::size_t bytes, off_t at) {
    void* const mapped =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_, at);
    if (mapped == MAP_FAILED) throw OsError("cannot map", kName, errno);
    return mapped;
  }

  // That the ring could be made does not say that it works: a sandbox may know the call and little
  // else, or forbid io_uring_enter.
  void check_operations() {
    io_uring_sqe& entry = next_entry();
    entry.opcode = IORING_OP_READ;
    entry.fd = -1;
    const std::atomic_ref head(*at<unsigned>(params_.cq_off.head));
    const std::atomic_ref tail(*at<unsigned>(params_.cq_off.tail));
    while (tail.load(std::memory_order_acquire) == head.load(std::memory_order_relaxed)) {
      if (const int error = tell(1)) throw OsError("cannot wait for", kName, error);
    }
    // A read from no file fails for that reason, if the kernel knows reads.
    const io_uring_cqe& found = completion_at(head.load(std::memory_order_relaxed));
    if (found.res != -EBADF) throw OsError("cannot read with", kName, ENOSYS);
    head.fetch_add(1, std::memory_order_release);
  }

  void close() noexcept {
    // In a child the addresses may belong to something else by now: only the descriptor is its own.
    if (!forked()) {
      if (rings_ != nullptr) ::munmap(rings_, rings_bytes_);
      if (entries_ != nullptr) ::munmap(entries_, params_.sq_entries * sizeof(io_uring_sqe));
    }
    ::close(ring_);
  }

  template <class T>
  T* at(unsigned offset) const noexcept {
    return reinterpret_cast<T*>(static_cast<std::byte*>(rings_) + offset);
  }
  const io_uring_cqe& completion_at(unsigned number) const noexcept {
    return at<io_uring_cqe>(params_.cq_off.cqes)[number & (params_.cq_entries - 1)];
  }
  io_uring_sqe& entry_at(unsigned number) const noexcept {
    return entries_[number & (params_.sq_entries - 1)];
  }

  io_uring_sqe& next_entry() noexcept {
    io_uring_sqe& entry = entry_at(tail_++);
    std::memset(&entry, 0, sizeof entry);
    ++unsent_;
    return entry;
  }

  // Never more entries than slots, and never more slots than entries: there is always room.
  void push(unsigned slot) noexcept {
    const ReadStep& step = steps_[slot];
    io_uring_sqe& entry = next_entry();
    const std::byte* const memory_end = fixed_memory_.data() + fixed_memory_.size();
    const bool fixed = step.to() >= fixed_memory_.data() && step.to() + step.size() <= memory_end;
    entry.opcode = fixed ? IORING_OP_READ_FIXED : IORING_OP_READ;
    const auto registered = 2 * static_cast<unsigned>(step.file()) + (step.direct() ? 1 : 0);
    if (fixed_files_ && registered < fixed_files()) {
      entry.flags = IOSQE_FIXED_FILE;
      entry.fd = static_cast<int>(registered);
    } else {
      entry.fd = static_cast<int>(step.handle());
    }
    entry.off = step.offset();
    entry.addr = reinterpret_cast<std::uintptr_t>(step.to());
    entry.len = static_cast<unsigned>(step.size());
    entry.user_data = slot;
  }

  void fill() {
    while (!queue_.empty() && !free_slots_.empty()) {
      const unsigned slot = free_slots_.back();
      free_slots_.pop_back();
      steps_[slot] = ReadStep(queue_.front(), file(queue_.front().file));
      queue_.pop_front();
      push(slot);
    }
  }

  // Offers the entries pushed to the kernel and waits for `complete` completions, which may come
  // short. Returns 0, or the errno of a failure that asking again does not mend.
  int tell(unsigned complete) noexcept {
    std::atomic_ref(*at<unsigned>(params_.sq_off.tail)).store(tail_, std::memory_order_release);
    const int taken = enter(ring_, unsent_, complete, complete > 0 ? IORING_ENTER_GETEVENTS : 0);
    if (taken >= 0) unsent_ -= static_cast<unsigned>(taken);
    return taken >= 0 || errno == EINTR || errno == EAGAIN || errno == EBUSY ? 0 : errno;
  }

  std::size_t collect(std::span<Completion> done) {
    const std::atomic_ref head_of_ring(*at<unsigned>(params_.cq_off.head));
    const std::atomic_ref tail_of_ring(*at<unsigned>(params_.cq_off.tail));
    unsigned head = head_of_ring.load(std::memory_order_relaxed);
    const unsigned tail = tail_of_ring.load(std::memory_order_acquire);
    std::size_t n = 0;
    while (head != tail && n < done.size()) {
      const io_uring_cqe& found = completion_at(head);
      const auto slot = static_cast<unsigned>(found.user_data);
      if (steps_[slot].settle(found.res)) {
        done[n++] = steps_[slot].completion();
        free_slots_.push_back(slot);
      } else {
        push(slot);
      }
      ++head;
    }
    head_of_ring.store(head, std::memory_order_release);
    return n;
  }

  int ring_ = -1;
  io_uring_params params_{};
  void* rings_ = nullptr;
  std::size_t rings_bytes_ = 0;
  io_uring_sqe* entries_ = nullptr;
  unsigned tail_ = 0;    // entries pushed, ever
  unsigned unsent_ = 0;  // of those, what the kernel has not taken yet
  bool fixed_files_ = true;
  std::span<std::byte> fixed_memory_;

  std::vector<ReadStep> steps_;  // by slot
  std::vector<unsigned> free_slots_;
  std::deque<ReadRequest> queue_;  // what found no slot
};

}  // namespace

std::unique_ptr<AsyncReader> make_uring_reader(int depth) {
  return std::make_unique<UringReader>(depth);
}

}  // namespace gz
