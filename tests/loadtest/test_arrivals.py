"""Open-loop instants and think times against closed forms: rates, laws of gaps, integrals, partitions."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from loadtest import arrivals
from loadtest.part import Part
from loadtest.plan import Arrivals, Burst, Closed, Constant, Gamma, Poisson, Ramp, TraceTimes

SECOND = 1_000_000_000
OPEN: list[Arrivals] = [
    Constant(rate_per_s=7.0),
    Poisson(rate_per_s=50.0),
    Gamma(rate_per_s=50.0, burstiness=0.2),
    Burst(size=5, period_s=0.3),
    Ramp(from_per_s=0.0, to_per_s=40.0, over_s=3.0),
    Ramp(from_per_s=40.0, to_per_s=2.0, over_s=3.0, process="constant"),
]


def some(kind: Arrivals, count: int, *, seed: int = 1, stage: int = 0) -> list[int]:
    return list(itertools.islice(arrivals.instants(kind, seed=seed, stage_number=stage), count))


def rate(ramp: Ramp) -> Callable[[float], float]:
    """The rate itself, as the plan says it; what the code has is its integral."""
    slope = (ramp.to_per_s - ramp.from_per_s) / ramp.over_s
    return lambda t: ramp.from_per_s + slope * t if t < ramp.over_s else ramp.to_per_s


def integral(ramp: Ramp, until_s: float) -> float:
    parts = [(0.0, min(until_s, ramp.over_s)), (min(until_s, ramp.over_s), until_s)]
    return sum(integrate.quad(rate(ramp), low, high)[0] for low, high in parts)


@pytest.mark.parametrize("kind", OPEN, ids=repr)
def test_instants_are_seeded_and_of_their_stage_and_never_fall(kind: Arrivals) -> None:
    made = some(kind, 3000)
    assert made == sorted(made)
    assert made[0] >= 0
    assert made == some(kind, 3000)
    if isinstance(kind, Poisson | Gamma) or (isinstance(kind, Ramp) and kind.process == "poisson"):
        assert made != some(kind, 3000, seed=2)
        assert made != some(kind, 3000, stage=1)


def test_poisson_gaps_are_exponential_with_the_mean_asked_for() -> None:
    gaps_s = np.diff(some(Poisson(rate_per_s=50.0), 20_000), prepend=0) / 1e9
    assert stats.kstest(gaps_s, "expon", args=(0, 1 / 50)).pvalue > 1e-3
    assert abs(np.corrcoef(gaps_s[:-1], gaps_s[1:])[0, 1]) < 0.03


def test_constant_instants_do_not_drift() -> None:
    instants = some(Constant(rate_per_s=3.0), 3_000_001)
    assert instants[3_000_000] == 1_000_000 * SECOND
    assert set(np.diff(instants[:1000]).tolist()) == {333_333_333, 333_333_334}


def test_a_closed_loop_has_no_instants() -> None:
    assert some(Closed(streams=3), 10) == []


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_the_mean_the_variation_and_the_law_that_burstiness_says(burstiness: float) -> None:
    gaps_s = np.diff(some(Gamma(rate_per_s=20.0, burstiness=burstiness), 20_000), prepend=0) / 1e9
    scale_s = 1 / (20.0 * burstiness)
    assert gaps_s.mean() == pytest.approx(1 / 20, rel=0.05)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(burstiness**-0.5, rel=0.05)
    assert stats.kstest(gaps_s[gaps_s > 0], "gamma", args=(burstiness, 0, scale_s)).pvalue > 1e-3
    assert abs(np.corrcoef(gaps_s[:-1], gaps_s[1:])[0, 1]) < 0.03


def test_a_burst_is_so_many_at_one_instant_and_again_each_period_without_drift() -> None:
    made = some(Burst(size=3, period_s=0.1), 3_000_003)
    assert made[:7] == [0, 0, 0, SECOND // 10, SECOND // 10, SECOND // 10, SECOND // 5]
    assert made[3_000_000:] == [100_000 * SECOND] * 3


RAMPS = [
    Ramp(from_per_s=0.0, to_per_s=100.0, over_s=20.0),
    Ramp(from_per_s=100.0, to_per_s=5.0, over_s=20.0),
    Ramp(from_per_s=30.0, to_per_s=30.0, over_s=20.0),
]


@pytest.mark.parametrize("ramp", RAMPS, ids=repr)
def test_a_poisson_ramp_is_a_unit_poisson_process_on_the_clock_of_its_integrated_rate(ramp: Ramp) -> None:
    instants_s = np.array(some(ramp, 2500)) / 1e9
    on_its_clock = np.array([integral(ramp, at_s) for at_s in instants_s])
    gaps = np.diff(on_its_clock, prepend=0)
    assert stats.kstest(gaps, "expon").pvalue > 1e-3
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.07


@pytest.mark.parametrize("ramp", RAMPS, ids=repr)
@pytest.mark.parametrize("until_s", [4.0, 20.0, 30.0])
def test_a_poisson_ramp_sends_as_many_as_its_integral_says(ramp: Ramp, until_s: float) -> None:
    expected = integral(ramp, until_s) * 40
    limit_ns = until_s * 1e9
    counted = 0
    for seed in range(40):
        made = arrivals.instants(ramp, seed=seed, stage_number=0)
        counted += sum(1 for _ in itertools.takewhile(lambda at_ns: at_ns < limit_ns, made))
    assert abs(counted - expected) < 4 * expected**0.5


@pytest.mark.parametrize("ramp", RAMPS, ids=repr)
def test_a_constant_ramp_sends_at_each_whole_number_of_its_integral(ramp: Ramp) -> None:
    kind = Ramp(from_per_s=ramp.from_per_s, to_per_s=ramp.to_per_s, over_s=ramp.over_s, process="constant")
    made = some(kind, 2500)
    for number in (0, 1, 2, 100, 999, 1000, 1023, 1024, 2499):
        assert integral(ramp, made[number] / 1e9) == pytest.approx(number, abs=1e-5)


@given(st.floats(0, 1e4), st.floats(1e-3, 1e4), st.floats(1e-2, 1e5), st.floats(0, 3))
def test_the_integrated_rate_and_its_inverse_undo_each_other(
    from_per_s: float, to_per_s: float, over_s: float, share: float
) -> None:
    ramp = Ramp(from_per_s=from_per_s, to_per_s=to_per_s, over_s=over_s)
    at_s = np.array([share * over_s])
    count = arrivals.expected_count(ramp, at_s)
    back = arrivals.expected_count(ramp, arrivals.reached_s(ramp, count))
    assert back[0] == pytest.approx(count[0], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("kind", OPEN, ids=repr)
@settings(max_examples=10, deadline=None)
@given(of=st.integers(1, 7))
def test_parts_of_a_schedule_are_a_partition_of_it(kind: Arrivals, of: int) -> None:
    whole = some(kind, 700)
    taken: list[tuple[int, int]] = []
    for number in range(of):
        part = Part(number, of)
        positions = list(itertools.takewhile(lambda p: p < 700, map(part.position, itertools.count())))
        own = list(itertools.islice(arrivals.instants(kind, seed=1, stage_number=0), number, 700, of))
        taken.extend(zip(positions, own, strict=True))
    assert sorted(taken) == list(enumerate(whole))


def test_a_trace_is_played_at_its_instants_and_at_a_scale_and_ends() -> None:
    told = [0, 0, 1_500_000_001, 4 * SECOND]
    for scale, expected in [
        (1.0, told),
        (2.0, [2 * at for at in told]),
        (0.5, [0, 0, 750_000_000, 2 * SECOND]),
    ]:
        kind = TraceTimes(time_scale=scale)
        assert list(arrivals.instants(kind, seed=1, stage_number=0, trace_ns=told)) == expected


def test_a_pause_is_fixed_or_exponential_with_the_mean_asked_for() -> None:
    fixed = Closed(streams=3, think_s=0.25)
    assert arrivals.think_s(fixed, seed=1, stage_number=0, position=9) == 0.25
    drawn = Closed(streams=3, think_s=0.25, think="exponential")
    pauses = [arrivals.think_s(drawn, seed=1, stage_number=0, position=k) for k in range(5000)]
    assert stats.kstest(pauses, "expon", args=(0, 0.25)).pvalue > 1e-3
    assert pauses[7] == arrivals.think_s(drawn, seed=1, stage_number=0, position=7)
    assert pauses[7] != arrivals.think_s(drawn, seed=1, stage_number=1, position=7)
    nothing = Closed(streams=3, think="exponential")
    assert arrivals.think_s(nothing, seed=1, stage_number=0, position=9) == 0.0


def test_rates_so_low_that_instants_leave_the_64_bits_still_never_fall() -> None:
    made = some(Gamma(rate_per_s=1e-6, burstiness=0.01), 20_000)
    assert made == sorted(made)
    assert made[-1] > 2**61
