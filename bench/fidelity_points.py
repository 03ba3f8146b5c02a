"""Published measurements of real servers as points that the law can be asked about."""

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mockserver import hardware, roofline
from mockserver.hardware import Deployment
from tierscope.errors import BadInputError

FOLDER = Path(__file__).parent.parent / "tests" / "data" / "fidelity"
ARGONNE_COLUMNS = (
    "Hardware",
    "Num of Hardware",
    "Framework",
    "Model",
    "Input Output Length",
    "Batch Size",
    "Latency",
)
INFERENCEX_COLUMNS = (
    *("backend", "model_path", "system", "precision", "isl", "osl", "tp_size", "attention_dp_size"),
    *("moe_tp_size", "moe_ep_size", "batch_size", "concurrency", "silicon_tpot_ms"),
)
CHIPS = {
    "Nvidia A100 GPU": "A100-40",  # 64 sequences of 2,048 tokens of Llama-2-7B queue there, as in 40 GB
    "Nvidia H100 GPU": "H100",
    "Nvidia GH200 GPU": "GH200",
    "AMD MI250 GPU": "MI250",
    "AMD MI300X GPU": "MI300X",
    "Habana Gaudi2": "Gaudi2",
    "Intel PVC GPU": "Max-1550",
    "Intel Max 1550": "Max-1550",
    "SambaNova SN40L": "SN40L",
    "h100_sxm": "H100",
    "h200_sxm": "H200",
    "b200_sxm": "B200",
    "b300_sxm": "B300",
    "gb200": "GB200",
}
MODELS = {
    "meta-llama/Llama-2-7b-hf": "Llama-2-7B",
    "meta-llama/Llama-2-70b-hf": "Llama-2-70B",
    "meta-llama/Meta-Llama-3-8B": "Llama-3.1-8B",  # 3 and 3.1 have one shape
    "meta-llama/Meta-Llama-3-70B": "Llama-3.1-70B",
    "mistralai/Mistral-7B-v0.1": "Mistral-7B",
    "mistralai/Mixtral-8x7B-v0.1": "Mixtral-8x7B",
    "Qwen/Qwen2-7B": "Qwen2-7B",
    "Qwen/Qwen2-72B": "Qwen2-72B",
    "meta-llama/Llama-3.1-70B": "Llama-3.1-70B",
    "Qwen/Qwen3-32B": "Qwen3-32B",
    "nvidia/Qwen3-32B-NVFP4": "Qwen3-32B",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "MiniMaxAI/MiniMax-M2.5": "MiniMax-M2.5",
    "deepseek-ai/DeepSeek-R1": "DeepSeek-V3",
    "nvidia/DeepSeek-R1-NVFP4": "DeepSeek-V3",
}
NODE_CHIPS = 8
"""GPUs of one server. Rows of the collection with more repeat the figures of rows with 4 or 8: their widths
were multiplied with each other once too often. So were those that split attention both ways."""
_EXPERTS_ONLY_AT_4_BITS = ("gpt-oss-120b", "DeepSeek-V3")
"""Checkpoints that keep attention and embeddings in 16 bits."""

Kind = Literal["batch", "waves", "clients", "one sequence"]


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement, and on what it was made."""

    source: Literal["argonne", "inferencex"]
    engine: str
    deployment: Deployment
    prompt_tokens: float
    output_tokens: float
    sequences: int
    kind: Kind
    """``sequences`` start together as one batch; do not fit the KV memory together; are as many clients that
    ask again and again; or are one sequence, whose prompt is read in pieces of so many tokens."""
    measured_s: float
    """Per output token: TPOT of clients, else the whole latency over the output."""

    @property
    def configuration(self) -> tuple[str, str, str, str]:
        """All but lengths and batch: source, engine, hardware, model."""
        deployment = self.deployment
        wide = [f"{deployment.all_chips} × {deployment.chip}"]
        if deployment.attention_data_parallel > 1:
            wide.append(f"DP{deployment.attention_data_parallel}")
        if deployment.expert_parallel > 1:
            wide.append(f"EP{deployment.expert_parallel}")
        return self.source, self.engine, " ".join(wide), f"{deployment.model} {deployment.weight_bits}-bit"


def load(left_out: Counter[str]) -> list[Point]:
    """All points of the committed excerpts; why others are none is counted in ``left_out``."""
    return [*_argonne(left_out), *_inferencex(left_out)]


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (FOLDER / name).open(encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _fits(deployment: Deployment, left_out: Counter[str]) -> bool:
    try:
        hardware.check(deployment, where="")
    except BadInputError as error:
        link = "link_bytes_per_s" in str(error)
        left_out[
            "no published link rate" if link else "its weights do not fit, so it was something else"
        ] += 1
        return False
    return True


def _argonne(left_out: Counter[str]) -> Iterator[Point]:
    for row in _rows("argonne.csv"):
        chips, tokens, batch = (
            int(row[key]) for key in ("Num of Hardware", "Input Output Length", "Batch Size")
        )
        one = row["Framework"] == "llama.cpp"  # several chips hold layers each, one after the other
        deployment = Deployment(
            chip=CHIPS[row["Hardware"]],
            model=MODELS[row["Model"]],
            chips=1 if one else chips,
            pipeline_stages=chips if one else 1,
            memory_use_ratio=0.95,  # a fixed batch and nothing else: 70 B on four A100-40 did fit
            activation_bytes=1e9,
        )
        if not _fits(deployment, left_out):
            continue
        room = roofline.kv_capacity_tokens(roofline.law(deployment)) // (2 * tokens)
        if room < 1 and not one:
            left_out["not one sequence fits beside the weights"] += 1
            continue
        kind: Kind = "one sequence" if one else "batch" if batch <= room else "waves"
        yield Point(
            source="argonne",
            engine=row["Framework"],
            deployment=deployment,
            prompt_tokens=tokens,
            output_tokens=tokens,
            sequences=batch,
            kind=kind,
            measured_s=float(row["Latency"]) / tokens,
        )


def _inferencex(left_out: Counter[str]) -> Iterator[Point]:
    seen: set[tuple[object, ...]] = set()
    for row in _rows("inferencex.csv"):
        point = _inferencex_point(row, left_out)
        if point is None:
            continue
        key = (
            point.configuration,
            point.prompt_tokens,
            point.output_tokens,
            point.sequences,
            point.measured_s,
        )
        if key in seen:
            left_out["the same row again"] += 1
            continue
        seen.add(key)
        yield point


def _inferencex_point(row: dict[str, str], left_out: Counter[str]) -> Point | None:
    widths = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    tp, dp, moe_tp, ep = (max(1, int(row[key] or 1)) for key in widths)
    model, chips = MODELS[row["model_path"]], tp * dp
    has_experts = hardware.models()[model].experts > 0
    if chips > NODE_CHIPS or (tp > 1 and dp > 1):
        left_out["more chips than there were"] += 1
        return None
    if int(row["batch_size"]) * dp != int(row["concurrency"]):
        left_out["clients shared out among several servers"] += 1
        return None
    if has_experts and moe_tp * ep != chips:
        left_out["widths of attention and experts differ"] += 1
        return None
    # gpt-oss is released in 4 bits; an empty precision is the model's own, 16 bits.
    bits: Literal[4, 8, 16] = 4 if model == "gpt-oss-120b" or row["precision"] == "fp4" else 16
    bits = 8 if bits == 16 and row["precision"] == "fp8" else bits
    deployment = Deployment(
        chip=CHIPS[row["system"]],
        model=model,
        chips=chips,
        attention_data_parallel=dp,
        expert_parallel=ep if has_experts else 1,
        weight_bits=bits,
        dense_weight_bits=16 if bits == 4 and model in _EXPERTS_ONLY_AT_4_BITS else None,
        kv_bits=16 if bits == 16 else 8,
    )
    if not _fits(deployment, left_out):
        return None
    prompt, output = float(row["isl"]), float(row["osl"])
    if {prompt, output} <= {1024.0, 8192.0}:  # its own workloads: lengths drawn from 0.8 to 1 of these
        prompt, output = 0.9 * prompt, 0.9 * output
    return Point(
        source="inferencex",
        engine=row["backend"],
        deployment=deployment,
        prompt_tokens=prompt,
        output_tokens=output,
        sequences=int(row["concurrency"]),
        kind="clients",
        measured_s=float(row["silicon_tpot_ms"]) / 1e3,
    )
