"""The picture of docs/claims.md: what an output token costs against the batch, as SVG on logarithmic axes."""

import math
from collections.abc import Callable, Mapping, Sequence

from analysis.rendering import theme
from bench.claims_scenarios import Steady
from mockserver import economics
from mockserver.economics import CostParts
from mockserver.roofline import Law

LEFT, RIGHT, TOP, BOTTOM = 84, 896, 20, 384
COSTS = (100, 1000, 10_000, 100_000)
"""Lines of the grid, in chip-seconds a million tokens; the first and the last are the axis' ends."""
CURVES: tuple[tuple[str, str, Callable[[CostParts], float]], ...] = (
    ("all", "total", lambda parts: parts.total),
    ("weights", "reading weights: as 1/batch", lambda parts: parts.weights),
    ("launch", "launches and links: nearly so", lambda parts: parts.overhead),
    ("kv", "reading KV: the same for every batch", lambda parts: parts.kv),
)
COLOURS = {"all": "ink", "weights": "tier-1", "launch": "tier-5", "kv": "tier-2"}


def picture(law: Law, measured: Sequence[Steady], context_tokens: float) -> str:
    """Curves are the law's, circles the engine's; ends with a newline."""
    most = measured[-1].batch
    lines = [_head(), *_grid([each.batch for each in measured])]
    for name, _, part in CURVES:
        batches = [2 ** (power / 4) for power in range(4 * (most.bit_length() - 1) + 1)]
        costs = [1e6 * part(economics.output_cost_parts(law, b, context_tokens)) for b in batches]
        points = " ".join(f"{_x(b, most):.1f},{_y(cost):.1f}" for b, cost in zip(batches, costs, strict=True))
        lines.append(f'  <polyline class="line {name}" points="{points}"/>')
    lines += [
        f'  <circle class="dot" cx="{_x(each.batch, most):.1f}" cy="{_y(each.chip_s_per_mtok):.1f}" r="4.5"/>'
        for each in measured
    ]
    return "\n".join([*lines, *_legend(), "</svg>", ""])


def _x(batch: float, most: float) -> float:
    return LEFT + (RIGHT - LEFT) * math.log(batch) / math.log(most)


def _y(cost: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * math.log(cost / COSTS[0]) / math.log(COSTS[-1] / COSTS[0])


def _head() -> str:
    light, dark = (_colours(palette) for palette in (theme.LIGHT, theme.DARK))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 440"
  font-family="system-ui, sans-serif" font-size="14" role="img" aria-labelledby="t d">
  <title id="t">Cost of an output token against the batch</title>
  <desc id="d">Chip-seconds a million output tokens fall as the batch grows, at first in proportion, then
  ever less: what reading weights costs is shared by the batch, what reading KV costs is not.</desc>
  <style>
    .line {{ fill: none; stroke-width: 2 }} .line.all {{ stroke-width: 3 }}
    .line.launch {{ stroke-dasharray: 6 3 }} .line.kv {{ stroke-dasharray: 2 2 }}
    {light}
    @media (prefers-color-scheme: dark) {{
      {dark}
    }}
  </style>
  <rect class="ground" width="920" height="440" rx="6"/>"""


def _colours(palette: Mapping[str, str]) -> str:
    curves = " ".join(f".{name} {{ stroke: {palette[role]} }}" for name, role in COLOURS.items())
    return (
        f"{curves} .grid {{ stroke: {palette['grid']} }} .ground {{ fill: {palette['card']} }} "
        f".dot {{ fill: {palette['card']}; stroke: {palette['ink']}; stroke-width: 2 }} "
        f"text {{ fill: {palette['muted']} }}"
    )


def _grid(batches: Sequence[int]) -> list[str]:
    lines = []
    for cost in COSTS:
        y = _y(cost)
        lines.append(f'  <path class="grid" d="M{LEFT} {y:.1f} H{RIGHT}"/>')
        lines.append(f'  <text x="{LEFT - 10}" y="{y + 5:.1f}" text-anchor="end">{cost:,}</text>')
    lines += [
        f'  <text x="{_x(batch, batches[-1]):.1f}" y="{BOTTOM + 22}" text-anchor="middle">{batch}</text>'
        for batch in batches
    ]
    middle = (LEFT + RIGHT) / 2
    lines.append(
        f'  <text x="{middle:.0f}" y="{BOTTOM + 46}" text-anchor="middle">sequences decoding in a step</text>'
    )
    turned = f'x="18" y="{(TOP + BOTTOM) / 2:.0f}" transform="rotate(-90 18 {(TOP + BOTTOM) / 2:.0f})"'
    lines.append(f'  <text {turned} text-anchor="middle">chip-seconds a million tokens</text>')
    return lines


def _legend() -> list[str]:
    lines, x = [], 560
    for number, (name, told, _) in enumerate(CURVES):
        y = 44 + 24 * number
        lines.append(f'  <path class="line {name}" d="M{x} {y} H{x + 36}"/>')
        lines.append(f'  <text x="{x + 46}" y="{y + 5}">{told}</text>')
    y = 44 + 24 * len(CURVES)
    lines.append(f'  <circle class="dot" cx="{x + 18}" cy="{y}" r="4.5"/>')
    lines.append(f'  <text x="{x + 46}" y="{y + 5}">the engine in virtual time</text>')
    return lines
