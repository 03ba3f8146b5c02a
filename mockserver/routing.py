"""Which tier a request asks for, from what it says: a model, a ``service_tier``, a ``speed``. Pure.

1. The server's ``model_name`` leads to all tiers, another name to those that list it; other names are 404.
2. ``speed``: the tier that lists it. Where no tier lists any, ``fast`` is the tier with ``fast`` among its
   ``service_tiers``. ``standard`` that nobody lists asks for nothing. A value that no tier serves is 400.
3. ``service_tier``: the tier that lists it; none, or ``auto`` and Anthropic's ``standard_only`` that nobody
   lists: the first one. Behind a name that only some tiers list, ``default`` that none of them lists is their
   first. Other values are 400.
4. If both are given, a speed that is not ``standard`` decides.
"""

from collections.abc import Sequence

from mockserver.ask import RefusedError
from mockserver.server_config import ServerConfig
from mockserver.tier_config import TierConfig

_NOTHING_ASKED = (None, "auto", "standard_only")
_MOST_SHOWN = 120
"""Characters of a client's value that a refusal repeats."""


def requested_tier(
    config: ServerConfig, model: str, service_tier: str | None, speed: str | None
) -> TierConfig:
    """The tier asked for; raises RefusedError, 404 for the model and 400 for the other two."""
    tiers = _tiers_of(config, model)
    by_service = _by_service_tier(config, tiers, model, service_tier)
    by_speed = _by_speed(config, tiers, speed)
    if by_speed is None or (speed == "standard" and service_tier not in _NOTHING_ASKED):
        return by_service
    return by_speed


def speed_of(config: ServerConfig, tier: TierConfig) -> str | None:
    """What a tier's speed is called; None: it has no name."""
    if tier.speeds:
        return tier.speeds[0]
    if not _lists_speeds(config) and "fast" in tier.service_tiers:
        return "fast"
    return "standard" if not _lists_speeds(config) or tier is config.tiers[0] else None


def _tiers_of(config: ServerConfig, model: str) -> Sequence[TierConfig]:
    if model == config.model_name:
        return config.tiers
    tiers = [tier for tier in config.tiers if model in tier.model_names]
    if not tiers:
        names = [config.model_name, *(name for tier in config.tiers for name in tier.model_names)]
        raise RefusedError(
            404,
            f"The model {model[:_MOST_SHOWN]!r} does not exist; this server has "
            f"{', '.join(repr(name) for name in dict.fromkeys(names))}",
            kind="not_found",
            param="model",
            code="model_not_found",
        )
    return tiers


def _by_service_tier(
    config: ServerConfig, tiers: Sequence[TierConfig], model: str, asked: str | None
) -> TierConfig:
    for tier in tiers:
        if asked in tier.service_tiers:
            return tier
    if asked in _NOTHING_ASKED or (asked == "default" and model != config.model_name):
        return tiers[0]
    values = dict.fromkeys(["auto", *(value for tier in tiers for value in tier.service_tiers)])
    raise _not_served("service_tier", asked or "", values)


def _by_speed(config: ServerConfig, tiers: Sequence[TierConfig], asked: str | None) -> TierConfig | None:
    """None: nothing was asked."""
    listed = _lists_speeds(config)
    for tier in tiers:
        if asked in (tier.speeds if listed else tier.service_tiers if asked == "fast" else ()):
            return tier
    if asked is None:
        return None
    if asked == "standard":
        return tiers[0]
    speeds = dict.fromkeys(["standard", *(name for tier in tiers if (name := speed_of(config, tier)))])
    raise _not_served("speed", asked, speeds)


def _lists_speeds(config: ServerConfig) -> bool:
    return any(tier.speeds for tier in config.tiers)


def _not_served(param: str, asked: str, values: dict[str, None]) -> RefusedError:
    return RefusedError(
        400,
        f"{param}: {asked[:_MOST_SHOWN]!r} is not served here; expected one of: {', '.join(values)}",
        param=param,
    )
