"""Deployments as data: a model on so many chips, in what precision and parallelism, how near its peaks. Pure.

A deployment names a chip and a model of the tables (``tables.py``), or describes one of its own in place:
``[deployment.chip]`` instead of ``chip = "H100"``. Every number is in base units: bytes, FLOP/s, bytes/s,
seconds.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mockserver import tables
from mockserver.shapes import Chip, Model, Positive, check_model
from mockserver.tables import Tables
from tierscope import typedtoml
from tierscope.errors import BadInputError

__all__ = ["Chip", "Deployment", "Model", "check", "described", "load_deployment"]

Share = Annotated[float, Meta(gt=0, le=1)]
Overhead = Annotated[float, Meta(ge=0, le=10)]
Chips = Annotated[int, Meta(ge=1, le=4096)]
Bits = Literal[4, 8, 16]


class Deployment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model on so many chips, and how much of their peak it reaches.

    ``chips`` is the scale-up domain: weight and GQA KV reads divide by it. The defaults of efficiencies and
    overheads fit 3,209 published serving points (2024-2026) better than a pure ``max(compute, memory)``,
    which is 68 % too fast in the median, mostly for want of per-layer overhead. How true they are:
    docs/fidelity.md.
    """

    chip: str | Chip
    model: str | Model
    hardware_files: Annotated[tuple[str, ...], Meta(max_length=16)] = ()
    """TOML files with ``[[chips]]`` and ``[[models]]`` of one's own; paths from this file's folder."""
    chips: Chips = 1
    pipeline_stages: Chips = 1
    """Groups of ``chips`` that each hold a part of the layers, with as many micro-batches under way."""
    attention_data_parallel: Chips = 1
    """Groups among ``chips`` that each keep all attention weights and the KV of their own sequences."""
    expert_parallel: Chips = 1
    """Groups among ``chips`` that whole experts are dealt to; 1: every expert is split over all chips."""
    weight_bits: Bits = 16
    dense_weight_bits: Bits | None = None
    """Of all weights that are not in routed experts; by default as ``weight_bits``."""
    kv_bits: Bits = 16
    compute_bits: Bits | None = None
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
    """Latency α of one all-reduce; two a layer; 10-35 µs on NVLink (NCCL measurements, 2023-2025). Also of
    one hop between pipeline stages."""
    link_bytes_per_s: Positive | None = None
    """Overrides the chip's."""
    memory_use_ratio: Share = 0.9
    """Share of the chip's memory that the engine takes (vLLM's default, 2023-2026)."""
    activation_bytes: Annotated[float, Meta(ge=0, le=1e15)] = 2e9
    """Kept free on each chip for activations and graphs."""
    usd_per_chip_hour: Positive | None = None
    """What one chip costs; without it costs are told in chip-seconds. None is shipped: prices change."""

    @property
    def all_chips(self) -> int:
        """Chips of all pipeline stages."""
        return self.chips * self.pipeline_stages


class _HasDeployment(msgspec.Struct, frozen=True):
    """A file with a ``[deployment]`` table; whatever else it holds is not looked at."""

    deployment: Deployment


def chips() -> dict[str, Chip]:
    """All chips of the shipped table, by name."""
    return tables.shipped().chips


def models() -> dict[str, Model]:
    """All models of the shipped table, by name."""
    return tables.shipped().models


def chip_of(deployment: Deployment) -> Chip:
    """The deployment's chip; KeyError for a name that ``check`` would have refused."""
    return deployment.chip if isinstance(deployment.chip, Chip) else chips()[deployment.chip]


def model_of(deployment: Deployment) -> Model:
    """The deployment's model; KeyError for a name that ``check`` would have refused."""
    return deployment.model if isinstance(deployment.model, Model) else models()[deployment.model]


def load_deployment(path: Path) -> Deployment:
    """Read the ``[deployment]`` table of a TOML file (a server profile has one; other tables are ignored).

    Chip and model of the user's own ``hardware_files`` are put in place of their names. Raises BadInputError,
    in one line, if there is none or it cannot be.
    """
    deployment = typedtoml.load(path, _HasDeployment).deployment
    where = f"{path}: deployment"
    deployment = described(deployment, tables_of(deployment, beside=path.parent))
    check(deployment, where=where)
    return deployment


def tables_of(deployment: Deployment, *, beside: Path) -> Tables:
    """The shipped tables and those of the deployment's ``hardware_files``."""
    return tables.with_files(deployment.hardware_files, beside=beside)


def described(deployment: Deployment, known: Tables) -> Deployment:
    """The same with chip and model as tables in place of names that only the user's own files know."""
    changed = described_keys({"chip": deployment.chip, "model": deployment.model}, known)
    return msgspec.structs.replace(deployment, **changed)


def described_keys(keys: dict[str, Any], known: Tables) -> dict[str, Any]:
    """``described`` for some keys of a deployment, as a tier overrides them.

    Shipped and unknown names stay as they are: ``check`` refuses the latter.
    """
    ours, changed = tables.shipped(), dict(keys)
    chip, model = keys.get("chip"), keys.get("model")
    if isinstance(chip, str) and chip in known.chips and chip not in ours.chips:
        changed["chip"] = known.chips[chip]
    if isinstance(model, str) and model in known.models and model not in ours.models:
        changed["model"] = known.models[model]
    return changed


def check(deployment: Deployment, *, where: str) -> None:
    """Refuse names not in the tables, shapes that contradict themselves, and weights that do not fit."""
    known = tables.shipped()
    chip, model = deployment.chip, deployment.model
    chip = known.chip(chip, where=f"{where}.chip") if isinstance(chip, str) else chip
    model = known.model(model, where=f"{where}.model") if isinstance(model, str) else model
    check_model(model, where=f"{where}.model")
    if deployment.all_chips > 1 and link_bytes_per_s(deployment) is None:
        raise BadInputError(
            f"{where}.link_bytes_per_s: is missing; {chip.name} has no published link rate and chips is "
            f"{deployment.all_chips}"
        )
    bits = deployment.compute_bits
    if bits is not None and chip.peak_flops_per_s(bits) is None:
        raise BadInputError(
            f"{where}.compute_bits: {bits} is not allowed; {chip.name} has no such arithmetic"
        )
    _check_parallelism(deployment, model, where=where)
    weights, room = weight_bytes(deployment), usable_bytes(deployment)
    if weights >= room:
        raise BadInputError(
            f"{where}.chips: {deployment.chips} is not enough; {weights / 1e9:.0f} GB of weights do not fit "
            f"into {room / 1e9:.0f} GB of usable memory"
        )


def _check_parallelism(deployment: Deployment, model: Model, *, where: str) -> None:
    for key in ("attention_data_parallel", "expert_parallel"):
        groups = getattr(deployment, key)
        if deployment.chips % groups:
            raise BadInputError(
                f"{where}.{key}: {groups} is not allowed; expected a divisor of chips ({deployment.chips})"
            )
    if deployment.expert_parallel > max(1, model.experts):
        raise BadInputError(
            f"{where}.expert_parallel: {deployment.expert_parallel} is not allowed; {model.name} has "
            f"{model.experts} experts"
        )
    if deployment.pipeline_stages > model.layers:
        raise BadInputError(
            f"{where}.pipeline_stages: {deployment.pipeline_stages} is not allowed; {model.name} has "
            f"{model.layers} layers"
        )


def expert_bytes(deployment: Deployment) -> float:
    """Bytes of all routed experts, over all chips; 0 for a dense model."""
    return model_of(deployment).expert_parameters * deployment.weight_bits / 8


def dense_bytes(deployment: Deployment) -> float:
    """Bytes of all other weights, over all chips, copies of attention weights included."""
    model, bits = model_of(deployment), deployment.dense_weight_bits or deployment.weight_bits
    copies = (deployment.attention_data_parallel - 1) * model.attention_parameters
    return (model.parameters - model.expert_parameters + copies) * bits / 8


def weight_bytes(deployment: Deployment) -> float:
    """Bytes of all weights, over all chips, copies included."""
    return expert_bytes(deployment) + dense_bytes(deployment)


def usable_bytes(deployment: Deployment) -> float:
    """Memory for weights and KV, over all chips."""
    chip = chip_of(deployment)
    per_chip = chip.hbm_bytes * deployment.memory_use_ratio - deployment.activation_bytes
    return deployment.all_chips * per_chip


def link_bytes_per_s(deployment: Deployment) -> float | None:
    """Scale-up link of one chip, one direction; None where nobody says."""
    return deployment.link_bytes_per_s or chip_of(deployment).link_bytes_per_s


def peak_flops_per_s(deployment: Deployment) -> float:
    """Dense peak of one chip in the deployment's arithmetic."""
    chip = chip_of(deployment)
    return chip.peak_flops_per_s(deployment.compute_bits or deployment.weight_bits) or chip.bf16_flops_per_s
