"""Shipped profiles show what they are for: ratios of decoding and of prefill as a client measures them."""

import re
from dataclasses import dataclass, field
from importlib import resources
from typing import get_args

import msgspec
import numpy as np
import pytest

from mockserver import config, hidden_load, prefix_blocks, roofline
from mockserver.ask import Ask
from mockserver.desk import Desk
from mockserver.job import Job
from mockserver.virtual import Finished, VirtualServer
from mockserver.wire_config import FaultKind

S = 10**9
SHORT, LONG = 128, 8192


@dataclass
class Server:
    """A server in virtual time that is asked for one thing at a time."""

    config: config.ServerConfig
    now_ns: int = 0
    asked: int = 0
    virtual: VirtualServer = field(init=False)

    def __post_init__(self) -> None:
        self.virtual = VirtualServer(self.config, 1)

    def submit(self, tier: str, prompt: int, output: int, blocks: tuple[int, ...] = ()) -> None:
        self.virtual.submit(tier, Job(self.asked, prompt, output, blocks=blocks), self.now_ns)
        self.asked += 1

    def next(self) -> Finished:
        done = self.virtual.next_finish(self.now_ns + 1000 * S)
        assert done is not None
        self.now_ns = done.ended_ns
        return done

    def ask(self, tier: str, prompt: int, output: int, blocks: tuple[int, ...] = ()) -> Finished:
        self.submit(tier, prompt, output, blocks)
        return self.next()


def ttft_s(done: Finished) -> float:
    return (done.first_token_ns - done.submitted_ns) / S


def tokens_per_s(server: Server, tier: str, requests: int = 12, output: int = 200) -> float:
    """Output speed, (N - 1)/(last - first), the median of requests."""
    found = [server.ask(tier, SHORT, output) for _ in range(requests)]
    return float(np.median([(output - 1) * S / (d.ended_ns - d.first_token_ns) for d in found]))


def added_prefill_s(server: Server, tier: str, requests: int = 24) -> float:
    """What a long prompt adds to the time to first token; lower quartiles are the least disturbed."""
    ttft = {
        prompt: [ttft_s(server.ask(tier, prompt, 2)) for _ in range(requests)] for prompt in (SHORT, LONG)
    }
    return float(np.quantile(ttft[LONG], 0.25) - np.quantile(ttft[SHORT], 0.25))


SIGNATURES = {
    "fast-tier": (2.5, 1.0),
    "no-change": (1.0, 1.0),
    "speculation": (2.27, 1.0),
    "faster-chip": (1.5, 2.2),
    "distilled": (3.7, 7.2),
    "kv-int8": (1.24, 1.0),
    "priority-only": (1.0, 1.0),
    "opus-like": (2.6, 0.91),
    "silent-fallback": (2.5, 1.0),
    "cache-per-tier": (2.5, 1.0),
    "spark-like": (26.8, 5.5),
}


@pytest.mark.parametrize(("name", "decode", "prefill"), [(n, *s) for n, s in SIGNATURES.items()])
def test_a_profile_has_the_signature_of_its_mechanism(name: str, decode: float, prefill: float) -> None:
    """Output speed of the second tier over the first, and prefill time of the first over the second."""
    served = config.load(name)
    server = Server(served)
    first, second = (tier.name for tier in served.tiers)
    assert tokens_per_s(server, second) / tokens_per_s(server, first) == pytest.approx(decode, rel=0.1)
    ratio = added_prefill_s(server, first) / added_prefill_s(server, second)
    assert ratio == pytest.approx(prefill, rel=0.12)


@pytest.mark.parametrize("name", config.shipped())
def test_the_steps_that_a_profile_quotes_are_those_of_its_law(name: str) -> None:
    text = (resources.files("mockserver") / "profiles" / f"{name}.toml").read_text(encoding="utf-8")
    quoted = [float(each) for each in re.findall(r"#.*\bstep of ([0-9.]+) ms", text, re.IGNORECASE)]
    served = config.load(name)
    steps_s = []
    for tier in served.tiers:
        law, batch = roofline.law(config.deployment_of(served, tier)), tier.target_batch
        if batch:
            context = batch * config.mean_context_tokens(tier)
            steps_s.append(hidden_load.decode_step_s(law, tier, batch, context))
    assert quoted == [round(step_s * 1e3, 1) for step_s in steps_s][: len(quoted)]
    assert len(quoted) == len(steps_s) or name in (
        "no-change",
        "cache-per-tier",
    )  # which quote those of others


def test_a_fast_tier_costs_what_its_profile_says() -> None:
    for name in config.shipped():
        prices = [tier.price for tier in config.load(name).tiers]
        if len(prices) == 2 and prices[0] is not None and prices[1] is not None:
            expected = 6.0 if name == "opus-like" else 2.0
            assert prices[1].output_usd_per_mtok / prices[0].output_usd_per_mtok == expected
            assert prices[1].input_usd_per_mtok / prices[0].input_usd_per_mtok == expected


def test_speculation_brings_its_tokens_in_bursts() -> None:
    """(1 - a^(g + 1))/(1 - a) tokens a step, one to g + 1 of them: 2.53 of at most 4."""
    done = Server(config.load("speculation")).ask("fast", SHORT, 3000)
    _, burst = np.unique(done.token_ns, return_counts=True)
    assert set(burst) == {1, 2, 3, 4}
    assert np.mean(burst[1:-1]) == pytest.approx((1 - 0.7**4) / 0.3, rel=0.05)
    alone = Server(config.load("speculation")).ask("standard", SHORT, 300)
    assert len(np.unique(alone.token_ns)) == 300


def test_a_token_of_context_costs_half_with_kv_in_8_bits() -> None:
    """A step grows by the request's own 60,000 tokens, with nobody else there whose contexts wander."""
    served = config.load("kv-int8")
    tiers = tuple(msgspec.structs.replace(tier, target_batch=0) for tier in served.tiers)
    server, added_s = Server(msgspec.structs.replace(served, tiers=tiers)), []
    for tier in tiers:
        short, long = (server.ask(tier.name, prompt, 500) for prompt in (SHORT, SHORT + 60_000))
        added_s.append((np.mean(np.diff(long.token_ns)) - np.mean(np.diff(short.token_ns))) / S)
    assert added_s[0] == pytest.approx(60_000 * 327_680 / (4 * 3.35e12 * 0.8), rel=0.05)
    assert added_s[0] / added_s[1] == pytest.approx(2.0, rel=0.05)


def test_opus_like_has_the_speeds_and_batches_that_its_prices_ask_for() -> None:
    served = config.load("opus-like")
    server, (standard, fast) = Server(served), served.tiers
    speeds = [tokens_per_s(server, tier.name) for tier in served.tiers]
    assert speeds == pytest.approx([65, 170], rel=0.05)
    assert standard.target_batch / fast.target_batch == pytest.approx(6.0 * speeds[1] / speeds[0], rel=0.05)


def test_a_wafer_answers_more_than_a_thousand_tokens_a_second_under_its_own_name() -> None:
    served = config.load("spark-like")
    assert tokens_per_s(Server(served), "spark") > 1000
    assert Desk(served).requested("mock-spark").name == "spark"


def test_priority_alone_helps_only_in_a_crowd() -> None:
    """Sixteen find room at once, whoever they are; of those behind them the fast ones come first."""
    for crowd, ratio in ((8, 1.0), (64, 2.0)):
        server = Server(config.load("priority-only"))
        for number in range(crowd):
            server.submit(("standard", "fast")[number % 2], SHORT, 60)
        done = [server.next() for _ in range(crowd)]
        mean_s = {t: np.mean([ttft_s(d) for d in done if d.tier == t]) for t in ("standard", "fast")}
        if crowd == 8:
            assert mean_s["standard"] / mean_s["fast"] == pytest.approx(ratio, rel=0.1)
        else:
            assert mean_s["standard"] / mean_s["fast"] > ratio


def test_a_silent_fallback_is_seen_in_the_speed_and_nowhere_else() -> None:
    """Two requests of 600 tokens at a time; the limit lets 6,000 at once and 12,000 a minute through."""
    served = config.load("silent-fallback")
    desk, server = Desk(served), Server(served)
    told, speeds = set(), []
    for _ in range(40):
        for _ in range(2):
            choice = desk.choose(
                model="mock", speed="fast", input_tokens=SHORT, output_tokens=600, now_ns=server.now_ns
            )
            told.add((choice.requested.name, choice.echoed_service_tier, choice.echoed_speed))
            server.submit(choice.tier.name, SHORT, 600)
        ended = [server.next(), server.next()]
        speeds += [599 * S / (done.ended_ns - done.first_token_ns) for done in ended]
    assert told == {("fast", "priority", "fast")}
    fast, slow = [speed for speed in speeds if speed > 120], [speed for speed in speeds if speed < 80]
    assert len(fast) + len(slow) == 80
    assert slow
    allowed = (6000 + 200 * server.now_ns / S) / 600
    assert allowed - 3 <= len(fast) <= allowed


def test_changing_tiers_writes_the_whole_prefix_again() -> None:
    """A session of three turns in one tier, then one in the other: only what is new, then all of it."""
    server = Server(config.load("cache-per-tier"))
    words = [f"w{number}" for number in range(40_000)]
    blocks = prefix_blocks.of_words(words, 16)
    lengths = (20_000, 24_000, 28_000)
    turns = [server.ask("standard", length, 32, blocks[: length // 16]) for length in lengths]
    assert turns[0].done.cached_tokens == 0
    for before, turn in zip(lengths, turns[1:], strict=False):
        assert before - 16 <= turn.done.cached_tokens <= before
    switched = server.ask("fast", 28_000, 32, blocks[: 28_000 // 16])
    back = server.ask("standard", 28_000, 32, blocks[: 28_000 // 16])
    assert switched.done.cached_tokens == 0
    assert back.done.cached_tokens >= 28_000 - 16
    assert ttft_s(switched) > 3 * ttft_s(back)


def mean_tpot_ms(name: str, streams: int, requests: int) -> float:
    """Mean time per output token with so many streams of 1,024 tokens in and out, all the time."""
    server = Server(config.load(name))
    for number in range(streams):  # spread over one request's life, as streams are after a while
        server.submit("standard", 1024, max(2, 1024 * (number + 1) // streams))
    found = []
    for _ in range(streams + requests):
        done = server.next()
        server.submit("standard", 1024, 1024)
        if len(done.token_ns) == 1024:
            found.append((done.ended_ns - done.first_token_ns) / 1023 / 1e6)
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("name", "streams", "published_ms", "error"),
    [
        ("h100-70b", 4, 11.8, 0.1),
        ("h100-70b", 16, 13.2, 0.1),
        ("h100-70b", 64, 19.5, 0.1),
        ("h200-deepseek", 4, 10.3, 0.3),
        ("h200-deepseek", 16, 16.6, 0.25),
        ("h200-deepseek", 64, 33.0, 0.25),
    ],
)
def test_real_chips_are_as_near_to_what_was_published_as_the_profile_says(
    name: str, streams: int, published_ms: float, error: float
) -> None:
    assert mean_tpot_ms(name, streams, requests=2 * streams) == pytest.approx(published_ms, rel=error)


def test_chaos_has_every_fault_there_is() -> None:
    assert {fault.kind for fault in config.load("chaos").faults} == set(get_args(FaultKind))


@pytest.mark.parametrize("name", config.shipped())
def test_every_profile_serves_who_asks_for_nothing_and_who_asks_for_speed(name: str) -> None:
    served = config.load(name)
    desk = Desk(served)
    ask = Ask(model=served.model_name, prompts=("one two",))
    assert desk.place(ask, 0).tier == served.tiers[0]
    assert desk.requested(served.model_name, "default") == served.tiers[0]
    for tier in served.tiers:
        for value in tier.service_tiers:
            assert desk.requested(served.model_name, value) == tier
