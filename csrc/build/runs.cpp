#include "build/runs.h"

#include <algorithm>
#include <utility>

namespace gz {

KeyRange::KeyRange(std::uint64_t first, std::uint64_t last, std::uint64_t max_buckets) noexcept
    : lo(first), hi(last), shift(0) {
  while (((hi - lo) >> shift) >= max_buckets) ++shift;
}

std::uint64_t KeyRange::last_key(std::uint64_t bucket) const noexcept {
  const std::uint64_t width = (1ULL << shift) - 1;
  const std::uint64_t first = first_key(bucket);
  return hi - first < width ? hi : first + width;
}

Runs::Runs(ScratchSpace& space, const KeyRange& range, std::uint32_t record_bytes)
    : space_(&space),
      range_(range),
      record_bytes_(record_bytes),
      bucket_records_(range.num_buckets(), 0) {}

Runs::~Runs() { space_->kept -= kept_; }

Buffer<Byte> Runs::make_records(std::int64_t bytes) const {
  Buffer<Byte> records = std::move(space_->spare);
  if (bytes > records.capacity()) records = {};
  records.reserve(bytes);
  records.resize(bytes);
  return records;
}

void Runs::add(Buffer<Byte> records, std::vector<std::uint32_t> starts) {
  for (std::size_t b = 0; b + 1 < starts.size(); ++b) {
    bucket_records_[b] += starts[b + 1] - starts[b];
  }
  const auto bytes = static_cast<std::uint64_t>(records.size());
  if (!file_ && space_->kept + bytes > space_->keep_bytes) {
    // From here on everything goes to the file: a bucket that is half in memory saves no reading.
    const std::string name = std::to_string(++space_->files) + "-edges";
    file_ = std::make_unique<File>(File::temporary(space_->directory + "/" + name));
    for (Run& run : runs_) write(run);
    space_->kept -= std::exchange(kept_, 0);
  }
  runs_.push_back({std::move(records), 0, std::move(starts)});
  if (file_) {
    write(runs_.back());
  } else {
    kept_ += bytes;
    space_->kept += bytes;
  }
}

void Runs::write(Run& run) {
  const auto bytes = static_cast<std::uint64_t>(run.records.size());
  file_->write_at(run.records.data(), bytes, file_bytes_);
  run.offset = file_bytes_;
  file_bytes_ += bytes;
  space_->written += bytes;
  space_->spare = std::exchange(run.records, {});
}

std::uint64_t Runs::num_records(std::uint64_t bucket) const noexcept {
  return bucket_records_[bucket];
}

std::uint64_t Runs::Reader::next(Byte* to, std::uint64_t max_records) {
  const std::uint64_t size = runs_.record_bytes_;
  std::uint64_t got = 0;
  while (got < max_records && run_ < runs_.runs_.size()) {
    const Run& run = runs_.runs_[run_];
    const std::uint64_t begin = run.starts[bucket_] + done_;
    const std::uint64_t n = std::min(run.starts[bucket_ + 1] - begin, max_records - got);
    if (n == 0) {
      ++run_;
      done_ = 0;
      continue;
    }
    if (runs_.file_) {
      runs_.file_->read_at(to + got * size, n * size, run.offset + begin * size);
    } else {
      std::memcpy(to + got * size, run.records.data() + begin * size, n * size);
    }
    got += n;
    done_ += n;
  }
  return got;
}

void Runs::will_read(std::uint64_t first, std::uint64_t last) const noexcept {
  if (!file_) return;
  for (const Run& run : runs_) {
    const std::uint64_t begin = run.starts[first];
    file_->will_need(run.offset + begin * record_bytes_,
                     (run.starts[last + 1] - begin) * record_bytes_);
  }
}

}  // namespace gz
