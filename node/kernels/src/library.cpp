#include "library.h"

#include <cstring>
#include <new>

#include "program.h"

#if defined(_WIN32)
#define OFFERED extern "C" __declspec(dllexport)
#else
#define OFFERED extern "C" __attribute__((visibility("default")))
#endif

#define HAS(feature) __builtin_cpu_supports(feature)

#if defined(LAYERLINE_HAS_AVXVNNI)
#include <cpuid.h>
// Leaf 7.1 of CPUID, which not every compiler has a name for.
static bool has_avx_vnni() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#endif

#if defined(LAYERLINE_HAS_NEON) && defined(__linux__)
#include <sys/auxv.h>
#define HAS_DOT_PRODUCT ((getauxval(AT_HWCAP) & (1ul << 20)) != 0)  // HWCAP_ASIMDDP
#else
#define HAS_DOT_PRODUCT true  // every processor of Apple's has it
#endif

namespace layerline {

#if defined(LAYERLINE_HAS_AVX512)
extern const Kernels* const kernels_avx512;
#endif
#if defined(LAYERLINE_HAS_AVXVNNI)
extern const Kernels* const kernels_avxvnni;
#endif
#if defined(LAYERLINE_HAS_AVX2)
extern const Kernels* const kernels_avx2;
#endif
#if defined(LAYERLINE_HAS_NEON)
extern const Kernels* const kernels_neon;
#endif
#if defined(LAYERLINE_HAS_PLAIN)
extern const Kernels* const kernels_plain;
#endif

namespace {

// The kernels that this processor can run, the fastest first.
const Kernels* runnable(int index) {
    const Kernels* found[5];
    int count = 0;
#if defined(LAYERLINE_HAS_AVX512)
    if (HAS("avx512f") && HAS("avx512bw") && HAS("avx512dq") && HAS("avx512vl") && HAS("avx512vnni")) {
        found[count++] = kernels_avx512;
    }
#endif
#if defined(LAYERLINE_HAS_AVXVNNI)
    if (HAS("avx2") && HAS("fma") && has_avx_vnni()) found[count++] = kernels_avxvnni;
#endif
#if defined(LAYERLINE_HAS_AVX2)
    if (HAS("avx2") && HAS("fma")) found[count++] = kernels_avx2;
#endif
#if defined(LAYERLINE_HAS_NEON)
    if (HAS_DOT_PRODUCT) found[count++] = kernels_neon;
#endif
#if defined(LAYERLINE_HAS_PLAIN)
    found[count++] = kernels_plain;
#endif
    return index < count ? found[index] : nullptr;
}

}  // namespace
}  // namespace layerline

using namespace layerline;

constexpr int32_t VERSION = 15;  // of all that is said here and in library.h

OFFERED int32_t layerline_version() { return VERSION; }

// The name of an instruction set that can be used here, the fastest first; null after the last.
OFFERED const char* layerline_instruction_set(int32_t index) {
    const Kernels* kernels = runnable(index);
    return kernels ? kernels->name : nullptr;
}

// An engine of so many threads, each with so much scratch; null if there is no such instruction set, or no memory or threads.
OFFERED Engine* layerline_engine(const char* instruction_set, int32_t threads, int64_t scratch_bytes) {
    for (int index = 0; const Kernels* kernels = runnable(index); index++) {
        if (std::strcmp(kernels->name, instruction_set) != 0) continue;
        try {
            return new Engine(*kernels, threads, scratch_bytes);
        } catch (...) {
            return nullptr;
        }
    }
    return nullptr;
}

OFFERED int64_t layerline_attention_bytes(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t value_dim) {
    return attention_bytes(heads, kv_heads, head_dim, value_dim);
}

OFFERED void layerline_end(Engine* engine) { delete engine; }

OFFERED int64_t layerline_row_bytes(int32_t format, int64_t columns) { return row_bytes(format, columns); }

OFFERED int64_t layerline_panel_bytes(int32_t format, int64_t columns) { return panel_bytes(format, columns); }

OFFERED int64_t layerline_prepared_bytes(const Engine* engine, int32_t floats, int32_t digits, int64_t rows, int64_t columns) {
    return engine->kernels().prepared_bytes(floats != 0, digits, rows, columns);
}

// Puts `rows` stored rows, `stride` bytes apart, into panels, the first as row `first_row`.
OFFERED void layerline_pack(int32_t format, const uint8_t* stored, int64_t stride, int64_t rows, int64_t columns,
                            int64_t first_row, uint8_t* panels) {
    const int64_t bytes = panel_bytes(format, columns);
    for (int64_t done = 0; done < rows;) {
        const uint8_t* own[16];
        const int64_t row = first_row + done, left = rows - done, room = 16 - row % 16;
        const int count = static_cast<int>(left < room ? left : room);
        for (int i = 0; i < count; i++) own[i] = stored + (done + i) * stride;
        put_rows(format, own, columns, static_cast<int>(row % 16), count, panels + row / 16 * bytes);
        done += count;
    }
}

// Runs operations one after the other. Gives 0, or 1 if there was no memory.
OFFERED int32_t layerline_run(Engine* engine, const Operation* operations, int64_t count, const Work* work, const Step* step) {
    try {
        engine->run(operations, count, *work, *step);
    } catch (...) {
        return 1;
    }
    return 0;
}
