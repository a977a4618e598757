"""Counts the packets to and from UDP port 53 that a run of Wirescope records from now on, until it ends.

    python3 count53.py [SOCKET [PORT [OPTIONS]]]
"""
import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p


class Packet(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("captured", c_uint32), ("data", POINTER(c_uint8)), ("time_ns", c_int64),
                ("original", c_uint32), ("interface", c_uint32), ("flags", c_uint32), ("mark", c_uint32),
                ("lost_before", c_uint64)]


class Counts(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("reserved", c_uint32), ("seen", c_uint64), ("missed", c_uint64),
                ("behind", c_uint64)]


library = ctypes.CDLL("libwirescope.so.0")
library.ws_open.restype = c_void_p
library.ws_open.argtypes = [c_char_p, c_char_p, c_char_p, c_char_p, c_size_t]
library.ws_next.argtypes = [c_void_p, c_int]
library.ws_packet.argtypes = [c_void_p, c_int, POINTER(Packet)]
library.ws_counts.argtypes = [c_void_p, POINTER(Counts)]
library.ws_error.restype = c_char_p
for function in (library.ws_done, library.ws_error, library.ws_close):
    function.argtypes = [c_void_p]


def is_of_port(data, port):
    """Whether an Ethernet frame is of UDP, and from or to this port. Tags are passed over; later fragments have no ports."""
    at = 12
    while data[at:at + 2] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    kind, ip = data[at:at + 2], data[at + 2:]
    if len(ip) < 40:
        return False
    if kind == b"\x08\x00" and ip[9] == 17 and int.from_bytes(ip[6:8], "big") & 0x1FFF == 0:
        ports = ip[(ip[0] & 15) * 4:]
    elif kind == b"\x86\xdd" and ip[6] == 17:
        ports = ip[40:]
    else:
        return False
    return port in (int.from_bytes(ports[:2], "big"), int.from_bytes(ports[2:4], "big"))


def main(socket="", port="53", options="name=count53"):
    error = ctypes.create_string_buffer(1024)
    w = library.ws_open(socket.encode() or None, b"ring", options.encode(), error, len(error))
    if not w:
        sys.exit("count53: " + error.value.decode())
    found, packet = 0, Packet(size=ctypes.sizeof(Packet))
    while (n := library.ws_next(w, 1000)) >= 0:  # so that Ctrl-C is heard once a second
        in_batch = 0
        for index in range(n):
            if library.ws_packet(w, index, byref(packet)) == 0:
                # Of what isn't copied here only the first bytes are looked at.
                in_batch += is_of_port(ctypes.string_at(packet.data, min(packet.captured, 128)), int(port))
        if not library.ws_done(w):  # else the packets were overwritten while we looked: they count as missed
            found += in_batch
    if n == -2:
        sys.exit("count53: " + library.ws_error(w).decode())
    counts = Counts(size=ctypes.sizeof(Counts))
    library.ws_counts(w, byref(counts))
    print(f"{counts.seen} packets, {found} of UDP port {port}, {counts.missed} missed")
    library.ws_close(w)


main(*sys.argv[1:])
