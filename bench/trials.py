"""What the analysis makes of one drawn server, beside the truth: simulated, written as a run, read back."""

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from random import Random

import msgspec
import numpy as np

from analysis import arms, batch, calibrated, fallback, step_law, sweep, whitebox, window
from analysis.analyze import analyze
from analysis.load import load
from analysis.model import Estimate, Report
from analysis.prefill import LARGEST_ERROR
from analysis.ragged import Floats
from analysis.sources.aggregate import Binned
from analysis.step_law import StepLaw
from bench import servers
from bench.servers import Pair
from loadtest import plan as plans
from loadtest import records
from loadtest.histogram import GAP_EDGES_S
from loadtest.plan import Closed, Plan, Stage, Target, Workload
from loadtest.records import RunInfo
from mockserver import config as profiles
from mockserver import roofline
from mockserver.config import ServerConfig
from mockserver.job import StepDone
from tierscope.virtual_run import OnStep, simulate

PROMPT_TOKENS = 64
FULL, QUICK = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256), (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass
class Outcome:
    """All that came out of one server."""

    largest_exact: bool | None = None
    curve_errors: list[float] = field(default_factory=list)
    """ln(fitted / law) of the step at each level of the sweep."""
    hidden_error: float | None = None
    """ln(batch found / batch there) of others' load, where it is claimed."""
    hidden_covered: bool | None = None
    """Whether the interval holds it, with the mean context told as wrongly as the interval allows for."""
    hidden_open: int = 0
    binned_error: float | None = None
    """The same from the counts of the exported histogram of gaps."""
    kind: str = ""
    answered: str = ""
    named: bool = False
    """The answer is right, or it names the truth as what it cannot be told from."""
    busy: bool = False
    conclusive: bool | None = None
    """Of a pair that changes decode alone, at 160 requests per tier."""
    prefill_errors: list[float] = field(default_factory=list)
    """ln of the prefill ratio found over that of the law, where it is said to be known."""
    prefill_open: int = 0
    decode_false: bool | None = None
    """Of equal tiers at 80 requests per tier: whether decode was called changed."""
    edge_false: bool | None = None
    """Of tiers whose prefill differs by 10 %: whether it was called unchanged."""
    auc: float | None = None
    share_error: float | None = None
    price_error: float | None = None
    blind: list[bool] = field(default_factory=list)
    """Of tiers whose true ε is below 0.1: whether the white box claimed a batch."""
    covered: list[bool] = field(default_factory=list)
    """Whether the white box's interval holds the true batch, where it claims one."""


def trial(number: int, seed: int, *, quick: bool) -> Outcome:
    """Draw servers of one number and let the analysis say what they are."""
    seed_text = f"inference/{seed}/{number}"
    found = Outcome()
    _alone(f"{seed_text}/alone", found, quick=quick)
    kind = servers.KINDS[number % len(servers.KINDS)]
    _compare(servers.pair(f"{seed_text}/{kind}", kind), number, found)
    _equal(servers.pair(f"{seed_text}/equal", "none"), number, found)
    _edge(servers.edge(f"{seed_text}/edge"), number, found)
    _fallback(f"{seed_text}/fallback", number, found)
    return found


def ab(seed: int, per_tier: int, *, streams: int = 8) -> Plan:
    """The shipped comparison with so many requests per tier."""
    plan = plans.load("ab", seed=seed)
    warmup, compare = plan.stages
    compare = msgspec.structs.replace(compare, requests=2 * per_tier, arrivals=Closed(streams=streams))
    return msgspec.structs.replace(plan, stages=(warmup, compare))


def _alone(seed: str, found: Outcome, *, quick: bool) -> None:
    """Sweep a server while nobody else is there; then find the batch of those who came."""
    config, largest = servers.alone(seed)
    plan, asked = _sweep(seed, largest, quick=quick)
    with _written(plan, config) as short, _written(_contexts(seed), config, run_id="contexts") as long:
        _judge_sweep([short, long], config, largest, found, complete=max(asked) > largest)
        _hidden(seed, [short, long], servers.crowded(config, largest, f"{seed}/crowd"), found)


def _sweep(seed: str, largest: int, *, quick: bool) -> tuple[Plan, list[int]]:
    levels = QUICK if quick else FULL
    asked = [level for level in levels if level <= largest] + [one for one in levels if one > largest][:2]
    stages = tuple(
        Stage(name=f"c{level}", requests=(2 if quick else 3) * level, arrivals=Closed(streams=level))
        for level in asked
    )
    work = Workload(prompt_tokens=(PROMPT_TOKENS,), output_tokens=96 if quick else 192)
    return Plan(name="sweep", workload=work, stages=stages, seed=Random(seed).randrange(2**31)), asked


def _contexts(seed: str) -> Plan:
    """Few streams with long prompts: what a token of context costs."""
    stages = tuple(
        Stage(name=f"long{streams}", requests=3 * streams, arrivals=Closed(streams=streams))
        for streams in (4, 12)
    )
    work = Workload(prompt_tokens=(8192,), output_tokens=256)
    return Plan(name="contexts", workload=work, stages=stages, seed=Random(seed).randrange(2**31))


def _judge_sweep(
    folders: list[Path], config: ServerConfig, largest: int, found: Outcome, *, complete: bool
) -> None:
    report = analyze(folders[:1])
    answer = next((one for one in report.batch if one.quantity == "max batch"), None)
    if complete:
        found.largest_exact = answer is not None and answer.identified and answer.estimate.value == largest
    law, fitted = roofline.law(config.deployment), calibrated_law(folders)
    if isinstance(fitted, str):
        found.curve_errors.append(math.inf)
        return
    for point in report.figures.sweep:
        if point.active_streams > 0 and point.streams <= largest:
            batch, context = float(point.active_streams), PROMPT_TOKENS + 96.0
            truth = float(roofline.step_s(law, batch, batch * context))
            found.curve_errors.append(math.log(float(fitted.step_s(batch, context)) / truth))


def calibrated_law(folders: list[Path]) -> StepLaw | str:
    """The law that a sweep teaches, as the report fits it."""
    loaded = load(folders)
    (arm,) = arms.split(loaded, window.measured(loaded.requests))
    levels = []
    for number, info in enumerate(loaded.infos):
        mine = arm.good.column("run") == number
        levels += sweep.measure(arm.good.where(mine), arm.step_gaps.where(mine), info.plan)
    return step_law.fit(levels)


def _hidden(seed: str, calibration: list[Path], config: ServerConfig, found: Outcome) -> None:
    """48 short probes in a crowd. Of others is told what an operator knows: mean prompt and mean output."""
    batches: list[int] = []

    def seen(_: str, step: StepDone) -> None:
        if step.decode_sequences:
            batches.append(step.decode_sequences)

    plan = Plan(
        name="probes",
        workload=Workload(prompt_tokens=(128,), output_tokens=64),
        stages=(Stage(name="probe", requests=48, arrivals=Closed(streams=2)),),
        seed=Random(f"{seed}/probes").randrange(2**31),
    )
    hidden = config.tiers[0].hidden
    told = hidden.prompt_tokens + hidden.output_tokens / 2  # whoever is met at random is longer: 10 to 20 %
    with _written(plan, config, on_step=seen) as folder:
        report = analyze([folder], calibration=calibration, context_tokens=told)
        binned, law = _binned_step(folder), calibrated_law(calibration)
    truth = float(np.median(batches))
    if not isinstance(law, str):
        counted = calibrated.answer("standard", binned, law, context_tokens=told)
        if counted is not None and counted.identified and counted.estimate.value is not None:
            found.binned_error = math.log(counted.estimate.value / truth)
        error = math.exp(Random(f"{seed}/told").gauss(0, whitebox.GIVEN_CONTEXT_SPREAD))
        guess = profiles.mean_context_tokens(config.tiers[0]) * error
        unsure = calibrated.answer("standard", report.tiers[0].step_s, law, context_tokens=guess)
        if unsure is not None and unsure.identified:
            found.hidden_covered = (unsure.estimate.low or 0.0) <= truth <= (unsure.estimate.high or 0.0)
    answer = next((one for one in report.batch if one.method == "calibrated sweep"), None)
    if answer is None or not answer.identified or answer.estimate.value is None:
        found.hidden_open = 1
        return
    found.hidden_error = math.log(answer.estimate.value / truth)


def _binned_step(folder: Path) -> Estimate:
    """The median gap as the load generator's histogram knows it: by its buckets."""
    gaps = load([folder]).token_gaps
    places = np.searchsorted(GAP_EDGES_S, gaps.gap_ns / 1e9 / gaps.tokens)
    counts = np.bincount(places, weights=gaps.tokens, minlength=GAP_EDGES_S.size + 1)
    return Binned(GAP_EDGES_S, counts.astype(np.int64)).quantile(0.5)


def _compare(pair: Pair, number: int, found: Outcome) -> None:
    deployment, tier = pair.config.deployment, pair.config.tiers[0]
    context = profiles.mean_context_tokens(tier)
    with _written(ab(number, 160), pair.config) as folder:
        report = analyze([folder], deployment=deployment, context_tokens=context, law_error=0.05)
    assert report.mechanism is not None
    truth = servers.ANSWERS[pair.kind]
    found.kind, found.answered = pair.kind, report.mechanism.answer
    alike = {name for two in report.mechanism.inseparable for name in (two.first, two.second)}
    found.named = truth == found.answered or truth in alike or found.answered == "not identified"
    found.busy = pair.busy
    if pair.kind == "batch" and abs(math.log(pair.prefill_ratio)) < math.log(1.05):
        found.conclusive = report.verdict.conclusion == "decode changed, prefill unchanged"
    _prefill(report, pair, found)
    if pair.kind in ("batch", "none"):
        _white_box(report, pair, context, found)
    if pair.kind == "batch":
        found.price_error = _price_error(pair)


def _prefill(report: Report, pair: Pair, found: Outcome) -> None:
    test = report.verdict.prefill
    if test is None or test.speed_ratio.value is None or (test.standard_error or 1.0) > LARGEST_ERROR:
        found.prefill_open += 1
    else:
        found.prefill_errors.append(math.log(test.speed_ratio.value / pair.prefill_ratio))


def _white_box(report: Report, pair: Pair, context: float, found: Outcome) -> None:
    """The hardware is known, the batch hidden: is a claim right, and is none made where none can be."""
    law = roofline.law(pair.config.deployment)
    for tier in pair.config.tiers:
        answer = next(
            (one for one in report.batch if one.method == "white box" and one.tier == tier.name), None
        )
        if answer is None or tier.target_batch < 1:
            continue
        if whitebox.sensitivity(law, tier.target_batch, context) < whitebox.SMALLEST_SENSITIVITY:
            found.blind.append(answer.identified)
        elif answer.identified and answer.estimate.low is not None and answer.estimate.high is not None:
            found.covered.append(answer.estimate.low <= tier.target_batch <= answer.estimate.high)


def _price_error(pair: Pair) -> float:
    """Prices set to cost: the algebra must give back the batches, to rounding."""
    steps = [servers.law_step_s(pair.config, tier) for tier in pair.config.tiers]
    batches = [tier.target_batch for tier in pair.config.tiers]
    price = (steps[1] / batches[1]) / (steps[0] / batches[0])
    found = batch.priced_batch_ratio(steps[0] / steps[1], price)
    return float(abs(found / (batches[0] / batches[1]) - 1))


def _equal(pair: Pair, number: int, found: Outcome) -> None:
    with _written(ab(number + 10_000, 80), pair.config) as folder:
        report = analyze([folder])
    assert report.verdict.decode is not None
    found.decode_false = report.verdict.decode.answer == "changed"
    _prefill(report, pair, found)


def _edge(pair: Pair, number: int, found: Outcome) -> None:
    with _written(ab(number + 20_000, 80), pair.config) as folder:
        report = analyze([folder])
    assert report.verdict.prefill is not None
    found.edge_false = report.verdict.prefill.answer == "unchanged"
    _prefill(report, pair, found)


def _fallback(seed: str, number: int, found: Outcome) -> None:
    """A tenth to two fifths of a fast tier's requests are served by standard, which the echo denies."""
    pair = servers.pair(seed, "batch")
    rng = Random(f"{seed}/share")
    standard, fast = pair.config.tiers
    changes = {"downgrade_to": "standard", "downgrade_ratio": rng.uniform(0.1, 0.4), "echo": "requested"}
    config = msgspec.structs.replace(pair.config, tiers=(standard, msgspec.structs.replace(fast, **changes)))
    served: dict[int, str] = {}

    def seen(engine: str, step: StepDone) -> None:
        for job in step.finished:
            served[job.job.id] = engine

    with _written(ab(number + 30_000, 80), config, on_step=seen) as folder:
        loaded = load([folder])
    tiers = arms.split(loaded, window.measured(loaded.requests))
    sorted_ = fallback.sort((tiers[0], tiers[1]))
    if isinstance(sorted_, str) or pair.step_ratio < 1.25:
        return
    indices = sorted_.faster.good.column("index")[sorted_.rows[1]].astype(int)
    truth = np.array([served[index] == "standard" for index in indices.tolist()])
    if 0 < truth.sum() < truth.size:
        found.auc = auc(sorted_.score[truth], sorted_.score[~truth])
        found.share_error = float(sorted_.mixture.probability(sorted_.values[1]).mean() - truth.mean())


def auc(above: Floats, below: Floats) -> float:
    """Probability that a random positive scores above a random negative."""
    differences = above[:, None] - below[None, :]
    return float(np.mean((differences > 0) + 0.5 * (differences == 0)))


@contextmanager
def _written(
    plan: Plan, config: ServerConfig, *, run_id: str = "inference", on_step: OnStep | None = None
) -> Iterator[Path]:
    """A run folder of the plan played against the server, for as long as it is looked at."""
    info = RunInfo(
        schema_version=records.SCHEMA_VERSION,
        run_id=run_id,
        tierscope_version=version("tierscope"),
        target=Target(url="simulated:drawn", model="mock"),
        plan=plan,
        started_unix_s=0.0,
        simulated=True,
        status="complete",
    )
    with tempfile.TemporaryDirectory() as folder:
        records.write_run(Path(folder), info, simulate(plan, config, on_step=on_step))
        yield Path(folder)
