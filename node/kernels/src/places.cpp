#include "places.h"

#include <cmath>

namespace layerline {

void Places::take(const Work& work, const Step& step) {
    tiles_.clear();
    positions_.clear();
    first_tiles_.clear();
    for (const StepSpan* span = step.spans; span < step.spans + step.span_count; span++) {
        first_tiles_.push_back(static_cast<int64_t>(tiles_.size()));
        for (const PageRun* run = step.runs + span->first_run; run < step.runs + span->first_run + span->run_count; run++) {
            const int32_t end = (run->first + run->count) * work.page_tiles;
            for (int32_t tile = run->first * work.page_tiles; tile < end; tile++) tiles_.push_back(tile);
        }
        for (int32_t i = 0; i < span->rows; i++) positions_.push_back(span->start + i);
    }
    turns_.resize(work.rotation_count);
    for (int32_t i = 0; i < work.rotation_count; i++) turns_[i].resize(2 * step.rows * work.rotations[i].pairs);
}

void Places::turn_row(const Work& work, int64_t row) {
    for (int32_t i = 0; i < work.rotation_count; i++) {
        const Rotation& rotation = work.rotations[i];
        float* out = turns_[i].data() + 2 * row * rotation.pairs;
        for (int32_t pair = 0; pair < rotation.pairs; pair++) {
            const double angle = static_cast<float>(positions_[row]) * rotation.frequencies[pair];
            out[2 * pair] = static_cast<float>(std::cos(angle)) * rotation.amplitude;
            out[2 * pair + 1] = static_cast<float>(std::sin(angle)) * rotation.amplitude;
        }
    }
}

}  // namespace layerline
