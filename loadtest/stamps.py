"""Receive stamps: the kernel's where it gives them (SO_TIMESTAMPNS), the reader's clock elsewhere.

A kernel stamp is taken when the segment arrives, so it stays right while this process is busy elsewhere. For
a read that took several segments it is that of the last one. Sources: Linux, Documentation/networking/
timestamping.rst and net/ipv4/tcp.c (``tcp_update_recv_tstamps``), 2026.
"""

import _socket
import contextlib
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import Literal

from loadtest import departures
from loadtest.clock import RunClock
from loadtest.records import StampSource
from tierscope.errors import BadInputError

_SO_TIMESTAMPNS = (
    35  # include/uapi/asm-generic/socket.h; other on alpha, mips, parisc, sparc: the probe tells
)
_TIMESPEC = struct.Struct("=qq")
_unpack = _TIMESPEC.unpack
ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
_SOL_SOCKET = int(socket.SOL_SOCKET)  # comparing with the enum member costs ten times as much
_SLACK_NS = 1_000_000
_PROBE_TRIES = 50  # the kernel switches stamping on in deferred work, some ms after the first socket asks

AncillaryData = list[tuple[int, int, bytes]]
StampWish = Literal["auto", "kernel", "user"]
"""``auto`` takes the kernel's stamps if it gives any."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """What the probe found. ``held`` keeps a stamping socket open, so that the kernel goes on stamping."""

    source: StampSource
    note: str = ""
    held: socket.socket | None = None
    departures: bool = False
    """Whether the kernel also tells when a request left (``loadtest.departures``)."""

    def enable(self, sock: _socket.socket) -> None:
        """Ask for stamps on a socket, if there are any."""
        if self.source == "kernel":
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)

    def close(self) -> None:
        """Let the kernel stop stamping for us."""
        if self.held is not None:
            self.held.close()


def arrival_ns(clock: RunClock, told_ns: int | None, not_before_ns: int, now_ns: int) -> int | None:
    """When a read's data arrived, in ns since the run's start; None if the kernel did not tell.

    ``told_ns`` is what it told, on CLOCK_REALTIME.

    A stamp outside [``not_before_ns``, ``now_ns``] by more than 1 ms means that the wall clock was stepped:
    the clock is checked again and the stamp used only if it then fits. Less than that (a reply can arrive
    while ``send`` is still returning) is clamped.
    """
    if told_ns is None:
        return None
    stamp_ns = told_ns - clock.realtime_zero_ns
    if not_before_ns <= stamp_ns <= now_ns:  # nearly always
        return stamp_ns
    if not not_before_ns - _SLACK_NS <= stamp_ns <= now_ns + _SLACK_NS:
        clock.recheck()
        stamp_ns = told_ns - clock.realtime_zero_ns
        if not not_before_ns - _SLACK_NS <= stamp_ns <= now_ns + _SLACK_NS:
            return None
    return min(max(stamp_ns, not_before_ns), now_ns)


def choose(wish: StampWish) -> Stamps:
    """The stamps that were asked for. Raises BadInputError if they are the kernel's and it gives none."""
    if wish == "user":
        return Stamps("user", "the reader's clock was asked for")
    found = probe()
    if wish == "kernel" and found.source != "kernel":
        raise BadInputError(f"--stamps: kernel cannot be had: {found.note}; expected auto or user here")
    return found


def probe() -> Stamps:
    """Send bytes to ourselves over loopback and look whether they come stamped."""
    if not sys.platform.startswith("linux"):
        return Stamps("user", f"kernel receive stamps are not known on {sys.platform}")
    try:
        return _probe_loopback()
    except OSError as error:
        return Stamps("user", f"the probe of kernel receive stamps failed: {error.strerror}")


def _probe_loopback() -> Stamps:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reader = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        reader.settimeout(1.0)
        reader.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        reader.connect(listener.getsockname())
        accepted, _ = listener.accept()
    # As the transport's own: gevent's would wait for an error queue to become readable, for ever.
    with contextlib.closing(_socket.socket(fileno=accepted.detach())) as writer:
        writer.setblocking(False)
        tells = _tells_departures(writer)
        for _ in range(_PROBE_TRIES):
            writer.sendall(b"?")
            _, ancillary, _, _ = reader.recvmsg(16, ANCILLARY_BYTES)
            stamp_ns = told(ancillary)
            if stamp_ns is not None and abs(time.time_ns() - stamp_ns) < 1_000_000_000:
                return Stamps("kernel", held=reader, departures=tells)
            time.sleep(0.002)
    reader.close()
    return Stamps("user", "this kernel does not stamp what it receives")


def _tells_departures(writer: _socket.socket) -> bool:
    try:
        departures.ask(writer)
        before_ns = time.time_ns()
        writer.sendall(b"?")
        told_ns = departures.told(writer)
        departures.stop(writer)
    except OSError:
        return False
    return told_ns is not None and abs(told_ns - before_ns) < 1_000_000_000


def told(ancillary: AncillaryData) -> int | None:
    """What the kernel tells of a read's arrival (CLOCK_REALTIME, ns); None if nothing."""
    for level, kind, data in ancillary:
        if kind == _SO_TIMESTAMPNS and level == _SOL_SOCKET and len(data) == 16:
            seconds, nanoseconds = _unpack(data)
            realtime_ns: int = seconds * 1_000_000_000 + nanoseconds
            return realtime_ns
    return None
