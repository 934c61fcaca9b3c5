#include "build/runs.h"

#include <algorithm>
#include <utility>

#include "base/chunk_sizes.h"

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

void ScratchSpace::wrote(std::uint64_t bytes) noexcept {
  written += bytes;
  on_disk += bytes;
  peak = std::max(peak, on_disk);
}

Runs::Runs(ScratchSpace& space, const KeyRange& range, std::uint32_t record_bytes)
    : space_(&space),
      range_(range),
      record_bytes_(record_bytes),
      bucket_records_(range.num_buckets(), 0),
      part_buckets_(0) {
  const auto parts =
      std::clamp<std::uint64_t>(space.run_bytes / chunk_sizes.part_bytes, 1, kMaxParts);
  part_buckets_ = (range.num_buckets() + parts - 1) / parts;
}

Runs::~Runs() {
  space_->kept -= kept_;
  for (Part& part : parts_) give_back(part);
}

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
  if (parts_.empty() && space_->kept + bytes > space_->keep_bytes) {
    // From here on everything goes to files: a bucket that is half in memory saves no reading.
    parts_.resize((range_.num_buckets() + part_buckets_ - 1) / part_buckets_);
    for (Run& run : runs_) write(run);
    space_->kept -= std::exchange(kept_, 0);
  }
  runs_.push_back({std::move(records), {}, std::move(starts)});
  if (!parts_.empty()) {
    write(runs_.back());
  } else {
    kept_ += bytes;
    space_->kept += bytes;
  }
}

void Runs::write(Run& run) {
  const Byte* from = run.records.data();
  for (std::uint64_t p = 0; p < parts_.size(); ++p) {
    Part& part = parts_[p];
    run.offsets.push_back(part.bytes);
    const std::uint64_t count = run.starts[first_bucket(p + 1)] - run.starts[first_bucket(p)];
    if (count == 0) continue;
    if (!part.file) {
      const std::string name = std::to_string(++space_->files) + "-edges";
      part.file = std::make_unique<File>(File::temporary(space_->directory + "/" + name));
    }
    const std::uint64_t bytes = count * record_bytes_;
    part.file->write_at(from, bytes, part.bytes);
    part.bytes += bytes;
    space_->wrote(bytes);
    from += bytes;
  }
  space_->spare = std::exchange(run.records, {});
}

void Runs::give_back(Part& part) noexcept {
  part.file.reset();
  space_->on_disk -= std::exchange(part.bytes, 0);
}

void Runs::done_with(std::uint64_t buckets) noexcept {
  while (num_given_ < parts_.size() && first_bucket(num_given_ + 1) <= buckets) {
    give_back(parts_[num_given_++]);
  }
}

std::uint64_t Runs::Reader::next(Byte* to, std::uint64_t max_records) {
  const std::uint64_t size = runs_.record_bytes_, part = bucket_ / runs_.part_buckets_;
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
    if (!runs_.parts_.empty()) {
      const std::uint64_t at = begin - run.starts[runs_.first_bucket(part)];
      runs_.parts_[part].file->read_at(to + got * size, n * size, run.offsets[part] + at * size);
    } else {
      std::memcpy(to + got * size, run.records.data() + begin * size, n * size);
    }
    got += n;
    done_ += n;
  }
  return got;
}

void Runs::will_read(std::uint64_t first, std::uint64_t last) const noexcept {
  if (parts_.empty()) return;
  for (std::uint64_t p = first / part_buckets_; p <= last / part_buckets_; ++p) {
    if (!parts_[p].file) continue;  // it has no records
    const std::uint64_t from = std::max(first, first_bucket(p));
    const std::uint64_t to = std::min(last + 1, first_bucket(p + 1));
    for (const Run& run : runs_) {
      const std::uint64_t at = run.starts[from] - run.starts[first_bucket(p)];
      parts_[p].file->will_need(run.offsets[p] + at * record_bytes_,
                                (run.starts[to] - run.starts[from]) * std::uint64_t{record_bytes_});
    }
  }
}

}  // namespace gz
