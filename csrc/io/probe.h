// How fast a disk is at the two things the engine asks of it, measured by reading a file that is
// there anyway. Nothing is ever written.
#pragma once

#include <cstdint>
#include <string>

#include "io/async_reader.h"

namespace gz {

struct ProbeOptions {
  ReaderOptions reader;
  double seconds = 0.6;  // half for each measurement
};

struct DiskSpeed {
  double random_iops = 0;        // random reads of 4 KiB, `depth` of them under way
  double bytes_per_second = 0;   // reads of 1 MiB, one after the other
  bool direct = false;           // measured past the page cache; else the figures may be RAM's
  std::uint64_t file_bytes = 0;  // what was read from: of a small file a disk's own cache answers
  int depth = 0;
};

// Reads `path` as fast as it goes, in several slices, and takes the fastest of each kind. REQUIRES
// a file of at least 4 KiB, else std::invalid_argument.
DiskSpeed probe_disk(const std::string& path, const ProbeOptions& options = {});

}  // namespace gz
