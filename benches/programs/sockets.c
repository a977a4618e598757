/* Counts the packets of an interface and their bytes by a socket of its own: TPACKET_V3, 64 MiB, as programs that capture by
 * themselves do it.
 *
 *     sockets INTERFACE        prints "ready"; ended by SIGINT: PACKETS BYTES LOST
 */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 20, BLOCKS = 64, FRAME_BYTES = 2048, BLOCK_MS = 60 };

static volatile sig_atomic_t is_over;

static void end(int number) { (void)number, is_over = 1; }

static int failed(const char *what)
{
    perror(what);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    struct sigaction action = { .sa_handler = end };
    sigaction(SIGINT, &action, NULL);
    int fd = socket(AF_PACKET, SOCK_RAW, 0), version = TPACKET_V3;
    if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version))
        return failed("socket");
    struct tpacket_req3 request = { .tp_block_size = BLOCK_BYTES,
                                    .tp_block_nr = BLOCKS,
                                    .tp_frame_size = FRAME_BYTES,
                                    .tp_frame_nr = BLOCK_BYTES / FRAME_BYTES * BLOCKS,
                                    .tp_retire_blk_tov = BLOCK_MS };
    if (setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request))
        return failed("ring");
    size_t bytes = (size_t)BLOCK_BYTES * BLOCKS;
    uint8_t *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (ring == MAP_FAILED)
        return failed("mmap");
    struct sockaddr_ll address = { .sll_family = AF_PACKET,
                                   .sll_protocol = htons(ETH_P_ALL),
                                   .sll_ifindex = (int)if_nametoindex(argv[1]) };
    if (bind(fd, (struct sockaddr *)&address, sizeof address))
        return failed("bind");
    puts("ready");
    fflush(stdout);
    unsigned long long packets = 0, sum = 0;
    for (int at = 0; !is_over;) {
        struct tpacket_block_desc *block = (void *)(ring + (size_t)at * BLOCK_BYTES);
        if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) {
            struct pollfd wait = { .fd = fd, .events = POLLIN };
            poll(&wait, 1, -1);
            continue;
        }
        uint8_t *packet = (uint8_t *)block + block->hdr.bh1.offset_to_first_pkt;
        for (uint32_t left = block->hdr.bh1.num_pkts; left; left--) {
            struct tpacket3_hdr *head = (void *)packet;
            sum += head->tp_len;
            packets++;
            packet += head->tp_next_offset;
        }
        __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        at = (at + 1) % BLOCKS;
    }
    struct tpacket_stats_v3 counts = { 0 };
    socklen_t length = sizeof counts;
    getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &counts, &length);
    printf("%llu %llu %u\n", packets, sum, counts.tp_drops);
    return 0;
}
