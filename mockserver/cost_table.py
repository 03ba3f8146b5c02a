"""What an output token costs a tier against its batch, as lines of text. Pure."""

import textwrap
from dataclasses import dataclass

from mockserver import economics, speculation
from mockserver.roofline import Law
from mockserver.tier_config import Speculation

_SECONDS_PER_HOUR, _WIDTH = 3600.0, 100


@dataclass(frozen=True, slots=True)
class CostRow:
    """One batch: its step, what a client and the tier get of it, and where a token's cost goes."""

    batch: int
    step_s: float
    tokens_per_s: float
    """Of one sequence."""
    chip_s_per_mtok: float
    """Chip-seconds of a million output tokens."""
    weights_ratio: float
    """Share of the cost that is reading weights; then reading KV, computing, and launches and links."""
    kv_ratio: float
    compute_ratio: float
    overhead_ratio: float


@dataclass(frozen=True, slots=True)
class CostTable:
    """The costs of one engine at one mean context, from a batch of one to the largest there can be."""

    tiers: tuple[str, ...]
    context_tokens: float
    rows: tuple[CostRow, ...]
    usd_per_chip_hour: float | None

    def __str__(self) -> str:
        """At most 100 columns."""
        names = ", ".join(self.tiers)
        head = f"Cost of output at a mean context of {self.context_tokens:,.0f} tokens: {names}"
        priced = self.usd_per_chip_hour is not None
        lines = [
            textwrap.fill(head, _WIDTH),
            f"{'batch':>8}{'step, ms':>11}{'tokens/s each':>16}{'chip-s per M':>15}"
            f"{'weights':>10}{'KV':>7}{'compute':>10}{'launch+link':>13}"
            + ("$ per M".rjust(10) if priced else ""),
        ]
        lines += [self._line(row) for row in self.rows]
        return "\n".join(lines)

    def _line(self, row: CostRow) -> str:
        line = (
            f"{row.batch:>8,}{row.step_s * 1e3:>11.2f}{row.tokens_per_s:>16.1f}{row.chip_s_per_mtok:>15,.0f}"
            f"{row.weights_ratio:>10.0%}{row.kv_ratio:>7.0%}{row.compute_ratio:>10.0%}{row.overhead_ratio:>13.0%}"
        )
        if self.usd_per_chip_hour is None:
            return line
        return f"{line}{usd_per_mtok(row.chip_s_per_mtok, self.usd_per_chip_hour):>10.3f}"


def usd_per_mtok(chip_s_per_mtok: float, usd_per_chip_hour: float) -> float:
    """Dollars for a million tokens."""
    return chip_s_per_mtok / _SECONDS_PER_HOUR * usd_per_chip_hour


def cost_rows(
    law: Law, context_tokens: float, max_batch: int, speculating: Speculation | None
) -> tuple[CostRow, ...]:
    """Batches 1, 2, 4 … up to ``max_batch`` or what KV memory holds, and that one too."""
    most = max(1, min(max_batch, int(economics.largest_batch(law, context_tokens))))
    batches = [2**power for power in range(most.bit_length()) if 2**power < most]
    return tuple(_row(law, batch, context_tokens, speculating) for batch in (*batches, most))


def _row(law: Law, batch: int, context: float, speculating: Speculation | None) -> CostRow:
    drafts = speculating.draft_tokens if speculating else 0
    tokens = speculation.tokens_per_step(speculating) if speculating else 1.0
    parts = economics.output_cost_parts(law, float(batch), context, drafts=drafts)
    draft = law.chips * drafts * speculating.draft_s / batch if speculating else 0.0
    cost = parts.total + draft
    step_s = cost * batch / law.chips
    return CostRow(
        batch=batch,
        step_s=step_s,
        tokens_per_s=tokens / step_s,
        chip_s_per_mtok=cost / tokens * 1e6,
        weights_ratio=parts.weights / cost,
        kv_ratio=parts.kv / cost,
        compute_ratio=parts.compute / cost,
        overhead_ratio=(parts.overhead + draft) / cost,
    )
