"""What a chip and a model are, to the law: dense peaks and memory of one, the shape of the other. Pure."""

from typing import Annotated

import msgspec
from msgspec import Meta

from tierscope.errors import BadInputError

Positive = Annotated[float, Meta(gt=0, le=1e24)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
CountOrNone = Annotated[int, Meta(ge=0, le=1_000_000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class Chip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accelerator: dense peaks, memory and scale-up link (one direction)."""

    name: Name
    bf16_flops_per_s: Positive
    hbm_bytes: Positive
    memory_bytes_per_s: Positive
    fp8_flops_per_s: Positive | None = None
    fp4_flops_per_s: Positive | None = None
    link_bytes_per_s: Positive | None = None
    source: str = "as given by the user"

    def peak_flops_per_s(self, bits: int) -> float | None:
        """Dense peak in 16, 8 or 4-bit arithmetic; None where the chip has no such arithmetic."""
        return {16: self.bf16_flops_per_s, 8: self.fp8_flops_per_s, 4: self.fp4_flops_per_s}[bits]


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One transformer: parameters and the shape of its attention and experts."""

    name: Name
    parameters: Positive
    active_parameters: Positive
    layers: Count
    hidden: Count
    query_heads: Count
    head_dim: Count
    """Width of one head's queries and keys."""
    value_dim: CountOrNone = 0
    """Width of one head's values; 0: as ``head_dim``."""
    kv_heads: CountOrNone = 0
    """Grouped-query attention; 0 with latent attention."""
    latent_dim: CountOrNone = 0
    """Multi-head latent attention: width of the compressed KV, 0 without."""
    rope_dim: CountOrNone = 0
    """Latent attention: part of ``head_dim`` that carries the position and is shared by all heads."""
    query_latent_dim: CountOrNone = 0
    """Latent attention: width that queries are compressed to; 0: they are not."""
    window_layers: CountOrNone = 0
    """Layers that see only the last ``window_tokens`` tokens."""
    window_tokens: CountOrNone = 0
    dense_layers: CountOrNone = 0
    """Layers without experts, in a model that has experts."""
    experts: CountOrNone = 0
    experts_per_token: CountOrNone = 0
    expert_width: CountOrNone = 0
    """Intermediate width of one routed expert (three matrices of hidden × width)."""
    source: str = ""

    @property
    def values_dim(self) -> int:
        """``value_dim``, or its default."""
        return self.value_dim or self.head_dim

    @property
    def expert_parameters(self) -> float:
        """Parameters in routed experts, over all layers; 0 for a dense model."""
        return float((self.layers - self.dense_layers) * self.experts * 3 * self.hidden * self.expert_width)

    @property
    def attention_parameters(self) -> float:
        """Parameters of the attention's projections, over all layers."""
        heads, qk, v = self.query_heads, self.head_dim, self.values_dim
        if not self.latent_dim:
            return float(self.layers * self.hidden * (qk + v) * (heads + self.kv_heads))
        narrow = self.query_latent_dim
        queries = narrow * (self.hidden + heads * qk) if narrow else self.hidden * heads * qk
        latent = self.hidden * (self.latent_dim + self.rope_dim)
        expanded = self.latent_dim * heads * (qk - self.rope_dim + v)
        return float(self.layers * (queries + latent + expanded + heads * v * self.hidden))

    @property
    def kv_width(self) -> int:
        """KV elements of one token in one layer."""
        if self.latent_dim:
            return self.latent_dim + self.rope_dim
        return self.kv_heads * (self.head_dim + self.values_dim)

    @property
    def decode_flops_per_pair(self) -> float:
        """FLOPs of one query and one key and value, all heads of a layer, in decode.

        With latent attention in the absorbed form: queries are brought into the latent space, so that the
        cache is read as it lies there.
        """
        if self.latent_dim:
            return 2.0 * self.query_heads * (2 * self.latent_dim + self.rope_dim)
        return 2.0 * self.query_heads * (self.head_dim + self.values_dim)

    @property
    def prefill_flops_per_pair(self) -> float:
        """The same in prefill, where the latent is expanded to heads first: cheaper by the pair."""
        return 2.0 * self.query_heads * (self.head_dim + self.values_dim)

    @property
    def expansion_flops_per_token(self) -> float:
        """FLOPs per layer to expand the latent of a token that an earlier chunk left; 0 without latent."""
        if not self.latent_dim:
            return 0.0
        width = self.head_dim - self.rope_dim + self.values_dim
        return 2.0 * self.latent_dim * self.query_heads * width


def check_model(model: Model, *, where: str) -> None:
    """Refuse a shape that contradicts itself."""
    if (model.kv_heads > 0) == (model.latent_dim > 0):
        raise BadInputError(f"{where}: give exactly one of kv_heads and latent_dim, more than 0")
    if model.rope_dim > model.head_dim or (model.rope_dim and not model.latent_dim):
        raise BadInputError(
            f"{where}.rope_dim: {model.rope_dim} is not allowed; expected at most head_dim "
            f"({model.head_dim}), and latent_dim with it"
        )
    # At least one layer sees everything: KV capacity is counted in tokens of those.
    if model.window_layers >= model.layers or (model.window_layers > 0) != (model.window_tokens > 0):
        raise BadInputError(
            f"{where}.window_layers: {model.window_layers} is not allowed; expected less than layers "
            f"({model.layers}), and window_tokens with it"
        )
    parts = (model.experts, model.experts_per_token, model.expert_width)
    if any(parts) and not all(parts):
        raise BadInputError(f"{where}: experts, experts_per_token and expert_width go together")
    if model.experts_per_token > model.experts or model.dense_layers > model.layers:
        raise BadInputError(f"{where}: more experts_per_token than experts, or more dense_layers than layers")
    if max(model.active_parameters, model.expert_parameters) > model.parameters:
        raise BadInputError(
            f"{where}.parameters: {model.parameters:g} is not allowed; expected at least active_parameters "
            f"({model.active_parameters:g}) and those in experts ({model.expert_parameters:g})"
        )
