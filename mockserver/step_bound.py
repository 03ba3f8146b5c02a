"""What a step's duration came from: reading memory, computing, or everything else. Pure."""

from collections.abc import Callable

from mockserver import config as server_config
from mockserver import roofline
from mockserver.config import ServerConfig
from mockserver.job import StepDone


def of_config(config: ServerConfig) -> Callable[[str, StepDone], str]:
    """(engine's name, step) → ``memory``, ``compute`` or ``overhead``, by the law of the engine's tier.

    Drafted tokens are computed beside the batch's own, as the engine has it. Asked twice of one step, as
    metrics and step log do, it works once.
    """
    laws = {tier.name: roofline.law(server_config.deployment_of(config, tier)) for tier in config.tiers}
    last: tuple[StepDone | None, str] = (None, "")

    def bound_by(engine_name: str, step: StepDone) -> str:
        nonlocal last
        if last[0] is not step:
            bound = roofline.bound_by(
                laws[engine_name.partition("/")[0]],
                step.decode_sequences,
                step.context_tokens,
                step.prefill_tokens + step.drafted_tokens,
                step.prefill_cached_tokens,
                step.prefill_pairs,
            )
            last = (step, bound)
        return last[1]

    return bound_by
