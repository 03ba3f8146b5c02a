"""Runs drawn from closed forms, so that the analysis meets truths that nothing of ours has computed."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from loadtest import records
from loadtest.plan import Closed, Plan, Stage, Target, Tier, Workload
from loadtest.records import ClientHealth, RequestRecord, RunInfo

LENGTHS = (128, 2048, 8192, 16384)


@dataclass(frozen=True)
class Server:
    """One tier in closed form: ex-Gaussian TTFT, and steps with AR(1) noise and stalls."""

    step_s: float = 0.02
    base_s: float = 0.04
    increment_s: float = 0.30
    """TTFT law at the longest length minus at the shortest; a tenth of it is quadratic."""
    queued_ratio: float = 0.3
    queue_mean_s: float = 0.05
    noise_s: float = 0.005
    wander: float = 0.02
    """Standard deviation of ln step from request to request ..."""
    memory: float = 0.0
    """... and its lag-one correlation."""
    stalled: float = 0.05
    stall_s: float = 0.06

    def law_s(self, prompt_tokens: float) -> float:
        u = (prompt_tokens - LENGTHS[0]) / (LENGTHS[-1] - LENGTHS[0])
        return self.base_s + self.increment_s * (0.9 * u + 0.1 * u * u)


@dataclass
class Draw:
    """Draws the records of a run of interleaved tiers."""

    tiers: dict[str, Server]
    seed: int = 1
    per_tier: int = 80
    output_tokens: int = 33
    gap_s: float = 0.05
    lengths: tuple[int, ...] = LENGTHS
    stage: str = "compare"
    warmup: bool = False
    first_index: int = 0
    start_s: float = 0.0
    _state: dict[str, float] = field(default_factory=dict)

    def records(self) -> list[RequestRecord]:
        rng = np.random.default_rng(self.seed)
        orders = {name: self._classes(rng) for name in self.tiers}
        found = []
        for block in range(self.per_tier):
            for place, name in enumerate(rng.permutation(list(self.tiers)).tolist()):
                index = self.first_index + block * len(self.tiers) + place
                sent_s = self.start_s + (block * len(self.tiers) + place) * self.gap_s
                found.append(self._record(rng, index, name, orders[name][block], sent_s))
        return found

    def _classes(self, rng: np.random.Generator) -> list[int]:
        blocks = math.ceil(self.per_tier / len(self.lengths))
        return [int(n) for _ in range(blocks) for n in rng.permutation(self.lengths)][: self.per_tier]

    def _record(
        self, rng: np.random.Generator, index: int, name: str, length: int, sent_s: float
    ) -> RequestRecord:
        server = self.tiers[name]
        wait = rng.exponential(server.queue_mean_s) if rng.random() < server.queued_ratio else 0.0
        ttft = max(server.law_s(length) + wait + rng.normal(0, server.noise_s), 1e-3)
        kept = server.memory * self._state.get(name, rng.normal())
        self._state[name] = kept + math.sqrt(1 - server.memory**2) * rng.normal()
        gaps = server.step_s * math.exp(server.wander * self._state[name]) * np.ones(self.output_tokens - 1)
        gaps *= np.exp(rng.normal(0, 0.01, gaps.size))
        gaps += server.stall_s * (rng.random(gaps.size) < server.stalled)
        event_ns = np.rint((sent_s + ttft + np.concatenate(([0.0], np.cumsum(gaps)))) * 1e9).astype(int)
        sent_ns = round(sent_s * 1e9)
        return RequestRecord(
            index=index,
            stage=self.stage,
            requested_tier=name,
            model="m",
            prompt_class_tokens=length,
            max_tokens=self.output_tokens,
            scheduled_ns=sent_ns,
            outcome="ok",
            stamp_source="kernel",
            ended_ns=int(event_ns[-1]),
            warmup=self.warmup,
            sent_ns=sent_ns,
            headers_ns=int(event_ns[0]),
            first_text_ns=int(event_ns[0]),
            event_ns=event_ns.tolist(),
            event_kinds=[("text", self.output_tokens)],
            status=200,
            finish_reason="length",
            echoed_tier="default" if name == "standard" else "priority",
            prompt_tokens=length,
            cached_tokens=0,
            output_tokens=self.output_tokens,
            tokens_source="usage",
        )


def plan_of(tiers: Iterable[str], *, stages: tuple[Stage, ...] | None = None) -> Plan:
    """A plan that could have asked for these tiers."""
    values = {"standard": "default", "fast": "priority"}
    return Plan(
        name="drawn",
        stages=stages or (Stage(name="compare", arrivals=Closed(streams=8), requests=320),),
        workload=Workload(prompt_tokens=LENGTHS, output_tokens=33),
        tiers=tuple(
            Tier(name=name, body={"service_tier": values[name]} if name in values else {}) for name in tiers
        ),
    )


def info_of(plan: Plan, **changes: object) -> RunInfo:
    """A run.json for it, complete and healthy unless changed."""
    defaults: dict[str, object] = {
        "schema_version": records.SCHEMA_VERSION,
        "run_id": "drawn-1",
        "tierscope_version": "0",
        "target": Target(url="http://127.0.0.1:1", model="m"),
        "plan": plan,
        "started_unix_s": 0.0,
        "status": "complete",
        "client": ClientHealth(
            cpu_s=1.0, wall_s=10.0, worst_lag_s=0.0, connections_opened=8, stamp_source="kernel"
        ),
    }
    return RunInfo(**{**defaults, **changes})  # type: ignore[arg-type]


Folder = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Write records as a run folder: ``folder(records, name="run", **changes of run.json)``."""

    def write(
        drawn: Iterable[RequestRecord], *, name: str = "run", plan: Plan | None = None, **changes: object
    ) -> Path:
        found = list(drawn)
        tiers = list(dict.fromkeys(sorted(record.requested_tier for record in found)))[::-1] or ["standard"]
        path = tmp_path / name
        records.write_run(path, info_of(plan or plan_of(tiers), **changes), found)
        return path

    return write


@pytest.fixture
def server() -> type[Server]:
    """The class ``Server``: tests cannot import from here."""
    return Server


@pytest.fixture
def draw() -> type[Draw]:
    """The class ``Draw``."""
    return Draw


@pytest.fixture
def plan_for() -> Callable[..., Plan]:
    """The function ``plan_of``."""
    return plan_of
