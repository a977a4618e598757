/* When a member of a group first has a packet of each flow in an epoch. The number of the flow stands in the packet behind its
 * headers, the epoch in the file, which whoever has made it changes.
 *
 *     flows SOCKET GROUP FILE      prints "ready"; ends with the run
 *
 *     file of 64-bit numbers:  | epoch | of flow 0: time, ns, epoch | of flow 1: time, epoch | ...
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <wirescope.h>

enum { NUMBER_AT = 14 + 20 + 8 };

int main(int argc, char **argv)
{
    int fd = argc > 3 ? open(argv[3], O_RDWR) : -1;
    struct stat facts;
    if (fd < 0 || fstat(fd, &facts)) {
        fprintf(stderr, "flows SOCKET GROUP FILE\n");
        return 2;
    }
    volatile uint64_t *shared = mmap(NULL, (size_t)facts.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        return 2;
    uint64_t flows = ((uint64_t)facts.st_size / 8 - 1) / 2;
    char error[1024];
    ws *w = ws_open(argv[1], argv[2], "name=flows", error, sizeof error);
    if (!w) {
        fprintf(stderr, "%s\n", error);
        return 2;
    }
    puts("ready");
    fflush(stdout);
    for (int n; (n = ws_next(w, -1)) > 0;) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t epoch = shared[0];
        struct ws_packet p = { .size = sizeof p };
        for (int i = 0; i < n && ws_packet(w, i, &p) == 0; i++) {
            uint64_t flow;
            if (p.captured < NUMBER_AT + sizeof flow)
                continue;
            memcpy(&flow, p.data + NUMBER_AT, sizeof flow);
            if (flow < flows && shared[2 + 2 * flow] != epoch) {
                shared[1 + 2 * flow] = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
                shared[2 + 2 * flow] = epoch;
            }
        }
    }
    ws_close(w);
    return 0;
}
