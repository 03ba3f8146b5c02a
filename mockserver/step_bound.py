"""What a step's duration came from: reading memory, computing, or everything else. Pure."""

from collections.abc import Callable

from mockserver import roofline, speculation
from mockserver.job import StepDone
from mockserver.server_config import ServerConfig, deployment_of


def of_config(config: ServerConfig) -> Callable[[str, StepDone], str]:
    """(engine's name, step) → ``memory``, ``compute`` or ``overhead``, by the law of the engine's tier.

    Drafted tokens are computed beside the batch's own, as the engine has it. Asked twice of one step, as
    metrics and step log do, it works once.
    """
    laws = {tier.name: roofline.law(deployment_of(config, tier)) for tier in config.tiers}
    last: tuple[StepDone | None, str] = (None, "")

    def bound_by(engine_name: str, step: StepDone) -> str:
        nonlocal last
        if last[0] is not step:
            last = (step, _bound(laws[engine_name.partition("/")[0]], step))
        return last[1]

    return bound_by


def _bound(law: roofline.Law, step: StepDone) -> roofline.Bound:
    batch, drafted, pairs = step.decode_sequences, step.drafted_tokens, step.prefill_pairs
    if drafted:
        pairs += speculation.drafted_pairs(batch, step.context_tokens, drafted // batch)
    return roofline.bound_by(
        law, batch, step.context_tokens, step.prefill_tokens + drafted, step.prefill_cached_tokens, pairs
    )
