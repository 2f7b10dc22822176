// Runs a program: the operations of some layers, one after the other, each shared by the threads.
#pragma once
#include <memory>

#include "library.h"
#include "places.h"
#include "pool.h"

namespace layerline {

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
    void attend(const Operation& operation, const Work& work, const Step& step);
    template <typename Task> void share(int64_t tasks, Task task);
    template <typename Change> void each_row(int64_t rows, Change change);

    const Kernels& kernels_;
    Pool pool_;
    Places places_;
    int64_t scratch_bytes_;  // of each thread
    std::unique_ptr<uint8_t[]> scratch_memory_;
    uint8_t* scratch_;
};

// Bytes of scratch that attention of such a layer takes.
int64_t attention_bytes(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t value_dim);

}  // namespace layerline
