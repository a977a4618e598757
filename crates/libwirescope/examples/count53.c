/* Counts the packets to and from UDP port 53 that a run of Wirescope records from now on, until it ends.
 *
 *     cc -O2 -o count53 count53.c $(pkg-config --cflags --libs wirescope)
 *     count53 [SOCKET [PORT [OPTIONS]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <wirescope.h>

static unsigned be16(const uint8_t *bytes) { return bytes[0] << 8 | bytes[1]; }

/* Whether an Ethernet frame is of UDP, and from or to this port. Tags are passed over; later fragments have no ports. */
static int is_of_port(const uint8_t *data, uint32_t bytes, unsigned port)
{
    uint32_t at = 12;
    while (at + 6 <= bytes && (be16(data + at) == 0x8100 || be16(data + at) == 0x88a8))
        at += 4;
    if (at + 2 + 40 > bytes)
        return 0;
    const uint8_t *ip = data + at + 2;
    switch (be16(data + at)) {
    case 0x0800:
        if (ip[9] != 17 || be16(ip + 6) & 0x1fff)
            return 0;
        at += 2 + (ip[0] & 15) * 4;
        break;
    case 0x86dd:
        if (ip[6] != 17)
            return 0;
        at += 2 + 40;
        break;
    default:
        return 0;
    }
    return at + 4 <= bytes && (be16(data + at) == port || be16(data + at + 2) == port);
}

int main(int argc, char **argv)
{
    const char *socket = argc > 1 && *argv[1] ? argv[1] : NULL;
    unsigned port = argc > 2 ? (unsigned)atoi(argv[2]) : 53;
    char error[1024];
    ws *w = ws_open(socket, "ring", argc > 3 ? argv[3] : "name=count53", error, sizeof error);
    if (!w) {
        fprintf(stderr, "count53: %s\n", error);
        return 2;
    }
    unsigned long long found = 0;
    int n;
    while ((n = ws_next(w, -1)) > 0) {
        unsigned long long in_batch = 0;
        struct ws_packet p = { .size = sizeof p };
        for (int i = 0; i < n && ws_packet(w, i, &p) == 0; i++)
            in_batch += is_of_port(p.data, p.captured, port);
        if (!ws_done(w)) /* else the packets were overwritten while we looked: they count as missed */
            found += in_batch;
    }
    if (n == -2)
        fprintf(stderr, "count53: %s\n", ws_error(w));
    struct ws_counts counts = { .size = sizeof counts };
    ws_counts(w, &counts);
    printf("%llu packets, %llu of UDP port %u, %llu missed\n", (unsigned long long)counts.seen, found, port,
           (unsigned long long)counts.missed);
    ws_close(w);
    return n == -2;
}
