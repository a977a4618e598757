/* Counts packets from and to a UDP port on the group `ring`, a burst at a time, as the example count53 does.
 *
 *     port SOCKET PORT         prints "ready"; for each line that it reads it goes through all that is there, and prints
 *                              NS PACKETS FOUND MISSED, with the processor time of that
 */
#include <time.h>

#define main example_main
#include "count53.c"
#undef main

static long long cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int argc, char **argv)
{
    char error[1024], line[16];
    ws *w = argc > 2 ? ws_open(argv[1], "ring", "name=port", error, sizeof error) : NULL;
    if (!w) {
        fprintf(stderr, "%s\n", argc > 2 ? error : "port SOCKET PORT");
        return 2;
    }
    unsigned port = (unsigned)atoi(argv[2]);
    puts("ready");
    fflush(stdout);
    struct ws_counts counts = { .size = sizeof counts };
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long packets = 0, found = 0;
        long long begun = cpu_ns();
        int n;
        while ((n = ws_next(w, 0)) > 0) {
            unsigned long long in_batch = 0;
            struct ws_packet p = { .size = sizeof p };
            for (int i = 0; i < n && ws_packet(w, i, &p) == 0; i++)
                in_batch += is_of_port(p.data, p.captured, port);
            if (!ws_done(w)) {
                found += in_batch;
                packets += n;
            }
        }
        long long took = cpu_ns() - begun;
        ws_counts(w, &counts);
        printf("%lld %llu %llu %llu\n", took, packets, found, (unsigned long long)counts.missed);
        fflush(stdout);
    }
    ws_close(w);
    return 0;
}
