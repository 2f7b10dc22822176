#include "pool.h"

#include <utility>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#define REST() _mm_pause()
#elif defined(__aarch64__)
#define REST() __asm__ volatile("yield")
#else
#define REST()
#endif

namespace layerline {
namespace {

constexpr int LOOKS = 4000;       // for work, before sleeping: some hundredths of a millisecond
constexpr int LOOKS_AT_END = 20000;  // for the end of the others' work, before the processor is offered to them

}  // namespace

Pool::Pool(int threads) : threads_(threads) {
    try {
        for (int thread = 1; thread < threads; thread++) others_.emplace_back(&Pool::serve, this, thread);
    } catch (...) {
        end();  // those that were started, or they would be waiting for what is no longer there
        throw;
    }
}

Pool::~Pool() { end(); }

void Pool::end() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        ending_ = true;
        turn_++;
    }
    woken_.notify_all();
    for (std::thread& other : others_) other.join();
}

void Pool::run(Call call, void* context) {
    if (threads_ == 1) return call(context, 0);
    call_ = call;
    context_ = context;
    unfinished_.store(threads_ - 1, std::memory_order_relaxed);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        turn_.fetch_add(1, std::memory_order_release);
    }
    woken_.notify_all();
    this->call(0);
    for (int looks = 0; unfinished_.load(std::memory_order_acquire); looks++) {
        if (looks < LOOKS_AT_END) {
            REST();
        } else {
            std::this_thread::yield();
        }
    }
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Pool::call(int thread) {
    try {
        call_(context_, thread);
    } catch (...) {  // an exception that left a thread would end the process
        std::lock_guard<std::mutex> lock(failing_);
        if (!failure_) failure_ = std::current_exception();
    }
}

void Pool::serve(int thread) {
    for (uint64_t turn = 1;; turn++) {
        if (!wait_for_turn(turn)) return;
        call(thread);
        unfinished_.fetch_sub(1, std::memory_order_release);
    }
}

bool Pool::wait_for_turn(uint64_t turn) {
    for (int looks = 0; looks < LOOKS; looks++) {
        if (turn_.load(std::memory_order_acquire) >= turn) return !ending_;
        REST();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    woken_.wait(lock, [&] { return turn_.load(std::memory_order_acquire) >= turn; });
    return !ending_;
}

}  // namespace layerline
