#include "choice.h"

#include <cmath>
#include <limits>

namespace layerline {
namespace {

constexpr double NEVER = -std::numeric_limits<double>::infinity();
constexpr double LEAST_SUM = std::numeric_limits<float>::min();

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Makes numbers powers of e that are 1 in all.
void softmax(double* numbers, int count) {
    double most = NEVER, sum = 0.0;
    for (int i = 0; i < count; i++) most = numbers[i] > most ? numbers[i] : most;
    for (int i = 0; i < count; i++) sum += numbers[i] = std::exp(numbers[i] - most);
    for (int i = 0; i < count; i++) numbers[i] /= sum;
}

// Takes the place of the largest number out, of equals the first. Numbers that are none are taken in their order.
int largest(std::vector<double>& numbers, std::vector<char>& taken) {
    int found = -1;
    for (int i = 0; i < static_cast<int>(numbers.size()); i++) {
        if (!taken[i] && (found < 0 || numbers[i] > numbers[found])) found = i;
    }
    taken[found] = 1;
    return found;
}

// The places of the largest numbers that are not taken, in order, of equals the first; numbers that are none stay where they are.
void largest(const std::vector<double>& numbers, const std::vector<char>& taken, int count, int32_t* places) {
    int found = 0;
    for (int i = 0; i < static_cast<int>(numbers.size()); i++) {
        if (taken[i] || (found == count && !(numbers[i] > numbers[places[found - 1]]))) continue;
        int place = found < count ? found++ : found - 1;
        for (; place > 0 && numbers[i] > numbers[places[place - 1]]; place--) places[place] = places[place - 1];
        places[place] = i;
    }
}

// Leaves out the experts of all groups but the best: a group is as good as its best expert, or its two best.
void keep_best_groups(const Experts& experts, const std::vector<double>& merits, std::vector<char>& taken) {
    const int own = experts.count / experts.groups;
    std::vector<double> groups(experts.groups);
    for (int group = 0; group < experts.groups; group++) {
        double first = NEVER, second = NEVER;
        for (int i = group * own; i < (group + 1) * own; i++) {
            if (merits[i] > first) {
                second = first;
                first = merits[i];
            } else if (merits[i] > second) {
                second = merits[i];
            }
        }
        groups[group] = experts.group_best == 1 ? first : first + second;
    }
    std::vector<char> kept(experts.groups, 0);
    for (int i = 0; i < experts.chosen_groups; i++) largest(groups, kept);
    for (int i = 0; i < experts.count; i++) taken[i] = !kept[i / own];
}

// Whether the row of an expert at that position is computed here.
bool is_turn(const Experts& experts, int32_t expert, int32_t position) {
    return experts.turns[expert] >= 0 && position % experts.copies[expert] == experts.turns[expert];
}

}  // namespace

void Choice::begin(const Experts& experts, int64_t rows) {
    of_a_row_ = experts.chosen + experts.shared;
    experts_.resize(rows * of_a_row_);
    weights_.assign(rows * of_a_row_, 1.0f);
    chosen_input_weights_.assign(rows * of_a_row_, 1.0f);
    input_weights_.resize(rows * of_a_row_);
    pairs_.resize(rows * of_a_row_);
    rows_.resize(rows * of_a_row_);
    firsts_.resize(experts.count + experts.shared + 1);
}

void Choice::choose(const Experts& experts, const float* logits, int64_t row) {
    static thread_local std::vector<double> scores, merits;
    static thread_local std::vector<char> taken;
    scores.assign(logits, logits + experts.count);
    if (experts.scoring == SOFTMAX) softmax(scores.data(), experts.count);
    if (experts.scoring == SIGMOID) {
        for (double& score : scores) score = sigmoid(score);
    }
    merits = scores;
    for (int i = 0; experts.choice_bias && i < experts.count; i++) merits[i] += experts.choice_bias[i];
    taken.assign(experts.count, 0);
    if (experts.chosen_groups < experts.groups) keep_best_groups(experts, merits, taken);
    int32_t* own = experts_.data() + row * of_a_row_;
    float* weights = weights_.data() + row * of_a_row_;
    float* chosen_weights = experts.weighs_input ? chosen_input_weights_.data() + row * of_a_row_ : weights;
    largest(merits, taken, experts.chosen, own);

    static thread_local std::vector<double> chosen;
    chosen.resize(experts.chosen);
    for (int i = 0; i < experts.chosen; i++) chosen[i] = scores[own[i]];
    if (experts.scoring == SOFTMAX_OF_CHOSEN) softmax(chosen.data(), experts.chosen);
    if (experts.scoring == SIGMOID_OF_CHOSEN) {
        for (double& score : chosen) score = sigmoid(score);
    }
    double sum = 0.0;
    for (double score : chosen) sum += score;
    const double divisor = !experts.normalised ? 1.0 : sum < LEAST_SUM ? LEAST_SUM : sum;
    for (int i = 0; i < experts.chosen; i++) {
        const double scale = experts.scales ? experts.scales[own[i]] * static_cast<double>(experts.scale) : experts.scale;
        chosen_weights[i] = static_cast<float>(chosen[i] / divisor * scale);
    }
    if (!experts.shared) return;
    own[experts.chosen] = experts.count;
    if (experts.shared_gate) weights[experts.chosen] = static_cast<float>(sigmoid(logits[experts.count]));
}

// By counting: the pairs of an expert are in the order of their rows.
void Choice::sort(const Experts& experts, const Places& places) {
    const int64_t pairs = static_cast<int64_t>(experts_.size());
    firsts_.assign(experts.count + experts.shared + 1, 0);
    for (int64_t i = 0; i < pairs; i++) {
        const int32_t expert = experts_[i];
        const bool is_here = !experts.copies || is_turn(experts, expert, places.position(i / of_a_row_));
        pairs_[i] = is_here ? 0 : ELSEWHERE;
        firsts_[expert + 1] += is_here;
        if (experts.rows && expert < experts.count) experts.rows[expert]++;
    }
    for (size_t expert = 1; expert < firsts_.size(); expert++) firsts_[expert] += firsts_[expert - 1];
    static thread_local std::vector<int64_t> next;
    next = firsts_;
    for (int64_t i = 0; i < pairs; i++) {
        if (pairs_[i] == ELSEWHERE) continue;
        pairs_[i] = next[experts_[i]]++;
        rows_[pairs_[i]] = i / of_a_row_;
        input_weights_[pairs_[i]] = chosen_input_weights_[i];
    }
}

}  // namespace layerline
