"""What ``tierscope report`` may be told, and what it does with it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tierscope.cli import main
from tierscope.simulate import simulate_run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    simulate_run("ab", profile="fast-tier", seed=1, out=folder)
    return folder


@pytest.fixture(scope="module")
def reported(recorded: Path) -> Any:
    """The report as JSON, made with some options; the same options are asked once."""

    @cache
    def report(*options: str) -> Any:
        file = recorded.parent / "r.json"
        page = recorded.parent / "r.html"
        assert main(["report", str(recorded), "--out", str(page), "--json", str(file), *options]) == 0
        return json.loads(file.read_text())

    return report


def batch(report: Any, method: str, tier: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        one for one in report["batch"] if one["method"] == method and one["tier"] == tier
    )
    return found


def test_margins_of_both_speeds_are_those_asked_for(reported: Any) -> None:
    plain, told = (
        reported()["verdict"],
        reported("--decode-margin", "0.2", "--prefill-margin", "0.15")["verdict"],
    )
    assert (plain["decode"]["margin_ratio"], plain["prefill"]["margin_ratio"]) == (0.05, 0.10)
    assert (told["decode"]["margin_ratio"], told["prefill"]["margin_ratio"]) == (0.2, 0.15)


def test_a_law_that_is_trusted_less_gives_a_wider_batch(reported: Any) -> None:
    def width(*options: str) -> float:
        found = batch(reported("--hardware", "fast-tier", *options), "white box", "standard")["estimate"]
        return float(found["high"] / found["low"])

    assert width("--law-error", "0.05") == pytest.approx(width(), rel=1e-9)  # a shipped profile's own
    assert width("--law-error", "0.2") > 1.3 * width()


def test_profit_margins_bound_the_priced_batch_ratio(reported: Any) -> None:
    wide = batch(reported("--price-ratio", "2"), "two tiers and price", "fast")["estimate"]
    sure = batch(reported("--price-ratio", "2", "--profit-ratios", "1", "1"), "two tiers and price", "fast")[
        "estimate"
    ]
    assert sure["value"] == wide["value"]
    assert wide["low"] < sure["low"] < sure["value"] < sure["high"] < wide["high"]
    assert sure["high"] * 0.7**-1 == pytest.approx(wide["high"])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--decode-margin", "0.9"), "--decode-margin: 0.9 is not allowed; expected 0.01 to 0.5"),
        (("--law-error", "0"), "--law-error: 0.0 is not allowed; expected 0.01 to 2"),
        (("--profit-ratios", "1.2", "1.5"), "--profit-ratios: 1.2 1.5 is not allowed; expected 0.01 ≤ LOW"),
        (("--profit-ratios", "0.5", "nan"), "--profit-ratios: 0.5 nan is not allowed"),
        (("--profit-ratios", "0.5"), "--profit-ratios"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    recorded: Path, tmp_path: Path, options: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(recorded), "--out", str(tmp_path / "r.html"), *options]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


def test_a_sweep_that_is_none_gives_no_curve_and_says_why(reported: Any, recorded: Path) -> None:
    found = batch(reported("--calibration", str(recorded)), "calibrated sweep", "standard")
    assert not found["identified"]
    assert "too few" in found["sentence"]


def test_a_sweep_of_the_same_tier_gives_a_batch_with_its_interval(tmp_path: Path, reported: Any) -> None:
    """The shipped sweep has five batches; others were there, which a test of the option does not mind."""
    sweep = tmp_path / "sweep"
    simulate_run("sweep", profile="h100-70b", seed=2, out=sweep)
    found = batch(reported("--calibration", str(sweep)), "calibrated sweep", "standard")
    assert found["sensitivity"] is not None
    assert found["estimate"]["low"] is not None
