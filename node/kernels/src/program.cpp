#include "program.h"

#include <vector>

namespace layerline {
namespace {

constexpr int64_t ALIGNMENT = 64;
constexpr int64_t FEW_ROWS = 4;        // are dealt with by one thread, since waking others would take longer
constexpr int64_t TASKS_A_THREAD = 4;  // so that a thread that was held up leaves the rest to the others
constexpr int64_t TILE_PANELS = 4;     // that are multiplied with several rows together
constexpr int64_t READERS_A_TASK = 128;
constexpr int64_t READER_BYTES = 64;  // of what is kept of a reader besides its sums, at most

Rows row_of(Rows rows, int64_t row) { return {rows.data + row * rows.stride, rows.stride}; }

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

// Calls `task(number, scratch)` for every number below `tasks`, on all threads.
template <typename Task> void Engine::share(int64_t tasks, Task task) {
    if (tasks <= 1 || pool_.threads() == 1) {
        for (int64_t number = 0; number < tasks; number++) task(number, scratch_);
        return;
    }
    std::atomic<int64_t> next{0};
    auto work = [&](int thread) {
        for (int64_t number = next++; number < tasks; number = next++) task(number, scratch_ + scratch_bytes_ * thread);
    };
    pool_.together(work);
}

void Engine::run(const Operation* operations, int64_t count, const Work& work, const Step& step) {
    for (const Operation* own = operations; own < operations + count; own++) {
        const Rows in = work.buffers[own->in], out = work.buffers[own->out];
        const float* weight = static_cast<const float*>(own->weight);
        auto each_row = [&](auto change) {
            const int64_t parts = step.rows <= FEW_ROWS ? 1 : pool_.threads() * TASKS_A_THREAD;
            share(parts, [&](int64_t part, uint8_t*) {
                const int64_t end = step.rows * (part + 1) / parts;
                for (int64_t row = step.rows * part / parts; row < end; row++) change(row);
            });
        };
        switch (own->kind) {
            case NORM:
                each_row([&](int64_t row) {
                    kernels_.norm(row_of(in, row).data, row_of(out, row).data, weight, own->size, own->number);
                });
                break;
            case HEAD_NORM:
                each_row([&](int64_t row) {
                    for (int head = own->index; head < own->index + own->count; head++) {
                        float* numbers = row_of(out, row).data + head * own->size;
                        kernels_.norm(numbers, numbers, weight, own->size, own->number);
                    }
                });
                break;
            case PRODUCT:
                product(*own, work, step.rows);
                break;
            case TURN:
                each_row([&](int64_t row) {
                    const float* turns = step.turns[own->index] + row * own->size;
                    for (int head = 0; head < own->count; head++) {
                        kernels_.turn(row_of(out, row).data + head * own->size, turns, own->size);
                    }
                });
                break;
            case ATTEND:
                attend(*own, work, step);
                break;
            case GATE:
                each_row([&](int64_t row) {
                    const float* gate = row_of(in, row).data;
                    kernels_.gate(gate, gate + own->size, row_of(out, row).data, own->size, own->flag);
                });
                break;
            case ADD:
                each_row([&](int64_t row) {
                    float* sum = row_of(out, row).data;
                    const float* added = row_of(in, row).data;
                    for (int64_t i = 0; i < own->size; i++) sum[i] += added[i];
                });
                break;
        }
    }
}

void Engine::prepare(bool floats, const Work& work, Rows in, int64_t rows, int64_t columns) {
    uint8_t* place = floats ? work.prepared_floats : work.prepared;
    const int64_t most = kernels_.group_rows(floats, work.digits, rows), groups = (rows + most - 1) / most;
    share(groups, [&](int64_t group, uint8_t*) {
        const int64_t end = (group + 1) * most < rows ? (group + 1) * most : rows;
        for (int64_t row = group * most, size = 0; row < end; row += size) {
            size = kernels_.group_rows(floats, work.digits, end - row);
            kernels_.prepare(floats, work.digits, in, row, size, columns, place);
        }
    });
}

void Engine::product(const Operation& operation, const Work& work, int64_t rows) {
    const Matrix& matrix = *operation.matrix;
    const Rows in = work.buffers[operation.in], out = work.buffers[operation.out];
    bool wanted[2] = {false, false};
    int64_t panels = 0;
    for (int i = 0; i < matrix.segment_count; i++) {
        wanted[is_float(matrix.segments[i].format)] = true;
        panels += (matrix.segments[i].rows + 15) / 16;
    }
    for (int floats = 0; floats < 2; floats++) {
        if (wanted[floats]) prepare(floats != 0, work, in, rows, matrix.inputs);
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
    for (int i = 0; i < matrix.segment_count; i++) {
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

void Engine::attend(const Operation& operation, const Work& work, const Step& step) {
    const Layer& layer = work.layers[operation.index];
    const Pages& pages = layer.pages;
    const Rows in = work.buffers[operation.in], out = work.buffers[operation.out];
    const int64_t queries = static_cast<int64_t>(layer.form.heads) * pages.head_dim;
    const int64_t keys = static_cast<int64_t>(pages.kv_heads) * pages.head_dim;
    const int group = layer.form.heads / pages.kv_heads;
    const int64_t most = READERS_A_TASK / group > 1 ? READERS_A_TASK / group : 1;
    struct Task {
        const StepSpan* span;
        int32_t first, rows;
    };
    static thread_local std::vector<Task> tasks;
    tasks.clear();
    for (const StepSpan* span = step.spans; span < step.spans + step.span_count; span++) {
        for (int32_t first = 0; first < span->rows; first += most) {
            tasks.push_back({span, first, static_cast<int32_t>(span->rows - first < most ? span->rows - first : most)});
        }
    }
    const std::vector<Task>& shared = tasks;
    auto keep = [&](int64_t number, uint8_t*) {
        const Task& task = shared[number];
        for (int32_t i = task.first; i < task.first + task.rows; i++) {
            const int32_t ahead = task.span->start + i - task.span->first_position;
            const float* row = row_of(in, task.span->first_row + i).data;
            for (int head = 0; head < pages.kv_heads; head++) {
                kernels_.keep(pages, head, task.span->tiles[ahead / 16], ahead % 16, row + queries + head * pages.head_dim,
                              row + queries + keys + head * pages.value_dim);
            }
        }
    };
    const int64_t count = static_cast<int64_t>(shared.size());
    if (step.rows <= FEW_ROWS) {
        for (int64_t number = 0; number < count; number++) keep(number, scratch_);
    } else {
        share(count, keep);
    }
    share(count * pages.kv_heads, [&](int64_t number, uint8_t* scratch) {
        const Task& task = shared[number / pages.kv_heads];
        StepRow rows[READERS_A_TASK];
        for (int32_t i = 0; i < task.rows; i++) {
            rows[i] = {task.span->tiles, task.span->start + task.first + i, task.span->first_position};
        }
        const int64_t first = task.span->first_row + task.first;
        kernels_.attend(pages, layer.form, rows, task.rows, static_cast<int>(number % pages.kv_heads), row_of(in, first),
                        row_of(out, first), scratch);
    });
}

// Rows of a matrix as floats, such as those of an embedding.
void Engine::look_up(const Segment& segment, int64_t columns, const int32_t* rows, int64_t count, float* out) {
    const int64_t bytes = panel_bytes(segment.format, columns);
    share(count, [&](int64_t i, uint8_t*) {
        kernels_.unpack_row(segment.format, segment.panels + rows[i] / 16 * bytes, columns, rows[i] % 16, out + i * columns);
    });
}

}  // namespace layerline
