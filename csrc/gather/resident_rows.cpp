#include "gather/resident_rows.h"

#include <algorithm>

#include "base/errors.h"

namespace gz {

std::int64_t count_groups(std::int64_t num_rows, int group_bits) {
  if (group_bits < 0 || group_bits > 20 || num_rows < 0) {
    throw invalid("group_bits: expected 0 to 20; num_rows: 0 or more");
  }
  return (num_rows + (std::int64_t{1} << group_bits) - 1) >> group_bits;
}

ResidentRows::ResidentRows(std::int64_t num_rows, int group_bits, std::int64_t count)
    : num_rows_(num_rows),
      num_kept_(std::clamp<std::int64_t>(count, 0, count_groups(num_rows, group_bits))),
      group_bits_(group_bits) {}

}  // namespace gz
