// Runs a program: the operations of some layers, one after the other, each shared by the threads.
#pragma once
#include <memory>

#include "choice.h"
#include "library.h"
#include "places.h"
#include "pool.h"

namespace layerline {

constexpr int64_t FEW_ROWS = 4;        // are dealt with by one thread, since waking others would take longer
constexpr int64_t TASKS_A_THREAD = 4;  // so that a thread that was held up leaves the rest to the others
constexpr int64_t TILE_PANELS = 4;     // that are multiplied with several rows together

inline Rows row_of(Rows rows, int64_t row) { return {rows.data + row * rows.stride, rows.stride}; }

class Engine {
  public:
    // Each thread has `scratch_bytes`, or SCRATCH_BYTES if that is more.
    Engine(const Kernels& kernels, int threads, int64_t scratch_bytes);

    void run(const Operation* operations, int64_t count, const Work& work, const Step& step);
    const Kernels& kernels() const { return kernels_; }

  private:
    void embed(const Operation& operation, Rows out, const Step& step);
    void take(const Operation& operation, Rows out, const Step& step);
    void pick(const Operation& operation, Rows in, Rows out, const Step& step);
    void product(const Operation& operation, const Work& work, int64_t rows);
    void product(const Operation& operation, const Work& work, int64_t rows, int first_segment, int end_segment);
    void prepare(bool floats, const Work& work, Rows in, const int32_t* order, int64_t rows, int64_t columns);
    void head_product(const Operation& operation, const Work& work, int64_t rows);
    void attend(const Operation& operation, const Work& work, const Step& step);
    void convolve(const Operation& operation, const Work& work, const Step& step);
    void delta(const Operation& operation, const Work& work, const Step& step);
    void mamba2(const Operation& operation, const Work& work, const Step& step);
    void keep(const Pages& pages, Rows in, int64_t keys, int64_t values, const Step& step);
    void route(const Operation& operation, const Work& work, int64_t rows);
    void experts(const Operation& operation, const Work& work, int64_t rows);
    template <typename Fill>
    void products(const Experts& experts, const Matrix* matrices, const Work& work, Rows in, Rows out, Fill fill);
    void row_products(const Experts& experts, const Matrix* matrices, const Work& work, Rows in, Rows out, int64_t columns);
    uint8_t* place_of(const Work& work, bool floats, int expert, int64_t most_columns) const;
    void multiply(const Experts& experts, const Matrix* matrices, int number, const Work& work, int64_t most_columns, Rows out);
    template <typename Task> void share(int64_t tasks, Task task);
    template <typename Change> void each_row(int64_t rows, Change change);

    const Kernels& kernels_;
    Pool pool_;
    Places places_;
    Choice choice_;
    int64_t scratch_bytes_;  // of each thread
    std::unique_ptr<uint8_t[]> scratch_memory_;
    uint8_t* scratch_;
};

// Bytes of scratch that attention of such a layer takes.
int64_t attention_bytes(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t value_dim);

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

// Calls `change(row)` for every row; of few rows on this thread.
template <typename Change> void Engine::each_row(int64_t rows, Change change) {
    const int64_t parts = rows <= FEW_ROWS ? 1 : pool_.threads() * TASKS_A_THREAD;
    share(parts, [&](int64_t part, uint8_t*) {
        const int64_t end = rows * (part + 1) / parts;
        for (int64_t row = rows * part / parts; row < end; row++) change(row);
    });
}

}  // namespace layerline
