"""Reasons to believe the numbers, or not to, that lie with the server: drift, other tiers, caches, stalls."""

import numpy as np

from analysis import numbers, steps, sweep, window
from analysis.model import TrustItem
from analysis.phrases import percent
from analysis.table import Requests
from analysis.trust_item import item
from loadtest.plan import Plan


def judge(plan: Plan, good: Requests, tiers: list[str]) -> list[TrustItem]:
    """What there is to say of the server; ``good`` are the measured requests that succeeded."""
    return [
        *_targets(plan, good, tiers),
        _steadiness(good, tiers),
        *_echoes(plan, good),
        *_caches(good),
        *([] if sweep.levels(plan) else _prefill_load(good, tiers)),  # in a sweep, gaps change with the level
        *_token_counts(good),
    ]


def _targets(plan: Plan, good: Requests, tiers: list[str]) -> list[TrustItem]:
    """Whether tiers differ in more than the tier: other models, other addresses."""
    models = {tier: sorted(set(_of(good, tier).text("model").tolist())) for tier in tiers}
    asked = {tier: ", ".join(names) for tier, names in models.items() if names}
    urls = {tier.name: tier.url for tier in plan.tiers if tier.name in tiers}
    said = []
    if len(set(asked.values())) > 1:
        told = [f"{tier} asks for {name}" for tier, name in list(asked.items())[:1]]
        told += [f"{tier} for {name}" for tier, name in list(asked.items())[1:]]
        said.append(f"{', '.join(told)}")
    if len(set(urls.values())) > 1:
        said.append("tiers are asked at different addresses")
    if not said:
        return []
    sentence = f"{'; '.join(said)}: what differs may be the model or the server, and not the tier."
    return [item("targets", "caution", sentence)]


def _steadiness(good: Requests, tiers: list[str]) -> TrustItem:
    moved = [
        f"{drift.what} of {tier} moved by {percent(round(drift.ratio - 1, 3))}"
        for tier in tiers
        for drift in window.drifts(_of(good, tier))
        if drift.matters
    ]
    if not moved:
        return item("steady state", "good", "Nothing drifted beyond chance while it was measured.")
    return item(
        "steady state",
        "caution",
        f"{'; '.join(moved)} from the first third of the run to the last: a mean describes no single state.",
    )


def _echoes(plan: Plan, good: Requests) -> list[TrustItem]:
    """Compare the tier a request asked for with the one the server said had served it."""
    asked_of, said_of, strange = 0, 0, []
    for tier in plan.tiers:
        value = tier.body.get("service_tier") or tier.body.get("speed")
        if value in (None, "auto"):
            continue
        echoed = _of(good, tier.name).text("echoed_tier")
        said = echoed[echoed != ""]
        asked_of, said_of = asked_of + echoed.size, said_of + said.size
        wrong = int(np.sum([echo not in _same_tier(value) for echo in said]))
        if wrong:
            strange.append(f"{wrong} of {said.size} requests for {value} were served as something else")
    if strange:
        return [
            item("tier echo", "bad", f"{'; '.join(strange)}: the tiers compared are not the tiers named.")
        ]
    if not said_of:
        return []
    if said_of < asked_of:
        sentence = (
            f"The server named the tier that served in {said_of} of {asked_of} responses, the right one."
        )
        return [item("tier echo", "caution", sentence)]
    return [item("tier echo", "good", "The server says it served every request on the tier it asked for.")]


def _same_tier(value: object) -> set[object]:
    """Names under which a tier may be echoed: OpenAI's priority and fast are one."""
    return {"priority", "fast"} if value in ("priority", "fast") else {value}


def _caches(good: Requests) -> list[TrustItem]:
    cached, prompt = np.nan_to_num(good.column("cached_tokens")), np.nan_to_num(good.column("prompt_tokens"))
    share = float(cached.sum() / prompt.sum()) if prompt.sum() > 0 else 0.0
    if share < 0.01:
        return []
    return [
        item(
            "prefix cache",
            "caution",
            f"{percent(round(share, 3))} of prompt tokens came from the server's cache; the prefill law "
            "counts only the others.",
        )
    ]


def _prefill_load(good: Requests, tiers: list[str]) -> list[TrustItem]:
    items = []
    for tier in tiers:
        share = steps.loaded_share(_of(good, tier))
        if share >= steps.CAUTION_LOADED:
            refused = share >= steps.REFUSE_LOADED
            items.append(
                item(
                    "prefill load",
                    "bad" if refused else "caution",
                    f"{percent(round(share, 3))} of {tier}'s gaps carry somebody's prefill, so that its step "
                    f"time {'cannot be read' if refused else 'reads up to a few per cent too long'}.",
                )
            )
    return items


def _token_counts(good: Requests) -> list[TrustItem]:
    estimated = int(np.sum(good.text_is("tokens_source", "events")))
    if not estimated:
        return []
    return [
        item(
            "token counts",
            "caution",
            f"The server did not count the tokens of {numbers.counted(estimated, 'request')}; events were "
            "counted instead, and an event may carry several tokens.",
        )
    ]


def _of(requests: Requests, tier: str) -> Requests:
    return requests.where(requests.text_is("requested_tier", tier))
