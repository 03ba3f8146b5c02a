"""Traffic under way, against a server that is a script: who leaves when, what is said, what is told of it."""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import gevent
import pytest
from gevent.event import Event

from loadtest import pacer, plan, reading, timeline, traffic
from loadtest.clock import RunClock
from loadtest.exchange import Exchange
from loadtest.pacing import Alarm
from loadtest.part import Part, split
from loadtest.plan import Target, Tier
from loadtest.records import RequestRecord
from loadtest.request_bytes import RequestBuilder
from loadtest.scribe import Attempt, Scribe
from loadtest.slices import Agenda
from loadtest.traffic import Traffic
from loadtest.wire import WIRES
from loadtest.workload import open_source

if TYPE_CHECKING:
    from loadtest.routes import Routes

LIMIT_S = 30
TARGET = Target(url="http://h", model="m")
WIRE = WIRES["openai"]
PLAN = """
name = "p"
seed = 5
{top}
[workload]
prompt_tokens = [8, 16]
output_tokens = 5
tokens_per_word = 1
{workload}
[[tiers]]
name = "standard"
[[tiers]]
name = "fast"
body = {{ service_tier = "priority" }}
{stages}
"""


@dataclass
class Answer:
    """What the script lets the server do."""

    after_s: float = 0.005
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    text: str = "yes"
    reached: bool = True
    """Whether there is a server at all."""
    stuck: bool = False
    """Not even cancelling ends it."""


@dataclass
class Sent:
    """One request as the server saw it."""

    tier: str
    body: dict[str, Any]
    at_ns: int
    index: int


Script = Callable[[Sent], Answer]


class Server:
    """Stands in for the routes of a run."""

    def __init__(self, clock: RunClock, script: Script) -> None:
        self.sent: list[Sent] = []
        self.clock, self.script = clock, script
        self.cancelled = Event()

    def to(self, tier: Tier) -> "_Transport":
        return _Transport(self, tier.name)

    def cancel(self) -> None:
        self.cancelled.set()


class _Transport:
    def __init__(self, server: Server, tier: str) -> None:
        self._server, self._tier = server, tier

    def call(self, message: bytes, *, punctual: bool = False) -> "_Call":
        assert isinstance(punctual, bool)
        return _Call(self._server, self._tier, message)


class _Call:
    def __init__(self, server: Server, tier: str, message: bytes) -> None:
        self.exchange = Exchange(stamp_source="user")
        self._server, self._tier, self._message = server, tier, message

    def run(self) -> Exchange:
        clock, exchange = self._server.clock, self.exchange
        exchange.ending = "cancelled"
        head, _, body = self._message.partition(b"\r\n\r\n")
        index = int(head.rpartition(b"-")[2])
        exchange.sent_ns = clock.now_ns()
        self._server.sent.append(Sent(self._tier, json.loads(body), exchange.sent_ns, index))
        answer = self._server.script(self._server.sent[-1])
        try:
            stopped = self._server.cancelled.wait(answer.after_s)
            while answer.stuck:
                gevent.sleep(0.01)
            if not answer.reached:
                exchange.ending = "unconnected"
            elif not stopped:
                self._answer(answer)
        finally:
            exchange.ended_ns = clock.now_ns()
        return exchange

    def _answer(self, answer: Answer) -> None:
        exchange = self.exchange
        exchange.ending, exchange.status = "complete", answer.status
        exchange.headers = {"content-type": "text/event-stream"} | answer.headers
        events = [
            {"choices": [{"delta": {"content": answer.text}}]},
            {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        ]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        exchange.pieces = [(self._server.clock.now_ns(), body.encode())]


class Driven:
    """A plan driven as Locust drives it: users that take turn after turn, stage after stage."""

    def __init__(self, text: str, script: Script, admit: Callable[..., bool] = lambda *_: True) -> None:
        self.plan = plan.parse(text, where="test")
        self.clock = RunClock()
        self.server = Server(self.clock, script)
        self.records: list[RequestRecord] = []
        self.built: list[tuple[int, int]] = []
        """(when, index of the request)"""
        self.scribe = Scribe(self._record, lambda exchange: reading.answer(exchange, WIRE))
        builder = RequestBuilder(self.plan, TARGET, key="", run_id="run")
        self.traffic = Traffic(
            self.plan,
            open_source(self.plan),
            builder,
            cast("Routes", self.server),
            self.clock,
            admit=admit,
            started=lambda _: None,
            ended=self.scribe.put,
            agenda=Agenda(),
        )
        build = builder.build

        def noted(request: Any, messages: Any) -> bytes:
            self.built.append((self.clock.now_ns(), request.index))
            return build(request, messages)

        builder.build = noted  # type: ignore[method-assign]
        self.users: list[gevent.Greenlet] = []

    def _record(self, attempt: Attempt) -> RequestRecord:
        made = timeline.record(
            attempt.request, attempt.exchange, WIRE, model="m", scheduled_ns=attempt.scheduled_ns
        )
        self.records.append(made)
        return made

    def run(self, parts: dict[int, Part] | None = None) -> "Driven":
        with gevent.Timeout(LIMIT_S):
            while (needed := self.traffic.users_needed()) is not None:
                self.spawn(needed)
                number = self.traffic.stage.number + 1 if self.traffic.stage else 0
                self.traffic.open(part=(parts or {}).get(number, Part()))
                self.traffic.wait()
            self.end()
        return self

    def spawn(self, users: int) -> None:
        while len(self.users) > users:
            self.users.pop().kill()
        while len(self.users) < users:
            self.users.append(gevent.spawn(self._work))

    def _work(self) -> None:
        while True:
            self.traffic.turn()

    def end(self) -> None:
        self.traffic.stop()
        self.traffic.drain()
        gevent.killall(self.users)
        self.scribe.close()

    def check(self) -> None:
        """Each request that was sent has exactly one record, and no index is used twice."""
        assert self.scribe.fault is None
        indexes = [record.index for record in self.records]
        assert sorted(indexes) == sorted(sent.index for sent in self.server.sent)
        assert len(set(indexes)) == len(indexes)

    def of(self, stage: str) -> list[RequestRecord]:
        """The records of a stage, by index."""
        return sorted((one for one in self.records if one.stage == stage), key=lambda one: one.index)


def quick(_: Sent) -> Answer:
    return Answer()


def stages(*texts: str) -> str:
    return "".join(f"\n[[stages]]\nname = 's{place}'\n{text}\n" for place, text in enumerate(texts))


def text(*of: str, workload: str = "", top: str = "") -> str:
    return PLAN.format(stages=stages(*of), workload=workload, top=top)


def closed(streams: int, requests: int, more: str = "") -> str:
    return f"requests = {requests}\narrivals = {{ kind = 'closed', streams = {streams}{more} }}"


def constant(rate_per_s: float, requests: int) -> str:
    return f"requests = {requests}\narrivals = {{ kind = 'constant', rate_per_s = {rate_per_s} }}"


# Leaving


def test_stages_follow_one_another_and_indexes_go_on() -> None:
    driven = Driven(text(closed(2, 5), constant(200.0, 7), closed(3, 4)), quick).run()
    driven.check()
    assert [one.index for one in driven.of("s1")] == list(range(5, 12))
    assert [one.index for one in driven.of("s2")] == list(range(12, 16))
    for before, after in (("s0", "s1"), ("s1", "s2")):
        assert max(one.ended_ns for one in driven.of(before)) <= min(
            one.scheduled_ns for one in driven.of(after)
        )


def test_an_open_loop_leaves_at_its_instants_and_not_before() -> None:
    driven = Driven(text(constant(100.0, 20)), lambda _: Answer(after_s=0.3)).run()
    driven.check()
    made = driven.of("s0")
    assert [one.scheduled_ns - made[0].scheduled_ns for one in made] == [10_000_000 * k for k in range(20)]
    assert all(one.sent_ns is not None and one.sent_ns >= one.scheduled_ns for one in made)


def test_a_burst_is_made_before_the_first_of_it_leaves() -> None:
    burst = "requests = 120\narrivals = { kind = 'burst', size = 40, period_s = 0.2 }"
    driven = Driven(text(burst), quick).run()
    driven.check()
    for number in range(3):
        own = range(40 * number, 40 * number + 40)
        last_built = max(at_ns for at_ns, index in driven.built if index in own)
        assert last_built <= min(one.at_ns for one in driven.server.sent if one.index in own)
        assert len({one.scheduled_ns for one in driven.of("s0") if one.index in own}) == 1


def test_a_closed_loop_has_each_streams_next_request_ready() -> None:
    driven = Driven(text(closed(4, 40)), lambda _: Answer(after_s=0.05)).run()
    driven.check()
    made = {index: at_ns for at_ns, index in driven.built}
    ends = [one.ended_ns for one in driven.records]
    ready = [
        made[one.index] < max(end_ns for end_ns in ends if end_ns <= one.scheduled_ns)
        for one in driven.of("s0")[4:]
    ]
    assert sum(ready) >= 0.8 * len(ready)  # before a stream was free; some slack for a busy machine


def test_a_stage_whose_time_is_up_sends_nothing_more_and_wastes_no_index() -> None:
    timed = "duration_s = 0.2\narrivals = { kind = 'closed', streams = 3 }"
    driven = Driven(text(timed, closed(1, 2)), lambda _: Answer(after_s=0.02)).run()
    driven.check()
    assert [one.index for one in driven.records] == list(range(len(driven.records)))
    assert max(one.scheduled_ns for one in driven.of("s0")) < driven.of("s0")[0].scheduled_ns + 250_000_000


def test_a_pause_of_thought_lies_between_a_streams_requests_and_ends_with_the_stage() -> None:
    thoughtful = "duration_s = 0.5\narrivals = { kind = 'closed', streams = 1, think_s = 0.1 }"
    endless = "duration_s = 0.1\narrivals = { kind = 'closed', streams = 1, think_s = 1000.0 }"
    driven = Driven(text(thoughtful, endless, closed(1, 1)), quick).run()
    driven.check()
    made = driven.of("s0")
    assert 2 <= len(made) <= 5
    for before, after in itertools.pairwise(made):
        assert after.scheduled_ns - before.ended_ns >= 99_000_000
    assert (len(driven.of("s1")), len(driven.of("s2"))) == (1, 1)


def test_a_server_that_is_gone_is_asked_now_and_then_and_not_all_the_time() -> None:
    timed = "duration_s = 1.0\narrivals = { kind = 'closed', streams = 4 }"
    driven = Driven(text(timed), lambda _: Answer(after_s=0.0, reached=False)).run()
    driven.check()
    assert {record.outcome for record in driven.records} == {"connect_error"}
    assert 4 <= len(driven.records) <= 4 * 6


@pytest.mark.parametrize(
    "stage", [closed(5, 43), constant(500.0, 43), closed(5, 40)], ids=["closed", "open", "closed-even"]
)
def test_parts_together_send_what_one_process_sends(stage: str) -> None:
    def bodies(driven: Driven) -> dict[int, tuple[str, Any]]:
        driven.check()
        return {sent.index: (sent.tier, sent.body) for sent in driven.server.sent}

    whole = bodies(Driven(text(stage), quick).run())
    weights = [3, 2] if "closed" in stage else [1, 1]
    together: dict[int, tuple[str, Any]] = {}
    for part in split(weights):
        assert part is not None
        own = bodies(Driven(text(stage), quick).run({0: part}))
        assert not set(own) & set(together)
        together |= own
    assert together == whole


def test_a_part_of_an_open_loop_keeps_the_instants_that_are_its_own() -> None:
    for part in (Part(0, 3), Part(2, 3)):
        made = Driven(text(constant(200.0, 20)), quick).run({0: part}).of("s0")
        assert [one.index for one in made] == list(range(part.number, 20, 3))
        start_ns = made[0].scheduled_ns - 5_000_000 * part.number
        assert [one.scheduled_ns - start_ns for one in made] == [5_000_000 * one.index for one in made]


def test_a_stage_is_not_over_while_its_first_requests_are_still_made() -> None:
    """Locust asks whether a stage is over from the moment its users are there."""
    timed = "duration_s = 0.05\narrivals = { kind = 'closed', streams = 8 }"
    driven = Driven(text(timed), quick)
    make = driven.traffic.source.request

    def slowly(*given: Any, **more: Any) -> Any:
        time.sleep(0.02)
        return make(*given, **more)

    driven.traffic.source.request = slowly  # type: ignore[method-assign]
    driven.spawn(8)
    opening = gevent.spawn(driven.traffic.open)
    while driven.traffic.stage is None:
        gevent.sleep(0)
    driven.traffic.wait()
    opening.get()
    driven.end()
    driven.check()
    assert [one.outcome for one in driven.records[:8]] == ["ok"] * 8


def test_refused_requests_do_not_leave() -> None:
    asked = list[int]()

    def admit(request: Any, request_bytes: int) -> bool:
        asked.append(request_bytes)
        if len(asked) > 6:
            driven.traffic.conclude()
        return len(asked) <= 6

    driven = Driven(text(closed(2, 50), closed(2, 50)), quick, admit)
    driven.run()
    driven.check()
    assert len(driven.records) == 6
    assert min(asked) > 100


# Conversations

TALK = "[workload.sessions]\nturns = 3\nturn_tokens = 4\n"


def said(sent: Sent) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in sent.body["messages"]]


def by_session(driven: Driven) -> dict[str, list[RequestRecord]]:
    found: dict[str, list[RequestRecord]] = {}
    for one in sorted(driven.records, key=lambda one: one.index):
        found.setdefault(one.session or "", []).append(one)
    return found


@pytest.mark.parametrize("stage", [closed(3, 24), constant(100.0, 24)], ids=["closed", "open"])
def test_each_turn_says_again_what_was_said_and_answered(stage: str) -> None:
    driven = Driven(
        text(stage, workload=TALK), lambda sent: Answer(text=f"answer to {len(sent.body['messages'])}")
    ).run()
    driven.check()
    sent = {one.index: one for one in driven.server.sent}
    sessions = by_session(driven)
    assert len(sessions) == 8
    for turns in sessions.values():
        assert [one.turn for one in turns] == [0, 1, 2]
        assert len({one.requested_tier for one in turns}) == 1
        history = said(sent[turns[0].index])
        assert [role for role, _ in history] == ["user"]
        for before, after in itertools.pairwise(turns):
            answered = ("assistant", f"answer to {len(history)}")
            assert said(sent[after.index])[:-1] == [*history, answered]
            history = said(sent[after.index])
            assert history[-1][0] == "user"
            assert after.scheduled_ns >= before.ended_ns
    openings = [said(one)[0] for one in driven.server.sent if len(one.body["messages"]) == 1]
    assert len(set(openings)) == 8


def test_a_closed_stream_holds_one_conversation_after_the_other() -> None:
    driven = Driven(text(closed(1, 9), workload=TALK), quick).run()
    order = sorted(driven.records, key=lambda one: one.sent_ns or 0)
    assert [one.index for one in order] == list(range(9))


def test_a_turn_that_fails_ends_its_conversation() -> None:
    def fails_once(sent: Sent) -> Answer:
        return Answer(status=500 if sent.index == 4 else 200)

    driven = Driven(text(closed(1, 9), workload=TALK), fails_once).run()
    driven.check()
    assert [one.index for one in driven.of("s0")] == [0, 1, 2, 3, 4, 6, 7, 8]


def test_an_answer_without_text_leaves_no_empty_message() -> None:
    driven = Driven(text(closed(1, 3), workload=TALK), lambda _: Answer(text="")).run()
    assert [one.outcome for one in driven.records] == ["no_output"]
    driven = Driven(text(closed(1, 3), workload=TALK), quick).run()
    assert all(content for sent in driven.server.sent for _, content in said(sent))


def test_conversations_think_and_switch_their_tier_midway() -> None:
    more = TALK + "think_s = 0.05\nswitch_turn = 2\nswitch_tier = 'fast'\n"
    driven = Driven(text(closed(2, 12), workload=more), quick).run()
    driven.check()
    kinds = set()
    for turns in by_session(driven).values():
        kinds.add(tuple(one.requested_tier for one in turns))
        for before, after in itertools.pairwise(turns):
            assert after.scheduled_ns - before.ended_ns >= 49_000_000
    assert kinds == {("standard", "standard", "fast"), ("fast", "fast", "fast")}


def test_an_open_loop_of_conversations_keeps_its_instants_while_others_talk() -> None:
    driven = Driven(text(constant(50.0, 30), workload=TALK), lambda _: Answer(after_s=0.1)).run()
    driven.check()
    first = [one for one in driven.of("s0") if one.turn == 0]
    assert [one.scheduled_ns - first[0].scheduled_ns for one in first] == [20_000_000 * k for k in range(10)]
    assert len(driven.records) == 30


# Waiting as asked

_SLACK_NS = 80_000_000
"""How late a busy machine may make us without a test's noticing."""
HONOUR = "[control]\nhonour_retry_after = true\n"


class Limited:
    """Refuses the fast tier's third request, and asks to wait; notes when the wait is over."""

    def __init__(self) -> None:
        self.fast = 0

    def __call__(self, sent: Sent) -> Answer:
        self.fast += sent.tier == "fast"
        if sent.tier == "fast" and self.fast == 3:
            return Answer(after_s=0.01, status=429, headers={"retry-after": "0.6"})
        return Answer(after_s=0.01)


def refused(driven: Driven) -> RequestRecord:
    found = [one for one in driven.records if one.outcome == "rate_limited"]
    assert len(found) == 1
    return found[0]


def test_an_open_loop_schedules_a_held_tier_at_the_holds_end_and_the_other_as_before() -> None:
    driven = Driven(text(constant(100.0, 100), top=HONOUR), Limited()).run()
    driven.check()
    told_ns = refused(driven).ended_ns
    end_ns = told_ns + 600_000_000
    start_ns = driven.of("s0")[0].scheduled_ns
    fast = [one for one in driven.of("s0") if one.requested_tier == "fast"]
    for one in driven.of("s0"):
        due_ns = start_ns + 10_000_000 * one.index
        if one.requested_tier == "standard" or due_ns < told_ns - _SLACK_NS:
            assert one.scheduled_ns == due_ns
        elif told_ns + _SLACK_NS < due_ns < end_ns - _SLACK_NS:
            assert end_ns <= one.scheduled_ns <= end_ns + _SLACK_NS
        elif due_ns > end_ns + _SLACK_NS:
            assert one.scheduled_ns == due_ns
        assert one.sent_ns is not None
        assert one.sent_ns >= one.scheduled_ns
    sent_order = sorted(fast, key=lambda one: one.sent_ns or 0)
    assert [one.index for one in sent_order] == [one.index for one in fast]
    assert sum(end_ns <= one.scheduled_ns <= end_ns + _SLACK_NS for one in fast) >= 10


def test_what_was_held_leaves_first_although_the_pacer_wakes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Alarm):
        def wait_until(self, instant_ns: int) -> None:
            super().wait_until(instant_ns + 45_000_000)  # four requests become due meanwhile

    monkeypatch.setattr(pacer, "Alarm", Late)
    driven = Driven(text(constant(100.0, 100), top=HONOUR), Limited()).run()
    driven.check()
    fast = [sent.index for sent in driven.server.sent if sent.tier == "fast"]
    assert fast == sorted(fast)


def test_a_stream_that_would_ask_a_held_tier_waits() -> None:
    driven = Driven(text(closed(2, 30), top=HONOUR), Limited()).run()
    driven.check()
    told_ns = refused(driven).ended_ns
    later = [one for one in driven.of("s0") if one.requested_tier == "fast" and one.scheduled_ns > told_ns]
    assert later
    assert min(one.scheduled_ns for one in later) >= told_ns + 599_000_000
    assert all((one.sent_ns or 0) >= one.scheduled_ns for one in later)


def test_nobody_waits_unasked() -> None:
    driven = Driven(text(constant(100.0, 40)), Limited()).run()
    start_ns = driven.of("s0")[0].scheduled_ns
    assert [one.scheduled_ns for one in driven.of("s0")] == [start_ns + 10_000_000 * k for k in range(40)]


# Ends


def test_a_conclusion_lets_what_is_in_flight_end_and_sends_nothing_more() -> None:
    def script(_: Sent) -> Answer:
        if len(driven.server.sent) == 9:
            driven.traffic.conclude()
        return Answer(after_s=0.1)

    driven = Driven(text(closed(3, 100), closed(3, 100)), script)
    driven.run()
    driven.check()
    assert [one.outcome for one in driven.records] == ["ok"] * 9
    assert driven.traffic.done


def under_way(script: Script, stage: str = "") -> Driven:
    """A run whose three streams wait for their answers."""
    driven = Driven(text(stage or closed(3, 100)), script)
    driven.spawn(3)
    driven.traffic.open()
    with gevent.Timeout(LIMIT_S):
        while len(driven.server.sent) < 3:
            gevent.sleep(0.005)
    return driven


def test_a_stop_cancels_what_is_in_flight_and_records_it() -> None:
    driven = under_way(lambda _: Answer(after_s=1000.0))
    driven.end()
    driven.check()
    assert [one.outcome for one in driven.records] == ["cancelled"] * 3


def test_what_does_not_end_by_itself_is_recorded_as_cancelled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "_DRAIN_S", 0.1)
    driven = under_way(lambda _: Answer(stuck=True))
    driven.end()  # kills the users after the records were made
    driven.check()
    assert [one.outcome for one in driven.records] == ["cancelled"] * 3


def test_a_user_that_is_killed_leaves_a_record() -> None:
    driven = under_way(lambda _: Answer(after_s=1000.0))
    gevent.killall(driven.users)
    driven.end()
    driven.check()
    assert [one.outcome for one in driven.records] == ["cancelled"] * 3


def test_nothing_leaves_after_a_stop_although_a_stage_is_opened() -> None:
    driven = Driven(text(closed(3, 100)), quick)
    driven.spawn(3)
    driven.traffic.stop()
    driven.traffic.open()
    driven.traffic.wait()
    driven.end()
    assert driven.server.sent == []
    assert driven.traffic.users_needed() is None


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    """A test ends in time."""
    with gevent.Timeout(2 * LIMIT_S):
        yield
