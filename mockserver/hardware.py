"""Chips, models and deployments as data: what a step's bytes and FLOPs are computed from. Pure.

The tables are package data (``chips.toml``, ``models.toml``), each row with its source. A deployment names a
chip and a model of them, or describes one of its own in place: ``[deployment.chip]`` instead of
``chip = "H100"``. Every number is in base units: bytes, FLOP/s, bytes/s, seconds.
"""

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tierscope import typedtoml
from tierscope.errors import BadInputError

Positive = Annotated[float, Meta(gt=0, le=1e24)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
CountOrNone = Annotated[int, Meta(ge=0, le=1_000_000)]
Share = Annotated[float, Meta(gt=0, le=1)]
Overhead = Annotated[float, Meta(ge=0, le=10)]


class Chip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accelerator: dense peaks, memory and scale-up link (one direction)."""

    name: str
    bf16_flops_per_s: Positive
    hbm_bytes: Positive
    memory_bytes_per_s: Positive
    fp8_flops_per_s: Positive | None = None
    fp4_flops_per_s: Positive | None = None
    link_bytes_per_s: Positive | None = None
    source: str = "as given in the deployment"


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One transformer: parameters and the shape of its attention and experts."""

    name: str
    parameters: Positive
    active_parameters: Positive
    layers: Count
    hidden: Count
    query_heads: Count
    head_dim: Count
    """Not used with latent attention, where the law takes ``latent_dim`` and ``rope_dim``."""
    kv_heads: CountOrNone = 0
    """Grouped-query attention; 0 with latent attention."""
    latent_dim: CountOrNone = 0
    """Multi-head latent attention: width of the compressed KV, 0 without."""
    rope_dim: CountOrNone = 0
    window_layers: CountOrNone = 0
    """Layers that see only the last ``window_tokens`` tokens."""
    window_tokens: CountOrNone = 0
    dense_layers: CountOrNone = 0
    """Layers without experts, in a model that has experts."""
    experts: CountOrNone = 0
    experts_per_token: CountOrNone = 0
    expert_width: CountOrNone = 0
    """Intermediate width of one routed expert (three matrices of hidden × width)."""

    @property
    def expert_parameters(self) -> float:
        """Parameters in routed experts, over all layers; 0 for a dense model."""
        return float((self.layers - self.dense_layers) * self.experts * 3 * self.hidden * self.expert_width)


class Deployment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model on so many chips, and how much of their peak it reaches.

    ``chips`` is the tensor-parallel scale-up domain: weight and GQA KV reads divide by it. The defaults of
    efficiencies and overheads fit 3,209 published serving points (2024-2026) better than a pure
    ``max(compute, memory)``, which is 68 % too fast in the median, mostly for want of per-layer overhead.
    """

    chip: str | Chip
    model: str | Model
    chips: Annotated[int, Meta(ge=1, le=4096)] = 1
    weight_bits: Literal[4, 8, 16] = 16
    kv_bits: Literal[4, 8, 16] = 16
    compute_bits: Literal[4, 8, 16] | None = None
    """Arithmetic of the matrix products; by default that of the weights where the chip has it, else 16."""
    mfu_ratio: Share = 0.65
    """Model FLOPs utilisation: achieved share of the peak, in large matrix products."""
    mbu_ratio: Share = 0.8
    """Memory bandwidth utilisation: achieved share of the peak."""
    overlap_exponent: Annotated[float, Meta(ge=1, le=16)] = 4.0
    """p in (memory^p + compute^p)^(1/p): 1 adds the two, a large p is their maximum. 518 measured H100 GEMM
    times are fitted by p = 3 with 4.5 % median error (2025)."""
    layer_overhead_s: Overhead = 30e-6
    step_overhead_s: Overhead = 0.15e-3
    sequence_overhead_s: Overhead = 4e-6
    """Per sequence in the step: sampling, detokenising, scheduling."""
    all_reduce_s: Overhead = 20e-6
    """Latency α of one all-reduce; two a layer; 10-35 µs on NVLink (NCCL measurements, 2023-2025)."""
    link_bytes_per_s: Positive | None = None
    """Overrides the chip's."""
    memory_use_ratio: Share = 0.9
    """Share of the chip's memory that the engine takes (vLLM's default, 2023-2026)."""
    activation_bytes: Annotated[float, Meta(ge=0, le=1e15)] = 2e9
    """Kept free on each chip for activations and graphs."""


class _HasDeployment(msgspec.Struct, frozen=True):
    """A file with a ``[deployment]`` table; whatever else it holds is not looked at."""

    deployment: Deployment


class _Chips(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    chips: tuple[Chip, ...]


class _Models(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[Model, ...]


@cache
def chips() -> dict[str, Chip]:
    """All chips of the table, by name."""
    table = typedtoml.parse(_package_text("chips.toml"), _Chips, where="chips.toml")
    return {chip.name: chip for chip in table.chips}


@cache
def models() -> dict[str, Model]:
    """All models of the table, by name."""
    table = typedtoml.parse(_package_text("models.toml"), _Models, where="models.toml")
    return {model.name: model for model in table.models}


def chip_of(deployment: Deployment) -> Chip:
    """The deployment's chip; KeyError for a name that ``check`` would have refused."""
    return deployment.chip if isinstance(deployment.chip, Chip) else chips()[deployment.chip]


def model_of(deployment: Deployment) -> Model:
    """The deployment's model; KeyError for a name that ``check`` would have refused."""
    return deployment.model if isinstance(deployment.model, Model) else models()[deployment.model]


def load_deployment(path: Path) -> Deployment:
    """Read the ``[deployment]`` table of a TOML file (a server profile has one; other tables are ignored).

    Raises BadInputError, in one line, if there is none or it cannot be.
    """
    deployment = typedtoml.load(path, _HasDeployment).deployment
    check(deployment, where=f"{path}: deployment")
    return deployment


def check(deployment: Deployment, *, where: str) -> None:
    """Refuse names not in the tables, shapes that contradict themselves, and weights that do not fit."""
    if isinstance(deployment.chip, str) and deployment.chip not in chips():
        raise BadInputError(_unknown(f"{where}.chip", deployment.chip, list(chips())))
    if isinstance(deployment.model, str) and deployment.model not in models():
        raise BadInputError(_unknown(f"{where}.model", deployment.model, list(models())))
    chip, model = chip_of(deployment), model_of(deployment)
    _check_model(model, where=f"{where}.model")
    if deployment.chips > 1 and link_bytes_per_s(deployment) is None:
        raise BadInputError(
            f"{where}.link_bytes_per_s: is missing; {chip.name} has no published link rate and chips is "
            f"{deployment.chips}"
        )
    bits = deployment.compute_bits
    if bits is not None and _peak(chip, bits) is None:
        raise BadInputError(
            f"{where}.compute_bits: {bits} is not allowed; {chip.name} has no such arithmetic"
        )
    weights = weight_bytes(deployment)
    room = deployment.chips * (chip.hbm_bytes * deployment.memory_use_ratio - deployment.activation_bytes)
    if weights >= room:
        raise BadInputError(
            f"{where}.chips: {deployment.chips} is not enough; {weights / 1e9:.0f} GB of weights do not fit "
            f"into {room / 1e9:.0f} GB of usable memory"
        )


def weight_bytes(deployment: Deployment) -> float:
    """Bytes of all weights, over all chips."""
    return model_of(deployment).parameters * deployment.weight_bits / 8


def link_bytes_per_s(deployment: Deployment) -> float | None:
    """Scale-up link of one chip, one direction; None where nobody says."""
    return deployment.link_bytes_per_s or chip_of(deployment).link_bytes_per_s


def peak_flops_per_s(deployment: Deployment) -> float:
    """Dense peak of one chip in the deployment's arithmetic."""
    chip = chip_of(deployment)
    bits = deployment.compute_bits or deployment.weight_bits
    return _peak(chip, bits) or chip.bf16_flops_per_s


def _peak(chip: Chip, bits: int) -> float | None:
    return {16: chip.bf16_flops_per_s, 8: chip.fp8_flops_per_s, 4: chip.fp4_flops_per_s}[bits]


def _check_model(model: Model, *, where: str) -> None:
    if (model.kv_heads > 0) == (model.latent_dim > 0):
        raise BadInputError(f"{where}: give exactly one of kv_heads and latent_dim, more than 0")
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


def _unknown(place: str, name: str, allowed: list[str]) -> str:
    return f"{place}: {name!r} is not known; known: {', '.join(allowed)}; or describe it as a table"


def _package_text(name: str) -> str:
    return (resources.files("mockserver") / name).read_text(encoding="utf-8")
