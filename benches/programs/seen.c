/* How long after its time a packet is seen, whose time is that of its append, by the clock that only goes forward.
 *
 *     seen SOCKET GROUP PACKETS    prints "ready", and at the end of the run or behind so many packets a line for each, ns
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <wirescope.h>

int main(int argc, char **argv)
{
    char error[1024];
    ws *w = argc > 3 ? ws_open(argv[1], argv[2], "name=seen", error, sizeof error) : NULL;
    if (!w) {
        fprintf(stderr, "%s\n", argc > 3 ? error : "seen SOCKET GROUP PACKETS");
        return 2;
    }
    size_t most = (size_t)atol(argv[3]), seen = 0;
    long long *late = calloc(most + 1, sizeof *late);
    if (!late)
        return 2;
    puts("ready");
    fflush(stdout);
    for (int n; seen < most && (n = ws_next(w, -1)) > 0;) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        struct ws_packet p = { .size = sizeof p };
        for (int i = 0; i < n && seen < most && ws_packet(w, i, &p) == 0; i++)
            late[seen++] = now.tv_sec * 1000000000LL + now.tv_nsec - p.time_ns;
    }
    for (size_t i = 0; i < seen; i++)
        printf("%lld\n", late[i]);
    ws_close(w);
    return 0;
}
