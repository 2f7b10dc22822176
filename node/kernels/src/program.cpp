#include "program.h"

#include <cmath>
#include <cstring>
#include <vector>

namespace layerline {
namespace {

constexpr int64_t ALIGNMENT = 64;
constexpr int64_t READERS_A_TASK = 128;
constexpr int HEADS_A_TASK = 16;      // of those that read one key-value head, if they are all there are
constexpr int64_t ROWS_A_TASK = 32;   // of a head's product
constexpr int64_t READER_BYTES = 64;  // of what is kept of a reader besides its sums, at most

// A row less its mean, which is added up in double, in order.
const float* without_mean(const float* row, float* out, int64_t size) {
    double sum = 0.0;
    for (int64_t i = 0; i < size; i++) sum += row[i];
    const float mean = static_cast<float>(sum / static_cast<double>(size));
    for (int64_t i = 0; i < size; i++) out[i] = row[i] - mean;
    return out;
}

// The nearest bfloat16 numbers, of equals the even ones.
void round_row(const float* row, uint16_t* out, int64_t size) {
    for (int64_t i = 0; i < size; i++) {
        uint32_t bits;
        std::memcpy(&bits, row + i, 4);
        out[i] = row[i] != row[i] ? 0x7fc0 : static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

}  // namespace

int64_t attention_bytes(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t value_dim) {
    const int64_t stride = (value_dim + 15) / 16 * 16, group = heads / kv_heads;
    const int64_t readers = group > READERS_A_TASK ? group : READERS_A_TASK;
    const int64_t block = 64 * 4 * (head_dim + stride), read = 4 * stride + READER_BYTES;
    return (block + readers * read + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
}

Engine::Engine(const Kernels& kernels, int threads, int64_t scratch_bytes)
    : kernels_(kernels),
      pool_(threads),
      scratch_bytes_(scratch_bytes > SCRATCH_BYTES ? scratch_bytes : SCRATCH_BYTES),
      scratch_memory_(new uint8_t[scratch_bytes_ * threads + ALIGNMENT]) {
    uintptr_t address = reinterpret_cast<uintptr_t>(scratch_memory_.get());
    scratch_ = scratch_memory_.get() + (ALIGNMENT - address % ALIGNMENT) % ALIGNMENT;
}

void Engine::run(const Operation* operations, int64_t count, const Work& work, const Step& step) {
    int64_t rows = step.rows;
    for (const Operation* own = operations; own < operations + count; own++) {
        const Rows in = work.buffers[own->in], out = work.buffers[own->out];
        const float* weight = static_cast<const float*>(own->weight);
        switch (own->kind) {
            case EMBED:
                embed(*own, out, step);
                break;
            case TAKE:
                take(*own, out, step);
                break;
            case PLACE:
                places_.take(work, step);
                each_row(rows, [&](int64_t row) { places_.turn_row(work, row); });
                break;
            case NORM:
                each_row(rows, [&](int64_t row) {
                    const float* numbers = row_of(in, row).data;
                    if (own->flag) numbers = without_mean(numbers, row_of(out, row).data, own->size);
                    kernels_.norm(numbers, row_of(out, row).data, weight, own->size, own->number);
                });
                break;
            case HEAD_NORM:
                each_row(rows, [&](int64_t row) {
                    for (int head = own->index; head < own->index + own->count; head++) {
                        float* numbers = row_of(out, row).data + head * own->size;
                        kernels_.norm(numbers, numbers, weight, own->size, own->number);
                    }
                });
                break;
            case KEEP:
                keep(work.layers[own->index].pages, in, own->count, own->size, step);
                break;
            case COPY:
                each_row(rows, [&](int64_t row) {
                    std::memcpy(row_of(out, row).data + own->count, row_of(in, row).data + own->index, sizeof(float) * own->size);
                });
                break;
            case HEAD_COPY:
                each_row(rows, [&](int64_t row) {
                    const int32_t* order = static_cast<const int32_t*>(own->weight);
                    const float* from = row_of(out, row).data + own->index * own->size;
                    float* to = row_of(out, row).data + (own->index + own->count) * own->size;
                    for (int head = 0; head < own->count; head++, from += own->size, to += own->size) {
                        for (int64_t i = 0; i < own->size; i++) to[i] = from[order[i]];
                    }
                });
                break;
            case PRODUCT:
                product(*own, work, rows);
                break;
            case HEAD_PRODUCT:
                head_product(*own, work, rows);
                break;
            case TURN:
                each_row(rows, [&](int64_t row) {
                    const int64_t numbers = 2 * work.rotations[own->index].pairs;
                    const float* turns = places_.turns(own->index, row, numbers);
                    for (int head = 0; head < own->count; head++) {
                        kernels_.turn(row_of(out, row).data + head * own->size, turns, numbers);
                    }
                });
                break;
            case ATTEND:
                attend(*own, work, step);
                break;
            case CONVOLVE:
                convolve(*own, work, step);
                break;
            case DELTA:
                delta(*own, work, step);
                break;
            case TIMES_SIGMOID:
                each_row(rows, [&](int64_t row) {
                    float* numbers = row_of(out, row).data;
                    kernels_.gate(row_of(in, row).data + own->index, numbers, numbers, own->size, SIGMOID_GATE);
                });
                break;
            case MAMBA2:
                mamba2(*own, work, step);
                break;
            case GATED_NORM:
                each_row(rows, [&](int64_t row) {
                    float* numbers = row_of(out, row).data;
                    kernels_.gate(row_of(in, row).data, numbers, numbers, own->count * own->size, SILU);
                    for (int64_t i = 0; i < own->count * own->size; i += own->size) {
                        kernels_.norm(numbers + i, numbers + i, weight + i, own->size, own->number);
                    }
                });
                break;
            case GATE:
                each_row(rows, [&](int64_t row) {
                    const float* gate = row_of(in, row).data;
                    kernels_.gate(gate, gate + own->size, row_of(out, row).data, own->size, own->index);
                });
                break;
            case ADD:
                each_row(rows, [&](int64_t row) {
                    float* sum = row_of(out, row).data;
                    const float* added = row_of(in, row).data;
                    for (int64_t i = 0; i < own->size; i++) sum[i] = own->flag ? added[i] : sum[i] + added[i];
                });
                break;
            case PICK:
                pick(*own, in, out, step);
                rows = step.picked_count;
                if (rows == 0) return;
                break;
            case ROUND:
                each_row(rows, [&](int64_t row) {
                    round_row(row_of(in, row).data, work.rounded + row * own->size, own->size);
                });
                break;
            case SCALE:
                each_row(rows, [&](int64_t row) {
                    float* numbers = row_of(out, row).data;
                    if (own->number == 0.0f) std::memset(numbers, 0, sizeof(float) * own->size);
                    for (int64_t i = 0; i < own->size; i++) numbers[i] *= own->number;
                });
                break;
            case ROUTE:
                route(*own, work, rows);
                break;
            case EXPERTS:
                experts(*own, work, rows);
                break;
            case GROW:
                each_row(rows, [&](int64_t row) {
                    const double grown = std::log1p((places_.position(row) + own->count) / own->index);
                    const float factor = static_cast<float>(1.0 + own->number * grown);
                    float* numbers = row_of(out, row).data;
                    for (int64_t i = 0; i < own->size; i++) numbers[i] *= factor;
                });
                break;
            case CAP:
                each_row(rows, [&](int64_t row) { kernels_.cap(row_of(out, row).data, own->size, own->number); });
                break;
        }
    }
}

void Engine::embed(const Operation& operation, Rows out, const Step& step) {
    const Segment& segment = *operation.matrix->segments;
    const int64_t columns = operation.matrix->inputs, bytes = panel_bytes(segment.format, columns);
    const int32_t* ids = step.ids;
    each_row(step.rows, [&](int64_t row) {
        float* place = row_of(out, row).data;
        const int64_t own = static_cast<int64_t>(ids[row]) - operation.index;
        if (own < 0 || own >= segment.rows) return void(std::memset(place, 0, sizeof(float) * columns));
        const uint8_t* panel = segment.panels + own / 16 * bytes;
        const int place_in_panel = static_cast<int>(own % 16);
        if (!segment.order) return kernels_.unpack_row(segment.format, panel, columns, place_in_panel, place);
        static thread_local std::vector<float> numbers;
        numbers.resize(columns);
        kernels_.unpack_row(segment.format, panel, columns, place_in_panel, numbers.data());
        for (int64_t i = 0; i < columns; i++) place[segment.order[i]] = numbers[i];
    });
}

void Engine::take(const Operation& operation, Rows out, const Step& step) {
    const int64_t size = operation.size;
    each_row(step.rows, [&](int64_t row) {
        float* place = row_of(out, row).data;
        if (!operation.flag) {
            std::memcpy(place, static_cast<const uint8_t*>(step.input) + 4 * size * row, 4 * size);
            return;
        }
        const uint8_t* halves = static_cast<const uint8_t*>(step.input) + 2 * size * row;
        for (int64_t i = 0; i < size; i++) {
            uint16_t half;
            std::memcpy(&half, halves + 2 * i, 2);
            const uint32_t bits = static_cast<uint32_t>(half) << 16;
            std::memcpy(place + i, &bits, 4);
        }
    });
}

void Engine::pick(const Operation& operation, Rows in, Rows out, const Step& step) {
    each_row(step.picked_count, [&](int64_t i) {
        std::memcpy(row_of(out, i).data, row_of(in, step.picked[i]).data, sizeof(float) * operation.size);
    });
}

void Engine::prepare(bool floats, const Work& work, Rows in, const int32_t* order, int64_t rows, int64_t columns) {
    uint8_t* place = floats ? work.prepared_floats : work.prepared;
    const int64_t most = kernels_.group_rows(floats, work.digits, rows), groups = (rows + most - 1) / most;
    share(groups, [&](int64_t group, uint8_t*) {
        const int64_t end = (group + 1) * most < rows ? (group + 1) * most : rows;
        for (int64_t row = group * most, size = 0; row < end; row += size) {
            size = kernels_.group_rows(floats, work.digits, end - row);
            kernels_.prepare(floats, work.digits, in, order, row, size, columns, place);
        }
    });
}

// Segments whose columns have another order than those before need rows that are prepared anew.
void Engine::product(const Operation& operation, const Work& work, int64_t rows) {
    const Segment* segments = operation.matrix->segments;
    for (int first = 0, end = 0; first < operation.matrix->segment_count; first = end) {
        while (end < operation.matrix->segment_count && segments[end].order == segments[first].order) end++;
        product(operation, work, rows, first, end);
    }
}

// The product with neighbouring segments whose columns have the same order.
void Engine::product(const Operation& operation, const Work& work, int64_t rows, int first_segment, int end_segment) {
    const Matrix& matrix = *operation.matrix;
    const Rows in = work.buffers[operation.in], out = work.buffers[operation.out];
    bool wanted[2] = {false, false};
    int64_t panels = 0;
    for (int i = first_segment; i < end_segment; i++) {
        wanted[is_float(matrix.segments[i].format)] = true;
        panels += (matrix.segments[i].rows + 15) / 16;
    }
    for (int floats = 0; floats < 2; floats++) {
        if (wanted[floats]) prepare(floats != 0, work, in, matrix.segments[first_segment].order, rows, matrix.inputs);
    }
    int64_t most = (panels + pool_.threads() * TASKS_A_THREAD - 1) / (pool_.threads() * TASKS_A_THREAD);
    if (pool_.threads() == 1) most = panels;
    if (rows > 1) most = (most + TILE_PANELS - 1) / TILE_PANELS * TILE_PANELS;
    struct Task {
        const Segment* segment;
        int64_t first, end;
    };
    static thread_local std::vector<Task> tasks;
    tasks.clear();
    for (int i = first_segment; i < end_segment; i++) {
        const Segment& segment = matrix.segments[i];
        const int64_t own = (segment.rows + 15) / 16;
        for (int64_t first = 0; first < own; first += most) tasks.push_back({&segment, first, first + most < own ? first + most : own});
    }
    const std::vector<Task>& shared = tasks;
    share(static_cast<int64_t>(shared.size()), [&](int64_t number, uint8_t* scratch) {
        const Task& task = shared[number];
        const uint8_t* prepared = is_float(task.segment->format) ? work.prepared_floats : work.prepared;
        kernels_.multiply(matrix, *task.segment, work.digits, prepared, rows, task.first, task.end, out, operation.flag != 0,
                          scratch);
    });
}

// Each task has some rows of one head, which it prepares in a place of its own.
void Engine::head_product(const Operation& operation, const Work& work, int64_t rows) {
    const Rows in = work.buffers[operation.in], out = work.buffers[operation.out];
    const int64_t kept = operation.index, parts = (rows + ROWS_A_TASK - 1) / ROWS_A_TASK;
    share(operation.count * parts, [&](int64_t number, uint8_t* scratch) {
        const int64_t head = number / parts, first = number % parts * ROWS_A_TASK;
        const int64_t own = rows - first < ROWS_A_TASK ? rows - first : ROWS_A_TASK;
        const Matrix& matrix = operation.matrix[head];
        const Segment& segment = *matrix.segments;
        Rows from = row_of(in, first), to = row_of(out, first);
        from.data += head * operation.size;
        to.data += head * (kept + segment.rows);
        for (int64_t row = 0; row < own && kept; row++) {
            std::memcpy(row_of(to, row).data, row_of(from, row).data, sizeof(float) * kept);
        }
        from.data += kept;
        to.data += kept;
        const bool floats = is_float(segment.format);
        static thread_local std::vector<uint8_t> memory;
        memory.resize(kernels_.prepared_bytes(floats, work.digits, own, matrix.inputs) + ALIGNMENT);
        uint8_t* place = memory.data() + (ALIGNMENT - reinterpret_cast<uintptr_t>(memory.data()) % ALIGNMENT) % ALIGNMENT;
        for (int64_t row = 0, size = 0; row < own; row += size) {
            size = kernels_.group_rows(floats, work.digits, own - row);
            kernels_.prepare(floats, work.digits, from, segment.order, row, size, matrix.inputs, place);
        }
        kernels_.multiply(matrix, segment, work.digits, place, own, 0, (segment.rows + 15) / 16, to, false, scratch);
    });
}

void Engine::keep(const Pages& pages, Rows in, int64_t keys, int64_t values, const Step& step) {
    for (int64_t i = 0; i < step.span_count; i++) {
        const StepSpan& span = step.spans[i];
        const int32_t* tiles = places_.tiles(i);
        each_row(span.rows, [&](int64_t place) {
            const int64_t ahead = span.start + place - span.first_position;
            const float* row = row_of(in, span.first_row + place).data;
            for (int head = 0; head < pages.kv_heads; head++) {
                kernels_.keep(pages, head, tiles[ahead / 16], static_cast<int>(ahead % 16), row + keys + head * pages.head_dim,
                              row + values + head * pages.value_dim);
            }
        });
    }
}

// Where all heads read the same keys they are shared out as well as rows.
void Engine::attend(const Operation& operation, const Work& work, const Step& step) {
    const Layer& layer = work.layers[operation.index];
    const Pages& pages = layer.pages;
    const Rows in = work.buffers[operation.in], out = work.buffers[operation.out];
    const int64_t queries = static_cast<int64_t>(layer.form.heads) * pages.head_dim;
    const int64_t keys = static_cast<int64_t>(pages.kv_heads) * pages.head_dim;
    const int all = layer.form.heads / pages.kv_heads, group = pages.kv_heads == 1 && all > HEADS_A_TASK ? HEADS_A_TASK : all;
    const int64_t parts = pages.kv_heads == 1 ? (all + group - 1) / group : pages.kv_heads;
    const int64_t most = READERS_A_TASK / group > 1 ? READERS_A_TASK / group : 1;
    struct Task {
        const StepSpan* span;
        const int32_t* tiles;
        int32_t first, rows;
    };
    static thread_local std::vector<Task> tasks;
    tasks.clear();
    for (int64_t i = 0; i < step.span_count; i++) {
        const StepSpan& span = step.spans[i];
        for (int32_t first = 0; first < span.rows; first += most) {
            const int64_t own = span.rows - first < most ? span.rows - first : most;
            tasks.push_back({&span, places_.tiles(i), first, static_cast<int32_t>(own)});
        }
    }
    const std::vector<Task>& shared = tasks;
    const int64_t count = static_cast<int64_t>(shared.size());
    if (!operation.flag) keep(pages, in, queries, queries + keys, step);
    share(count * parts, [&](int64_t number, uint8_t* scratch) {
        const Task& task = shared[number / parts];
        const int part = static_cast<int>(number % parts), first_head = pages.kv_heads == 1 ? part * group : 0;
        StepRow rows[READERS_A_TASK];
        for (int32_t i = 0; i < task.rows; i++) {
            rows[i] = {task.tiles, task.span->start + task.first + i, task.span->first_position};
        }
        const int64_t first = task.span->first_row + task.first;
        Rows queries = row_of(in, first), read = row_of(out, first);
        AttentionForm form = layer.form;
        if (pages.kv_heads == 1) {
            form.heads = all - first_head < group ? all - first_head : group;
            form.sinks = form.sinks ? form.sinks + first_head : nullptr;
            queries.data += static_cast<int64_t>(first_head) * pages.head_dim;
            read.data += static_cast<int64_t>(first_head) * pages.value_dim;
        }
        kernels_.attend(pages, form, rows, task.rows, pages.kv_heads == 1 ? 0 : part, queries, read, scratch);
    });
}

}  // namespace layerline
