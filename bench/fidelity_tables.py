"""The tables of docs/fidelity.md in Markdown."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from bench.fidelity_figures import Judged, by, calibrate, errors
from bench.fidelity_refit import Refit, refits

ARGONNE_BATCHES = (1, 16, 32, 64, 128, 256)
CLIENTS = (4, 8, 16, 32, 64, 128, 256)


def sections(judged: Sequence[Judged], left_out: Counter[str]) -> dict[str, str]:
    """Every generated part of the document by its name."""
    many = [one for one in judged if one.point.kind != "one sequence"]
    scaled = {id(tested.judged): tested.error for tested in calibrate(judged)}
    models = by(lambda one: str(one.point.deployment.model), many)
    return {
        "headline": headline(judged),
        "sources": _summary("source", _sources(judged), scaled),
        "engines": _summary("engine and chip", by(_engine_and_chip, judged), scaled),
        "models": _summary("model", models, scaled),
        "batches": _summary("batch or clients", _by_number(lambda one: one.point.sequences, many), scaled),
        "chips": _summary("chips", _by_number(lambda one: one.point.deployment.chips, many), scaled),
        "refit": _refits(refits(judged)),
        "left-out": _left_out(left_out),
        "argonne": _points("argonne", ARGONNE_BATCHES, many),
        "inferencex": _points("inferencex", CLIENTS, many),
    }


def headline(judged: Sequence[Judged]) -> str:
    """Four numbers."""
    many = [one for one in judged if one.point.kind != "one sequence"]
    plain, book = errors(one.error for one in many), errors(one.textbook_error for one in many)
    scaled = errors(one.error for one in calibrate(many))
    every = errors(one.error for one in judged)
    return (
        f"Default efficiencies, nothing fitted: **{plain.median:.1%}** median error over {plain.count:,} "
        f"measurements; the textbook's max(memory, compute): **{book.median:.1%}**. One point of each "
        f"configuration measured: **{scaled.median:.1%}** over the {scaled.count:,} others. With the rows of "
        f"llama.cpp, whose batch is not one: {every.median:.1%} over {every.count:,}."
    )


def _sources(judged: Sequence[Judged]) -> dict[str, list[Judged]]:
    told = {
        "batch": "Argonne: a batch that starts together",
        "waves": "Argonne: a batch that does not fit the KV memory",
        "clients": "InferenceX: so many clients",
        "one sequence": "Argonne: llama.cpp, one sequence",
    }
    groups = by(lambda one: told[one.point.kind], judged)
    return {"all but llama.cpp": [one for one in judged if one.point.kind != "one sequence"], **groups}


def _engine_and_chip(one: Judged) -> str:
    when = "2024" if one.point.source == "argonne" else "2025-26"
    return f"{one.point.engine} ({when}), {one.point.deployment.chip}"


def _by_number(key: Callable[[Judged], int], judged: Sequence[Judged]) -> dict[str, list[Judged]]:
    groups: dict[int, list[Judged]] = defaultdict(list)
    for one in judged:
        groups[key(one)].append(one)
    return {str(number): groups[number] for number in sorted(groups) if len(groups[number]) >= 10}


def _summary(what: str, groups: dict[str, list[Judged]], scaled: Mapping[int, float]) -> str:
    lines = [
        f"| {what} | points | median error | bias | ≤ 30 % | textbook | calibrated: points | error | p90 |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, members in groups.items():
        plain, book = errors(one.error for one in members), errors(one.textbook_error for one in members)
        tested = [scaled[id(one)] for one in members if id(one) in scaled]
        rest = "– | – | –"
        if tested:
            after = errors(tested)
            rest = f"{after.count:,} | {after.median:.1%} | {after.p90:.0%}"
        lines.append(
            f"| {name} | {plain.count:,} | {plain.median:.1%} | {plain.bias:+.0%} | "
            f"{plain.within_30_ratio:.0%} | {book.median:.0%} | {rest} |"
        )
    return "\n".join(lines)


def _refits(both: Sequence[Refit]) -> str:
    lines = [
        "| chosen on | per sequence | tested on | points | default | fitted |",
        "|---|---:|---|---:|---:|---:|",
    ]
    rows = (
        f"| {', '.join(one.chosen_on)} | {one.sequence_us} µs | {', '.join(one.tested_on)} | "
        f"{one.default.count:,} | {one.default.median:.1%} | {one.fitted.median:.1%} |"
        for one in both
    )
    return "\n".join([*lines, *rows])


def _left_out(left_out: Counter[str]) -> str:
    return "\n".join(
        ["| rows | why |", "|---:|---|", *(f"| {n} | {why} |" for why, n in left_out.most_common())]
    )


def _points(source: str, batches: Sequence[int], judged: Sequence[Judged]) -> str:
    """One line a configuration, at the lengths that most of its batches were measured with."""
    head = " | ".join(str(batch) for batch in batches)
    lines = [
        f"| engine | hardware | model | in/out | {head} |",
        "|---|---|---|---|" + "---:|" * len(batches),
    ]
    members: dict[tuple[str, ...], list[Judged]] = defaultdict(list)
    for one in judged:
        if one.point.source == source:
            members[one.point.configuration].append(one)
    for (_, *names), own in sorted(members.items()):
        prompt, output = _usual_lengths(own)
        cells = [_cell([one for one in own if _is(one, batch, prompt, output)]) for batch in batches]
        if any(cells):
            lines.append(f"| {' | '.join(names)} | {prompt:.0f}/{output:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _usual_lengths(own: Sequence[Judged]) -> tuple[float, float]:
    """Those with most batches; of several the one nearest to 1,024 tokens each."""
    batches: dict[tuple[float, float], set[int]] = defaultdict(set)
    for one in own:
        batches[one.point.prompt_tokens, one.point.output_tokens].add(one.point.sequences)

    def rank(lengths: tuple[float, float]) -> tuple[float, float]:
        return -len(batches[lengths]), abs(lengths[0] - 1024) + abs(lengths[1] - 1024)

    return min(batches, key=rank)


def _is(one: Judged, batch: int, prompt: float, output: float) -> bool:
    point = one.point
    return (point.sequences, point.prompt_tokens, point.output_tokens) == (batch, prompt, output)


def _cell(same: Sequence[Judged]) -> str:
    """Measured → predicted, ms; the median of several measurements."""
    if not same:
        return ""
    measured = statistics.median(one.point.measured_s for one in same)
    return f"{_ms(measured)} → {_ms(same[0].law_s)}"


def _ms(seconds: float) -> str:
    ms = seconds * 1e3
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}"
