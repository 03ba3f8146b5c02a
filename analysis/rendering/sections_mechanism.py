"""The chapters that explain: by which means the fast tier is fast, and whether it was always served."""

from analysis import numbers
from analysis.model import Fallback, MechanismAnswer, Report, RuleEvidence
from analysis.rendering.page import Block, Cell, Column, Section, Sentences, Table


def mechanism(report: Report) -> Section:
    """Show every rule with what it rests on, and what this run cannot tell apart."""
    found = report.mechanism
    intro = "Rules in the order in which they decide: the first whose mark is there gives the answer."
    return Section("mechanism", "By which means", intro, [] if found is None else _mechanism_blocks(found))


def _mechanism_blocks(found: MechanismAnswer) -> list[Block]:
    heads = [Column("Rule", "text"), Column("Its mark", "text"), Column("Measured"), Column("Beyond")]
    heads += [Column("There", "text"), Column("Evidence", "prose")]
    blocks: list[Block] = [
        Sentences([(_capital(found.answer), found.sentence)]),
        Table(
            f"What sets {found.faster_tier} apart from {found.slower_tier}",
            heads,
            [_rule_row(rule) for rule in found.evidence],
        ),
    ]
    if found.inseparable:
        rows = [
            [Cell(pair.first), Cell(pair.second), Cell(pair.why), Cell(pair.extra_run)]
            for pair in found.inseparable
        ]
        columns = [Column("This", "text"), Column("or that", "text")]
        columns += [Column("Why they look alike", "prose"), Column("What would tell", "prose")]
        blocks.append(Table("What this run cannot tell apart", columns, rows))
    return blocks


def _rule_row(rule: RuleEvidence) -> list[Cell]:
    there = {True: "yes", False: "no", None: "cannot be said"}[rule.holds]
    unit = numbers.PLAIN if rule.quantity.startswith("more") else numbers.RATIO
    return [
        Cell(rule.rule),
        Cell(rule.quantity),
        Cell(*numbers.split(rule.estimate, unit)),
        Cell(numbers.number(rule.threshold, unit)),
        Cell(there),
        Cell(rule.sentence),
    ]


def fallback(report: Report) -> Section:
    """Show who was asked, who the server said had served, and whose speed was measured."""
    found = report.fallback
    intro = "Each request's own speed is compared with that of both tiers; the server's word is not used."
    return Section("fallback", "Served as asked?", intro, [] if found is None else _fallback_blocks(found))


def _fallback_blocks(found: Fallback) -> list[Block]:
    blocks: list[Block] = [Sentences([("", found.sentence)])]
    if found.served:
        rows = [
            [Cell(one.requested), Cell(one.echoed), Cell(one.measured), Cell(f"{one.count:,}")]
            for one in found.served
        ]
        heads = [Column(label, "text") for label in ("Tier asked for", "Tier the server named", "Speed of")]
        blocks.append(Table("Asked × said × measured", [*heads, Column("Requests")], rows, grouped=True))
    if found.episodes:
        stretches = [
            [
                Cell(one.run_id),
                Cell(numbers.duration(one.begin_s)),
                Cell(numbers.duration(one.end_s)),
                Cell(f"{one.requests:,}"),
            ]
            for one in found.episodes
        ]
        heads = [Column("Run", "text"), Column("From"), Column("To"), Column("Requests")]
        title = f"When {found.fast_tier} ran at {found.standard_tier}'s speed"
        blocks.append(Table(title, heads, stretches, grouped=True))
    return blocks


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
