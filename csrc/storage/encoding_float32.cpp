// Numbers that are stored as they are: nothing to encode, but to be copied and added as codes are.
#include "storage/encoding_loops.h"

namespace gz {
namespace {

struct Float32 {
  using Code = float;
  static float decode(float value, std::int64_t, const float*, const float*) { return value; }
#ifdef GZ_HAS_AVX2_FUNCTIONS
  GZ_AVX2 static __m256 decode8(const std::byte* items, std::int64_t i, const float*,
                                const float*) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(items + 4 * i));
  }
#endif
};

}  // namespace

const EncodingKernels& float32_kernels(Machine machine) noexcept {
  return kernels_of<Float32>(machine);
}

}  // namespace gz
