/* A program that nobody changes: it calls what libpcap has for live capture, each in its turn, and says what went wrong. */
#include <pcap/pcap.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

static pcap_t *looping;
static int seen;

#define CHECK(holds) do { if (!(holds)) { fprintf(stderr, "%d: %s\n", __LINE__, #holds); exit(3); } } while (0)

static void count(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    CHECK(header->caplen <= header->len && (header->caplen == 0 || data[0] == data[0]));
    ++*(int *)user;
}

static void stop(int signal)
{
    struct pcap_stat stat;
    (void)signal;
    pcap_stats(looping, &stat);
    pcap_breakloop(looping);
}

/* Before it is activated. */
static pcap_t *setting(void)
{
    char error[PCAP_ERRBUF_SIZE];
    struct bpf_program program;
    int *types;
    pcap_t *p = pcap_create("wirescope", error);
    CHECK(p);
    CHECK(pcap_datalink(p) == PCAP_ERROR_NOT_ACTIVATED && pcap_snapshot(p) == PCAP_ERROR_NOT_ACTIVATED);
    CHECK(pcap_compile(p, &program, "udp", 1, 0) == -1 && strstr(pcap_geterr(p), "not-yet-activated"));
    CHECK(pcap_set_snaplen(p, 100) == 0 && pcap_set_promisc(p, 1) == 0 && pcap_set_timeout(p, 50) == 0);
    CHECK(pcap_set_buffer_size(p, 1 << 20) == 0 && pcap_set_immediate_mode(p, 1) == 0);
    CHECK(pcap_can_set_rfmon(p) == 0 && pcap_set_rfmon(p, 0) == 0);
    CHECK(pcap_set_tstamp_type(p, PCAP_TSTAMP_HOST) == 0);
    CHECK(pcap_set_tstamp_type(p, PCAP_TSTAMP_ADAPTER) == PCAP_WARNING_TSTAMP_TYPE_NOTSUP);
    CHECK(pcap_set_tstamp_precision(p, 7) == PCAP_ERROR_TSTAMP_PRECISION_NOTSUP);
    CHECK(pcap_set_tstamp_precision(p, PCAP_TSTAMP_PRECISION_NANO) == 0);
    CHECK(pcap_get_tstamp_precision(p) == PCAP_TSTAMP_PRECISION_NANO);
    CHECK(pcap_list_tstamp_types(p, &types) >= 0);
    pcap_free_tstamp_types(types);
    return p;
}

int main(int argc, char **argv)
{
    char error[PCAP_ERRBUF_SIZE];
    struct bpf_program program;
    struct pcap_pkthdr *header, other;
    struct pcap_stat stat;
    const u_char *data;
    int *types, got = 0;
    bpf_u_int32 net = 1, mask = 1;
    pcap_t *p = setting();

    CHECK(pcap_activate(p) == 0);
    CHECK(pcap_activate(p) == PCAP_ERROR_ACTIVATED && pcap_set_snaplen(p, 5) == PCAP_ERROR_ACTIVATED);
    CHECK(pcap_datalink(p) == DLT_EN10MB && pcap_snapshot(p) == 100 && pcap_is_swapped(p) == 0);
    CHECK(pcap_set_datalink(p, DLT_EN10MB) == 0 && pcap_set_datalink(p, DLT_RAW) == -1);
    CHECK(pcap_list_datalinks(p, &types) == 1 && types[0] == DLT_EN10MB);
    pcap_free_datalinks(types);
    CHECK(pcap_lookupnet("wirescope", &net, &mask, error) == 0 && net == 0 && mask == 0);
    CHECK(pcap_inject(p, "x", 1) == -1 && strstr(pcap_geterr(p), "can't be sent"));
    CHECK(pcap_sendpacket(p, (const u_char *)"x", 1) == -1);
    CHECK(pcap_file(p) == NULL);

    /* one after another, and a filter of its own */
    CHECK(pcap_compile(p, &program, "nonsense here", 1, 0) == -1 && *pcap_geterr(p));
    CHECK(pcap_compile(p, &program, "udp", 1, PCAP_NETMASK_UNKNOWN) == 0 && pcap_setfilter(p, &program) == 0);
    pcap_freecode(&program);
    while ((got = pcap_next_ex(p, &header, &data)) == 0)
        ;
    CHECK(got == 1 && header->caplen <= 100 && header->len >= header->caplen && data[23] == 17);
    while (!(data = pcap_next(p, &other)))
        ;
    CHECK(other.caplen <= 100 && data[23] == 17);
    CHECK(pcap_loop(p, 10, count, (u_char *)&seen) == 0 && seen == 10);
    seen = 0;
    while ((got = pcap_dispatch(p, 5, count, (u_char *)&seen)) == 0)
        ;
    CHECK(got == seen && got >= 1 && got <= 5);

    /* a filter that nothing matches: the time that was set is over */
    CHECK(pcap_compile(p, &program, "less 1", 1, 0) == 0 && pcap_setfilter(p, &program) == 0);
    pcap_freecode(&program);
    seen = 0;
    CHECK(pcap_dispatch(p, -1, count, (u_char *)&seen) == 0 && pcap_next_ex(p, &header, &data) == 0 && seen == 0);

    /* ended by a signal */
    looping = p;
    signal(SIGALRM, stop);
    alarm(1);
    CHECK(pcap_loop(p, -1, count, (u_char *)&seen) == PCAP_ERROR_BREAK);
    CHECK(pcap_compile(p, &program, "", 1, 0) == 0 && pcap_setfilter(p, &program) == 0);
    pcap_freecode(&program);

    /* polled, never waiting */
    CHECK(pcap_getnonblock(p, error) == 0 && pcap_setnonblock(p, 1, error) == 0 && pcap_getnonblock(p, error) == 1);
    CHECK(pcap_get_required_select_timeout(p) != NULL);
    for (seen = 0; seen < 3000;) {
        fd_set set;
        int fd = pcap_get_selectable_fd(p);
        struct timeval patience = {20, 0};
        CHECK(fd >= 0 && fd == pcap_fileno(p));
        FD_ZERO(&set);
        FD_SET(fd, &set);
        CHECK(select(fd + 1, &set, NULL, NULL, &patience) == 1);
        CHECK(pcap_dispatch(p, -1, count, (u_char *)&seen) >= 0);
    }
    CHECK(pcap_stats(p, &stat) == 0 && stat.ps_recv >= 3000 && stat.ps_drop == 0 && stat.ps_ifdrop == 0);
    CHECK(pcap_setdirection(p, PCAP_D_OUT) == 0);
    pcap_close(p);

    /* opened at once, and as often as it likes */
    for (int i = 0; i < 3; i++) {
        p = pcap_open_live("wirescope", 65535, 1, 100, error);
        CHECK(p && pcap_setnonblock(p, 0, error) == 0);
        seen = 0;
        CHECK(pcap_loop(p, 1, count, (u_char *)&seen) == 0 && seen == 1);
        if (i < 2)
            pcap_close(p);
    }
    if (argc < 2)
        return 0;

    /* the run ends, and another one comes */
    puts("waiting");
    fflush(stdout);
    CHECK(pcap_loop(p, -1, count, (u_char *)&seen) == -1 && strstr(pcap_geterr(p), "the run has ended"));
    CHECK(pcap_dispatch(p, -1, count, (u_char *)&seen) == -1 && pcap_next_ex(p, &header, &data) == -1);
    puts("ended");
    fflush(stdout);
    while ((got = pcap_activate(p)) == -1)
        usleep(50000);
    CHECK(got == 0);
    seen = 0;
    CHECK(pcap_loop(p, 100, count, (u_char *)&seen) == 0 && seen == 100);
    pcap_perror(p, argv[1]);
    pcap_close(p);
    return 0;
}
