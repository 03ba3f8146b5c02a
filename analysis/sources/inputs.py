"""What a report is made from, opened: run folders, or files and pages of other kinds; never a mixture."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analysis import load
from analysis.load import Loaded
from analysis.sources import pooled, recognise
from analysis.sources.aggregate import Aggregate
from analysis.sources.pooled import Labelled
from tierscope.errors import BadInputError

_LABELLED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,63})=(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Input:
    """One thing to read, and the tier that it is said to be of; "" if none was said."""

    path: Path
    tier: str = ""


def parse(text: str) -> Input:
    """``FILE``, or ``TIER=FILE`` if no file of that whole name is there."""
    match = _LABELLED.fullmatch(text)
    if match is None or Path(text).exists():
        return Input(Path(text))
    return Input(Path(match[2]), match[1])


def read(inputs: Sequence[Input]) -> Loaded | Aggregate:
    """Read everything into one table of requests, or into one set of distributions.

    Raises BadInputError, in one line, for what cannot be read, is unknown, or does not belong together.
    """
    if not inputs:
        raise BadInputError(f"nothing was given to report on; expected {recognise.KNOWN}")
    _refuse_twice(inputs)
    folders = [one for one in inputs if one.path.is_dir() or not one.path.exists()]
    if len(folders) == len(inputs):
        labelled = next((one for one in inputs if one.tier), None)
        if labelled is not None:
            raise BadInputError(
                f"{labelled.path}: is a run folder, which names its tiers itself; leave {labelled.tier}= out"
            )
        return load.load([one.path for one in inputs])
    if folders:
        other = next(one for one in inputs if one not in folders)
        if not folders[0].path.exists():
            raise BadInputError(f"{folders[0].path}: is not there")
        raise BadInputError(
            f"{folders[0].path}: is a folder and {other.path} a file; they hold measurements of "
            "different tools, which "
            "are not pooled"
        )
    return _files(inputs)


def _files(inputs: Sequence[Input]) -> Loaded | Aggregate:
    labelled: list[Labelled] = []
    aggregates: list[Aggregate] = []
    for one in inputs:
        found = recognise.read(one.path)
        if isinstance(found, Aggregate):
            aggregates.append(_named(found, one.tier))
        else:
            labelled += [Labelled(one.tier, each) for each in found]
    if aggregates and labelled:
        raise BadInputError(
            f"{aggregates[0].source.path}: holds distributions and {labelled[0].file.source.path} "
            "single requests; give "
            "one kind or the other"
        )
    if len(aggregates) > 1:
        raise BadInputError(
            f"{aggregates[1].source.path}: a page or summary is reported on by itself, and "
            f"{aggregates[0].source.path} "
            "was given too"
        )
    return aggregates[0] if aggregates else pooled.pool(labelled)


def _named(found: Aggregate, tier: str) -> Aggregate:
    """An aggregate of one tier under the name that was given to it."""
    if not tier:
        return found
    if len(found.tiers) > 1:
        raise BadInputError(
            f"{found.source.path}: names its tiers itself: {', '.join(found.tiers)}; leave {tier}= out"
        )
    return replace(
        found,
        series=[replace(one, tier=tier) for one in found.series],
        counts=[replace(one, tier=tier) for one in found.counts],
        tokens_per_event=dict(zip((tier,), found.tokens_per_event.values(), strict=False)),
    )


def _refuse_twice(inputs: Sequence[Input]) -> None:
    seen: set[Path] = set()
    for one in inputs:
        if one.path.resolve() in seen:
            raise BadInputError(f"{one.path}: is given twice; each input counts once")
        seen.add(one.path.resolve())
