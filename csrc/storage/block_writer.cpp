#include "storage/block_writer.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "arrays/parallel.h"
#include "base/errors.h"
#include "base/xxh64.h"

namespace gz {

BlockWriter::BlockWriter(std::shared_ptr<File> file, std::uint64_t offset)
    : file_(std::move(file)),
      block_(new unsigned char[kBlockBytes]),
      filled_((offset - kHeaderBytes) % kBlockBytes),
      written_(offset - kHeaderBytes),
      missing_(filled_),
      num_before_((written_ + kBlockBytes - 1) / kBlockBytes) {}

void BlockWriter::append(const void* data, std::size_t size) {
  const auto* from = static_cast<const unsigned char*>(data);
  while (size > 0) {
    const std::size_t n = std::min<std::size_t>(size, kBlockBytes - filled_);
    std::memcpy(block_.get() + filled_, from, n);
    filled_ += n;
    written_ += n;
    from += n;
    size -= n;
    if (filled_ == kBlockBytes) flush();
  }
}

void BlockWriter::align() {
  static constexpr unsigned char kZeros[kSectionAlignment] = {};
  append(kZeros, align_up(offset()) - offset());
}

void BlockWriter::flush() {
  if (filled_ == 0) return;
  if (missing_ == 0) hashes_.push_back(xxh64(block_.get(), filled_));
  file_->write_at(block_.get() + missing_, filled_ - missing_, offset() - filled_ + missing_);
  filled_ = missing_ = 0;
}

void BlockWriter::finish(void* header, std::size_t header_size) {
  align();
  flush();
  file_->resize(offset());  // zeros where nothing was written
  std::vector<std::uint64_t> hashes = hash_blocks(*file_, 0, num_before_, offset());
  hashes.insert(hashes.end(), hashes_.begin(), hashes_.end());
  finish_file(*file_, offset(), hashes, header, header_size);
}

void finish_file(File& file, std::uint64_t checksums_offset, std::span<const std::uint64_t> hashes,
                 void* header, std::size_t header_size) {
  file.write_at(hashes.data(), hashes.size_bytes(), checksums_offset);

  CommonHeader common;
  std::memcpy(&common, header, sizeof common);
  common.version = kFormatVersion;
  common.byte_order = kByteOrderMark;
  common.file_bytes = checksums_offset + hashes.size_bytes();
  common.header_bytes = kHeaderBytes;
  common.section_alignment = kSectionAlignment;
  common.block_bytes = kBlockBytes;
  common.checksums_offset = checksums_offset;
  common.num_blocks = hashes.size();
  common.checksums_hash = xxh64(hashes.data(), hashes.size_bytes());
  std::memcpy(header, &common, sizeof common);
  write_header(file, header, header_size);
  file.sync();
}

std::vector<std::uint64_t> hash_blocks(const File& file, std::uint64_t first, std::uint64_t count,
                                       std::uint64_t end) {
  constexpr std::int64_t kGrain = 8;  // blocks that one thread reads at a time
  std::vector<std::uint64_t> hashes(count);
  const auto hash = [&](std::int64_t from, std::int64_t to) {
    const std::unique_ptr<unsigned char[]> bytes(new unsigned char[kBlockBytes]);
    for (auto i = static_cast<std::uint64_t>(from); i < static_cast<std::uint64_t>(to); ++i) {
      const std::uint64_t offset = kHeaderBytes + (first + i) * kBlockBytes;
      const std::uint64_t size = std::min(kBlockBytes, end - offset);
      read_whole(file, "rows", bytes.get(), size, offset);
      hashes[i] = xxh64(bytes.get(), size);
    }
  };
  parallel_for(static_cast<std::int64_t>(count), kGrain, 0, hash);
  return hashes;
}

namespace {

CommonHeader read_any_header(const File& file) {
  char magic[8] = {};
  file.read_at(magic, sizeof magic, 0);
  CommonHeader common;
  const bool topology = std::memcmp(magic, TopologyHeader::kMagic, sizeof magic) == 0;
  read_header(file, topology ? TopologyHeader::kMagic : ColumnHeader::kMagic, &common,
              sizeof common);
  return common;
}

std::vector<std::uint64_t> read_table(const File& file, const CommonHeader& common,
                                      std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> table(count);
  read_whole(file, "checksums", table.data(), 8 * count, common.checksums_offset + 8 * first);
  return table;
}

}  // namespace

std::uint64_t count_blocks(const std::string& path, std::vector<BadBlock>* bad) {
  const File file = File::open(path);
  const CommonHeader common = read_any_header(file);
  const std::vector<std::uint64_t> table = read_table(file, common, 0, common.num_blocks);
  if (const std::uint64_t hash = xxh64(table.data(), 8 * table.size());
      hash != common.checksums_hash) {
    bad->push_back(
        {-1, common.checksums_offset, 8 * table.size(),
         "checksum table: found " + hex(hash) + ", expected " + hex(common.checksums_hash)});
  }
  return common.num_blocks;
}

std::vector<BadBlock> verify_blocks(const std::string& path, std::uint64_t first,
                                    std::uint64_t count) {
  const File file = File::open(path);
  const CommonHeader common = read_any_header(file);
  first = std::min(first, common.num_blocks);
  count = std::min(count, common.num_blocks - first);
  const std::vector<std::uint64_t> table = read_table(file, common, first, count);
  const std::vector<std::uint64_t> found = hash_blocks(file, first, count, common.checksums_offset);
  std::vector<BadBlock> bad;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (found[i] == table[i]) continue;
    const std::uint64_t offset = kHeaderBytes + (first + i) * kBlockBytes;
    bad.push_back({static_cast<std::int64_t>(first + i), offset,
                   std::min(kBlockBytes, common.checksums_offset - offset),
                   "found " + hex(found[i]) + ", expected " + hex(table[i])});
  }
  return bad;
}

}  // namespace gz
