"""One call: connect or reuse, send, read, with every arrival stamped. One reader per stream.

Rules for whoever edits this file:

1. A reader takes the bytes with their stamp, and little more: it never blocks, switches or looks at JSON.
   Inside a chunked body even the framing waits (``_body_reader``), since a read then costs half.
2. One attempt is one exchange. Nothing is sent twice, except on another connection when a pooled one turned
   out dead before a single byte of the request was taken.
3. Every wait has a deadline from the plan, and each deadline has its own words.
4. What raises in a callback is raised again where ``run`` was called: the hub would print it and go on.
"""

import ssl
import time
from collections.abc import Callable
from typing import Any

from loadtest import departures
from loadtest.connection import ConnectError, Connection, in_words, send_quietly
from loadtest.deadlines import Deadlines
from loadtest.exchange import Ending, Exchange
from loadtest.framing import ResponseFramer
from loadtest.pool import Pool
from loadtest.stamps import ANCILLARY_BYTES, arrival_ns, told
from loadtest.waiter import WRITE, CancelledError, DeadlineError, Waiter

_CR = 13
_HUNG_UP = "the server closed the connection"
_MOST_HELD = 32
_Held = list[Any]
"""Reads that wait to be framed, three entries each: when we read, when the kernel says it arrived, the bytes.
Flat, because a tuple a read would be one more thing for the garbage collector to look at."""


class Call:
    """One attempt: connects or reuses, sends, reads. ``run`` blocks its greenlet.

    ``run`` always leaves a finished ``exchange``, also when its greenlet is killed; ``ended`` is told once.
    """

    def __init__(
        self, pool: Pool, request: bytes, *, punctual: bool, ended: Callable[["Call"], object]
    ) -> None:
        self.exchange = Exchange(stamp_source=pool.stamps.source)
        self._pool = pool
        self._tell_ended = ended
        self._request = request
        self._punctual = punctual
        self._clock = pool.clock
        self._buffer = pool.buffer
        self._buffers = (pool.buffer,)
        self._framer = ResponseFramer(self.exchange, pool.max_response_bytes)
        self._waiter = Waiter(pool.clock)
        self._connection: Connection | None = None
        self._held: _Held = []
        self._fault: Exception | None = None
        self._ended = False
        self._received = False
        self._departing = False
        """Whether the kernel has yet to tell when the request left."""
        self._began_ns = 0
        self._last_ns = 0
        """When something last happened: sending, then each read."""

    def cancel(self) -> None:
        """Have ``run`` end as cancelled."""
        self._waiter.cancel()

    def run(self) -> Exchange:
        """Do the whole call and give its exchange."""
        self._last_ns = self._clock.now_ns()
        self._deadlines = Deadlines(self._pool.timeouts, self._last_ns)
        try:
            connection = self._send()
            self._receive(connection)
        except ConnectError as error:
            self._end("unconnected", str(error))
        except DeadlineError as error:
            self._end("timeout", str(error))
        except CancelledError:
            self._end("cancelled", "the run ended")
        finally:
            self._end("cancelled", "the stream was stopped")
        return self.exchange

    def _end(self, ending: Ending, detail: str = "", at_ns: int | None = None) -> None:
        """End the call, once; the first end counts."""
        if self._ended:
            return
        self._ended = True
        if self._held and ending in ("timeout", "cancelled"):
            self._settle()
        self.exchange.ended_ns = self._clock.now_ns() if at_ns is None else at_ns
        self.exchange.ending, self.exchange.detail = ending, detail
        self._tell_ended(self)
        self._let_go(reusable=ending == "complete" and self._framer.reusable)
        self._framer.release()
        self._waiter.wake.set()

    def _let_go(self, *, reusable: bool) -> None:
        """Give the connection back, or close it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if reusable:
            self._pool.put(connection)
        else:
            self._pool.drop(connection)

    def _send(self) -> Connection:
        """Put the request on a pooled connection, or on a new one."""
        pooled = self._pool.take(punctual=self._punctual)
        if pooled is not None:
            self._connection = pooled
            if self._pool.is_kept(pooled, self._waiter) and self._send_on(pooled):
                return pooled
            self._connection = None
            self._pool.drop(pooled)
        fresh = self._pool.dialer.dial(self._waiter, self._deadlines.connect_s)
        self._connection = fresh
        self.exchange.connected_ns = self._clock.now_ns()
        self._send_on(fresh)
        return fresh

    def _send_on(self, connection: Connection) -> bool:
        """Send the request; False if the connection broke before it took the first byte.

        If it breaks later, the server may have answered before it hung up: reading will tell.
        """
        data = connection.tls.encrypt(self._request) if connection.tls else self._request
        self._departing = self._pool.stamps.departures
        if self._departing:
            departures.ask(connection.sock)
        self._last_ns = self._began_ns = self._clock.now_ns()
        left = memoryview(data)
        while left:
            try:
                left = left[connection.sock.send(left) :]
            except BlockingIOError:
                self._waiter.wait_io(connection.sock, WRITE, *self._deadlines.total)
            except OSError:
                return len(left) < len(data)
        # _last_ns stays at the start: while ``send`` returns, this process may lose its core, and an answer
        # may come.
        self.exchange.sent_ns = self._clock.now_ns()
        self._look_for_departure()
        return True

    def _look_for_departure(self) -> None:
        """Take the kernel's word for when the request left, once it has one."""
        if not self._departing or self._connection is None:
            return
        told_ns = departures.told(self._connection.sock)
        at_ns = 0 if told_ns is None else told_ns - self._clock.realtime_zero_ns
        if at_ns < self._began_ns:  # none yet, or of an earlier request
            return
        self._departing = False
        departures.stop(self._connection.sock)
        if at_ns <= self._clock.now_ns():  # else the wall clock was stepped
            self.exchange.sent_ns = at_ns

    def _receive(self, connection: Connection) -> None:
        """Let the hub call back for each read, and watch the deadlines until the call has ended."""
        self._waiter.wake.clear()
        self._watch(connection, self._read_plain if connection.tls is None else self._read_ciphertext)
        deadlines = self._deadlines
        while True:
            self._settle_body()  # deadlines count from the last arrival
            if self._ended:
                break
            if self._received:
                deadline = deadlines.next_read(self._last_ns)
            else:
                deadline = deadlines.first_byte(self.exchange.sent_ns or self._last_ns)
            # A read during the wait can bring the deadline forward, but not to before idle_ns from now.
            self._waiter.wait(*deadline, at_most_ns=deadlines.idle_ns)
        if self._fault is not None:
            raise self._fault

    def _watch(self, connection: Connection, read: Callable[[], None]) -> None:
        def reader() -> None:
            try:
                read()
            except Exception as fault:  # noqa: BLE001 - rule 4
                self._fail(fault)

        self._pool.poller.watch(connection.sock, reader)

    def _fail(self, fault: Exception) -> None:
        self._fault = fault
        self._end("cancelled", "a fault of the load test")

    # Called by the hub

    def _read_plain(self) -> None:
        """Stamp the bytes that have come, frame them, nothing else."""
        count = self._read()
        if count:
            if not self._received:
                self._begin_response()
            framer = self._framer
            framer.receive(self._buffer[:count], self._last_ns)
            if framer.done:
                self._end_as_framed()
            elif framer.in_chunks and self._connection is not None:
                self._pool.poller.watch(self._connection.sock, self._body_reader(self._connection))

    def _body_reader(self, connection: Connection) -> Callable[[], None]:
        """Make the reader of a chunked body, the one that nearly every token comes through.

        It holds what comes until a read may have brought the last chunk (whose end is an empty line, whole,
        the rest of one, or with something after it that nobody asked for) or enough has come together; names
        are bound once because each look-up is a tenth of its cost.
        """
        receive, buffers, buffer = connection.recv, self._buffers, self._buffer
        held, hold, most = self._held, self._held.extend, 3 * _MOST_HELD
        settle, now_ns = self._settle_body, time.monotonic_ns

        def read() -> None:
            try:
                count, ancillary, _, _ = receive(buffers, ANCILLARY_BYTES)
                data = bytes(buffer[:count])
                hold((now_ns(), told(ancillary), data))
                if count < 4 or data[0] <= _CR or b"\r\n\r\n" in data or len(held) >= most:
                    settle()
            except (BlockingIOError, InterruptedError):
                self._look_for_departure()
            except OSError as error:
                settle()
                self._broken(in_words(error))
            except Exception as fault:  # noqa: BLE001 - rule 4
                self._fail(fault)

        return read

    def _settle_body(self) -> None:
        """Frame what is held; end with the response, or with the connection."""
        hung_up = bool(self._held) and not self._held[-1]
        self._settle()
        if self._framer.done:
            self._end_as_framed()
        elif hung_up and self._connection is not None:
            self._hung_up(self._connection)

    def _settle(self) -> None:
        """Stamp and frame what is held, in order."""
        framer = self._framer
        held = iter(self._held)
        for now_ns, told_ns, data in zip(held, held, held, strict=True):
            if data and not framer.done:
                self._stamp(now_ns - self._clock.zero_ns, told_ns)
                framer.receive(data, self._last_ns)
        self._held.clear()

    def _read_ciphertext(self) -> None:
        """Like ``_read_plain``, for a connection that speaks TLS. Only a close_notify is a clean end.

        What TLS says for itself (session tickets after the handshake) begins no response.
        """
        count = self._read()
        connection = self._connection
        if not count or connection is None or connection.tls is None:
            return
        try:
            data, closed = connection.tls.decrypt(self._buffer[:count])
        except ssl.SSLError as error:
            self._broken(f"TLS failed ({error.reason})")
            return
        send_quietly(connection.sock, connection.tls.to_send())
        if data:
            if not self._received:
                self._begin_response()
            self._framer.receive(data, self._last_ns)
        if closed:
            self._framer.closed(_HUNG_UP)
        if self._framer.done:
            self._end_as_framed()

    def _read(self) -> int:
        """Read once and note the arrival in ``_last_ns``; 0 if nothing came, or the end, dealt with here."""
        connection, clock = self._connection, self._clock
        if connection is None:
            return 0
        try:
            count, ancillary, _, _ = connection.recv(self._buffers, ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            self._look_for_departure()
            return 0
        except OSError as error:
            self._broken(in_words(error))
            return 0
        if count == 0:
            self._hung_up(connection)
            return 0
        self._stamp(time.monotonic_ns() - clock.zero_ns, told(ancillary))
        return count

    def _stamp(self, now_ns: int, told_ns: int | None) -> None:
        """Set ``_last_ns`` to the arrival of what was read at ``now_ns``."""
        stamp_ns = arrival_ns(self._clock, told_ns, self._last_ns, now_ns)
        if stamp_ns is None:
            stamp_ns = now_ns
            self.exchange.stamp_source = "user"
        self._last_ns = stamp_ns

    def _begin_response(self) -> None:
        """The first bytes of the response have come: the request had been sent by then, whatever we saw."""
        self._received = True
        self._look_for_departure()
        self.exchange.sent_ns = min(self.exchange.sent_ns or self._last_ns, self._last_ns)

    def _hung_up(self, connection: Connection) -> None:
        """The server closed; a body without TLS may end that way."""
        if connection.tls is None:
            self._framer.closed(_HUNG_UP)
            self._end_as_framed()
        else:
            self._broken(_HUNG_UP)

    def _broken(self, how: str) -> None:
        if self._received:
            self._end("cut", f"{how} inside the response")
        else:
            self._end("unanswered", f"{how} before a response came")

    def _end_as_framed(self) -> None:
        self._end(self.exchange.ending, self.exchange.detail, self._last_ns if self._received else None)
