// Whether two instruction sets give the same bits: prints what differs, and ends with 1 if anything does. For processors that
// the tests in Python do not run on, this is compiled for them and run by an emulator.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../../node/kernels/src/kernels.h"
#include "../../node/kernels/src/library.h"

#define NAMED(set) kernels_##set
#define KERNELS(set) NAMED(set)

namespace layerline {
extern const Kernels* const KERNELS(COMPARED);
extern const Kernels* const kernels_plain;
}  // namespace layerline

using namespace layerline;

static uint64_t state = 1;
static uint32_t chance() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 33);
}
static float number() { return static_cast<float>(static_cast<int32_t>(chance() % 20001) - 10000) / 5000.0f; }

static std::vector<uint8_t> panels_of(int format, int64_t columns, int panels) {
    std::vector<uint8_t> bytes(static_cast<size_t>(panel_bytes(format, columns) * panels));
    if (format == FORMAT_F32) {
        for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
            float own = number();
            std::memcpy(&bytes[i], &own, 4);
        }
        return bytes;
    }
    // Every 16-bit number below infinity: whatever of it is a scale is a sane one.
    for (size_t i = 0; i + 2 <= bytes.size(); i += 2) {
        uint16_t own = static_cast<uint16_t>(chance() & (format == FORMAT_BF16 ? 0xbfff : 0xafff));
        std::memcpy(&bytes[i], &own, 2);
    }
    return bytes;
}

static int failures = 0;
static void compare(const char* what, int format, int detail, const std::vector<float>& one, const std::vector<float>& other) {
    if (std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0) return;
    failures++;
    std::printf("%s differs: format %d, %d\n", what, format, detail);
}

// Every format; of those with scales of groups one for each kind of scale, with groups of different sizes.
static std::vector<int> formats() {
    std::vector<int> numbers;
    for (int format = 0; format < FORMAT_F8_E4M3; format++) numbers.push_back(format);
    for (int format = FORMAT_F8_E4M3; format < FORMATS; format++) {
        for (int scale : {SCALE_F16, SCALE_BF16, SCALE_F32}) numbers.push_back(format | scale << 8 | 3 * scale << 12);
    }
    return numbers;
}

static std::vector<float> product(const Kernels& kernels, const Matrix& matrix, int digits, std::vector<float>& rows, int count) {
    const bool floats = is_float(matrix.segments->format);
    std::vector<uint8_t> prepared(static_cast<size_t>(kernels.prepared_bytes(floats, digits, count, matrix.inputs)));
    std::vector<uint8_t> scratch(SCRATCH_BYTES);
    std::vector<float> out(static_cast<size_t>(count * matrix.segments->rows));
    for (int64_t row = 0, size = 0; row < count; row += size) {
        size = kernels.group_rows(floats, digits, count - row);
        kernels.prepare(floats, digits, {rows.data(), matrix.inputs}, matrix.segments->order, row, size, matrix.inputs,
                        prepared.data());
    }
    kernels.multiply(matrix, *matrix.segments, digits, prepared.data(), count, 0, (matrix.segments->rows + 15) / 16,
                     {out.data(), matrix.segments->rows}, false, scratch.data());
    return out;
}

static void compare_products(const Kernels& one, const Kernels& other) {
    const int64_t columns = 512;
    std::vector<int32_t> reversed(columns);
    for (int64_t column = 0; column < columns; column++) reversed[column] = static_cast<int32_t>(columns - 1 - column);
    for (int format : formats()) {
        std::vector<uint8_t> panels = panels_of(format, columns, 6);
        Segment segment = {panels.data(), format, 83, 0, is_float(format) ? nullptr : reversed.data()};
        Matrix matrix = {&segment, nullptr, columns, 1, 0};
        std::vector<float> unpacked[2];
        for (int i = 0; i < 2; i++) {
            unpacked[i].resize(16 * columns);
            for (int row = 0; row < 16; row++) {
                (i ? other : one).unpack_row(format, panels.data(), columns, row, unpacked[i].data() + row * columns);
            }
        }
        compare("unpacking", format, 0, unpacked[0], unpacked[1]);
        for (int digits = 1; digits <= 3; digits++) {
            for (int count : {1, 2, 5, 13}) {
                std::vector<float> rows(static_cast<size_t>(count * columns));
                for (float& own : rows) own = number();
                compare("a product", format, 100 * digits + count, product(one, matrix, digits, rows, count),
                        product(other, matrix, digits, rows, count));
            }
        }
    }
}

static std::vector<float> attended(const Kernels& kernels, int storage, const std::vector<float>& rows, int positions) {
    const int heads = 6, kv_heads = 2, dim = 64, width = (heads + 2 * kv_heads) * dim;
    Pages pages = {nullptr, 16 * 2 * dim * 4, kv_heads, dim, dim, storage};
    std::vector<uint8_t> memory(static_cast<size_t>(pages.tile_bytes * kv_heads * (positions / 16 + 1)));
    pages.tiles = memory.data();
    std::vector<int32_t> tiles;
    for (int i = 0; i <= positions / 16; i++) tiles.push_back(positions / 16 - i);
    std::vector<StepRow> steps;
    std::vector<float> own = rows, out(static_cast<size_t>(positions * heads * dim));
    for (int position = 0; position < positions; position++) {
        float* row = own.data() + position * width;
        for (int head = 0; head < kv_heads; head++) {
            kernels.keep(pages, head, tiles[position / 16], position % 16, row + (heads + head) * dim,
                         row + (heads + kv_heads + head) * dim);
        }
        steps.push_back({tiles.data(), position, 0});
    }
    std::vector<uint8_t> scratch(SCRATCH_BYTES);
    for (int window : {0, 20}) {
        AttentionForm form = {nullptr, 0.125f, window ? 5.0f : 0.0f, heads, window, 0, 0};
        for (int first = 0; first < positions; first += 32) {
            const int count = positions - first < 32 ? positions - first : 32;
            for (int head = 0; head < kv_heads; head++) {
                kernels.attend(pages, form, steps.data() + first, count, head, {own.data() + first * width, width},
                               {out.data() + first * heads * dim, heads * dim}, scratch.data());
            }
        }
    }
    return out;
}

// All heads, the rows in two runs, of which the second goes on from the first.
static std::vector<float> delta_net(const Kernels& kernels, const std::vector<float>& rows, int count, bool tiled) {
    const int heads = 4, key_heads = 2, key_dim = 33, value_dim = 43;
    const int width = 2 * key_heads * key_dim + 2 * heads * value_dim + 2 * heads;
    std::vector<float> decay(heads, -0.5f), step_bias(heads, 0.25f), norm(value_dim, 1.5f);
    DeltaNet net = {decay.data(), step_bias.data(), norm.data(), 7, heads, key_heads, key_dim, value_dim, tiled, 1e-6f};
    const int64_t slot_numbers = 7 + heads * key_dim * value_dim;
    std::vector<float> states(static_cast<size_t>(2 * slot_numbers)), out(static_cast<size_t>(count * heads * value_dim));
    std::vector<float> own(rows.begin(), rows.begin() + count * width);
    for (float& each : own) each *= 0.1f;
    std::vector<uint8_t> scratch(SCRATCH_BYTES);
    const StateRun runs[2] = {{0, 20, -1, 1}, {20, count - 20, 1, 0}};
    for (int head = 0; head < heads; head++) {
        kernels.delta_head(net, head, {own.data(), width}, {out.data(), heads * value_dim}, runs, 2, states.data(), slot_numbers,
                           scratch.data());
    }
    out.insert(out.end(), states.begin(), states.end());
    return out;
}

// Mamba 2 behind its convolution: rows of one sequence in two runs.
static std::vector<float> scanned(const Kernels& kernels, const std::vector<float>& rows, int count) {
    const int heads = 5, dim = 70, keys = 24, width = 2 * heads * dim + 2 * keys + heads, channels = heads * dim + 2 * keys;
    const StateRun runs[] = {{0, 50, -1, 0}, {50, count - 50, 0, 1}};
    std::vector<float> own(rows.begin(), rows.begin() + count * width), out(static_cast<size_t>(count * heads * dim));
    std::vector<float> states(2 * (3 * channels + heads * dim * keys)), weight(rows.rbegin(), rows.rbegin() + 4 * channels);
    const int64_t slot = static_cast<int64_t>(states.size() / 2);
    const float decay[] = {-9.0f, -3.0f, -1.0f, -0.3f, -0.01f};
    const Convolution convolution = {weight.data(), nullptr, channels, 4, heads * dim, -1, -1, heads * dim, 1, 0};
    kernels.convolve(convolution, {own.data(), width}, {own.data(), width}, runs, 2, states.data(), slot, 0, channels);
    const Mamba2 layer = {decay, decay, decay, 3 * channels, heads, dim, 1, keys};
    for (int head = 0; head < heads; head++) {
        kernels.mamba_head(layer, head, {own.data(), width}, {out.data(), heads * dim}, runs, 2, states.data(), slot);
    }
    return out;
}

int main() {
    const Kernels& one = *KERNELS(COMPARED);
    const Kernels& other = *kernels_plain;
    compare_products(one, other);
    std::vector<float> rows(150 * 10 * 64);
    for (float& own : rows) own = number();
    for (int storage = 0; storage < 4; storage++) {
        compare("attention", storage, 0, attended(one, storage, rows, 150), attended(other, storage, rows, 150));
    }
    for (int tiled = 0; tiled < 2; tiled++) {
        compare("a delta net", 0, tiled, delta_net(one, rows, 50, tiled != 0), delta_net(other, rows, 50, tiled != 0));
    }
    compare("Mamba 2", 0, 0, scanned(one, rows, 90), scanned(other, rows, 90));
    std::vector<float> in(1000), up(1000), normed[2], gated[2];
    for (float& own : in) own = number() * 9;
    for (float& own : up) own = number();
    for (int i = 0; i < 2; i++) {
        const Kernels& kernels = i ? other : one;
        normed[i].resize(1000);
        gated[i].resize(1000);
        kernels.norm(in.data(), normed[i].data(), up.data(), 1000, 1e-5f);
        kernels.gate(in.data(), up.data(), gated[i].data(), 1000, 0);
    }
    compare("a norm", 0, 0, normed[0], normed[1]);
    compare("a gate", 0, 0, gated[0], gated[1]);
    std::printf("%s and plain: %d differences\n", one.name, failures);
    return failures != 0;
}
