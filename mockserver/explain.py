"""What a server's profile amounts to, in numbers: what ``tierscope serve --explain`` prints. Pure."""

import textwrap
from dataclasses import dataclass, fields

from mockserver import cost_table, economics, hardware, hidden_load, roofline, server_config, speculation
from mockserver.cost_table import CostTable
from mockserver.hardware import Deployment
from mockserver.server_config import ServerConfig
from mockserver.tier_config import TierConfig

_LABEL, _CELL, _TIERS_ACROSS, _WIDTH = 46, 18, 3, 100


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
    context_slope_s: float
    """What 1,000 tokens more of context in every sequence add to a step."""
    bound_by: str
    """What most of the step is spent on."""
    tokens_per_step: float
    """That a sequence gets: one without speculation."""
    tokens_per_s: float
    """Output speed that a client sees."""
    server_tokens_per_s: float
    """Output of the whole tier, decode steps alone."""
    best_batch: float
    """Batch past which a token gets no cheaper: reading all weights takes as long as computing."""
    textbook_best_batch: float
    """The same at the peaks of the data sheet."""
    kv_capacity_tokens: int
    kv_use_ratio: float
    kv_like_weights_tokens: float
    """Mean context at which the batch's KV takes as long to read as the weights."""
    kv_like_compute_tokens: float
    """Mean context past which a batch of any size is bound by memory."""
    prefill_1k_s: float
    """Prefill of 1,024 tokens alone."""
    prefill_16k_s: float
    """Prefill of 16,384 tokens alone, in the tier's chunks."""
    prefill_load_ratio: float
    """Share of the time that prefilling hidden prompts takes."""
    output_chip_s_per_mtok: float
    """Chip-seconds of a million output tokens at this batch."""
    input_chip_s_per_mtok: float
    """The same of prompts of 1,024 tokens."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """All tiers of a server; as text, one line a quantity, then what tokens cost against the batch."""

    name: str
    description: str
    tiers: tuple[TierExplanation, ...]
    costs: tuple[CostTable, ...]

    def __str__(self) -> str:
        """Tables of at most 100 columns: quantities down, tiers across."""
        head = f"{self.name}: {self.description}" if self.description else self.name
        lines = [textwrap.fill(head, _WIDTH)]
        for first in range(0, len(self.tiers), _TIERS_ACROSS):
            some = self.tiers[first : first + _TIERS_ACROSS]
            lines += [_row("", [_cut(tier.tier) for tier in some]), *_quantities(some), ""]
        lines += [textwrap.fill(f"{tier.tier}: {tier.deployment}", _WIDTH) for tier in self.tiers]
        return "\n".join([*lines, *(f"\n{table}" for table in self.costs)])


_SHOWN: dict[str, tuple[str, float, str]] = {
    "floor_s": ("shortest step (batch 1, no context), ms", 1e3, ".2f"),
    "batch": ("target batch, sequences a step", 1, "d"),
    "context_tokens": ("mean context, tokens", 1, ",.0f"),
    "step_s": ("step at the target batch, ms", 1e3, ".2f"),
    "slope_s": ("one more sequence adds, ms", 1e3, ".3f"),
    "context_slope_s": ("1,000 tokens more in every context add, ms", 1e3, ".3f"),
    "bound_by": ("most of that step is", 1, ""),
    "tokens_per_step": ("tokens that a sequence gets of a step", 1, ".2f"),
    "tokens_per_s": ("tokens/s that a client sees", 1, ".1f"),
    "server_tokens_per_s": ("tokens/s of the whole tier", 1, ",.0f"),
    "best_batch": ("best batch (weights read = computing)", 1, ",.0f"),
    "textbook_best_batch": ("  at the peaks: F/BW x bytes/2 x N/N_active", 1, ",.0f"),
    "kv_capacity_tokens": ("KV capacity, tokens", 1, ",d"),
    "kv_use_ratio": ("KV in use at the target", 1, ".1%"),
    "kv_like_weights_tokens": ("KV reads like the weights at a context of", 1, ",.0f"),
    "kv_like_compute_tokens": ("memory-bound at any batch from a context of", 1, ",.0f"),
    "prefill_1k_s": ("prefill of 1,024 tokens alone, ms", 1e3, ".1f"),
    "prefill_16k_s": ("prefill of 16,384 tokens alone, ms", 1e3, ".1f"),
    "prefill_load_ratio": ("time spent on hidden prompts", 1, ".1%"),
    "output_chip_s_per_mtok": ("chip-seconds of a million output tokens", 1, ",.0f"),
    "input_chip_s_per_mtok": ("  of a million prompt tokens, 1,024 each", 1, ",.0f"),
}


def explain(config: ServerConfig) -> Explanation:
    """Work out what each tier's law says at its target batch."""
    told = tuple(_explain_tier(config, tier) for tier in config.tiers)
    return Explanation(config.name, config.description, told, _costs(config))


def _explain_tier(config: ServerConfig, tier: TierConfig) -> TierExplanation:
    tier_with_engine = server_config.engine_tier(config, tier)
    deployment = server_config.deployment_of(config, tier)
    law = roofline.law(deployment)
    batch = max(1, tier_with_engine.target_batch)
    context = hidden_load.mean_context_tokens(tier_with_engine)
    step_s = _step_s(law, tier_with_engine, batch, context)
    each = _tokens_per_step(tier_with_engine)
    capacity = tier_with_engine.kv_tokens or roofline.kv_capacity_tokens(law)
    chunk = min(tier_with_engine.prefill_tokens, tier_with_engine.step_budget_tokens)
    return TierExplanation(
        tier=tier.name,
        deployment=told(deployment),
        floor_s=roofline.floor_s(law),
        batch=batch,
        context_tokens=context,
        step_s=step_s,
        slope_s=_step_s(law, tier_with_engine, batch + 1, context) - step_s,
        context_slope_s=_step_s(law, tier_with_engine, batch, context + 1000) - step_s,
        bound_by=_bound_by(law, tier_with_engine, batch, context),
        tokens_per_step=each,
        tokens_per_s=each / step_s,
        server_tokens_per_s=batch * each / step_s,
        best_batch=roofline.best_batch(law),
        textbook_best_batch=economics.textbook_best_batch(deployment),
        kv_capacity_tokens=capacity,
        kv_use_ratio=batch * hidden_load.kv_need_tokens(tier_with_engine) / capacity,
        kv_like_weights_tokens=economics.context_where_kv_reads_like_weights(law, float(batch)),
        kv_like_compute_tokens=economics.context_where_kv_reads_like_compute(law),
        prefill_1k_s=roofline.prefill_s(law, 1024, chunk),
        prefill_16k_s=roofline.prefill_s(law, 16384, chunk),
        prefill_load_ratio=hidden_load.hidden_prefill_ratio(law, tier_with_engine),
        output_chip_s_per_mtok=law.chips * step_s / (batch * each) * 1e6,
        input_chip_s_per_mtok=economics.input_cost(law, 1024, chunk) * 1e6,
    )


def _step_s(law: roofline.Law, tier: TierConfig, batch: int, context: float) -> float:
    if tier.speculation is None:
        return roofline.step_s(law, float(batch), batch * context)
    return hidden_load.decode_step_s(law, tier, batch, batch * context)


def _bound_by(law: roofline.Law, tier: TierConfig, batch: int, context: float) -> str:
    total, drafts = round(batch * context), tier.checked_tokens - 1
    pairs = speculation.drafted_pairs(batch, total, drafts)
    return roofline.bound_by(law, batch, total, batch * drafts, 0, pairs)


def _tokens_per_step(tier: TierConfig) -> float:
    return speculation.tokens_per_step(tier.speculation) if tier.speculation else 1.0


def told(deployment: Deployment) -> str:
    """A deployment in one line: model, precisions, chips and how they share the work."""
    chip, model = hardware.chip_of(deployment), hardware.model_of(deployment)
    words = [f"{model.name}, weights {deployment.weight_bits}-bit, KV {deployment.kv_bits}-bit"]
    words.append(f"on {deployment.all_chips} x {chip.name}")
    shared = {
        "pipeline stages": deployment.pipeline_stages,
        "attention groups": deployment.attention_data_parallel,
        "expert groups": deployment.expert_parallel,
    }
    split = [f"{number} {what}" for what, number in shared.items() if number > 1]
    return " ".join(words) + (f" ({', '.join(split)})" if split else "")


def _costs(config: ServerConfig) -> tuple[CostTable, ...]:
    """One table for all tiers whose engines differ in nothing that costs; the largest of their batches."""
    names: dict[tuple[object, ...], list[TierConfig]] = {}
    for tier in config.tiers:
        if tier.shares is None:
            deployment = server_config.deployment_of(config, tier)
            key = deployment, hidden_load.mean_context_tokens(tier), tier.speculation
            names.setdefault(key, []).append(tier)
    return tuple(_cost_table(config, same) for same in names.values())


def _cost_table(config: ServerConfig, same: list[TierConfig]) -> CostTable:
    deployment = server_config.deployment_of(config, same[0])
    law, most = roofline.law(deployment), max(tier.max_batch for tier in same)
    context = hidden_load.mean_context_tokens(same[0])
    return CostTable(
        tiers=tuple(tier.name for tier in same),
        context_tokens=context,
        rows=cost_table.cost_rows(law, context, most, same[0].speculation),
        usd_per_chip_hour=deployment.usd_per_chip_hour,
    )


def _quantities(tiers: tuple[TierExplanation, ...]) -> list[str]:
    lines = []
    for field in fields(TierExplanation):
        if field.name in _SHOWN:
            label, scale, form = _SHOWN[field.name]
            values = [getattr(tier, field.name) for tier in tiers]
            lines.append(_row(label, [_told(value, scale, form) for value in values]))
    return lines


def _told(value: str | float, scale: float, form: str) -> str:
    if isinstance(value, str):
        return value
    return format(value if scale == 1 else value * scale, form)


def _cut(name: str) -> str:
    return name if len(name) < _CELL else f"{name[: _CELL - 3]}.."


def _row(label: str, cells: list[str]) -> str:
    return f"{label:<{_LABEL}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)
