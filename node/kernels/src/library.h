// What this library offers to Python: plain C, no exception leaves it.
#pragma once
#include <cstdint>

#include "kernels.h"

namespace layerline {

bool is_float(int format);
int64_t row_bytes(int format, int64_t columns);
int64_t panel_bytes(int format, int64_t columns);

// Puts stored rows into a panel, the first as its row `first`; there are at most 16 - first.
void put_rows(int format, const uint8_t* const* stored, int64_t columns, int first, int count, uint8_t* panel);

// One operation of a program, on numbered buffers of rows. Which fields mean what is said at each kind.
enum OperationKind {
    EMBED,     // the rows of `matrix` that the step's `ids` name -> out; the first is that of id `index`, of other ids zeros
    TAKE,      // the step's input, `size` numbers a row, float32 or, if `flag`, bfloat16 -> out
    PLACE,     // where the step's rows lie, for TURN and ATTEND until the next one
    NORM,      // in -> out, by `weight` [size], epsilon `number`; of what is left without the mean if `flag`
    HEAD_NORM, // in place on `out`: `count` heads of `size` numbers from head `index` on, each by `weight` [size], or none
    PRODUCT,   // in -> out, by `matrix`; added to what is there if `flag`
    TURN,      // in place on `out`: of `count` heads of `size` numbers the pairs that rotation number `index` has
    ATTEND,    // keeps keys and values of `in` (queries, keys, values side by side) and reads, -> out; layer number `index`; if
               // `flag` it only reads
    GATE,      // in (gate, then up, `size` each) -> out; by activation number `index`
    ADD,       // out += in or, if `flag`, out = in; `size` numbers of each row
    PICK,      // the rows of `in` that the step picks, `size` numbers each -> out; further operations have these rows only
    ROUND,     // in, `size` numbers a row -> the work's rounded rows, as bfloat16
    SCALE,     // in place on `out`: `size` numbers a row times `number`; 0 makes zeros of whatever is there
    CAP,       // in place on `out`: `size` numbers a row, kept within `number` by tanh
    GROW,      // in place on `out`: `size` numbers of a row at position p times 1 + `number` * ln(1 + floor((p + `count`) / `index`))
    ROUTE,     // chooses experts by the logits of `in`, for EXPERTS until the next one; `weight` is an `Experts`
    EXPERTS,   // in -> out, `size` numbers a row, by the experts that were chosen, added to what is there if `flag`; `weight` is an
               // `Experts`, and from buffer `index` on there is room for pairs of a row and an expert: in and out, wide, narrow
    HEAD_PRODUCT,  // in -> out: of each of `count` heads of `size` numbers `index` as they are, then the product of the others with
                   // the head's own of as many matrices of one segment
    CONVOLVE,  // in -> out, by the `Convolution` that is `weight`; the states are those of layer number `index`
    HEAD_COPY,     // in place on out: `count` heads of `size` numbers from head `index` on once more behind themselves, number i of
                   // each being the one that `weight`, int32 [size], says
    KEEP,          // keeps the keys of `in` from number `count` of each row on, and the values from number `size` on, in the pages
                   // of layer number `index`
    COPY,          // `size` numbers of each row of `in` from number `index` on -> out, from number `count` on
    TIMES_SIGMOID,  // in place on `out`: `size` numbers a row, each times the sigmoid of that of `in` from number `index` on
    DELTA,     // in -> out, by the `DeltaNet` that is `weight`; the states are those of layer number `index`
    MAMBA2,    // in -> out, by the `Mamba2` that is `weight`; the states are those of layer number `index`
    GATED_NORM,  // in place on `out`: times SiLU of the numbers of `in`, then `count` groups of `size` numbers, each normed as one by
                 // its part of `weight`
};

struct Operation {
    int32_t kind, in, out, index;
    int32_t count, flag;
    int64_t size;
    float number;
    int32_t padding;
    const void* weight;
    const Matrix* matrix;
};

// How logits become scores of experts.
enum Scoring { SOFTMAX, SOFTMAX_OF_CHOSEN, SIGMOID, SIGMOID_OF_CHOSEN };

// The experts of a layer, the shared one the last if there is one; a row chooses `chosen` of the `count` others. Where these
// are spread some are elsewhere, and have no matrices here.
struct Experts {
    const Matrix* gate_up;
    const Matrix* down;
    const float* choice_bias;  // of each expert's score, for the choice alone; or null
    const float* scales;       // what each expert's weight is multiplied by in the end; or null
    int32_t count, chosen;
    int32_t groups, chosen_groups;
    int32_t group_best;  // how many of its best make a group as good as it is, 1 or 2
    int32_t scoring, normalised;
    int32_t shared, shared_gate;  // whether there is one, and whether its weight is the sigmoid of the last logit
    int32_t activation;
    float scale;
    int32_t weighs_input;  // what an expert gets is multiplied by its weight, not what it gives
    const int32_t* copies;  // of each expert, the shared one too, the ranks that have it; null: this one has all, for all rows
    const int32_t* turns;   // the rows of an expert that are computed here: those at positions that are this modulo its copies
    int64_t* rows;          // for each expert but the shared one, counts the rows that chose it; or null
};

// What one step brings: rows, the spans they are in, and which of them are wanted in the end.
struct PageRun {
    int32_t first, count;
};

struct StepSpan {
    int32_t first_row, rows;
    int32_t first_position;      // of the first page that the sequence still has
    int32_t start;               // the position of its first row
    int32_t first_run, run_count;  // of the sequence's pages, from first_position on
    int32_t first_state, state_count;  // of the runs that all its rows are in, by their states
};

struct Step {
    int64_t rows;
    int64_t span_count;
    const StepSpan* spans;
    const PageRun* runs;
    const StateRun* states;
    const void* input;           // int32 ids, or numbers
    const int32_t* ids;          // those of the rows, or null
    const int32_t* picked;       // numbers of rows
    int64_t picked_count;
};

// The states of a recurrent layer: slots of `slot_numbers`.
struct States {
    float* numbers;
    int64_t slot_numbers;
};

struct Layer {
    Pages pages;
    AttentionForm form;
    States states;
};

// The frequencies of a rotation's pairs, the first numbers of a head; what is turned is multiplied by `amplitude`.
struct Rotation {
    const float* frequencies;
    int32_t pairs;
    float amplitude;
};

// What a program works with: buffers, the layers' pages, rotations, places for prepared and for rounded rows.
struct Work {
    const Rows* buffers;
    const Layer* layers;
    const Rotation* rotations;
    uint8_t* prepared;           // of one product's rows
    uint8_t* prepared_floats;
    uint16_t* rounded;
    int32_t rotation_count;
    int32_t page_tiles;          // tiles of a page
    int32_t digits;
    int32_t padding;
};

}  // namespace layerline
