"""What a server's profile amounts to, in numbers: what ``tierscope serve --explain`` prints. Pure."""

from dataclasses import dataclass, fields

from mockserver import config as server_config
from mockserver import hardware, roofline
from mockserver.config import ServerConfig, TierConfig


@dataclass(frozen=True, slots=True)
class TierExplanation:
    """One tier at its target batch (at a batch of one where it has no hidden load), by the law."""

    tier: str
    deployment: str
    floor_s: float
    """Shortest step: one sequence without context."""
    batch: int
    context_tokens: float
    """Mean context of a sequence at a random instant of its decode."""
    step_s: float
    slope_s: float
    """What one more such sequence adds to a step."""
    tokens_per_s: float
    """Output speed that a client sees."""
    server_tokens_per_s: float
    """Output of the whole tier, decode steps alone."""
    best_batch: float
    """Batch past which a token gets no cheaper: reading all weights takes as long as computing."""
    kv_capacity_tokens: int
    kv_use_ratio: float
    prefill_1k_s: float
    """Prefill of 1,024 tokens alone."""
    prefill_16k_s: float
    """Prefill of 16,384 tokens alone, in the tier's chunks."""
    prefill_load_ratio: float
    """Share of the time that prefilling hidden prompts takes."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """All tiers of a server; as text, one line a quantity."""

    name: str
    description: str
    tiers: tuple[TierExplanation, ...]

    def __str__(self) -> str:
        """A table: quantities down, tiers across."""
        head = f"{self.name}: {self.description}" if self.description else self.name
        lines = [head, _row("", [tier.tier for tier in self.tiers])]
        for field in fields(TierExplanation):
            if field.name in _SHOWN:
                label, scale, form = _SHOWN[field.name]
                values = [getattr(tier, field.name) for tier in self.tiers]
                lines.append(_row(label, [_told(value, scale, form) for value in values]))
        return "\n".join(lines)


_SHOWN: dict[str, tuple[str, float, str]] = {
    "deployment": ("deployment", 1, ""),
    "floor_s": ("shortest step (batch 1, no context), ms", 1e3, ".2f"),
    "batch": ("target batch, sequences a step", 1, "d"),
    "context_tokens": ("mean context, tokens", 1, ",.0f"),
    "step_s": ("step at the target batch, ms", 1e3, ".2f"),
    "slope_s": ("one more sequence adds, ms", 1e3, ".3f"),
    "tokens_per_s": ("tokens/s that a client sees", 1, ".1f"),
    "server_tokens_per_s": ("tokens/s of the whole tier", 1, ",.0f"),
    "best_batch": ("best batch (weights read = computing)", 1, ",.0f"),
    "kv_capacity_tokens": ("KV capacity, tokens", 1, ",d"),
    "kv_use_ratio": ("KV in use at the target", 1, ".1%"),
    "prefill_1k_s": ("prefill of 1,024 tokens alone, ms", 1e3, ".1f"),
    "prefill_16k_s": ("prefill of 16,384 tokens alone, ms", 1e3, ".1f"),
    "prefill_load_ratio": ("time spent on hidden prompts", 1, ".1%"),
}


def explain(config: ServerConfig) -> Explanation:
    """Work out what each tier's law says at its target batch."""
    told = tuple(_explain_tier(config, tier) for tier in config.tiers)
    return Explanation(config.name, config.description, told)


def _explain_tier(config: ServerConfig, tier: TierConfig) -> TierExplanation:
    deployment = server_config.deployment_of(config, tier)
    law = roofline.law(deployment)
    batch, context = max(1, tier.target_batch), server_config.mean_context_tokens(tier)
    step_s = roofline.step_s(law, float(batch), batch * context)
    capacity = roofline.kv_capacity_tokens(law)
    chip, model = hardware.chip_of(deployment), hardware.model_of(deployment)
    return TierExplanation(
        tier=tier.name,
        deployment=f"{model.name} {deployment.weight_bits}-bit on {deployment.chips} x {chip.name}",
        floor_s=roofline.floor_s(law),
        batch=batch,
        context_tokens=context,
        step_s=step_s,
        slope_s=roofline.step_s(law, batch + 1.0, (batch + 1) * context) - step_s,
        tokens_per_s=1 / step_s,
        server_tokens_per_s=batch / step_s,
        best_batch=roofline.best_batch(law),
        kv_capacity_tokens=capacity,
        kv_use_ratio=batch * server_config.reserved_tokens(tier) / capacity,
        prefill_1k_s=roofline.prefill_s(law, 1024, tier.prefill_tokens),
        prefill_16k_s=roofline.prefill_s(law, 16384, tier.prefill_tokens),
        prefill_load_ratio=server_config.hidden_prefill_ratio(law, tier),
    )


def _told(value: str | float, scale: float, form: str) -> str:
    if isinstance(value, str):
        return value
    return format(value if scale == 1 else value * scale, form)


def _row(label: str, cells: list[str]) -> str:
    return f"{label:<40}" + "".join(f"{cell:>32}" for cell in cells)
