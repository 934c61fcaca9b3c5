#include "io/probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "base/errors.h"
#include "io/read_buffer.h"

namespace gz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kRandomRead = 4096;
constexpr std::size_t kSequentialRead = 1 << 20;
constexpr int kSequentialDepth = 16;
constexpr int kSlices = 5;

// Reads a second where `depth` of them, of `size` bytes at the places next() names, are kept under
// way for `seconds`: the best of several measurements, since whatever else the machine does can
// only slow it down, and the result may be remembered for long.
template <class Next>
double measure(AsyncReader& reader, int file, ReadBuffer& buffer, std::size_t size, int depth,
               double seconds, const Next& next) {
  using Seconds = std::chrono::duration<double>;
  std::byte* const memory = buffer.memory().data();
  const auto request = [&](std::uint64_t slot) {
    return ReadRequest{file, next() * size, size, memory + slot * size, slot};
  };
  double best = 0;
  for (int slice = 0; slice < kSlices; ++slice) {
    std::vector<ReadRequest> requests;
    for (int slot = 0; slot < depth; ++slot) {
      requests.push_back(request(static_cast<std::uint64_t>(slot)));
    }
    const Clock::time_point start = Clock::now();
    Clock::time_point now = start;
    std::size_t reads = 0;
    std::array<Completion, 32> done;
    reader.submit(requests);
    while (const std::size_t complete = reader.wait(done)) {
      now = Clock::now();
      reads += complete;
      requests.clear();
      for (std::size_t i = 0; i < complete; ++i) {
        if (done[i].error) std::rethrow_exception(done[i].error);
        if (Seconds(now - start).count() < seconds / kSlices) {
          requests.push_back(request(done[i].tag));
        }
      }
      reader.submit(requests);
    }
    best = std::max(best, static_cast<double>(reads) / Seconds(now - start).count());
  }
  return best;
}

}  // namespace

DiskSpeed probe_disk(const std::string& path, const ProbeOptions& options) {
  const std::shared_ptr<const DirectFile> file = DirectFile::open(path);
  DiskSpeed found;
  found.file_bytes = file->size();
  found.direct = file->direct();
  found.depth = options.reader.depth;
  if (found.file_bytes < kRandomRead) {
    throw invalid(path, ": found ", found.file_bytes,
                  " bytes, expected at least 4096 to measure a disk with");
  }
  const int depth = options.reader.depth;
  const std::size_t sequential =
      std::min<std::uint64_t>(kSequentialRead, found.file_bytes / kRandomRead * kRandomRead);
  ReadBuffer buffer(
      std::max(kRandomRead * static_cast<std::size_t>(depth), sequential * kSequentialDepth));
  const std::unique_ptr<AsyncReader> reader = AsyncReader::create(options.reader);
  reader->add_memory(buffer.memory());
  const int number = reader->add_file(file);

  // A new seed each time: places that were read before might come out of a cache.
  std::mt19937_64 random(std::random_device{}());
  std::uniform_int_distribution<std::uint64_t> page(0, found.file_bytes / kRandomRead - 1);
  found.random_iops = measure(*reader, number, buffer, kRandomRead, depth, options.seconds / 2,
                              [&] { return page(random); });
  const std::uint64_t stretches = found.file_bytes / sequential;
  std::uint64_t at = page(random) % stretches;
  const double in_order = measure(*reader, number, buffer, sequential, kSequentialDepth,
                                  options.seconds / 2, [&] { return at++ % stretches; });
  found.bytes_per_second = in_order * static_cast<double>(sequential);
  return found;
}

}  // namespace gz
