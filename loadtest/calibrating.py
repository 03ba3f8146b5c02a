"""How the words of a run become tokens: as its plan says, or as a few short requests show. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest import calibration
from loadtest.plan import Plan
from loadtest.prose import Counting
from loadtest.records import CountingSource, RequestRecord
from loadtest.workload import Message, Request
from tierscope.errors import BadInputError

Ask = Callable[[Request, Sequence[Message]], RequestRecord | None]
"""Sends one request and gives its record; None if it may not be sent."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is known before the first stage. ``counting`` is None where the plan knows better."""

    counting: Counting | None = None
    source: CountingSource | None = None
    """None where prompts are not made but read."""
    requests: int = 0
    """How many were sent to find out."""
    note: str = ""
    """Why one token a word is assumed, where it is."""
    failure: str = ""
    """Why the run is hopeless: every request failed."""


def calibrate(plan: Plan, ask: Ask, *, folder: Path = Path()) -> Calibration:
    """Find out what the plan leaves open. Files that it names are found from ``folder``."""
    work = plan.workload
    if not calibration.needed(plan):
        if work.prompts is not None:
            return Calibration()
        return Calibration(source="tokenizer" if work.tokenizer is not None else "stated")
    source, records = calibration.source(plan, folder=folder), list[RequestRecord]()
    for request in calibration.requests(plan):
        record = ask(request, source.says(request))
        if record is None:
            break
        records.append(record)
    return _read(records)


def _read(records: Sequence[RequestRecord]) -> Calibration:
    """Make of the records what can be made of them."""
    sent = len(records)
    tried = [record for record in records if record.outcome != "cancelled"]
    if tried and all(record.outcome not in ("ok", "no_output") for record in tried):
        why = tried[0].detail or tried[0].outcome
        return Calibration(requests=sent, failure=f"the first {len(tried)} requests all failed: {why}")
    counted = [record for record in tried if record.prompt_tokens is not None]
    pairs = [(record.prompt_class_tokens, record.prompt_tokens or 0) for record in counted]
    try:
        counting = calibration.fit([words for words, _ in pairs], [tokens for _, tokens in pairs])
    except BadInputError as error:
        why = str(error) if counted or not tried else "the server told no prompt tokens"
        return Calibration(Counting(), "assumed", requests=sent, note=f"one token a word is assumed: {why}")
    return Calibration(counting, "measured", requests=sent)
