"""A report without what its sources cannot tell. Pure.

Nothing is guessed in the place of what is missing: the answer is "not identified", and says why.
"""

from typing import Any

import msgspec

from analysis import headline
from analysis.load import Loaded
from analysis.model import DecodeTest, Report, SourceSummary, TrustItem, Verdict
from analysis.sources.source import Source, lacking, sentences
from analysis.trust_item import item

_OURS_ALONE = ("coalescing", "completeness")
"""Topics of trust on which only our own records say anything."""


def withhold(report: Report, loaded: Loaded) -> Report:
    """The same report, less what needs what a source lacks; unchanged if all inputs were run folders."""
    if not loaded.sources:
        return report
    changes: dict[str, Any] = {
        "sources": [summarise(one) for one in loaded.sources],
        "notes": [*report.notes, *(said for one in loaded.sources for said in sentences(one))],
    }
    changes["trust"] = [one for one in report.trust if one.topic not in _OURS_ALONE]
    starts, gaps = lacking(loaded.sources, "starts"), lacking(loaded.sources, "gaps")
    if starts is not None:
        changes["figures"] = msgspec.structs.replace(report.figures, timeline=[])
        changes["trust"] = _without_time(changes["trust"], starts)
    if gaps is not None and report.verdict.decode is not None:
        changes["verdict"] = _without_decode(report.verdict, report.verdict.decode, gaps)
        changes["headline"] = headline.write(changes["verdict"], report.tiers, report.errors)
    apart = loaded.apart
    if apart is not None and report.verdict.compared_tier is not None:
        changes["verdict"] = uncompared(report.verdict, apart)
        changes["headline"] = headline.write(changes["verdict"], report.tiers, report.errors)
        changes["batch"] = [one for one in report.batch if not one.method.startswith("two tiers")]
        changes |= dict.fromkeys(("mechanism", "fallback"))
    return msgspec.structs.replace(report, **changes)


def summarise(source: Source) -> SourceSummary:
    """A source as the report holds it."""
    return SourceSummary(
        path=source.path,
        tool=source.tool,
        version=source.version,
        cannot={str(need): why for need, why in source.cannot.items()},
        remarks=list(source.remarks),
    )


def uncompared(verdict: Verdict, why: str) -> Verdict:
    """The verdict on tiers that cannot be compared at all."""
    return Verdict(
        conclusion="inconclusive",
        sentence=f"{verdict.compared_tier} and {verdict.baseline_tier} cannot be compared: {why}.",
        baseline_tier=verdict.baseline_tier,
        compared_tier=verdict.compared_tier,
        decode=None,
        prefill=None,
        more_requests_per_tier=None,
        cautions=[],
    )


def _without_decode(verdict: Verdict, decode: DecodeTest, why: str) -> Verdict:
    """The verdict where no step time is known: means per token hold other users' stalls."""
    sentence = f"Decode could not be compared: {why}."
    test = msgspec.structs.replace(decode, answer="inconclusive", sentence=sentence)
    known = "" if verdict.prefill is None else f"{verdict.prefill.sentence} "
    return msgspec.structs.replace(
        verdict,
        conclusion="inconclusive",
        sentence=f"{known}{sentence} More requests of the same kind would not settle it.",
        decode=test,
        more_requests_per_tier=None,
    )


def _without_time(trust: list[TrustItem], why: str) -> list[TrustItem]:
    kept = [one for one in trust if one.topic != "steady state"]
    return [*kept, item("steady state", "caution", f"Whether anything drifted cannot be told: {why}.")]
