"""Send stamps: when the last byte of a request left this machine, by the kernel's word.

While ``send`` returns, this process may lose its core, so a clock read after it is late by up to a time
slice; and what ``send`` took may still wait for the peer's window. The kernel's software transmit stamp has
neither fault. It is asked for with each request and read from the socket's error queue, most often at once,
for about 4 µs a request. Source: Linux, Documentation/networking/timestamping.rst, 2026.
"""

import _socket
import socket
import struct

_SO_TIMESTAMPING = 37  # include/uapi/asm-generic/socket.h; the probe tells where it is another
_TX_SOFTWARE, _SOFTWARE, _ONLY_STAMP = 1 << 1, 1 << 4, 1 << 11  # include/uapi/linux/net_tstamp.h
_ERROR_QUEUE = 0x2000  # MSG_ERRQUEUE, include/linux/socket.h
_SOL_SOCKET = int(socket.SOL_SOCKET)
_TIMESPEC = struct.Struct("=qq")
_ANCILLARY_BYTES = 256
_MOST_READ = 64


def ask(sock: _socket.socket) -> None:
    """Have what is sent from now on stamped. Raises OSError where that is not known."""
    sock.setsockopt(_SOL_SOCKET, _SO_TIMESTAMPING, _TX_SOFTWARE | _SOFTWARE | _ONLY_STAMP)


def stop(sock: _socket.socket) -> None:
    """Have nothing stamped any more."""
    sock.setsockopt(_SOL_SOCKET, _SO_TIMESTAMPING, 0)


def told(sock: _socket.socket) -> int | None:
    """The latest instant of departure there is (CLOCK_REALTIME, ns), None if there is none yet.

    Empties the error queue: a socket whose queue is not empty looks readable to whoever watches it.
    """
    latest_ns = None
    for _ in range(_MOST_READ):
        try:
            _, ancillary, _, _ = sock.recvmsg(0, _ANCILLARY_BYTES, _ERROR_QUEUE)
        except OSError:
            break
        for level, kind, data in ancillary:
            if level == _SOL_SOCKET and kind == _SO_TIMESTAMPING and len(data) >= _TIMESPEC.size:
                seconds, nanoseconds = _TIMESPEC.unpack_from(data)
                latest_ns = seconds * 1_000_000_000 + nanoseconds
    return latest_ns
