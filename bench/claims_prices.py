"""Ratios of prices that follow from what tokens cost in the engine, and those of the price list."""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache

import msgspec

from bench.claims_scenarios import EXPERTS, alone, cached_ttft_s, steady
from mockserver import config, roofline
from mockserver.hardware import Deployment
from tierscope import prices

WIDE = msgspec.structs.replace(EXPERTS, attention_data_parallel=8, expert_parallel=8)
"""The same with attention in data parallel, so that latent KV lies on one chip and not on all eight."""
WINDOWED = config.load("b200-gpt-oss-120b").deployment
"""Half of its layers see 128 tokens."""


def input_chip_s_per_mtok(deployment: Deployment, prompt_tokens: int) -> float:
    """What a million prompt tokens cost, in prompts of that length prefilled one by one."""
    return 1e6 * deployment.all_chips * alone(deployment, prompt_tokens, 1).ttft_s / prompt_tokens


def output_input_ratio(deployment: Deployment, batch: int, context_tokens: int = 4000) -> float:
    """How many prompt tokens an output token costs."""
    output = steady(deployment, batch, context_tokens).chip_s_per_mtok
    return output / input_chip_s_per_mtok(deployment, context_tokens)


@cache
def batch_of_price_ratio(deployment: Deployment, ratio: float, *, most: int) -> int:
    """The first batch at which an output token costs no more than so many prompt tokens, up to ``most``."""
    batches = range(1, most + 1)
    return 1 + bisect_left(batches, -ratio, key=lambda batch: -output_input_ratio(deployment, batch))


def cache_hit_ratio(deployment: Deployment, cached_tokens: int, fresh_tokens: int) -> float:
    """What a token found in the cache costs, over one that is not.

    From three times to first token: with the hit, of the fresh part alone, of all of it without a cache.
    """
    fresh_s = alone(deployment, fresh_tokens, 1).ttft_s
    hit_s = cached_ttft_s(deployment, cached_tokens, fresh_tokens) - fresh_s
    whole_tokens = cached_tokens + fresh_tokens
    return hit_s / cached_tokens / (alone(deployment, whole_tokens, 1).ttft_s / whole_tokens)


@dataclass(frozen=True, slots=True)
class LongContext:
    """A million tokens at a long context over those at a short one."""

    input_ratio: float
    output_ratio: float
    short_batch: int
    long_batch: int


@cache
def long_context(deployment: Deployment, short: int, long: int, most: int) -> LongContext:
    """Each with the largest batch that fits, ``most`` at most."""
    law, batches = roofline.law(deployment), list[int]()
    for tokens in (short, long):
        batches.append(min(most, roofline.kv_capacity_tokens(law) // (tokens + 17)))
    cheap, dear = (
        steady(deployment, batch, tokens) for batch, tokens in zip(batches, (short, long), strict=True)
    )
    return LongContext(
        input_chip_s_per_mtok(deployment, long) / input_chip_s_per_mtok(deployment, short),
        dear.chip_s_per_mtok / cheap.chip_s_per_mtok,
        *batches,
    )


@dataclass(frozen=True, slots=True)
class ListRatios:
    """Ratios within one entry of the price list."""

    models: tuple[str, ...]
    output_over_input: float
    read_over_input: float
    fast_over_standard: float


@cache
def list_ratios() -> tuple[ListRatios, ...]:
    """Every model with both tiers, by ``tierscope/prices.toml``; those of equal ratios together."""
    book, groups = prices.load(), dict[tuple[float, float, float], list[str]]()
    for (model, tier), price in book.entries.items():
        fast = book.price(model, "fast")
        if tier != "standard" or fast is None:
            continue
        read = price.cache_read_usd_per_mtok
        assert read is not None, f"{model}: no price for what is read from the cache"
        ratios = (
            price.output_usd_per_mtok / price.input_usd_per_mtok,
            read / price.input_usd_per_mtok,
            fast.output_usd_per_mtok / price.output_usd_per_mtok,
        )
        groups.setdefault(ratios, []).append(model)
    return tuple(ListRatios(tuple(models), *ratios) for ratios, models in groups.items())
