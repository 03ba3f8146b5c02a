"""A mock server's profile: read from TOML, by the name of one that ships or by its path. Pure.

Every impossible number is refused in one line when the file is read, so that nothing downstream has to ask.
"""

from importlib import resources
from pathlib import Path

import msgspec

from mockserver import hardware
from mockserver.config_check import check
from mockserver.hidden_load import hidden_prefill_ratio, mean_context_tokens
from mockserver.server_config import ServerConfig, deployment_of
from mockserver.tier_config import HiddenLoad, TierConfig
from tierscope import typedtoml

__all__ = [
    "HiddenLoad",
    "ServerConfig",
    "TierConfig",
    "check",
    "deployment_of",
    "hidden_prefill_ratio",
    "load",
    "mean_context_tokens",
    "shipped",
]

_SHIPPED = resources.files("mockserver") / "profiles"


def load(name_or_path: str, *, seed: int | None = None) -> ServerConfig:
    """Read a shipped profile by its name (``fast-tier``) or any other from a TOML file.

    ``seed`` overrides the file's. Raises BadInputError, in one line, if there is none or it is not valid.
    """
    where, text = typedtoml.find(name_or_path, what="profile", shipped=_SHIPPED)
    config = typedtoml.parse(text, ServerConfig, where=where)
    if config.deployment.hardware_files:
        config = _with_own_hardware(config, Path(name_or_path).parent)
    check(config, where=where)
    return config if seed is None else msgspec.structs.replace(config, seed=seed)


def shipped() -> list[str]:
    """Names of the profiles that come with tierscope, sorted."""
    return typedtoml.names_in(_SHIPPED)


def _with_own_hardware(config: ServerConfig, folder: Path) -> ServerConfig:
    """Put chips and models of the profile's own files in the place of their names, in all tiers."""
    known = hardware.tables_of(config.deployment, beside=folder)
    tiers = [
        msgspec.structs.replace(
            tier, deployment=msgspec.to_builtins(hardware.described_keys(tier.deployment, known))
        )
        for tier in config.tiers
    ]
    return msgspec.structs.replace(
        config, deployment=hardware.described(config.deployment, known), tiers=tuple(tiers)
    )
