/* A program of the first day of libwirescope. kept_1.x86_64 was built from it then, and is never built again: it shows that a
 * program that was built against the header of that day runs with every later library.
 *
 *     cc -Os -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables -fPIE -pie -nostdlib -s -Wl,-z,noseparate-code \
 *        -Wl,--build-id=none -I INCLUDE -o kept_1.x86_64 kept_1.c -L LIB -lwirescope
 *
 * It needs the library alone. It reads all that the run at SOCKET has and will have, calls every function, and prints
 * `abi packets bytes missed fd interface`.
 */
#include <wirescope.h>

static long call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

static char line[512];
static unsigned long used;

static void text(const char *from)
{
    while (*from && used < sizeof line - 1)
        line[used++] = *from++;
}

static void number(unsigned long long value)
{
    char digits[24];
    int at = sizeof digits;
    digits[--at] = 0;
    do
        digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    text(digits + at);
    text(" ");
}

static struct ws_packet packet;
static struct ws_interface interface;
static struct ws_counts counts;
static char error[256];

__attribute__((used)) void begin(long *stack)
{
    ws *w = ws_open(stack[0] > 1 ? (char *)stack[2] : NULL, "ring", "name=kept,past=1h", error, sizeof error);
    int n = -2, code = 0;
    if (w) {
        unsigned long long packets = 0, bytes = 0;
        int fd = ws_fd(w);
        packet.size = sizeof packet;
        while ((n = ws_next(w, 1000)) >= 0) {
            unsigned long long in_batch = 0;
            for (int i = 0; i < n && ws_packet(w, i, &packet) == 0; i++)
                in_batch += packet.captured;
            if (n && !ws_done(w)) {
                packets += (unsigned)n;
                bytes += in_batch;
            }
        }
        counts.size = sizeof counts;
        interface.size = sizeof interface;
        code = ws_counts(w, &counts) | ws_interface(w, 0, &interface);
        number((unsigned)ws_abi());
        number(packets);
        number(bytes);
        number(counts.missed);
        number(fd >= 0);
        text(interface.name);
        text(ws_error(w));
        ws_close(w);
    } else {
        text(error);
    }
    text("\n");
    call(1, 1, (long)line, (long)used);
    call(231, n == -1 ? code : 2, 0, 0);
}

__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call begin\n hlt\n");
