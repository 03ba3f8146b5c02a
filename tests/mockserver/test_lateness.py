"""A host that cannot keep up is said to be late, with figures; one that hiccups is not."""

import pytest

from mockserver.lateness import WINDOW_NS, Late, Lateness

MS = 1_000_000
STEP_NS = 20 * MS


def window(judge: Lateness, begin_ns: int, lags_ns: list[int], step_ns: int = STEP_NS) -> Late | None:
    """One window's worth of steps that were handed out so late."""
    for lag_ns in lags_ns:
        judge.add(lag_ns, step_ns)
    return judge.verdict(begin_ns + WINDOW_NS)


def verdicts(*windows: list[int], step_ns: int = STEP_NS) -> list[bool]:
    judge = Lateness()
    return [window(judge, k * WINDOW_NS, lags, step_ns) is not None for k, lags in enumerate(windows)]


ON_TIME = [MS // 5] * 250
TOO_LATE = [6 * MS] * 250


def test_a_host_on_time_is_never_late() -> None:
    assert verdicts(*[ON_TIME] * 5) == [False] * 5


def test_one_bad_window_makes_it_late_and_three_good_ones_in_a_row_make_it_good() -> None:
    told = verdicts(ON_TIME, TOO_LATE, ON_TIME, ON_TIME, TOO_LATE, ON_TIME, ON_TIME, ON_TIME, ON_TIME)
    assert told == [False, True, True, True, True, True, True, False, False]


@pytest.mark.parametrize(
    ("lags_ns", "step_ns", "late"),
    [
        ([MS // 2] * 244 + [30 * MS] * 6, STEP_NS, True),  # 2.4 %
        ([MS // 2] * 246 + [30 * MS] * 4, STEP_NS, False),  # 1.6 %
        ([MS // 2] * 28 + [30 * MS] * 2, STEP_NS, False),  # two of thirty: hiccups
        ([3 * MS] * 250, STEP_NS, False),  # a seventh of a step
        ([3 * MS] * 250, 10 * MS, True),
        ([3 * MS // 2] * 250, MS, False),  # what a busy loop takes, even where steps are as short
        ([3 * MS] * 250, MS, True),
    ],
)
def test_late_is_a_share_of_steps_by_a_share_of_their_length(
    lags_ns: list[int], step_ns: int, late: bool
) -> None:
    assert verdicts(lags_ns, step_ns=step_ns) == [late]


def test_too_few_steps_say_nothing_until_there_are_enough() -> None:
    judge = Lateness()
    assert window(judge, 0, [50 * MS] * 19) is None
    late = window(judge, WINDOW_NS, [50 * MS])
    assert late is not None
    assert late.steps == 20


def test_silence_changes_nothing() -> None:
    judge = Lateness()
    late = window(judge, 0, TOO_LATE)
    assert late is not None
    assert all(judge.verdict(k * WINDOW_NS) is late for k in range(2, 50))


def test_nothing_is_decided_before_the_window_is_over() -> None:
    judge = Lateness(start_ns=7)
    for _ in range(300):
        judge.add(50 * MS, STEP_NS)
    assert judge.verdict(WINDOW_NS + 6) is None
    assert judge.verdict(WINDOW_NS + 7) is not None


def test_the_figures_are_those_of_the_window_and_the_beginning_is_kept() -> None:
    judge = Lateness()
    window(judge, 0, ON_TIME)
    lags = [MS] * 50 + [25 * MS] * 49 + [400 * MS]
    first = window(judge, WINDOW_NS, lags)
    again = window(judge, 2 * WINDOW_NS, TOO_LATE)
    assert first is not None
    assert again is not None
    assert first.since_ns == again.since_ns == WINDOW_NS
    assert (first.steps, first.late_ratio, first.behind_ratio) == (100, 0.5, 0.5)
    assert (first.lag_p50_s, first.worst_lag_s, first.step_s) == (0.013, 0.4, 0.02)
    assert (again.late_ratio, again.behind_ratio) == (1.0, 0.0)
    assert str(first).count("\n") == 0
    for figure in ("50% of 100 steps", "20 ms", "p50 13", "worst 400 ms"):
        assert figure in str(first)


def test_memory_is_bounded_when_nobody_asks() -> None:
    judge = Lateness()
    for _ in range(200_000):
        judge.add(50 * MS, STEP_NS)
    late = judge.verdict(WINDOW_NS)
    assert late is not None
    assert late.steps < 200_000
