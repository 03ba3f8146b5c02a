"""HTTP responses of every framing, cut anywhere."""

import gzip
import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.exchange import Exchange
from loadtest.framing import ResponseFramer

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n"
LENGTH = OK + b"Content-Length: 6\r\n\r\nhello!"
CLOSED = b"HTTP/1.0 200 OK\r\n\r\nhello!"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + LENGTH
ZIPPED = gzip.compress(b"hello!")
GZIP = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(ZIPPED), ZIPPED)
ALL = {"chunked": CHUNKED, "length": LENGTH, "close": CLOSED, "interim": INTERIM, "gzip": GZIP}


def frame(
    pieces: list[bytes], *, closes: bool = True, max_bytes: int = 2**20
) -> tuple[Exchange, ResponseFramer]:
    exchange = Exchange(stamp_source="virtual")
    framer = ResponseFramer(exchange, max_bytes)
    for stamp_ns, piece in enumerate(pieces):
        if not framer.done:
            framer.receive(piece, stamp_ns)
    if closes:
        framer.closed("the server closed the connection")
    return exchange, framer


def body(exchange: Exchange) -> bytes:
    return b"".join(piece for _, piece in exchange.pieces)


@pytest.mark.parametrize("response", ALL.values(), ids=ALL)
@given(cuts=st.sets(st.integers(1, 200), max_size=30))
def test_any_cut_gives_the_same_body_and_status(response: bytes, cuts: set[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(response)), len(response)]
    exchange, framer = frame([response[a:b] for a, b in itertools.pairwise(edges)])
    assert (exchange.status, exchange.ending, body(exchange)) == (200, "complete", b"hello!")
    assert framer.done


@pytest.mark.parametrize("response", ALL.values(), ids=ALL)
def test_a_response_cut_short_is_cut_or_damaged_and_never_complete(response: bytes) -> None:
    for end in range(len(response)):
        exchange, _ = frame([response[:end]] if end else [])
        if response is CLOSED and end >= len(CLOSED) - len(b"hello!"):
            continue  # its end is wherever the connection ends
        assert exchange.ending == ("cut" if end else "unanswered"), end


def test_a_piece_carries_the_stamp_of_its_read_and_a_read_gives_one_piece() -> None:
    head_end = CHUNKED.index(b"5\r\n")
    exchange, _ = frame([CHUNKED[:head_end], CHUNKED[head_end:]])
    assert exchange.pieces == [(1, b"hello!")]
    assert exchange.headers_ns == 0


def test_headers_are_in_lower_case_and_those_of_interim_responses_are_forgotten() -> None:
    exchange, _ = frame([INTERIM.replace(b"Content-Length", b"X-A: 1\r\nx-a: 2\r\nContent-Length")])
    assert exchange.headers == {"x-a": "1, 2", "content-length": "6"}


@pytest.mark.parametrize(
    ("response", "reusable"),
    [
        (LENGTH, True),
        (CHUNKED, True),
        (LENGTH.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"), False),
        (LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (LENGTH + b"HTTP/1.1 200 OK\r\n", False),
        (LENGTH + b"rubbish", False),
        (OK.replace(b"200", b"204") + b"\r\n", True),
    ],
)
def test_a_connection_is_reused_only_after_a_clean_end(response: bytes, reusable: bool) -> None:
    exchange, framer = frame([response], closes=False)
    assert framer.done
    assert exchange.ending == "complete"
    assert framer.reusable == reusable


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (b"SSH-2.0-x\r\n", "not a response"),
        (OK + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx", "br was not asked for"),
        (OK + b"Content-Length: x\r\n\r\n", "not a response"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "not a response"),
        (b"HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "switch protocols"),
        (GZIP[:-9] + b"123456789", "damaged"),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + ZIPPED[:-8], "stops short"),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + ZIPPED + b"more", "goes on past its end"),
    ],
)
def test_damage_is_called_malformed_in_words(response: bytes, words: str) -> None:
    exchange, framer = frame([response])
    assert exchange.ending == "malformed"
    assert words in exchange.detail
    assert not framer.reusable


def test_deflate_is_undone_too() -> None:
    data = zlib.compress(b"hello!")
    exchange, _ = frame(
        [OK + b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)]
    )
    assert body(exchange) == b"hello!"


@pytest.mark.parametrize("size", [1, 1000])
def test_a_body_past_the_bound_ends_the_response(size: int) -> None:
    head = OK + b"Content-Length: 100000000\r\n\r\n"
    exchange, framer = frame([head, *[b"x" * size] * 10_000], closes=False, max_bytes=100_000)
    assert framer.done
    assert exchange.ending == "too_large"
    assert len(body(exchange)) + 128 * len(exchange.pieces) <= 100_000


def test_a_small_gzip_of_a_huge_body_is_stopped_at_the_bound() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    exchange, _ = frame([head + bomb], closes=False, max_bytes=100_000)
    assert exchange.ending == "too_large"
    assert len(body(exchange)) <= 100_000


def test_an_endless_head_is_stopped() -> None:
    exchange, framer = frame([OK, *[b"x-a: " + b"y" * 1000 + b"\r\n"] * 1000], closes=False)
    assert framer.done
    assert exchange.ending == "too_large"


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_make_it_raise_or_call_rubbish_complete(data: bytes, with_head: bool) -> None:
    exchange, framer = frame([(OK + b"Transfer-Encoding: chunked\r\n\r\n" if with_head else b"") + data])
    assert framer.done
    if exchange.ending == "complete":
        assert b"0" in data  # a last chunk was really there
