"""What ``tierscope capacity`` prints: the question, what was tried, what it costs. Pure."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from loadtest.traces import TraceRows
from mockserver.config import ServerConfig, TierConfig, deployment_of
from mockserver.offered import Goal, Offered, Service

_HOUR_S = 3600.0


def question(rows: TraceRows, offered: Offered, config: ServerConfig, tier: TierConfig, goal: Goal) -> str:
    """What is asked: how much traffic, of whom, with what promise."""
    span_s = float(offered.at_ns[-1]) / 1e9
    rate = f"{len(offered) / span_s:.2f} a second" if span_s else "all at one instant"
    left_out = f", {rows.left_out} rows without tokens left out" if rows.left_out else ""
    cache = "" if offered.blocks is None else "; prefixes that the trace shares are cached"
    return (
        f"{len(offered)} requests in {_span(span_s)} ({rate}), "
        f"{rows.prompt_tokens.mean():.0f} tokens in and {rows.output_tokens.mean():.0f} out in the mean"
        f"{left_out}\n"
        f"to tier {tier.name} of {config.name}, alone{cache}: {goal.goodput_ratio:.1%} with "
        f"TTFT ≤ {goal.ttft_s:g} s and TPOT ≤ {goal.tpot_s * 1e3:g} ms"
    )


def table(tried: list[Service], goal: Goal, config: ServerConfig, tier: TierConfig) -> str:
    """A row for each number of replicas that was tried."""
    usd = deployment_of(config, tier).usd_per_chip_hour is not None
    head = "replicas   goodput   TTFT p50    p99 s   TPOT p50   p99 ms   busy   batch   chip-hours"
    lines = [head + ("       $" if usd else "")]
    lines += [_row(service, config, tier) for service in tried]
    if any(service.given_up for service in tried):
        lines.append(f"(<: given up once more than {1 - goal.goodput_ratio:.1%} of the requests had missed)")
    return "\n".join(lines)


def _row(service: Service, config: ServerConfig, tier: TierConfig) -> str:
    row = f"{service.replicas:8d}  {goodput(service):>8s}"
    if service.given_up:
        return row
    hours, usd = _chip_hours(service, config, tier)
    row += f"   {_quantiles(service.ttft_s, 3)}   {_quantiles(service.tpot_s * 1e3, 1)}"
    row += f"   {service.busy_ratio:4.0%}   {service.mean_batch:5.1f}   {hours:10.{1 if hours >= 10 else 3}f}"
    return row if usd is None else f"{row}   {usd:,.2f}"


def _quantiles(times: NDArray[np.float64], decimals: int) -> str:
    """Median and 99th percentile of those that are known: a dash where none is, as TPOT of single tokens."""
    known = times[~np.isnan(times)]
    if not len(known):
        return f"{'–':>8} {'–':>8}"
    middle, late = np.quantile(known, [0.5, 0.99]).tolist()
    return f"{middle:8.{decimals}f} {late:8.{decimals}f}"


def _span(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < _HOUR_S / 10 else f"{seconds / _HOUR_S:.2f} h"


def goodput(service: Service) -> str:
    """The share of requests that kept the promise; ``<`` where it was not found out to the end."""
    return f"{'<' if service.given_up else ''}{service.goodput_ratio:.2%}"


def _chip_hours(service: Service, config: ServerConfig, tier: TierConfig) -> tuple[float, float | None]:
    deployment = deployment_of(config, tier)
    hours = deployment.all_chips * service.replicas * service.span_s / _HOUR_S
    price = deployment.usd_per_chip_hour
    return hours, None if price is None else hours * price


def costs(service: Service, offered: Offered, config: ServerConfig, tier: TierConfig) -> Iterator[str]:
    """What its tokens cost, and what they are sold for."""
    prompt, output = int(offered.prompt_tokens.sum()), int(offered.output_tokens.sum())
    hours, usd = _chip_hours(service, config, tier)
    if service.refused:
        yield f"{service.refused} requests are too long for it, and count as missed"
    if service.hit_tokens:
        yield f"{service.hit_tokens / prompt:.1%} of the prompt tokens were found in the prefix cache"
    yield f"{hours * _HOUR_S / output * 1e6:.0f} chip-seconds per million output tokens" + (
        "" if usd is None else f", ${usd / output * 1e6:.2f}"
    )
    if tier.price is not None:
        found = service.hit_tokens
        computed, keeps = prompt - found, offered.blocks is not None
        sold = tier.price.usd(
            fresh_tokens=0 if keeps else computed,
            written_tokens=computed if keeps else 0,
            read_tokens=found,
            output_tokens=output,
        )
        yield f"at the tier's prices the trace is worth ${sold:,.2f}, ${sold / hours:,.2f} per chip-hour"
