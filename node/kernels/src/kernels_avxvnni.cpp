#define LAYERLINE_AVXVNNI
#define LAYERLINE_NAME "avxvnni"
#include "kernels.inl"

namespace layerline {
extern const Kernels* const kernels_avxvnni;
const Kernels* const kernels_avxvnni = &KERNELS;
}  // namespace layerline
