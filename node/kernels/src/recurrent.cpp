// The operations that have a state beside pages: a sequence's rows are dealt with in order, its heads or channels by any thread.
#include "program.h"

namespace layerline {
namespace {

constexpr int64_t CHANNELS_A_TASK = 256;  // of a convolution

}  // namespace

void Engine::delta(const Operation& operation, const Work& work, const Step& step) {
    const DeltaNet& own = *static_cast<const DeltaNet*>(operation.weight);
    const Rows in = work.buffers[operation.in], out = work.buffers[operation.out];
    const States& states = work.layers[operation.index].states;
    share(step.span_count * own.value_heads, [&](int64_t number, uint8_t* scratch) {
        const StepSpan& span = step.spans[number / own.value_heads];
        kernels_.delta_head(own, static_cast<int>(number % own.value_heads), in, out, step.states + span.first_state,
                            span.state_count, states.numbers, states.slot_numbers, scratch);
    });
}

void Engine::convolve(const Operation& operation, const Work& work, const Step& step) {
    const Convolution& own = *static_cast<const Convolution*>(operation.weight);
    const Rows in = work.buffers[operation.in], out = work.buffers[operation.out];
    const States& states = work.layers[operation.index].states;
    const int64_t parts = (own.channels + CHANNELS_A_TASK - 1) / CHANNELS_A_TASK;
    auto task = [&](int64_t number, uint8_t*) {
        const StepSpan& span = step.spans[number / parts];
        const int64_t first = number % parts * CHANNELS_A_TASK, end = first + CHANNELS_A_TASK;
        kernels_.convolve(own, in, out, step.states + span.first_state, span.state_count, states.numbers, states.slot_numbers,
                          first, end < own.channels ? end : own.channels);
    };
    const int64_t tasks = step.span_count * parts;
    if (step.rows <= FEW_ROWS) {
        for (int64_t number = 0; number < tasks; number++) task(number, scratch_);
    } else {
        share(tasks, task);
    }
}

void Engine::mamba2(const Operation& operation, const Work& work, const Step& step) {
    const Mamba2& own = *static_cast<const Mamba2*>(operation.weight);
    const Rows in = work.buffers[operation.in], out = work.buffers[operation.out];
    const States& states = work.layers[operation.index].states;
    share(step.span_count * own.heads, [&](int64_t number, uint8_t*) {
        const StepSpan& span = step.spans[number / own.heads];
        kernels_.mamba_head(own, static_cast<int>(number % own.heads), in, out, step.states + span.first_state, span.state_count,
                            states.numbers, states.slot_numbers);
    });
}

}  // namespace layerline
