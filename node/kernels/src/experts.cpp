// A feed-forward of experts: of each only the rows that chose it, and nothing of those that no row chose.
#include <cstring>

#include "program.h"

namespace layerline {
namespace {

// Neighbouring segments of a matrix whose columns have one order, for which rows are prepared once.
struct Run {
    const Segment *first, *end;

    bool is_multiplied_with(bool floats) const {
        for (const Segment* segment = first; segment < end; segment++) {
            if (is_float(segment->format) == floats) return true;
        }
        return false;
    }
};

// The run of that number; empty if there are fewer.
Run run_of(const Matrix& matrix, int number) {
    const Segment *first = matrix.segments, *last = first + matrix.segment_count, *end = first;
    for (int i = 0; i <= number; i++) {
        for (first = end; end < last && end->order == first->order; end++) {}
    }
    return {first, end};
}

// Whether a matrix has columns in another order than the inputs'.
bool is_ordered(const Experts& experts, const Matrix* matrices) {
    for (const Matrix* matrix = matrices; matrix < matrices + experts.count + experts.shared; matrix++) {
        for (int i = 0; i < matrix->segment_count; i++) {
            if (matrix->segments[i].order) return true;
        }
    }
    return false;
}

}  // namespace

void Engine::route(const Operation& operation, const Work& work, int64_t rows) {
    const Experts& experts = *static_cast<const Experts*>(operation.weight);
    const Rows logits = work.buffers[operation.in];
    choice_.begin(experts, rows);
    each_row(rows, [&](int64_t row) { choice_.choose(experts, row_of(logits, row).data, row); });
    choice_.sort(experts, places_);
}

// What a row's experts made of it is added in the order in which it chose them, whoever else chose them.
void Engine::experts(const Operation& operation, const Work& work, int64_t rows) {
    const Experts& experts = *static_cast<const Experts*>(operation.weight);
    const Rows in = work.buffers[operation.in], out = work.buffers[operation.out];
    const Rows own = work.buffers[operation.index], wide = work.buffers[operation.index + 1];
    const Rows narrow = work.buffers[operation.index + 2];
    const int64_t size = operation.size;
    if (rows == 1 && !experts.weighs_input && !is_ordered(experts, experts.gate_up)) {
        row_products(experts, experts.gate_up, work, in, wide, size);
    } else {
        products(experts, experts.gate_up, work, own, wide, [&](const Matrix&, int64_t pair) {
            float* place = row_of(own, pair).data;
            std::memcpy(place, row_of(in, choice_.row(pair)).data, sizeof(float) * size);
            const float weight = choice_.input_weight(pair);
            for (int64_t i = 0; experts.weighs_input && i < size; i++) place[i] *= weight;
        });
    }
    products(experts, experts.down, work, narrow, own, [&](const Matrix& down, int64_t pair) {
        const float* gate = row_of(wide, pair).data;
        kernels_.gate(gate, gate + down.inputs, row_of(narrow, pair).data, down.inputs, experts.activation);
    });
    each_row(rows, [&](int64_t row) {
        const float* weights = choice_.weights(row);
        const int64_t* pairs = choice_.pairs(row);
        float *sum = nullptr, *target = row_of(out, row).data;
        for (int64_t j = 0; j < choice_.of_a_row(); j++) {
            if (pairs[j] == ELSEWHERE) continue;
            float *made = row_of(own, pairs[j]).data, weight = weights[j];
            if (sum) {
                for (int64_t i = 0; i < size; i++) sum[i] += made[i] * weight;
            } else {
                sum = made;
                for (int64_t i = 0; i < size; i++) sum[i] *= weight;
            }
        }
        if (sum) {
            for (int64_t i = 0; i < size; i++) target[i] = operation.flag ? target[i] + sum[i] : sum[i];
        } else if (!operation.flag) {
            std::memset(target, 0, sizeof(float) * size);
        }
    });
}

// The products of each pair's row in `in`, which `fill(matrix, pair)` puts there, with its expert's matrix.
template <typename Fill>
void Engine::products(const Experts& experts, const Matrix* matrices, const Work& work, Rows in, Rows out, Fill fill) {
    const int count = experts.count + experts.shared;
    int runs = 1;
    for (int number = 0; number < runs; number++) {
        for (int floats = 0; floats < 2; floats++) {
            struct Group {
                int expert;
                int64_t first, end;  // rows of this expert's
                bool is_new;
            };
            static thread_local std::vector<Group> groups;
            groups.clear();
            for (int expert = 0; expert < count; expert++) {
                const int64_t rows = choice_.count(expert);
                const Run run = run_of(matrices[expert], number);
                if (!rows || !run.is_multiplied_with(floats != 0)) continue;
                const bool is_new = number == 0 && (!floats || !run.is_multiplied_with(false));
                const int64_t most = kernels_.group_rows(floats != 0, work.digits, rows);
                for (int64_t first = 0; first < rows; first += most) {
                    groups.push_back({expert, first, first + most < rows ? first + most : rows, is_new});
                }
            }
            const std::vector<Group>& shared = groups;
            share(static_cast<int64_t>(shared.size()), [&](int64_t task, uint8_t*) {
                const Group& group = shared[task];
                const Matrix& matrix = matrices[group.expert];
                const int64_t first_pair = choice_.first(group.expert);
                for (int64_t row = group.first; group.is_new && row < group.end; row++) fill(matrix, first_pair + row);
                uint8_t* place = place_of(work, floats != 0, group.expert, in.stride);
                for (int64_t row = group.first, size = 0; row < group.end; row += size) {
                    size = kernels_.group_rows(floats != 0, work.digits, group.end - row);
                    kernels_.prepare(floats != 0, work.digits, row_of(in, first_pair), run_of(matrix, number).first->order, row,
                                     size, matrix.inputs, place);
                }
            });
        }
        multiply(experts, matrices, number, work, in.stride, out);
        for (int expert = 0; expert < count; expert++) {
            const Run next = run_of(matrices[expert], number + 1);
            if (choice_.count(expert) && next.first < next.end) runs = number + 2;
        }
    }
}

// The products of one row with the matrices of all its experts, for which it is prepared once.
void Engine::row_products(const Experts& experts, const Matrix* matrices, const Work& work, Rows in, Rows out,
                          int64_t columns) {
    for (int floats = 0; floats < 2; floats++) {
        bool is_wanted = false;
        for (int expert = 0; expert < experts.count + experts.shared; expert++) {
            is_wanted |= choice_.count(expert) && run_of(matrices[expert], 0).is_multiplied_with(floats != 0);
        }
        if (is_wanted) prepare(floats != 0, work, in, nullptr, 1, columns);
    }
    multiply(experts, matrices, 0, work, 0, out);
}

// Where the prepared rows of an expert begin. Matrices of experts may have fewer columns than there is room for.
uint8_t* Engine::place_of(const Work& work, bool floats, int expert, int64_t most_columns) const {
    uint8_t* place = floats ? work.prepared_floats : work.prepared;
    return place + kernels_.prepared_bytes(floats, work.digits, choice_.first(expert), most_columns);
}

// Multiplies one run of every expert's matrix, by panels. Without columns there is one prepared row, for all of them.
void Engine::multiply(const Experts& experts, const Matrix* matrices, int number, const Work& work, int64_t most_columns,
                      Rows out) {
    const int count = experts.count + experts.shared;
    struct Task {
        const Segment* segment;
        int expert;
        int64_t first, end;
    };
    static thread_local std::vector<Task> tasks;
    tasks.clear();
    int64_t panels = 0;
    for (int expert = 0; expert < count; expert++) {
        const Run run = run_of(matrices[expert], number);
        for (const Segment* segment = run.first; choice_.count(expert) && segment < run.end; segment++) {
            panels += (segment->rows + 15) / 16;
        }
    }
    const int64_t parts = pool_.threads() == 1 ? 1 : pool_.threads() * TASKS_A_THREAD;
    for (int expert = 0; expert < count; expert++) {
        const int64_t rows = choice_.count(expert);
        const Run run = run_of(matrices[expert], number);
        int64_t most = (panels + parts - 1) / parts;
        if (rows > 1) most = (most + TILE_PANELS - 1) / TILE_PANELS * TILE_PANELS;
        for (const Segment* segment = run.first; rows && segment < run.end; segment++) {
            const int64_t own = (segment->rows + 15) / 16;
            for (int64_t first = 0; first < own; first += most) {
                tasks.push_back({segment, expert, first, first + most < own ? first + most : own});
            }
        }
    }
    const std::vector<Task>& shared = tasks;
    share(static_cast<int64_t>(shared.size()), [&](int64_t task, uint8_t* scratch) {
        const Task& own = shared[task];
        const uint8_t* prepared = place_of(work, is_float(own.segment->format), own.expert, most_columns);
        kernels_.multiply(matrices[own.expert], *own.segment, work.digits, prepared, choice_.count(own.expert), own.first,
                          own.end, row_of(out, choice_.first(own.expert)), false, scratch);
    });
}

}  // namespace layerline
