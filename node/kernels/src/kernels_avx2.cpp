#define LAYERLINE_AVX2
#define LAYERLINE_NAME "avx2"
#include "kernels.inl"

namespace layerline {
extern const Kernels* const kernels_avx2;
const Kernels* const kernels_avx2 = &KERNELS;
}  // namespace layerline
