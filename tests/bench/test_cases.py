"""What the client's benchmark runs and prints."""

import re
from pathlib import Path

import pytest

from bench import cases, limits
from bench.cases import CASES, QUICK, SHOWN, Case, Figures, last_line, line
from bench.stamp_errors import Spread, StampErrors
from loadtest import plan as plans


def figures(cpu_us: float) -> Figures:
    small = Spread(2e-6, 15e-6, 3e-6)
    return Figures(
        cpu_us=cpu_us,
        raw_us=cpu_us / 1.5,
        core_ratio=0.2,
        errors=StampErrors(small, small, small, 0.0),
        coalesced_ratio=0.001,
        peak_mb=111.0,
        late_p99_s=1e-4,
        server_core_ratio=0.3,
        stamp_source="kernel",
    )


@pytest.mark.parametrize("case", [*CASES, *QUICK], ids=lambda case: case.name)
def test_every_case_is_a_plan_the_client_takes(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "bench.toml"
    file.write_text(case.plan, "utf-8")
    plan = plans.load(str(file))
    assert [stage.warmup for stage in plan.stages] == [True, False]
    assert plan.stages[1].requests == case.streams * case.waves


def test_open_and_closed_stages_are_plans_the_client_takes(tmp_path: Path) -> None:
    stages = [limits.closed(8, 80), limits.Stage("poisson", 500, 'kind = "poisson", rate_per_s = 500')]
    file = tmp_path / "bench.toml"
    file.write_text(limits.plan(stages, 4), "utf-8")
    assert [stage.requests for stage in plans.load(str(file)).stages] == [80, 500]


def test_the_last_line_is_the_figure() -> None:
    said = last_line(QUICK[0], [figures(14.0), figures(12.0), figures(13.0)])
    assert re.match(
        r"client: 13\.0 us per token, TTFT error p99 0\.0[12] ms, ITL error p50 0\.002 ms, ", said
    )
    assert said.endswith("0.10% coalesced, 500 streams")


def test_a_row_has_the_median_of_its_repeats_and_their_range() -> None:
    row, spread = line(CASES[0], [figures(14.0), figures(12.0), figures(13.0)]).splitlines()
    assert re.search(r" 13\.0 +1\.50 ", row)
    assert "3 runs: µs/token 12.0–14.0, × raw 1.50–1.50" in spread
    assert len(line(CASES[0], [figures(14.0)]).splitlines()) == 1


def test_the_case_that_is_shown_is_there_quickly_and_in_full() -> None:
    assert SHOWN in {case.name for case in CASES}
    assert SHOWN in {case.name for case in QUICK}
    assert max(len(case.name) for case in CASES) <= len(cases.HEADER.partition("CPU")[0]) - 1
