// The reader for where io_uring is not to be had: threads, each in one read at a time.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "io/process.h"
#include "io/read_step.h"

namespace gz {
namespace {

// State that the threads share; in a forked child it is leaked, for its mutex may be held for ever.
struct Shared {
  std::mutex mutex;
  std::condition_variable work, finished;
  std::deque<ReadStep> queue;
  std::deque<Completion> done;
  bool stopping = false;
  std::vector<std::thread> threads;

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      work.wait(lock, [&] { return stopping || !queue.empty(); });
      if (stopping) return;
      ReadStep step = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      for (bool over = false; !over;) {
        over = step.settle(read_some(step.handle(), step.to(), step.size(), step.offset()));
      }
      lock.lock();
      done.push_back(step.completion());
      finished.notify_one();
    }
  }
};

class PoolReader final : public AsyncReader {
 public:
  explicit PoolReader(int threads) : max_threads_(static_cast<std::size_t>(threads)) {}

  ~PoolReader() override {
    if (forked()) {
      static_cast<void>(shared_.release());
      return;
    }
    drain();
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->stopping = true;
    }
    shared_->work.notify_all();
    for (std::thread& thread : shared_->threads) thread.join();
  }

  ReaderKind kind() const noexcept override { return ReaderKind::kPool; }

 private:
  void start(std::span<const ReadRequest> requests) override {
    grow(under_way() + requests.size());
    const std::lock_guard lock(shared_->mutex);
    for (const ReadRequest& request : requests) {
      shared_->queue.emplace_back(request, file(request.file));
      shared_->work.notify_one();
    }
  }

  // Starts threads up to the number of reads to serve: a small number of large reads needs few.
  void grow(std::size_t reads) {
    const std::size_t wanted = std::min(reads, max_threads_);
    if (shared_->threads.size() >= wanted) return;
    try {
      shared_->threads.reserve(wanted);
      while (shared_->threads.size() < wanted) {
        shared_->threads.push_back(start_thread([shared = shared_.get()] { shared->serve(); }));
      }
    } catch (const std::system_error&) {
      // The container gives no more threads: those that are there do the work, only slower.
      if (shared_->threads.empty()) throw;
      max_threads_ = shared_->threads.size();
    }
  }

  std::size_t reap(std::span<Completion> done) override {
    std::unique_lock lock(shared_->mutex);
    shared_->finished.wait(lock, [&] { return !shared_->done.empty(); });
    std::size_t n = 0;
    for (; n < done.size() && !shared_->done.empty(); ++n) {
      done[n] = std::move(shared_->done.front());
      shared_->done.pop_front();
    }
    return n;
  }

  std::size_t drop_queued() override {
    const std::lock_guard lock(shared_->mutex);
    const std::size_t dropped = shared_->queue.size();
    shared_->queue.clear();
    return dropped;
  }

  std::size_t max_threads_;
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
};

}  // namespace

std::unique_ptr<AsyncReader> make_pool_reader(int threads) {
  return std::make_unique<PoolReader>(threads);
}

}  // namespace gz
