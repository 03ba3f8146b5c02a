"""Files that a plan names, under Locust: found from the plan's folder, and what is noticed of them kept."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadtest.command import locust_argv
from loadtest.plan import Target
from tests.loadtest.locust_runs import Ended, Started

PLAN = """
name = "p"
[workload]
prompts = {{ file = "p.jsonl" }}
output_tokens = 3
[[stages]]
name = "first"
requests = {first}
arrivals = {{ kind = "closed", streams = 2 }}
[[stages]]
name = "second"
requests = 4
arrivals = {{ kind = "constant", rate_per_s = 20.0 }}
"""


@pytest.fixture
def run_prompts(server: Any, tmp_path: Path) -> Callable[..., Ended]:
    """Run the plan on five prompts, from another folder than the plan's."""

    def run(*, first: int, workers: int, prompts: int = 5) -> Ended:
        (tmp_path / "p.jsonl").write_text("".join(f'{{"prompt": "number {k}"}}\n' for k in range(prompts)))
        (tmp_path / "p.toml").write_text(PLAN.format(first=first))
        target = Target(url=server.url, model="m")
        argv = locust_argv(str(tmp_path / "p.toml"), target=target, out=tmp_path / "run", workers=workers)
        started = Started(argv, tmp_path / "run")
        try:
            return started.end()
        finally:
            started.process.kill()
            started.process.communicate()

    return run


@pytest.mark.parametrize("workers", [0, 2])
def test_each_prompt_of_a_file_is_asked_once_before_any_is_asked_again(
    run_prompts: Callable[..., Ended], server: Any, workers: int
) -> None:
    ended = run_prompts(first=4, workers=workers)
    assert ended.code == 0
    asked = Counter(body["messages"][0]["content"] for _, body in server.requests)
    assert asked == {"number 0": 2, "number 1": 2, "number 2": 2, "number 3": 1, "number 4": 1}
    (caution,) = ended.run().info.prompt_cautions
    assert caution.endswith("its 5 prompts were used more than once; a prefix cache may have known them")
    assert any(caution in line for line in ended.lines)


def test_prompts_that_suffice_are_no_reason_for_a_caution(
    run_prompts: Callable[..., Ended], server: Any
) -> None:
    ended = run_prompts(first=1, workers=0)
    assert ended.code == 0
    assert len({body["messages"][0]["content"] for _, body in server.requests}) == 5
    assert ended.run().info.prompt_cautions == []


def test_a_file_that_cannot_be_used_is_one_line_before_anything_is_sent(
    run_prompts: Callable[..., Ended], server: Any
) -> None:
    ended = run_prompts(first=1, workers=0, prompts=0)
    assert ended.code == 2
    assert any(line.endswith("p.jsonl: holds no prompt") for line in ended.lines)
    assert server.requests == []
