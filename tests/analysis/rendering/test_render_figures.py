"""Figures: what they draw, what they say in words, and that foreign strings stay data."""

import re
from collections.abc import Iterator
from typing import Any

import altair as alt
import jsonschema
import pytest
from msgspec import structs

from analysis import numbers
from analysis.model import Distribution, Report
from analysis.rendering import distribution, encodings, theme
from analysis.rendering.figures import figures
from analysis.rendering.page import Figure

EXPRESSIONS = {"expr", "test", "filter", "calculate", "labelExpr", "signal", "update", "href", "url", "field"}


def by_name(report: Report) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures(report)}


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Walk through every object of a spec, data rows left out."""
    if isinstance(value, dict):
        yield value
        for key, item in value.items():
            if key not in {"datasets", "values"}:
                yield from nodes(item)
    elif isinstance(value, list):
        for item in value:
            yield from nodes(item)


def data(spec: dict[str, Any], field: str) -> list[dict[str, Any]]:
    """Collect the rows that have a field, in the order of the layers that draw them."""
    named = spec.get("datasets", {})
    rows: list[dict[str, Any]] = []
    for layer in spec["layer"]:
        held = layer.get("data", spec.get("data", {}))
        rows += [row for row in held.get("values", named.get(held.get("name"), [])) if field in row]
    return rows


def test_a_comparison_is_drawn_as_verdict_prefill_gaps_and_time(ab_report: Report) -> None:
    assert [*by_name(ab_report)][:4] == ["verdict", "prefill", "itl", "timeline"]


def test_titles_state_the_finding_with_its_interval(ab_report: Report) -> None:
    drawn = by_name(ab_report)
    assert drawn["prefill"].title == "Prefill unchanged: 1.00× (0.97–1.03)"
    assert drawn["itl"].title == "Decode changed: 2.51× (2.47–2.55)"


def test_descriptions_carry_the_numbers_of_the_drawing(ab_report: Report) -> None:
    drawn = by_name(ab_report)
    assert "1.88 s at 16,384 tokens" in drawn["prefill"].description
    assert "22.4 ms on standard" in drawn["itl"].description
    assert "8.94 ms on fast" in drawn["itl"].description


def test_a_sweep_is_drawn_as_step_and_wait_against_streams(sweep_report: Report) -> None:
    drawn = by_name(sweep_report)
    active = {row["streams"] for row in data(drawn["sweep"].spec, "text")}
    asked = {row["streams"] for row in data(drawn["sweep-ttft"].spec, "text")}
    assert max(active) == 64
    assert max(asked) == 96


def test_what_has_no_data_is_not_drawn(failed_report: Report) -> None:
    assert figures(failed_report) == []


def test_one_level_is_no_sweep(sweep_report: Report) -> None:
    data_of = sweep_report.figures
    alone = structs.replace(sweep_report, figures=structs.replace(data_of, sweep=data_of.sweep[:1]))
    assert "sweep" not in by_name(alone)


def test_a_foreign_string_is_never_a_field_or_part_of_an_expression(
    nasty_report: Report, ab_report: Report
) -> None:
    for hostile, tame in zip(figures(nasty_report), figures(ab_report), strict=True):
        used, usual = (
            [node[key] for node in nodes(figure.spec) for key in sorted(EXPRESSIONS & node.keys())]
            for figure in (hostile, tame)
        )
        assert used == usual  # what is code is the same, whatever the tiers are called


def test_every_figure_is_of_the_schema_of_its_language(any_report: Report) -> None:
    check = jsonschema.Draft7Validator(alt.load_schema())
    for figure in figures(any_report):
        drawn = figure.spec | {"config": {}}  # the theme names colours by roles that the page fills in
        assert not [error.message for error in check.iter_errors(drawn)], figure.name


def test_nothing_is_loaded_from_anywhere(any_report: Report) -> None:
    for figure in figures(any_report):
        assert not [node for node in nodes(figure.spec) if {"url", "href"} & node.keys()]


def test_all_colours_are_roles_that_both_palettes_fill(any_report: Report) -> None:
    roles = re.findall(r"var\(--([\w-]+)\)", str([figure.spec for figure in figures(any_report)]))
    assert set(roles) <= theme.LIGHT.keys()
    assert not re.search(r"['\"]#[0-9a-f]{3,8}['\"]", str([figure.spec for figure in figures(any_report)]))


def test_a_log_axis_cuts_off_no_more_than_a_thousandth_on_each_side() -> None:
    edges = [1.1**k for k in range(101)]
    shares = [2.0**-k if k else 0.0 for k in range(100)]
    one = Distribution(tier="a", metric="itl", edges=edges, shares=shares)
    medians = {"a": edges[1]}
    spec = distribution.draw([one], medians, theme.looks(["a"]), unit=numbers.SECONDS, title="gap").to_dict()
    drawn = data(spec, "share")
    low, high = drawn[0]["edge"], drawn[-1]["edge"]
    kept = sum(share for share, edge in zip(shares, edges, strict=False) if low <= edge < high)
    assert kept >= 0.998 * sum(shares)
    assert high < edges[15]  # and does not drag the long empty tail along


def test_distributions_on_different_stretches_of_a_grid_share_one_axis() -> None:
    fast = Distribution(tier="fast", metric="itl", edges=[8.0, 9.0, 10.0], shares=[0.5, 0.5])
    slow = Distribution(tier="slow", metric="itl", edges=[20.0, 22.0], shares=[1.0])
    spec = distribution.draw(
        [fast, slow], {}, theme.looks(["fast", "slow"]), unit=numbers.SECONDS, title="gap"
    ).to_dict()
    columns = data(spec, "range")
    assert [(row["start"], row["end"]) for row in columns] == [(8, 9), (9, 10), (10, 20), (20, 22)]
    assert [row["share_0"] for row in columns] == ["50.0 %", "50.0 %", "0 %", "0 %"]
    assert [row["share_1"] for row in columns] == ["0 %", "0 %", "0 %", "100 %"]


@pytest.mark.parametrize("other", [{}, {"b": 0.0}, {"b": 9.0}, {"b": 0.0, "c": 9.0}])
def test_a_median_of_nothing_has_no_place_on_a_log_axis(other: dict[str, float]) -> None:
    medians = {"a": 0.0, **other}
    found = [
        Distribution(tier=tier, metric="ttft", edges=[8.0, 9.0, 10.0], shares=[0.5, 0.5]) for tier in medians
    ]
    looks = theme.looks([*medians])
    spec = distribution.draw(found, medians, looks, unit=numbers.SECONDS, title="TTFT").to_dict()
    assert {row["edge"] for row in data(spec, "text")} == {value for value in medians.values() if value > 0}


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1000.0), (8.0, 130.0), (0.7, 2.7), (15.0, 20.0), (1e-5, 1e4)]
)
def test_a_log_axis_has_a_handful_of_round_ticks_inside_of_it(low: float, high: float) -> None:
    ticks = encodings.log_ticks(low, high)
    assert 3 <= len(ticks) <= 10
    assert all(low <= tick <= high for tick in ticks)
    assert ticks == sorted(ticks)


def test_a_short_silence_does_not_break_a_line_and_a_long_one_does(ab_report: Report) -> None:
    def with_silence(slices: range) -> list[Any]:
        bins = [
            structs.replace(b, itl_p50_s=None) if round(b.start_s / b.width_s) in slices else b
            for b in ab_report.figures.timeline
        ]
        report = structs.replace(ab_report, figures=structs.replace(ab_report.figures, timeline=bins))
        rows = data(by_name(report)["timeline"].spec, "failed")
        return [row["value"] for row in rows if row["tier"] == "fast"]

    assert None not in with_silence(range(10, 12))
    assert None in with_silence(range(10, 25))
