// The threads that share the work of an operation. They look for work for a while, then sleep until there is some.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace layerline {

class Pool {
  public:
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return threads_; }

    // Calls `work(thread)` once on every thread, this one as thread 0, and returns when all have; throws what one of them threw.
    template <typename Work> void together(Work& work) {
        run([](void* context, int thread) { (*static_cast<Work*>(context))(thread); }, &work);
    }

  private:
    typedef void (*Call)(void* context, int thread);

    void run(Call call, void* context);
    void serve(int thread);
    void call(int thread);
    void end();
    bool wait_for_turn(uint64_t turn);

    const int threads_;
    std::vector<std::thread> others_;
    std::mutex mutex_;
    std::condition_variable woken_;
    std::atomic<uint64_t> turn_{0};
    std::atomic<int> unfinished_{0};
    std::atomic<bool> ending_{false};
    Call call_ = nullptr;
    void* context_ = nullptr;
    std::exception_ptr failure_;  // of any thread, the first
    std::mutex failing_;
};

}  // namespace layerline
