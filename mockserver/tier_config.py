"""A tier of a mock server as a file says it: whom it serves, with what engine and limits. Typed, pure."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Tokens = Annotated[int, Meta(ge=1, le=100_000_000)]
Seconds = Annotated[float, Meta(ge=0, le=3600)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
PerMinute = Annotated[float, Meta(gt=0, le=1e12)]
UsdPerMtok = Annotated[float, Meta(ge=0, le=1_000_000)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")]  # $ would let a newline follow
TierName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,32}\Z")]
TierNames = Annotated[tuple[TierName, ...], Meta(max_length=16)]
ModelName = Annotated[str, Meta(min_length=1, max_length=200)]
Batching = Literal["continuous", "static"]
Prefill = Literal["chunked", "pause"]
WhenKvIsFull = Literal["queue", "preempt"]
BalancerKind = Literal["least-loaded", "round-robin", "random", "prefix"]


class HiddenLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The other users of a tier: lognormal lengths, and how far the batch wanders about its target."""

    prompt_tokens: Annotated[float, Meta(ge=1, le=1_000_000)] = 1000.0
    """Mean length of a hidden prompt."""
    prompt_variation_ratio: Annotated[float, Meta(ge=0, le=3)] = 0.8
    """Standard deviation over mean."""
    output_tokens: Annotated[float, Meta(ge=2, le=1_000_000)] = 500.0
    output_variation_ratio: Annotated[float, Meta(ge=0, le=3)] = 0.8
    wander_ratio: Annotated[float, Meta(ge=0, le=0.3)] = 0.03
    """Standard deviation of the slow modulation of the batch, over its target."""
    wander_s: Annotated[float, Meta(ge=0.1, le=3600)] = 5.0
    """Correlation time of the modulation."""


class Speculation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Speculative decoding: a draft proposes tokens, one step of the model checks them all.

    Draft length g and acceptance a give (1 − a^(g+1))/(1 − a) tokens a step in the mean.
    """

    draft_tokens: Annotated[int, Meta(ge=1, le=64)] = 3
    acceptance_ratio: Annotated[float, Meta(ge=0, lt=1)] = 0.7
    """Probability that a drafted token is accepted, given that those before it were."""
    draft_s: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """What drafting one token adds to a step."""
    smoothed: bool = False
    """The server spreads a step's tokens over the next step instead of sending them together."""


class PrefixCache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reuse of the KV of prompts that begin alike, in blocks; least recently used blocks go first."""

    block_tokens: Annotated[int, Meta(ge=1, le=4096)] = 16
    tokens: Tokens | None = None
    """Capacity. None: blocks stay in whatever KV memory running sequences leave free."""
    shared: bool = False
    """One cache with every other tier that says so (needs ``tokens``) and with tiers that share the engine;
    else each tier sees only what it wrote itself."""


class RateLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Token buckets, each full at the start and refilled evenly; None: without that limit."""

    requests_per_min: PerMinute | None = None
    input_tokens_per_min: PerMinute | None = None
    output_tokens_per_min: PerMinute | None = None
    """Charged with ``max_tokens`` at admission; what was not used is given back at the end."""
    burst_s: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    """A full bucket holds what it gets in this time."""
    cached_input_counts: bool = False
    """Whether prompt tokens found in the prefix cache count as input (OpenAI, 2026); else they are given back
    at the end (Anthropic counts uncached input only, 2026)."""
    over: Literal["reject", "overload", "downgrade", "queue"] = "reject"
    """Beyond a limit: 429 with retry-after; 529; served by ``downgrade_to`` in silence; held until it may."""


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the tier asks, $ per million tokens."""

    input_usd_per_mtok: UsdPerMtok
    output_usd_per_mtok: UsdPerMtok
    cache_write_usd_per_mtok: UsdPerMtok | None = None
    """Of prompt tokens that a prefix cache keeps; None: as other input."""
    cache_read_usd_per_mtok: UsdPerMtok | None = None
    """Of prompt tokens found there; None: as other input."""

    def usd(self, *, fresh_tokens: int, written_tokens: int, read_tokens: int, output_tokens: int) -> float:
        """What so many tokens are sold for; a prompt token is fresh, written or read."""
        write, read = self.cache_write_usd_per_mtok, self.cache_read_usd_per_mtok
        return 1e-6 * (
            fresh_tokens * self.input_usd_per_mtok
            + written_tokens * (self.input_usd_per_mtok if write is None else write)
            + read_tokens * (self.input_usd_per_mtok if read is None else read)
            + output_tokens * self.output_usd_per_mtok
        )


class TierConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tier: which requests it serves, how large its batch is, and what differs in its deployment."""

    name: Name
    service_tiers: TierNames = ()
    """Values of a request's ``service_tier`` that are served here; the first is what a response repeats."""
    speeds: TierNames = ()
    """The same for Anthropic's ``speed``. Where no tier gives any, ``fast`` is the tier that has it in
    ``service_tiers`` and ``standard`` the first."""
    model_names: Annotated[tuple[ModelName, ...], Meta(max_length=16)] = ()
    """Names of a model that mean this tier, besides the server's ``model_name``."""

    shares: Name | None = None
    """Served by the engine of that tier instead of one of its own; all that follows ``priority``, up to
    ``deployment``, is then that tier's."""
    priority: Annotated[int, Meta(ge=-100, le=100)] = 0
    """Within one engine the higher one is admitted first and preempted last."""
    max_batch: Count = 256
    target_batch: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Sequences decoding in a step around which hidden load keeps the tier; 0: nobody but the client."""
    batching: Batching = "continuous"
    """Static: a batch starts when ``max_batch`` requests are there or the first has waited ``batch_wait_s``,
    and nobody joins before all of it have ended."""
    batch_wait_s: Seconds = 3600.0
    prefill: Prefill = "chunked"
    """Prompts share steps with decoding, or decoding stands still while a prompt is prefilled."""
    prefill_tokens: Tokens = 8192
    """Prompt tokens in one step at most."""
    step_tokens: Tokens | None = None
    """Token budget of a step, decoding and drafts included; by default prefill_tokens + max_batch times one
    and its draft, so that decoding never eats into a prompt's chunk."""
    kv_tokens: Tokens | None = None
    """KV capacity; by default what fits beside the weights."""
    when_kv_is_full: WhenKvIsFull = "queue"
    """Admit only what fits with its whole output; or admit what fits now, and when memory runs out throw the
    youngest out, to be computed again."""
    hidden: HiddenLoad = HiddenLoad()
    noise_ratio: Annotated[float, Meta(ge=0, le=0.5)] = 0.01
    """Standard deviation of a step's duration over the law's."""
    speculation: Speculation | None = None
    prefix_cache: PrefixCache | None = None
    replicas: Annotated[int, Meta(ge=1, le=4096)] = 1
    """Engines of the tier behind a balancer, each with the hidden load."""
    balancer: BalancerKind = "least-loaded"
    deployment: dict[str, Any] = {}
    """Keys of ``[deployment]`` that differ in this tier."""

    price: Price | None = None
    limits: RateLimits | None = None
    downgrade_to: Name | None = None
    """The tier that serves in silence what this one does not."""
    downgrade_ratio: Ratio = 0.0
    """Share of the requests that is served by ``downgrade_to`` anyway."""
    echo: Literal["served", "requested", "absent"] = "served"
    """The tier that a response names: the one that served, the one asked for whoever served, or none."""

    @property
    def step_budget_tokens(self) -> int:
        """``step_tokens``, or its default."""
        return self.step_tokens or self.prefill_tokens + self.max_batch * self.checked_tokens

    @property
    def checked_tokens(self) -> int:
        """Positions that one decoding sequence takes in a step: its token, and drafts where it has any."""
        return 1 + self.speculation.draft_tokens if self.speculation is not None else 1
