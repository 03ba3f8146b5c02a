"""The chapters that show each tier's numbers: requests, prefill law, decode step, latency quantiles."""

from collections.abc import Sequence

from analysis import numbers
from analysis.model import Estimate, PrefillFit, QuantileRow, Report, TierSummary
from analysis.rendering import glossary
from analysis.rendering.page import Block, Cell, Column, Section, Sentences, Table, columns

_THOUSAND = 1000.0


def tiers(report: Report) -> Section:
    """Say what was asked of each tier, and who served it."""
    labels = ("Tier", "Requests", "Ok", "Failed", "Prompt tokens", "Output tokens", "Tokens per delivery")
    rows = [
        [
            Cell(tier.tier),
            Cell(f"{tier.requests:,}"),
            Cell(f"{tier.outcomes.get('ok', 0):,}"),
            Cell(*_failed(tier)),
            Cell(f"{tier.prompt_tokens:,}"),
            Cell(f"{tier.output_tokens:,}"),
            Cell(numbers.number(tier.tokens_per_delivery)),
        ]
        for tier in report.tiers
    ]
    blocks = [Table("What was asked of each tier", columns(labels), rows)] if rows else []
    blocks += _echo_table(report.tiers)
    return Section("tiers", "Tiers", "Measured requests only; warm-up is left out everywhere.", blocks)


def _failed(tier: TierSummary) -> tuple[str, str]:
    failed = sum(count for outcome, count in tier.outcomes.items() if outcome != "ok")
    return f"{failed:,}", numbers.share(failed / tier.requests) if failed and tier.requests else ""


def _echo_table(tiers: Sequence[TierSummary]) -> list[Table]:
    served = list(dict.fromkeys(name for tier in tiers for name in tier.echoed_tiers))
    if not served:
        return []
    labels = ["Tier asked for", *("nothing said" if name == "–" else name for name in served)]
    rows = [
        [Cell(tier.tier), *(Cell(f"{tier.echoed_tiers.get(name, 0):,}") for name in served)] for tier in tiers
    ]
    return [Table("Tier asked for × tier the server said it served", columns(labels), rows)]


def prefill(report: Report) -> Section:
    """Show the fitted law of time to first token, and what it was fitted to."""
    labels = (
        "Tier", "Prefill speed", "Increment", "Between prompts of", "Fixed", "Per 1,000 tokens",
        "Per (1,000 tokens)²", "Queued", "Mean wait if queued", "Noise",
    )  # fmt: skip
    blocks: list[Block] = []
    if report.prefill:
        rows = [_prefill_row(fit) for fit in report.prefill]
        blocks.append(Table("Fitted law of time to first token", columns(labels), rows))
    if said := _prefill_cautions(report.prefill):
        blocks.append(Sentences(said))
    points = [
        [
            Cell(point.tier),
            Cell(_tokens(point.prompt_tokens)),
            Cell(f"{point.count:,}"),
            *(Cell(numbers.duration(at)) for at in (point.p10_s, point.p50_s, point.p90_s)),
        ]
        for point in report.figures.prefill_points
    ]
    if points:
        heads = columns(("Tier", "Prompt tokens", "Requests", "p10", "Median", "p90"))
        blocks.append(Table("Time to first token by prompt length", heads, points, grouped=True))
    intro = (
        "TTFT = f(n) + queue, n the prompt's tokens; fixed + a·n + b·n² is the parabola nearest to f. The "
        "increment is f at the longest prompts minus f at the shortest: what prefill alone adds."
    )
    return Section("prefill", "Prefill", intro, blocks)


def _prefill_row(fit: PrefillFit) -> list[Cell]:
    span = f"{_tokens(fit.n_low_tokens)} and {_tokens(fit.n_high_tokens)} tokens"
    linear, square = fit.per_token_s, fit.per_token_squared_s
    return [
        Cell(fit.tier),
        Cell(*numbers.split(fit.rate_tokens_per_s, numbers.TOKENS_PER_S)),
        Cell(*numbers.time_split(fit.increment_s)),
        Cell(numbers.ABSENT if fit.n_low_tokens is None or fit.n_high_tokens is None else span),
        Cell(numbers.duration(fit.fixed_s)),
        Cell(numbers.duration(None if linear is None else linear * _THOUSAND)),
        Cell(numbers.duration(None if square is None else square * _THOUSAND**2)),
        Cell(numbers.share(fit.queued_ratio)),
        Cell(numbers.duration(fit.queue_mean_s)),
        Cell(numbers.duration(fit.noise_s)),
    ]


def _prefill_cautions(fits: Sequence[PrefillFit]) -> list[tuple[str, str]]:
    """Join the tiers that a sentence is true of."""
    tiers: dict[str, list[str]] = {}
    for fit in fits:
        unknown = [name.replace("_", " ") for name, known in fit.identified.items() if not known]
        said = [f"Not identified from these requests: {', '.join(unknown)}."] if unknown else []
        for sentence in [*fit.cautions, *said]:
            tiers.setdefault(sentence, []).append(fit.tier)
    return [(", ".join(names), sentence) for sentence, names in tiers.items()]


def _tokens(count: float | None) -> str:
    return numbers.tokens(count).removesuffix(" tokens")


def decode(report: Report) -> Section:
    """Show the decode step and the speed that follows from it."""
    labels = ("Tier", "Decode step", "Decode speed", "Tokens per delivery", "Stalled gaps")
    rows = [
        [
            Cell(tier.tier),
            Cell(*numbers.time_split(tier.step_s)),
            Cell(*numbers.split(tier.tokens_per_s, numbers.TOKENS_PER_S)),
            Cell(numbers.number(tier.tokens_per_delivery)),
            Cell(numbers.share(tier.stalled_gap_ratio)),
        ]
        for tier in report.tiers
    ]
    blocks = [Table("Decode step and the speed one stream sees", columns(labels), rows)] if rows else []
    intro = "Step: median over requests of the median gap between deliveries, so that stalls do not move it."
    return Section("decode", "Decode", intro, blocks)


def latency(report: Report) -> Section:
    """Show quantiles of every metric, tiers beside each other."""
    rows = [
        _quantile_row(tier.tier, row)
        for name in glossary.METRICS
        for tier in report.tiers
        for row in tier.quantiles
        if row.metric == name
    ]
    heads = [Column("Metric", "text"), Column("Tier", "text")]
    heads += [Column(label) for label in ("p50", "p90", "p95", "p99", "Mean", "Values")]
    blocks = (
        [Table("Quantiles with the intervals they are known to", heads, rows, grouped=True)] if rows else []
    )
    intro = "p90: nine values in ten are at most this. Where values are too few for a quantile, it has none."
    return Section("latency", "Latency", intro, blocks)


def _quantile_row(tier: str, row: QuantileRow) -> list[Cell]:
    unit = numbers.TOKENS_PER_S if row.unit == "tokens/s" else None
    middle = numbers.time_unit(row.p50.value) if unit is None else unit

    def cell(found: Estimate) -> Cell:
        if found.value is None and found.low is None and found.high is None:
            return Cell(numbers.ABSENT)
        return Cell(*(numbers.time_split(found) if unit is None else numbers.split(found, unit)))

    return [
        Cell(glossary.METRIC_NAMES[row.metric]),
        Cell(tier),
        *(cell(found) for found in (row.p50, row.p90, row.p95, row.p99)),
        Cell(numbers.duration(row.mean) if unit is None else numbers.number(row.mean, middle)),
        Cell(f"{row.count:,}"),
    ]
