"""HTTP/1.1 response bytes in, stamped pieces of the body out. No socket, no clock.

httptools (llhttp) frames; this file adds what a client must: interim responses, bodies that end with the
connection, gzip, and bounds on memory. Rules for whoever edits this file:

1. Any split of the same bytes gives the same body; a read adds at most one piece.
2. Nothing is held without being counted against ``max_bytes``.
"""

import zlib

import httptools

from loadtest.delta import folded
from loadtest.exchange import Ending, Exchange

MAX_RESPONSE_BYTES = 64 * 2**20
_MAX_HEAD_BYTES = 2**18
_PIECE_OVERHEAD_BYTES = 128  # a tuple, a bytes object and an int in CPython 3.11
_QUOTED_BYTES = 4096  # whole lines: whoever shows it blots a key out first and cuts then
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class ResponseFramer:
    """Reads one final response into an Exchange. ``done`` once there is no more to read.

    After ``done``, ``reusable`` tells whether another request may be sent on the same connection.
    """

    def __init__(self, exchange: Exchange, max_bytes: int = MAX_RESPONSE_BYTES) -> None:
        self.done = False
        self.reusable = False
        self._exchange = exchange
        self._max_bytes = self._left_bytes = max_bytes
        self._head_left_bytes = _MAX_HEAD_BYTES
        self._in_body = self._chunked = False
        self._started = False
        self._interim = False
        self._parts: list[bytes] = []
        self.on_body = self._parts.append
        """Called by httptools for each stretch of the body; the list's own method, for speed."""
        self._inflate: zlib._Decompress | None = None
        self._parser = httptools.HttpResponseParser(self)

    @property
    def in_chunks(self) -> bool:
        """Whether a chunked body is under way. Its last chunk ends with an empty line."""
        return self._in_body and not self.done and self._chunked

    def receive(self, data: bytes | memoryview, stamp_ns: int) -> None:
        """Take what one read brought."""
        in_head = not self._in_body
        self._started = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(error, data)
        except httptools.HttpParserUpgrade:
            self._end("malformed", "the server wants to switch protocols")
        if self._parts:
            self._keep(stamp_ns)
        if in_head:
            self._watch_head(len(data), stamp_ns)
        if self.done:
            self._finish()

    def _watch_head(self, size: int, stamp_ns: int) -> None:
        """Note when the head ends, and bound it until then."""
        self._head_left_bytes -= size
        if self._in_body:
            self._exchange.headers_ns = stamp_ns
        elif self._head_left_bytes < 0 and not self.done:
            self._end("too_large", f"the response head is larger than {_MAX_HEAD_BYTES} bytes")

    def closed(self, how: str) -> None:
        """The connection has ended; ``how`` says it in words. Fine only for a body that ends with it."""
        if self.done:
            return
        if not self._started:
            self._end("unanswered", f"{how} before a response came")
        elif self._in_body and self._ends_with_connection():
            self._finish()
        else:
            self._end("cut", f"{how} inside the response")

    def release(self) -> None:
        """Let go of the parser, which refers back to this: nothing more will be received.

        Otherwise each response would be a cycle, which only a full collection finds for sure.
        """
        del self._parser

    # What httptools calls, in the order of the bytes.

    def on_message_begin(self) -> None:
        """Another message after the response: nobody asked for it, so the connection is spoilt."""
        if self.done:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; one that is there twice is joined by a comma (RFC 9110, section 5.3)."""
        if self._interim or self._in_body:
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers = self._exchange.headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """Learn the status; an interim response (100–199) is passed over."""
        if self.done:
            raise httptools.HttpParserError("bytes after the response")
        status = self._parser.get_status_code()
        self._interim = 100 <= status < 200
        if self._interim:
            self._exchange.headers.clear()
            return
        self._in_body = True
        self._chunked = "chunked" in self._exchange.headers.get("transfer-encoding", "")
        self._exchange.status = status
        coding = self._exchange.headers.get("content-encoding", "identity").strip().lower()
        if coding in ("gzip", "x-gzip", "deflate"):
            self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)
        elif coding != "identity":
            raise httptools.HttpParserError(f"content-encoding {coding} was not asked for")

    def on_message_complete(self) -> None:
        """The response is whole, as its own framing says."""
        if self._interim:
            self._interim = False
        elif not self.done:
            self.reusable = self._parser.should_keep_alive()
            self.done = True

    def _keep(self, stamp_ns: int) -> None:
        """Make one piece of what this read brought, inflated, if it fits."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        if self._inflate is not None:
            try:
                data = self._inflate.decompress(data, max(1, self._left_bytes))
            except zlib.error as error:
                self._end("malformed", f"the content encoding is damaged: {error}")
                return
            if self._inflate.unused_data:
                self._end("malformed", "the compressed body goes on past its end")
                return
        self._left_bytes -= len(data) + _PIECE_OVERHEAD_BYTES
        if self._left_bytes < 0 or (self._inflate is not None and self._inflate.unconsumed_tail):
            self._end("too_large", f"the response takes more than {self._max_bytes} bytes of memory")
        elif data:
            self._exchange.pieces.append((stamp_ns, data))

    def _finish(self) -> None:
        """End well, unless compressed data stops short."""
        self.done = True
        if self._inflate is not None and not self._inflate.eof and self._exchange.ending == "complete":
            self._end("malformed", "the compressed body stops short")

    def _ends_with_connection(self) -> bool:
        return not self._chunked and "content-length" not in self._exchange.headers

    def _fail(self, error: httptools.HttpParserError, data: bytes | memoryview) -> None:
        if self.done:  # bytes after a whole response: its own business, but the connection is spoilt
            self.reusable = False
            return
        if self._exchange.status is None:  # the words of who speaks there say more than the parser's
            reason = bytes(data[:_QUOTED_BYTES]).decode("utf-8", "replace")
        else:
            reason = str(error.__context__ or error)
        self._end("malformed", f"not a response this client understands: {folded(reason)}")

    def _end(self, ending: Ending, detail: str) -> None:
        self.done, self.reusable = True, False
        self._exchange.ending, self._exchange.detail = ending, detail
