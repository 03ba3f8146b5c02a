"""What made a recording, and what such a recording cannot tell. Pure.

An answer that needs what a source lacks is "not identified" with the source's own reason: nothing is guessed
in its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Need = Literal["requests", "gaps", "starts", "schedule", "counts", "order"]
"""What an answer may need: single requests; single gaps; instants of sending; when a request should have
left; how many of each kind there were; which request came before which."""

OWN = "tierscope"


@dataclass(frozen=True, slots=True)
class Source:
    """One input: the tool that made it, and what it lacks.

    ``cannot`` says, for each need that is not met, why, in a clause. ``remarks`` are sentences on what its
    numbers mean where that is not what ours do.
    """

    path: str
    tool: str = OWN
    version: str | None = None
    cannot: dict[Need, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The tool with its version, where the file tells it."""
        return f"{self.tool} {self.version}" if self.version else self.tool


def lacking(sources: Sequence[Source], need: Need) -> str | None:
    """Why an answer that needs this cannot be given from all of these sources together; None if it can."""
    return next((source.cannot[need] for source in sources if need in source.cannot), None)


_LOST: dict[Need, str] = {
    "requests": "what takes single requests: pairs in time, causes of failures, episodes of fallback",
    "gaps": "step time, inter-token latency, tokens per delivery and the batch from the step time",
    "starts": "drift, requests in flight, the timeline, a sweep's clean windows and any comparison in time",
    "schedule": "lateness of the client and TTFT from scheduled",
    "counts": "how many requests there were, and how many failed",
    "order": "drift and intervals that allow for autocorrelation",
}


def sentences(source: Source) -> list[str]:
    """What a reader should know of a source: who made it, what it cannot tell, what its numbers mean."""
    if source.tool == OWN and not source.cannot:
        return []
    said = [f"{source.path} was made by {source.name}."]
    for need, why in source.cannot.items():
        said.append(f"{source.path}: {why}; not identified from it: {_LOST[need]}.")
    return [*said, *(f"{source.path}: {remark}" for remark in source.remarks)]
