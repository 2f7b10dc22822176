/* Reads memory as plainly as one core can. Arguments: how many bytes, how often. Prints the best bytes per second. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    size_t bytes = strtoull(arguments[1], NULL, 10);
    uint64_t *memory = aligned_alloc(4096, bytes);
    if (memory == NULL) return 1;
    memset(memory, 1, bytes);
    double best = 0;
    volatile uint64_t kept = 0;
    for (int pass = atoi(arguments[2]); pass > 0; pass--) {
        double began_s = now_s();
        uint64_t sum = kept;
        for (size_t place = 0; place < bytes / sizeof *memory; place++) sum += memory[place];
        kept = sum;
        double speed = bytes / (now_s() - began_s);
        if (speed > best) best = speed;
    }
    printf("%.0f\n", best);
    return 0;
}
