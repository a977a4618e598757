/* Counts the packets that a member of a group is given, and their bytes, until the run ends.
 *
 *     member SOCKET GROUP      prints "ready", and at the end: PACKETS BYTES MISSED
 */
#include <stdio.h>
#include <wirescope.h>

int main(int argc, char **argv)
{
    char error[1024];
    ws *w = argc > 2 ? ws_open(argv[1], argv[2], "name=member", error, sizeof error) : NULL;
    if (!w) {
        fprintf(stderr, "%s\n", argc > 2 ? error : "member SOCKET GROUP");
        return 2;
    }
    puts("ready");
    fflush(stdout);
    unsigned long long packets = 0, sum = 0;
    int n;
    while ((n = ws_next(w, -1)) > 0) {
        struct ws_packet p = { .size = sizeof p };
        for (int i = 0; i < n && ws_packet(w, i, &p) == 0; i++) {
            sum += p.original;
            packets++;
        }
    }
    if (n == -2)
        fprintf(stderr, "%s\n", ws_error(w));
    struct ws_counts counts = { .size = sizeof counts };
    ws_counts(w, &counts);
    printf("%llu %llu %llu\n", packets, sum, (unsigned long long)counts.missed);
    ws_close(w);
    return n == -2;
}
