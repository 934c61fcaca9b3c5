// float32 rows to stored codes: finding the range of every column, encoding, and measuring the
// loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gather/decode.h"

namespace gz {

// What encoding did to one column: sums over its finite values.
struct ColumnLoss {
  double max_abs_error = 0;
  double squared_error = 0;
  std::int64_t clipped = 0;  // values that the code's range does not reach
  // Of the values, about the column's first finite one.
  double first = 0;
  double sum = 0;
  double sum_of_squares = 0;
  std::int64_t count = 0;

  double variance() const noexcept;
};

// Encodes the rows of one attribute, slab by slab. For kInt8 all rows go through profile() first.
// Results do not depend on the number of threads. Thread safety: none.
class RowEncoder {
 public:
  RowEncoder(RowCode code, std::int64_t num_columns);

  // kInt8: takes `num_rows` rows into account, [num_rows, num_columns]. Returns the first row with
  // a value that is not finite, or -1.
  std::int64_t profile(const float* rows, std::int64_t num_rows, int threads);
  // kInt8: fixes scales and zero points, by what profile() saw.
  void fit();

  // Encodes `num_rows` rows into `out` ([num_rows, num_columns] codes).
  // REQUIRES fit() before it for kInt8, and rows that profile() has seen.
  void encode(const float* rows, std::int64_t num_rows, std::byte* out, int threads);

  RowCode code() const noexcept { return code_; }
  std::int64_t num_columns() const noexcept { return num_columns_; }
  const std::vector<float>& scale() const noexcept { return scale_; }
  const std::vector<float>& zero_point() const noexcept { return zero_point_; }
  std::span<const ColumnLoss> losses() const noexcept { return losses_; }

 private:
  // How the values of a column are spread: counts by the logarithm of the distance to a centre on
  // either side of it, eight to an octave over 64 octaves. So outliers of any size leave the
  // resolution of the bulk as it is, and one pass is enough.
  struct Profile {
    static constexpr int kBins = 512;
    float centre = 0;
    std::int32_t first_key = 0;  // of bin 0
    float lowest = 0;
    float highest = 0;
    std::int64_t zeros = 0;  // which any range with 0 in it keeps exactly; not in the bins
    std::int64_t below[kBins] = {};
    std::int64_t above[kBins] = {};
  };
  struct Range {
    double low;
    double high;
  };

  static void start(Profile& profile, const float* column, std::int64_t num_rows,
                    std::int64_t stride);
  static void count(Profile& profile, const float* column, std::int64_t num_rows,
                    std::int64_t stride);
  static Range choose_range(const Profile& profile);
  template <RowCode kCode>
  void encode_columns(std::int64_t begin, std::int64_t end, const float* rows,
                      std::int64_t num_rows, std::byte* out);

  RowCode code_;
  std::int64_t num_columns_;
  std::vector<Profile> profiles_;
  std::vector<float> scale_, zero_point_;
  std::vector<ColumnLoss> losses_;
};

}  // namespace gz
