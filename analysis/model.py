"""The report as data: what ``report.json`` holds, and the only thing that HTML and Markdown are made from.

Units are in the names. A number that could not be found is null, never NaN, 0 or infinity, and the sentence
beside it says why. ``docs/report.schema.json`` is generated from these types.
"""

from typing import Literal

import msgspec

from loadtest.records import Outcome

REPORT_SCHEMA_VERSION = 1

Conclusion = Literal[
    "decode changed, prefill unchanged",
    "both changed",
    "only prefill changed",
    "neither changed",
    "inconclusive",
]
Level = Literal["good", "caution", "bad"]
Mechanism = Literal[
    "speculative decoding",
    "faster hardware or smaller model",
    "KV quantisation",
    "smaller batch",
    "priority only",
    "none",
    "not identified",
]
ServedSpeed = Literal["standard", "fast", "unclear"]
Metric = Literal["ttft", "ttft_from_scheduled", "first_text", "itl", "tpot", "otps", "e2e", "lag"]


class Estimate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number with its interval at ``level``; all null when it is not identified."""

    value: float | None
    low: float | None = None
    high: float | None = None
    level: float = 0.95


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run folder that went into the report."""

    run_id: str
    folder: str
    plan: str
    seed: int | None
    """Null where another tool ran it."""
    url: str
    model: str
    api: str
    status: Literal["running", "complete", "partial"]
    status_detail: str
    simulated: bool
    started_unix_s: float | None
    duration_s: float | None
    requests: int
    measured_requests: int
    """Without warm-up."""
    repeat_command: str
    environment: dict[str, str]


class SourceSummary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file or page of another kind than a run folder, and what it cannot tell."""

    path: str
    tool: str
    version: str | None
    cannot: dict[str, str]
    """What is missing (requests, gaps, starts, schedule, order), and why; what needs it is null."""
    remarks: list[str]
    """What its numbers mean where that is not what ours do."""


class TrustItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reason to believe the numbers, or not to."""

    topic: str
    level: Level
    sentence: str


class QuantileRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Distribution of one metric on one tier; intervals are of the quantile, not of the data."""

    metric: Metric
    unit: Literal["s", "tokens/s"]
    count: int
    mean: float | None
    p50: Estimate
    p90: Estimate
    p95: Estimate
    p99: Estimate


class TierSummary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one requested tier did."""

    tier: str
    requests: int
    outcomes: dict[Outcome, int]
    echoed_tiers: dict[str, int]
    """How often the server said which tier had served; the key "–" counts responses that said nothing."""
    prompt_tokens: int
    output_tokens: int
    tokens_per_delivery: float | None
    step_s: Estimate
    """Decode step time: median over requests of the median inter-token gap."""
    tokens_per_s: Estimate
    """Decode speed one user sees: ``tokens per delivery / step_s``."""
    stalled_gap_ratio: float | None
    """Share of gaps longer than 1.45 × the request's median: somebody's prefill in the step."""
    quantiles: list[QuantileRow]


class PrefillFit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TTFT = f(n) + queue + noise, fitted per tier; f is straight between the prompt lengths that were asked.

    fixed + per_token·n + quadratic·n² is the parabola nearest to f, for reading only.
    """

    tier: str
    requests: int
    n_low_tokens: float | None
    n_high_tokens: float | None
    increment_s: Estimate
    """TTFT law at ``n_high`` minus at ``n_low``: free of network, queue and fixed costs."""
    rate_tokens_per_s: Estimate
    """(n_high − n_low) / increment."""
    fixed_s: float | None
    per_token_s: float | None
    per_token_squared_s: float | None
    queued_ratio: float | None
    queue_mean_s: float | None
    noise_s: float | None
    identified: dict[str, bool]
    cautions: list[str]


class DecodeTest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Is time per token different between the tiers? Paired in time, autocorrelation allowed for."""

    answer: Literal["changed", "unchanged", "inconclusive"]
    speed_ratio: Estimate
    """Step time of the baseline tier / of the compared tier; above 1 the compared tier is faster."""
    z: float | None
    p_value: float | None
    pairs: int
    margin_ratio: float
    """A change smaller than this is "unchanged" if the interval lies inside it."""
    sentence: str


class PrefillTest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Is prefill the same on both tiers, within the margin? Equivalence test on the increments."""

    answer: Literal["changed", "unchanged", "inconclusive"]
    speed_ratio: Estimate
    """Prefill increment of the baseline tier / of the compared tier; above 1 the compared tier is faster."""
    standard_error: float | None
    """Of the logarithm of the ratio, model error included."""
    p_value: float | None
    margin_ratio: float
    sentence: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to "does the compared tier change decode, prefill, or both?"."""

    conclusion: Conclusion
    sentence: str
    baseline_tier: str | None
    compared_tier: str | None
    decode: DecodeTest | None
    prefill: PrefillTest | None
    more_requests_per_tier: int | None
    """Roughly how many more it would take to be conclusive; 0 if it is, null if it cannot be said."""
    cautions: list[str]


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One estimate of how many sequences share a step on a tier, by one method."""

    tier: str
    method: Literal["white box", "calibrated sweep", "sweep", "two tiers", "two tiers and price"]
    quantity: Literal["batch", "max batch", "batch ratio baseline/compared", "batch share of step, compared"]
    estimate: Estimate
    identified: bool
    sensitivity: float | None
    """ε = ∂ln step / ∂ln batch at the estimate; small means that timing barely sees the batch."""
    sentence: str


class RuleEvidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one rule on the mechanism rests on; rules are applied in the order of the list."""

    rule: Mechanism
    quantity: str
    estimate: Estimate
    threshold: float
    """The rule holds only beyond it."""
    holds: bool | None
    """Null: this run cannot say."""
    sentence: str


class Inseparable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two mechanisms that look alike in this run, and what would tell them apart."""

    first: str
    second: str
    why: str
    extra_run: str


class MechanismAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By which means the faster of two tiers is faster: the first rule that holds."""

    answer: Mechanism
    slower_tier: str
    faster_tier: str
    """By output speed; where that is equal, by prefill, then by the wait in the queue."""
    sentence: str
    evidence: list[RuleEvidence]
    inseparable: list[Inseparable]


class FallbackEpisode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stretch in which requests for the fast tier ran at standard speed."""

    run_id: str
    begin_s: float
    """When the first of them was sent, since the run's start."""
    end_s: float
    """When the last of them was sent."""
    requests: int


class ServedCount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many requests asked for a tier, were told a tier, and ran at the speed of one."""

    requested: str
    echoed: str
    """"–": the response said nothing."""
    measured: ServedSpeed
    count: int


class Fallback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether requests for the faster tier ran at the speed of the slower one."""

    standard_tier: str
    fast_tier: str
    share: Estimate
    """Of the fast tier's requests that have a speed; the interval is what cannot be told apart of them."""
    identified: bool
    speed_ratio: float | None
    """Of requests that ran fast over those that ran at standard speed."""
    episodes: list[FallbackEpisode]
    served: list[ServedCount]
    sentence: str


class PrefillPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TTFT of one prompt-length class on one tier."""

    tier: str
    prompt_tokens: float
    count: int
    p10_s: float | None
    p50_s: float | None
    p90_s: float | None


class Curve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Points of a line, named by tier (or stage)."""

    name: str
    x: list[float]
    y: list[float]


class Distribution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Share of observations per bin of a log-spaced grid: ``len(edges) == len(shares) + 1``."""

    tier: str
    metric: Metric
    edges: list[float]
    shares: list[float]


class TimelineBin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One slice of the run on one tier."""

    tier: str
    stage: str
    start_s: float
    width_s: float
    started: int
    failed: int
    in_flight: float
    ttft_p50_s: float | None
    itl_p50_s: float | None


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Step time at one number of concurrently decoding own streams."""

    tier: str
    stage: str
    streams: int
    """Asked for by the plan."""
    active_streams: int
    """Largest number that decoded at the same time."""
    step_s: Estimate
    ttft_p50_s: float | None


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests of one tier that failed the same way."""

    tier: str
    outcome: Outcome
    status: int | None
    """HTTP status, where a server sent one."""
    detail: str
    """What the record says, of the first of them."""
    count: int


class FigureData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that is drawn, bounded in size whatever the run's length."""

    prefill_points: list[PrefillPoint]
    prefill_curves: list[Curve]
    distributions: list[Distribution]
    timeline: list[TimelineBin]
    sweep: list[SweepPoint]
    sweep_curves: list[Curve] = []
    """Fitted step time in seconds against active streams, one per tier, where a step law was fitted."""


class Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it."""

    schema_version: int
    tierscope_version: str
    headline: str
    """The one line for a person in a hurry."""
    verdict: Verdict
    trust: list[TrustItem]
    runs: list[RunSummary]
    tiers: list[TierSummary]
    prefill: list[PrefillFit]
    batch: list[BatchAnswer]
    figures: FigureData
    mechanism: MechanismAnswer | None = None
    """Null without two tiers to compare."""
    fallback: Fallback | None = None
    """Null without two tiers to compare."""
    sources: list[SourceSummary] = []
    """Of the inputs that are no run folders."""
    errors: list[ErrorGroup] = []
    """Failed requests by tier and cause, most frequent first; bounded, the rest is said in ``notes``."""
    notes: list[str]
    """What could not be read or was left out, a sentence each."""
