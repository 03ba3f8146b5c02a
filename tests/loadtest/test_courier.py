"""Records on their way to the master: each once, in parcels that do not grow without bound."""

from pathlib import Path

from loadtest import plan
from loadtest.courier import Courier
from loadtest.crew_messages import (
    Batch,
    Begin,
    Done,
    Open,
    Parcel,
    decode_order,
    decode_report,
    encode,
    pack_config,
    unpack_config,
)
from loadtest.fitness import Fitness, worst
from loadtest.member import Member
from loadtest.part import Part
from loadtest.records import RequestRecord, decode_lines
from loadtest.run_config import RunConfig
from loadtest.workload import Counting

CONFIG = RunConfig(
    plan=plan.load("ab"),
    target=plan.Target(url="http://h", model="m"),
    folder=Path("secret-place"),
    run_id="r",
    key="sekret",
)


def record(index: int, events: int = 0) -> RequestRecord:
    return RequestRecord(
        index=index,
        stage="s",
        requested_tier="t",
        model="m",
        prompt_class_tokens=8,
        max_tokens=4,
        scheduled_ns=0,
        outcome="ok",
        stamp_source="kernel",
        ended_ns=9,
        event_ns=list(range(events)),
    )


def test_what_was_added_is_posted_once_and_in_order() -> None:
    parcels: list[Parcel] = []
    courier = Courier(parcels.append)
    for index in range(3):
        courier.started("s", "t")
        courier.add(record(index), 100 + index)
    courier.flush()
    courier.add(record(3), 7)
    courier.flush()
    courier.flush()
    assert [len(parcel.started) for parcel in parcels] == [3, 0, 0]
    assert [parcel.body_bytes for parcel in parcels] == [[100, 101, 102], [7], []]
    assert [r for parcel in parcels for r in decode_lines(parcel.lines)] == [record(k) for k in range(4)]
    assert (courier.begun, courier.recorded) == (3, 4)


def test_a_megabyte_does_not_wait_for_the_next_second() -> None:
    parcels: list[Parcel] = []
    courier = Courier(parcels.append)
    for index in range(400):
        courier.add(record(index, events=2_000), 1)
    assert len(parcels) >= 3
    assert all(len(parcel.lines) < 1_100_000 for parcel in parcels)


def test_messages_come_back_as_they_were_and_a_key_is_never_in_them() -> None:
    packed = pack_config(CONFIG)
    begin = Begin("r", packed, "boot", 5, 1, 2, Counting(1.5, 3.0))
    assert decode_order(encode(begin)) == begin
    assert b"sekret" not in encode(begin)
    assert b"secret-place" not in encode(begin)
    assert unpack_config(packed).plan == CONFIG.plan
    opening = Open("r", 3, Part(1, 3, 2), 77, 10**15)
    assert decode_order(encode(opening)) == opening
    batch = Batch("r", Parcel([("s", "t")], b"{}\n", [5]), 0.5, Fitness(0.1))
    assert decode_report(encode(batch)) == batch


def test_a_member_that_told_of_more_than_came_is_said_to_miss_it() -> None:
    member = Member("0", "host_1", 17)
    member.take(Batch("r", Parcel([("s", "t")] * 3, b"", []), 0.0, Fitness()))
    assert member.in_flight == {("s", "t"): 3}
    for _ in range(2):
        member.ended("s", "t")
    assert member.missing() == ""  # it has not said that this was all
    done = Done("r", started=3, recorded=3, cpu_s=1.0, connections_opened=3, stepped_ns=0, offset=(0, 0))
    member.done = done
    assert member.missing() == "it started 3 requests and 2 of their records are here"
    assert member.info().lost == member.missing()
    member.ended("s", "t")
    assert member.missing() == member.info().lost == ""


def test_an_overloaded_process_is_not_made_good_by_idle_ones() -> None:
    busy = Fitness(0.9, 1.0, 0.2, None, 0.3)
    idle = Fitness(0.1, None, 0.0, 0.01, 0.02)
    assert worst([idle, busy]) == Fitness(0.9, 1.0, 0.2, 0.01, 0.3)
    assert worst([]) == Fitness()
