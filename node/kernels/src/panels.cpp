// From rows as they are stored to panels: the same bits, of 16 rows side by side. See formats.h.
#include <cstring>

#include "kernels.h"
#include "library.h"

namespace layerline {
namespace {

constexpr int ROWS = 16;

// A range of a stored block that becomes words, 16-bit halves or bytes of a panel.
struct Part {
    int offset;
    int count;
};

struct Layout {
    int columns;  // of a block
    int bytes;    // of a block as it is stored
    int words, small;
    Part word_parts[3];
    Part half_parts[2];
    Part byte_part;
    int fifth_bits;  // the offset of 32 bits that are put in the order of bytes, as the first word; -1: none
};

constexpr Layout LAYOUTS[FORMATS] = {
    {1, 4, 0, 0, {}, {}, {}, -1},                                      // F32
    {1, 2, 0, 0, {}, {}, {}, -1},                                      // F16
    {1, 2, 0, 0, {}, {}, {}, -1},                                      // BF16
    {32, 18, 4, 2, {{2, 4}}, {{0, 1}}, {}, -1},                        // Q4_0
    {32, 20, 4, 4, {{4, 4}}, {{0, 2}}, {}, -1},                        // Q4_1
    {32, 22, 5, 2, {{6, 4}}, {{0, 1}}, {}, 2},                         // Q5_0
    {32, 24, 5, 4, {{8, 4}}, {{0, 2}}, {}, 4},                         // Q5_1
    {32, 34, 8, 2, {{2, 8}}, {{0, 1}}, {}, -1},                        // Q8_0
    {256, 84, 20, 4, {{0, 20}}, {{80, 2}}, {}, -1},                    // Q2_K: scales, columns; scale, least
    {256, 110, 27, 2, {{96, 3}, {0, 24}}, {{108, 1}}, {}, -1},         // Q3_K: scales, third bits, columns
    {256, 144, 35, 4, {{4, 35}}, {{0, 2}}, {}, -1},                    // Q4_K: scales, columns
    {256, 176, 43, 4, {{4, 43}}, {{0, 2}}, {}, -1},                    // Q5_K: scales, fifth bits, columns
    {256, 210, 52, 2, {{0, 52}}, {{208, 1}}, {}, -1},                  // Q6_K: columns, upper bits, scales
    {32, 18, 4, 2, {{2, 4}}, {{0, 1}}, {}, -1},                        // IQ4_NL
    {256, 136, 33, 4, {{4, 33}}, {{0, 2}}, {}, -1},                    // IQ4_XS: lower bits of scales, columns
    {32, 17, 4, 1, {{1, 4}}, {}, {0, 1}, -1},                          // MXFP4
    {1, 1, 0, 0, {}, {}, {}, -1},                                      // F8_E4M3: these without their groups' scales
    {1, 1, 0, 0, {}, {}, {}, -1},                                      // F8_E5M2
    {32, 16, 4, 0, {{0, 4}}, {}, {}, -1},                              // INT4
    {32, 32, 8, 0, {{0, 8}}, {}, {}, -1},                              // INT8
};

// Bit 4 i + b becomes bit 8 b + i: every fourth bit is taken, and what is taken is moved together.
uint32_t in_order_of_bytes(const uint8_t* stored) {
    uint32_t bits, ordered = 0;
    std::memcpy(&bits, stored, 4);
    for (int b = 0; b < 4; b++) {
        uint32_t own = bits >> b & 0x11111111u;
        own = (own | own >> 3) & 0x03030303u;
        own = (own | own >> 6) & 0x000f000fu;
        own = (own | own >> 12) & 0x000000ffu;
        ordered |= own << 8 * b;
    }
    return ordered;
}

// Rows [first, first + count) of a block's words, halves and bytes; `stored` has the block in each of these rows.
void put_block(const Layout& layout, const uint8_t* const* stored, int64_t offset, int first, int count, uint8_t* words,
               uint8_t* small) {
    if (layout.fifth_bits >= 0) {
        for (int row = 0; row < count; row++) {
            uint32_t bits = in_order_of_bytes(stored[row] + offset + layout.fifth_bits);
            std::memcpy(words + 4 * (first + row), &bits, 4);
        }
        words += 4 * ROWS;
    }
    for (const Part& part : layout.word_parts) {
        for (int i = 0; i < part.count; i++, words += 4 * ROWS) {
            for (int row = 0; row < count; row++) {
                std::memcpy(words + 4 * (first + row), stored[row] + offset + part.offset + 4 * i, 4);
            }
        }
    }
    for (const Part& part : layout.half_parts) {
        for (int i = 0; i < part.count; i++, small += 2 * ROWS) {
            for (int row = 0; row < count; row++) {
                std::memcpy(small + 2 * (first + row), stored[row] + offset + part.offset + 2 * i, 2);
            }
        }
    }
    for (int row = 0; row < count && layout.byte_part.count; row++) {
        small[first + row] = stored[row][offset + layout.byte_part.offset];
    }
}

template <int BYTES>
void put_floats(const uint8_t* const* stored, int64_t columns, int first, int count, uint8_t* panel) {
    for (int64_t column = 0; column < columns; column++) {
        for (int row = 0; row < count; row++) {
            std::memcpy(panel + (column * ROWS + first + row) * BYTES, stored[row] + column * BYTES, BYTES);
        }
    }
}

int64_t whole_chains(int64_t columns) { return (columns + 7) / 8 * 8; }

bool has_groups(int format) { return format_of(format) >= FORMAT_F8_E4M3; }

// Bytes of the scales, and of what stands for zero, of a row's groups.
int64_t groups_bytes(int format, int64_t columns) {
    const Grouping grouping{format};
    return has_groups(format) ? grouping.groups(columns) * grouping.group_bytes() : 0;
}

// A row begins with the scales of all its groups; what stands for zero in each of them follows.
void put_groups(const Grouping& grouping, const uint8_t* stored, int64_t groups, int row, uint8_t* small) {
    const int size = grouping.scale_bytes();
    const bool has_zeros = grouping.group_bytes() > size;
    for (int64_t group = 0; group < groups; group++, small += ROWS * grouping.group_bytes()) {
        std::memcpy(small + row * size, stored + group * size, size);
        if (has_zeros) small[ROWS * size + row] = stored[groups * size + group];
    }
}

}  // namespace

bool is_float(int format) {
    const int own = format_of(format);
    return own < FORMAT_Q4_0 || own == FORMAT_F8_E4M3 || own == FORMAT_F8_E5M2;
}

int64_t row_bytes(int format, int64_t columns) {
    const Layout& layout = LAYOUTS[format_of(format)];
    return columns / layout.columns * layout.bytes + groups_bytes(format, columns);
}

int64_t panel_bytes(int format, int64_t columns) {
    const Layout& layout = LAYOUTS[format_of(format)];
    const int64_t groups = ROWS * groups_bytes(format, columns);
    if (is_float(format)) return whole_chains(columns) * layout.bytes * ROWS + groups;
    return columns / layout.columns * (64 * layout.words + 16 * layout.small) + groups;
}

void put_rows(int format, const uint8_t* const* stored, int64_t columns, int first, int count, uint8_t* panel) {
    const Layout& layout = LAYOUTS[format_of(format)];
    const uint8_t* rows[ROWS];
    const int64_t groups = groups_bytes(format, columns);
    for (int row = 0; row < count; row++) rows[row] = stored[row] + groups;
    if (groups) {
        uint8_t* small = panel + panel_bytes(format, columns) - ROWS * groups;
        const Grouping grouping{format};
        for (int row = 0; row < count; row++) put_groups(grouping, stored[row], grouping.groups(columns), first + row, small);
    }
    stored = rows;
    if (is_float(format) && layout.bytes == 4) return put_floats<4>(stored, columns, first, count, panel);
    if (is_float(format) && layout.bytes == 2) return put_floats<2>(stored, columns, first, count, panel);
    if (is_float(format)) return put_floats<1>(stored, columns, first, count, panel);
    const int64_t blocks = columns / layout.columns;
    uint8_t* small = panel + blocks * 64 * layout.words;
    for (int64_t block = 0; block < blocks; block++) {
        put_block(layout, stored, block * layout.bytes, first, count, panel + block * 64 * layout.words,
                  small + block * 16 * layout.small);
    }
}

}  // namespace layerline
