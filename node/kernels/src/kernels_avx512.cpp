#define LAYERLINE_AVX512
#define LAYERLINE_NAME "avx512"
#include "kernels.inl"

namespace layerline {
extern const Kernels* const kernels_avx512;
const Kernels* const kernels_avx512 = &KERNELS;
}  // namespace layerline
