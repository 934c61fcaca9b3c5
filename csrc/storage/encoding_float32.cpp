// Numbers that are stored as they are: nothing to encode, but to be copied and added as codes are.
#include "storage/encoding_loops.h"

namespace gz {
namespace {

struct Float32 {
  using Code = float;
  static float decode(float value, std::int64_t, const float*, const float*) { return value; }
  GZ_WIDE static Floats8 decode8(const std::byte* items, std::int64_t i, const float*,
                                 const float*) {
    return load8(reinterpret_cast<const float*>(items + 4 * i));
  }
};

}  // namespace

const EncodingKernels& float32_kernels() noexcept { return kernels_of<Float32>(); }

}  // namespace gz
