"""Event streams against the standard's own rules and against a slow reader written from its text."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.sse import Event, EventReader, EventTooLargeError
from tests.loadtest.streams import read_whole

PIECES = st.lists(
    st.sampled_from(
        (
            *(b"data: x", b"data:y", b"data:  z", b"data", "data: 快".encode(), b"data: a:b", b"event: ping"),
            *(b": c", b"id: 1", b"retry: 5", b"odd", b"", b"\xe2\x80\xa8", b"\n", b"\r", b"\r\n", b"\n\n"),
        )
    ),
    max_size=40,
).map(b"".join)


def read_in(pieces: list[bytes]) -> list[Event]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.receive(piece)]


def cut(text: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


@given(PIECES, st.lists(st.integers(0, 10_000), max_size=20))
def test_any_cut_gives_what_the_standard_gives(text: bytes, places: list[int]) -> None:
    assert read_in(cut(text, places)) == read_whole(text)


@given(PIECES)
def test_byte_by_byte_gives_what_the_standard_gives(text: bytes) -> None:
    assert read_in([text[k : k + 1] for k in range(len(text))]) == read_whole(text)


@given(st.binary(max_size=300), st.lists(st.integers(0, 10_000), max_size=10))
def test_any_bytes_at_all_are_read_without_an_error(text: bytes, places: list[int]) -> None:
    assert read_in(cut(text, places)) == read_whole(text)


def test_a_byte_order_mark_opens_the_first_line_only() -> None:
    bom = b"\xef\xbb\xbf"
    assert read_in([bom + b"data: a\n\n" + bom + b"data: b\n\n"]) == [(b"", b"a")]
    assert read_in([bom[:1], bom[1:] + b"data: a\n\n"]) == [(b"", b"a")]


def test_a_line_separator_inside_json_ends_no_line() -> None:
    text = 'data: {"text":"a\u2028b\x0bc\x85d"}\n\n'.encode()
    assert read_in([text]) == [(b"", text[6:-2])]


def test_an_event_comes_out_of_the_piece_that_holds_its_last_byte() -> None:
    reader = EventReader()
    assert reader.receive(b"data: a\r") == []
    assert reader.receive(b"\n\r") == [(b"", b"a")]
    assert reader.receive(b"\ndata: b\n") == []
    assert reader.receive(b"\ndata: c\n\ndata: d\n\n") == [(b"", b"b"), (b"", b"c"), (b"", b"d")]


def test_an_event_without_its_blank_line_is_not_dispatched_and_known_to_be_unfinished() -> None:
    reader = EventReader()
    assert reader.receive(b"data: a\n\ndata: [DONE]\n") == [(b"", b"a")]
    assert reader.unfinished
    assert reader.receive(b"\n") == [(b"", b"[DONE]")]
    assert not reader.unfinished


def test_comments_are_counted_and_nothing_else() -> None:
    reader = EventReader()
    assert reader.receive(b": ping\n:\n\nid: 4\nretry: 10\nunknown: x\n\n") == []
    assert reader.comments == 2


@pytest.mark.parametrize(
    "flood", [b"x", b"data: 12345678\n", b"data\n", b"data: " + b"y" * 500 + b"\n\n"], ids=repr
)
def test_memory_is_bounded_whatever_is_sent(flood: bytes) -> None:
    reader = EventReader(max_event_bytes=100)
    with pytest.raises(EventTooLargeError, match="larger than 100 bytes"):
        drain(reader, flood * 200)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.lists(st.integers(0, 10_000), max_size=10))
def test_the_bound_strikes_at_the_same_event_however_the_bytes_are_cut(
    sizes: list[int], places: list[int]
) -> None:
    text = b"".join(b"data: " + b"x" * size + b"\ndata: y\n\n" for size in sizes)
    events: list[Event] = []
    reader = EventReader(max_event_bytes=40)
    try:
        for piece in cut(text, places):
            events += reader.receive(piece)
    except EventTooLargeError as error:
        events += error.events
    # The longest line has 6 bytes before the x; the second one is counted together with the first's value.
    sound = list(itertools.takewhile(lambda size: 6 + size <= 40 and size + 1 + 7 <= 40, sizes))
    assert events == [(b"", b"x" * size + b"\ny") for size in sound]


def drain(reader: EventReader, text: bytes) -> None:
    for start in range(0, len(text), 50):
        reader.receive(text[start : start + 50])


def test_an_endless_number_of_small_events_passes_the_bound() -> None:
    reader = EventReader(max_event_bytes=100)
    assert sum(len(reader.receive(b"data: 12345678\n\n")) for _ in range(1000)) == 1000
