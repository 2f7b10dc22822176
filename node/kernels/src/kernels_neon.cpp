#define LAYERLINE_NEON
#define LAYERLINE_NAME "neon"
#include "kernels.inl"

namespace layerline {
extern const Kernels* const kernels_neon;
const Kernels* const kernels_neon = &KERNELS;
}  // namespace layerline
