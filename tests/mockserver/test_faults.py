"""Which faults strike whom follows from the seed and the request's number, and from nothing else."""

import dataclasses
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver import faults
from mockserver.faults import Struck, struck
from mockserver.wire_config import Fault, FaultKind

KINDS = get_args(FaultKind)
FAULTS = st.builds(
    Fault,
    kind=st.sampled_from(KINDS),
    ratio=st.floats(0, 1),
    tiers=st.sampled_from(((), ("a",), ("a", "b"))),
    every=st.integers(1, 5),
)


def strikes(profile: tuple[Fault, ...], *, seed: int = 1, tier: str = "a", count: int = 400) -> list[Struck]:
    return [struck(profile, seed=seed, number=n, tier=tier, arrived_ns=n * 10**9) for n in range(count)]


@settings(max_examples=40)
@given(profile=st.lists(FAULTS, max_size=6).map(tuple), seed=st.integers(0, 2**63 - 1))
def test_the_same_seed_strikes_the_same_requests_in_any_order(profile: tuple[Fault, ...], seed: int) -> None:
    forward = strikes(profile, seed=seed, count=20)
    backward = [
        struck(profile, seed=seed, number=n, tier="a", arrived_ns=n * 10**9) for n in range(19, -1, -1)
    ]
    assert forward == backward[::-1]


@settings(max_examples=40)
@given(profile=st.lists(FAULTS, max_size=5).map(tuple), added=FAULTS)
def test_a_fault_added_at_the_end_changes_none_before_it(profile: tuple[Fault, ...], added: Fault) -> None:
    before, after = strikes(profile, count=20), strikes((*profile, added), count=20)
    for one, other in zip(before, after, strict=True):
        assert other.faults[: len(one.faults)] == one.faults
        assert len(other.faults) - len(one.faults) in (0, 1)


def test_a_ratio_is_the_share_that_is_struck_and_two_faults_are_independent() -> None:
    profile = (Fault(kind="cut", ratio=0.3), Fault(kind="gzip", ratio=0.5))
    found = strikes(profile, count=4000)
    cut, gzip = ([kind in one.kinds for one in found] for kind in ("cut", "gzip"))
    both = sum(one and other for one, other in zip(cut, gzip, strict=True))
    deviation = (0.25 / 4000) ** 0.5
    for share, ratio in ((sum(cut), 0.3), (sum(gzip), 0.5), (both, 0.15)):
        assert abs(share / 4000 - ratio) < 5 * deviation


def test_windows_tiers_and_every_say_whom() -> None:
    window = (Fault(kind="delay", from_s=100.0, until_s=200.0, every=3),)
    hit = [number for number, found in enumerate(strikes(window)) if found.faults]
    assert hit == [number for number in range(100, 200) if number % 3 == 0]
    assert not any(found.faults for found in strikes((Fault(kind="cut", tiers=("a",)),), tier="b"))
    assert all(found.faults for found in strikes((Fault(kind="cut", tiers=("a",)),)))


def test_other_seeds_strike_others() -> None:
    profile = (Fault(kind="cut", ratio=0.5),)
    assert strikes(profile, seed=1) != strikes(profile, seed=2)


@given(after=st.integers(0, 100), total=st.integers(1, 100))
def test_a_fault_of_a_stream_comes_after_so_many_tokens_but_before_the_last(after: int, total: int) -> None:
    at = faults.strikes_at(Fault(kind="cut", after_tokens=after), total)
    assert 0 <= at < total
    assert at == after or at == total - 1 < after


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_told_apart_from_all_others(kind: FaultKind) -> None:
    found = Struck((Fault(kind=kind, wait_s=0.5),))
    assert found.kinds == (kind,)
    told = {
        "http_error": found.http_error,
        "delay": found.delay_s,
        "stream_error": found.breaks and found.breaks.kind == "stream_error",
        "cut": found.breaks and found.breaks.kind == "cut",
        "reset": found.breaks and found.breaks.kind == "reset",
        "stall": found.stall,
        "garbage": found.garbage,
        "drip": found.drip_s,
        "no_usage": found.no_usage,
        "no_end": found.no_end,
        "gzip": found.gzip,
    }
    assert [name for name, is_told in told.items() if is_told] == [kind]
    assert dataclasses.asdict(faults.NOTHING) == {"faults": ()}
