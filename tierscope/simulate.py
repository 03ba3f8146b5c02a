"""``tierscope simulate``: a plan against a server profile in virtual time.

The requests are the real run's (``loadtest.workload``), the server is the mock's own engine
(``mockserver.virtual``), and the network between them is the plan's: a latency each way and an exponential
jitter that keeps the order of deliveries. Timeouts are not played. The same plan, profile and seed give the
same bytes.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from loadtest import arrivals, records
from loadtest.plan import Closed, Plan, Target
from loadtest.plan import load as load_plan
from loadtest.records import RequestRecord, RunInfo
from loadtest.tally import Tally
from loadtest.workload import Request, Source, open_source
from mockserver import config as server_config
from mockserver.config import ServerConfig
from mockserver.engine import Job
from mockserver.virtual import Finished, VirtualServer
from tierscope.errors import BadInputError, RunFailedError

_SALT_NETWORK = 5
_FOREVER_NS = 2**62
_FLUSH_EVERY = 100


def simulate_run(plan: str, *, profile: str, seed: int | None, out: Path, force: bool = False) -> None:
    """Simulate a plan and write its run folder; an existing one is refused unless ``force``."""
    loaded = load_plan(plan, seed=seed)
    config = server_config.load(profile, seed=loaded.seed)
    _clear(out, force=force)
    info, tally = _info(loaded, config, profile), Tally()
    try:
        last_ns = _record(out, simulate(loaded, config), info, tally)
    except OSError as error:
        raise RunFailedError(
            f"{out} cannot be written: {error.strerror}; it holds what was written"
        ) from error
    print(f"{tally.ended} requests, {last_ns / 1e9:.1f} s of virtual time: {out}")
    if why := tally.fruitless():
        raise RunFailedError(why)
    print(f"next: tierscope report {out}")


def _record(out: Path, made: Iterator[RequestRecord], info: RunInfo, tally: Tally) -> int:
    """Write a run folder so that one that breaks off can be read; gives the last instant in it."""
    records.write_info(out, info)
    writer = records.RecordWriter(out)
    last_ns, status = 0, "partial"
    try:
        for record in made:
            writer.append(record)
            tally.add(record)
            last_ns = max(last_ns, record.ended_ns)
            if tally.ended % _FLUSH_EVERY == 0:
                writer.flush()
        status = "complete"
    finally:
        writer.close()
        records.write_info(out, msgspec.structs.replace(info, status=status, ended_ns=last_ns))
    return last_ns


def simulate(plan: Plan, config: ServerConfig) -> Iterator[RequestRecord]:
    """Yield one record per request, in the order in which the server ends them, stage after stage."""
    server, source = VirtualServer(config), open_source(plan)
    now_ns = index = 0
    for number in range(len(plan.stages)):
        stage = _Stage(plan, source, config, server, number=number, start_ns=now_ns, first_index=index)
        for record in stage.run():
            now_ns, index = max(now_ns, record.ended_ns), index + 1
            yield record


@dataclass(slots=True)
class _Flight:
    request: Request
    sent_ns: int


@dataclass
class _Stage:
    """One stage: what is on its way to the server, and what is being served."""

    plan: Plan
    source: Source
    config: ServerConfig
    server: VirtualServer
    number: int
    start_ns: int
    first_index: int
    taken: int = 0
    under_way: list[tuple[int, int, _Flight]] = field(default_factory=list)
    """Heap of (arrival at the server, index, flight)."""
    served: dict[int, _Flight] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spec = self.plan.stages[self.number]
        self.latency_ns = round(self.plan.network.latency_s * 1e9)
        self.due = arrivals.instants(self.spec.arrivals, seed=self.plan.seed, stage_number=self.number)

    def run(self) -> Iterator[RequestRecord]:
        """Play the stage to the end of its last request."""
        loop = self.spec.arrivals
        for _ in range(loop.streams if isinstance(loop, Closed) else 1):
            self._send_next(self.start_ns)
        while self.under_way or self.served:
            limit_ns = self.under_way[0][0] if self.under_way else _FOREVER_NS
            finished = self.server.next_finish(limit_ns)
            if finished is not None:
                record = _answered(self.served.pop(finished.job_id), finished, self.source, self.config)
            else:
                refused = self._deliver(heapq.heappop(self.under_way))
                if refused is None:
                    continue
                record = refused
            yield record
            if isinstance(loop, Closed):
                self._send_next(record.ended_ns + round(loop.think_s * 1e9))

    def _send_next(self, now_ns: int) -> None:
        """Send what comes next, if anything does: now in a closed loop, at its own instant in an open one."""
        closed = isinstance(self.spec.arrivals, Closed)
        sent_ns = now_ns if closed else self.start_ns + next(self.due)
        if self.spec.requests is not None and self.taken >= self.spec.requests:
            return
        if self.spec.duration_s is not None and sent_ns - self.start_ns >= self.spec.duration_s * 1e9:
            return
        index = self.first_index + self.taken
        request = self.source.request(self.number, self.taken, index=index)
        self.taken += 1
        heapq.heappush(self.under_way, (sent_ns + self.latency_ns, index, _Flight(request, sent_ns)))

    def _deliver(self, entry: tuple[int, int, _Flight]) -> RequestRecord | None:
        """Hand a request to its tier's engine, or return the record of its refusal."""
        arrives_ns, index, flight = entry
        if not isinstance(self.spec.arrivals, Closed):
            self._send_next(arrives_ns)
        request = flight.request
        tier = server_config.tier_for(self.config, _service_tier(request))
        prompt_tokens = self.source.prompt_words(request)
        if tier is None:
            return _refused(flight, self.plan, self.config, "no tier serves this service_tier")
        if prompt_tokens + request.max_tokens > self.config.max_context_tokens:
            return _refused(flight, self.plan, self.config, "prompt and output exceed the model's context")
        self.server.submit(tier.name, Job(index, prompt_tokens, request.max_tokens), arrives_ns)
        self.served[index] = flight
        return None


def _service_tier(request: Request) -> str | None:
    value = request.tier.body.get("service_tier")
    return value if isinstance(value, str) else None


def _answered(flight: _Flight, finished: Finished, source: Source, config: ServerConfig) -> RequestRecord:
    """The record of a served request: each token's emission, delayed by the network."""
    request = flight.request
    event_ns = _delivered(finished, source.plan, request.index)
    tier = next(tier for tier in config.tiers if tier.name == finished.tier)
    return RequestRecord(
        **_common(flight, config),
        outcome="ok",
        ended_ns=event_ns[-1],
        headers_ns=event_ns[0],
        first_text_ns=event_ns[0],
        event_ns=event_ns,
        event_kinds=[("text", len(event_ns))],
        status=200,
        finish_reason="length",
        echoed_tier=tier.service_tiers[0],
        prompt_tokens=source.prompt_words(request),
        cached_tokens=0,
        output_tokens=len(event_ns),
        tokens_source="usage",
    )


def _refused(flight: _Flight, plan: Plan, config: ServerConfig, why: str) -> RequestRecord:
    """The record of a request that the server answers with 400, after one round trip."""
    answered_ns = flight.sent_ns + 2 * round(plan.network.latency_s * 1e9)
    return RequestRecord(
        **_common(flight, config),
        outcome="http_error",
        ended_ns=answered_ns,
        headers_ns=answered_ns,
        status=400,
        detail=why,
    )


def _common(flight: _Flight, config: ServerConfig) -> dict[str, Any]:
    request = flight.request
    return {
        "index": request.index,
        "stage": request.stage,
        "requested_tier": request.tier.name,
        "model": request.tier.model or config.model_name,
        "prompt_class_tokens": request.prompt_tokens,
        "max_tokens": request.max_tokens,
        "scheduled_ns": flight.sent_ns,
        "sent_ns": flight.sent_ns,
        "stamp_source": "virtual",
        "warmup": request.warmup,
    }


def _delivered(finished: Finished, plan: Plan, index: int) -> list[int]:
    """Instants at which the client sees the tokens: latency, exponential jitter, order kept."""
    network = plan.network
    rng = np.random.default_rng((plan.seed, _SALT_NETWORK, index))
    delay_s = network.latency_s + rng.exponential(network.jitter_s, size=len(finished.token_ns))
    arrived: list[int] = np.maximum.accumulate(
        finished.token_ns + np.rint(delay_s * 1e9).astype(np.int64)
    ).tolist()
    return arrived


def _clear(out: Path, *, force: bool) -> None:
    """Make the folder; files of an earlier run are removed only when that was asked for."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) and not force:
            raise BadInputError(f"--out: {out} is not empty; name a new folder, or add --force")
        for old in (*out.glob(records.LINES_FILES), out / records.PARQUET_FILE, out / records.RUN_FILE):
            old.unlink(missing_ok=True)
    except OSError as error:
        what = "is no folder" if isinstance(error, FileExistsError) else error.strerror
        raise BadInputError(f"--out: {out}: {what}") from error


def _info(plan: Plan, config: ServerConfig, profile: str) -> RunInfo:
    """run.json of a simulated run; nothing in it depends on the wall clock."""
    return RunInfo(
        schema_version=records.SCHEMA_VERSION,
        run_id=f"simulated-{plan.name}-{config.name}-{plan.seed}",
        tierscope_version=version("tierscope"),
        target=Target(url=f"simulated:{profile}", model=config.model_name),
        plan=plan,
        started_unix_s=0.0,
        simulated=True,
    )
