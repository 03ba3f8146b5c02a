"""What is made of calibration requests that go well, fail, or tell nothing; errors in bounded memory."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.calibrating import Calibration, calibrate
from loadtest.calibration import PROMPT_WORDS
from loadtest.plan import CALIBRATION, Closed, Plan, Stage, Workload
from loadtest.plan_workload import Prompts
from loadtest.prompt_errors import PromptErrors
from loadtest.prose import Counting
from loadtest.records import Outcome, RequestRecord
from loadtest.workload import Message, Request


def plan(workload: Workload) -> Plan:
    return Plan(
        name="p", stages=(Stage(name="s", arrivals=Closed(streams=1), requests=1),), workload=workload
    )


UNKNOWN = plan(Workload(prompt_tokens=(100,), output_tokens=5))


def record(
    index: int, words: int, tokens: int | None, outcome: Outcome = "ok", stage: str = CALIBRATION
) -> RequestRecord:
    return RequestRecord(
        index=index, stage=stage, requested_tier="a", model="m", prompt_class_tokens=words, max_tokens=8,
        scheduled_ns=0, outcome=outcome, stamp_source="kernel", ended_ns=9, prompt_tokens=tokens,
        detail="" if outcome == "ok" else f"it was {outcome}",
    )  # fmt: skip


class Server:
    """Answers calibration requests by a script; ``words`` are those of the prompts it got."""

    def __init__(self, *outcomes: Outcome, overhead: int = 9, counts: bool = True) -> None:
        self.outcomes, self.overhead, self.counts = outcomes, overhead, counts
        self.words: list[int] = []

    def __call__(self, request: Request, messages: Sequence[Message]) -> RequestRecord | None:
        if len(self.words) == len(self.outcomes):
            return None
        self.words.append(sum(len(message.text.split()) for message in messages))
        outcome = self.outcomes[len(self.words) - 1]
        tokens = 2 * self.words[-1] + self.overhead if self.counts and outcome == "ok" else None
        return record(request.index, request.prompt_tokens, tokens, outcome)


def test_words_of_known_lengths_are_sent_and_the_line_is_found() -> None:
    server = Server("ok", "ok", "ok")
    found = calibrate(UNKNOWN, server)
    assert server.words == list(PROMPT_WORDS)
    assert found == Calibration(Counting(2.0, 9.0), "measured", requests=3)


def test_one_failure_among_successes_costs_one_point_only() -> None:
    assert calibrate(UNKNOWN, Server("ok", "timeout", "ok")).counting == Counting(2.0, 9.0)


def test_requests_that_all_fail_make_the_run_hopeless_in_the_servers_words() -> None:
    found = calibrate(UNKNOWN, Server("http_error", "http_error", "timeout"))
    assert found.failure == "the first 3 requests all failed: it was http_error"
    assert found.requests == 3


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (Server("ok", "ok", "ok", counts=False), "the server told no prompt tokens"),
        (Server("ok", "timeout", "timeout"), "tokens per word: 1 prompt lengths were counted"),
        (Server(), "tokens per word: 0 prompt lengths were counted"),
        (Server("cancelled"), "tokens per word: 0 prompt lengths were counted"),
    ],
)
def test_what_cannot_be_measured_is_assumed_and_said(server: Server, why: str) -> None:
    found = calibrate(UNKNOWN, server)
    assert (found.counting, found.source, found.failure) == (Counting(), "assumed", "")
    assert found.note.startswith(f"one token a word is assumed: {why}")


@pytest.mark.parametrize(
    ("workload", "source"),
    [
        (Workload(prompt_tokens=(9,), output_tokens=5, tokens_per_word=1.3), "stated"),
        (Workload(prompt_tokens=(9,), output_tokens=5, tokenizer="t.json"), "tokenizer"),
        (Workload(prompts=Prompts(file="p.jsonl"), output_tokens=5), None),
    ],
)
def test_a_plan_that_knows_has_nothing_sent(workload: Workload, source: str | None) -> None:
    server = Server()
    assert calibrate(plan(workload), server) == Calibration(source=source)  # type: ignore[arg-type]
    assert server.words == []


@given(st.lists(st.tuples(st.integers(1, 500), st.one_of(st.none(), st.integers(1, 2000))), max_size=40))
def test_errors_kept_in_bounded_memory_are_those_of_all_records(pairs: list[tuple[int, int | None]]) -> None:
    records = [record(index, *pair, stage="s") for index, pair in enumerate(pairs)]
    errors = PromptErrors()
    for one in [record(99, 4, 400), *records]:  # the first is of the calibration
        errors.add(one)
    ratios = sorted(abs(tokens / words - 1) for words, tokens in pairs if tokens is not None)
    if not ratios:
        assert (errors.median_ratio, errors.worst_ratio) == (None, None)
        return
    lower = min(10.0, float(np.quantile(ratios, 0.5, method="lower")))
    assert errors.worst_ratio == pytest.approx(ratios[-1])
    assert errors.median_ratio == pytest.approx(lower, abs=1e-4)
