// Which experts the rows of a step have: chosen row by row, then all pairs of a row and an expert, expert by expert.
#pragma once
#include <vector>

#include "library.h"
#include "places.h"

namespace layerline {

constexpr int64_t ELSEWHERE = -1;

class Choice {
  public:
    // Makes room for the rows of a step; their experts are still to be chosen, one row after the other, and then sorted.
    void begin(const Experts& experts, int64_t rows);
    // The experts of a row by its logits: those with the largest scores, the best first, of equals the one with the lower
    // number; after them the shared one. Computed in double and rounded, so that libraries hardly ever give other bits.
    void choose(const Experts& experts, const float* logits, int64_t row);
    // Numbers the pairs that are computed here, and counts the rows of all experts.
    void sort(const Experts& experts, const Places& places);

    // The pairs of an expert that are computed here, whose numbers are neighbours, and the row of a pair.
    int64_t first(int expert) const { return firsts_[expert]; }
    int64_t count(int expert) const { return firsts_[expert + 1] - firsts_[expert]; }
    int64_t row(int64_t pair) const { return rows_[pair]; }
    // What a pair's row is multiplied by before its expert gets it.
    float input_weight(int64_t pair) const { return input_weights_[pair]; }

    // What is multiplied with what a row's experts give, and the numbers of their pairs, in the order in which they were chosen;
    // of those that are computed elsewhere the number is ELSEWHERE.
    int64_t of_a_row() const { return of_a_row_; }
    const float* weights(int64_t row) const { return weights_.data() + row * of_a_row_; }
    const int64_t* pairs(int64_t row) const { return pairs_.data() + row * of_a_row_; }

  private:
    int64_t of_a_row_ = 0;
    std::vector<int32_t> experts_;  // of each row
    std::vector<float> weights_, chosen_input_weights_;  // in the same order
    std::vector<float> input_weights_;                    // of each pair
    std::vector<int64_t> pairs_, rows_, firsts_;
};

}  // namespace layerline
