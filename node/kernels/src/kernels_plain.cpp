#define LAYERLINE_PLAIN
#define LAYERLINE_NAME "plain"
#include "kernels.inl"

namespace layerline {
extern const Kernels* const kernels_plain;
const Kernels* const kernels_plain = &KERNELS;
}  // namespace layerline
