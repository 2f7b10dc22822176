// Runs a program: the operations of some layers, one after the other, each shared by the threads.
#pragma once
#include <memory>

#include "library.h"
#include "pool.h"

namespace layerline {

class Engine {
  public:
    Engine(const Kernels& kernels, int threads);

    void run(const Operation* operations, int64_t count, const Work& work, const Step& step);
    void look_up(const Segment& segment, int64_t columns, const int32_t* rows, int64_t count, float* out);
    const Kernels& kernels() const { return kernels_; }

  private:
    void product(const Operation& operation, const Work& work, int64_t rows);
    void prepare(bool floats, const Work& work, Rows in, int64_t rows, int64_t columns);
    void attend(const Operation& operation, const Work& work, const Step& step);
    template <typename Task> void share(int64_t tasks, Task task);

    const Kernels& kernels_;
    Pool pool_;
    std::unique_ptr<uint8_t[]> scratch_memory_;
    uint8_t* scratch_;  // SCRATCH_BYTES of each thread
};

}  // namespace layerline
