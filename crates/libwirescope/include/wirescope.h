/* libwirescope: reads packets of a running Wirescope in place, without a copy. Licence: MIT OR Apache-2.0.
 *
 *     char error[512];
 *     ws *w = ws_open(NULL, "ring", "name=mine", error, sizeof error);
 *     if (!w) { fprintf(stderr, "%s\n", error); return 1; }
 *     for (int n; (n = ws_next(w, -1)) > 0;) {
 *         struct ws_packet p = { .size = sizeof p };
 *         for (int i = 0; i < n && ws_packet(w, i, &p) == 0; i++)
 *             look_at(p.data, p.captured);
 *         if (ws_done(w)) forget_what_was_found_in_this_batch();
 *     }
 *     ws_close(w);
 *
 * The run must have been started with --attach and --attach-ring; see docs/guide/library.md.
 *
 * Packets lie in the memory of the run, which this process can only read, and which the run never waits to overwrite: of the
 * group `ring` they may change while you look at them. What you have found counts when ws_done has returned 0. Whatever stands
 * there, `data` and the `captured` bytes behind it stay readable until ws_close.
 *
 * A ws belongs to one thread at a time. A process may have several. No function changes signal handlers, or starts a thread.
 *
 * Structures begin with their size, which the caller sets: a program that was built against this header runs with every later
 * library of the same ws_abi(), and the other way round; a field that an older library doesn't know stays as it was.
 */
#ifndef WIRESCOPE_H
#define WIRESCOPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The interface that this header speaks of; compare it with ws_abi(). */
#define WS_ABI 1

/* A member of a group. */
typedef struct ws ws;

/* One packet. */
struct ws_packet {
    uint32_t size;        /* sizeof(struct ws_packet), set by the caller */
    uint32_t captured;    /* bytes at `data` */
    const uint8_t *data;  /* the packet, from its link layer on */
    int64_t time_ns;      /* capture time, ns since 1970 */
    uint32_t original;    /* bytes on the wire */
    uint32_t interface;   /* number of the interface: see ws_interface */
    uint32_t flags;       /* epb_flags of pcapng; 0: none */
    uint32_t mark;        /* what a rule of the group has marked it with; 0: nothing */
    uint64_t lost_before; /* packets that are missing directly before it: lost by the run, or missed here */
};

/* Packets since ws_open: given = seen + missed + behind. */
struct ws_counts {
    uint32_t size;     /* sizeof(struct ws_counts), set by the caller */
    uint32_t reserved; /* 0 */
    uint64_t seen;     /* gone through here; with part= those of other parts, too */
    uint64_t missed;   /* overwritten before they were seen, or while you looked at them */
    uint64_t behind;   /* there, and still to be seen */
};

/* An interface of the run. */
struct ws_interface {
    uint32_t size;      /* sizeof(struct ws_interface), set by the caller */
    uint32_t link_type; /* LINKTYPE_ of pcap; 1: Ethernet */
    char name[256];     /* ends with a NUL; longer names are truncated */
};

/* Joins `group` of the run that listens at `socket`; NULL: at /run/wirescope/attach. The group `ring` is all that the run
 * records. `options`: NULL, "", or some of these, with commas between them:
 *   name=TEXT     how `wirescope groups` calls this program; else its own name
 *   weight=1..100 its share of a group, against that of others
 *   class=TEXT    what rules of the group call the packets that it wants
 *   part=I/N      of `ring` only: the packets whose flow falls to part I of N, from 1; both directions of a flow fall together
 *   past=TIME     of `ring` only: begin with what came in this time before, e.g. 30s
 *   hold=PART     of `ring` only: this part of it is held for this program, e.g. 5%: what comes next for it isn't overwritten
 * NULL: it didn't work, and `error` says why, on one line for each fault; it ends with a NUL within `error_bytes`. */
ws *ws_open(const char *socket, const char *group, const char *options, char *error, size_t error_bytes);

/* Goes on to the next packets and gives the last ones back: how many there are, 1 or more. 0: none has come within `timeout_ms`
 * (0: never wait; less: wait for ever; a signal doesn't end the wait). -1: the run has ended, and all that it left was handed
 * out. -2: failed, or the run has removed this program, see ws_error. */
int ws_next(ws *, int timeout_ms);

/* Packet `index`, from 0, of those that ws_next has found. 0, or -1: there is none with this index, or it was overwritten. */
int ws_packet(ws *, int index, struct ws_packet *);

/* Whether what was read of these packets up to now is as the run wrote it: 0; 1: they were overwritten meanwhile, forget what was
 * found in them (they count as missed). Always 0 for groups other than `ring`. */
int ws_done(ws *);

/* An interface by its number. 0, or -1: there is none. */
int ws_interface(ws *, uint32_t interface, struct ws_interface *);

/* How much was seen and missed. 0, or -1: an argument is NULL. */
int ws_counts(ws *, struct ws_counts *);

/* A descriptor for poll, select and epoll: after ws_next has returned 0 it is readable once there may be packets, or the run has
 * ended; nothing else is promised. Of `ring` it becomes readable after a millisecond, since the run wakes nobody there. Don't read
 * from it or close it. -1: the system has none. */
int ws_fd(ws *);

/* Why ws_next has returned -2; else "". Valid until the next call with this ws. */
const char *ws_error(ws *);

/* The interface that this library speaks: WS_ABI. */
int ws_abi(void);

/* Leaves the group. Nothing of this ws may be used any more; NULL is fine. */
void ws_close(ws *);

#ifdef __cplusplus
}
#endif

#endif
