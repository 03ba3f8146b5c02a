"""The chapters that answer: what changed between two tiers, and how many sequences share a step."""

from analysis import numbers
from analysis.model import BatchAnswer, DecodeTest, PrefillTest, Report
from analysis.rendering.key_numbers import quantity_unit
from analysis.rendering.page import Block, Cell, Column, Section, Sentences, Table


def verdict(report: Report) -> Section:
    """Show the two tests behind the verdict."""
    verdict = report.verdict
    rows = [
        _test_row(name, test)
        for name, test in (("Decode", verdict.decode), ("Prefill", verdict.prefill))
        if test is not None
    ]
    blocks: list[Block] = []
    if rows:
        heads = [Column("Phase", "text"), Column("Answer", "text"), Column("Speed ratio")]
        heads += [Column("No change within"), Column("p"), Column("Evidence", "text")]
        blocks.append(
            Table(
                f"Speed of {verdict.compared_tier} relative to {verdict.baseline_tier}",
                heads,
                rows,
            )
        )
    said = [(name, test.sentence) for name, test in _tests(report)]
    said += [("Caution", caution) for caution in verdict.cautions]
    if more := more_requests(report):
        said.append(("More data", more))
    if said:
        blocks.append(Sentences(said))
    intro = (
        "Decode: is there a difference in time per token, in pairs of requests close in time? "
        "Prefill: are the fitted increments equal within the margin (an equivalence test)? "
        "The p of decode is that of no difference, the p of prefill that of a difference beyond the margin."
    )
    return Section("verdict", "The comparison", intro, blocks)


def more_requests(report: Report) -> str:
    """Say how many more requests it would take, where a comparison is open; otherwise nothing."""
    verdict = report.verdict
    if verdict.conclusion != "inconclusive" or (verdict.decode is None and verdict.prefill is None):
        return ""
    if verdict.more_requests_per_tier is None:
        return "More requests of the same kind would not settle it."
    if verdict.more_requests_per_tier == 0:
        return ""
    return (
        f"About {numbers.counted(verdict.more_requests_per_tier, 'more request')} per tier would settle it."
    )


def _tests(report: Report) -> list[tuple[str, DecodeTest | PrefillTest]]:
    tests = (("Decode", report.verdict.decode), ("Prefill", report.verdict.prefill))
    return [(name, test) for name, test in tests if test is not None]


def _test_row(name: str, test: DecodeTest | PrefillTest) -> list[Cell]:
    if isinstance(test, DecodeTest):
        evidence = f"{numbers.counted(test.pairs, 'pair')}, z {numbers.number(test.z)}"
    else:
        error = numbers.number(test.standard_error, digits=2)
        evidence = f"standard error of the log ratio {error}"
    return [
        Cell(name),
        Cell(test.answer),
        Cell(*numbers.split(test.speed_ratio, numbers.RATIO)),
        Cell(f"{1 / (1 + test.margin_ratio):.2f}–{1 + test.margin_ratio:.2f}×"),
        Cell(numbers.probability(test.p_value)),
        Cell(evidence),
    ]


def batch(report: Report) -> Section:
    """Show every answer on the batch, and the sweep it rests on."""
    blocks: list[Block] = []
    if report.batch:
        heads = [Column(label, "text") for label in ("Tier", "Method", "Quantity")]
        heads += [
            Column("Estimate"),
            Column("Identified", "text"),
            Column("Sensitivity ε"),
            Column("Why", "prose"),
        ]
        rows = [_batch_row(answer) for answer in report.batch]
        blocks.append(Table("How many sequences share a step", heads, rows))
    points = [
        [
            Cell(point.tier),
            Cell(point.stage),
            Cell(f"{point.streams:,}"),
            Cell(f"{point.active_streams:,}"),
            Cell(*numbers.time_split(point.step_s)),
            Cell(numbers.duration(point.ttft_p50_s)),
        ]
        for point in report.figures.sweep
    ]
    if points:
        heads = [Column("Tier", "text"), Column("Stage", "text")]
        heads += [Column(x) for x in ("Streams asked for", "Decoding at once", "Step", "Median TTFT")]
        blocks.append(Table("Step time by number of streams", heads, points, grouped=True))
    intro = "Each line is one method's answer. Where timing hardly sees the batch, the answer says so."
    return Section("batch", "Batch", intro, blocks)


def _batch_row(answer: BatchAnswer) -> list[Cell]:
    found = answer.estimate
    bound = found.value is None and (found.low is None) != (found.high is None)
    value, interval = numbers.split(found, quantity_unit(answer))
    identified = "yes" if answer.identified else "a bound" if bound else "no"
    return [
        Cell(answer.tier),
        Cell(answer.method),
        Cell(answer.quantity.replace("/", " / ")),
        Cell(value.removesuffix(", not identified"), interval),
        Cell(identified),
        Cell(numbers.number(answer.sensitivity, digits=2)),
        Cell(answer.sentence),
    ]
