// Where the rows of a step lie: the tiles of each span's positions, and how far the pairs of each row are turned.
#pragma once
#include <vector>

#include "library.h"

namespace layerline {

class Places {
  public:
    // Takes the pages and positions of a step's spans; the turns of its rows are still to be made, one row after the other.
    void take(const Work& work, const Step& step);
    // Cosine and sine of every pair of a row, of every rotation. Computed in double and rounded, so that no other library or
    // processor gives other bits; the angle itself is a product of floats, as models were trained with, and so is the amplitude.
    void turn_row(const Work& work, int64_t row);

    // Of a span's positions, from its first_position on.
    const int32_t* tiles(int64_t span) const { return tiles_.data() + first_tiles_[span]; }
    int32_t position(int64_t row) const { return positions_[row]; }
    const float* turns(int rotation, int64_t row, int64_t numbers) const { return turns_[rotation].data() + row * numbers; }

  private:
    std::vector<int32_t> tiles_, positions_;
    std::vector<int64_t> first_tiles_;      // of each span
    std::vector<std::vector<float>> turns_;  // of each rotation
};

}  // namespace layerline
