"""The law against 6,250 published measurements: the committed table is the code's, and says what it says."""

from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bench import fidelity, fidelity_figures, fidelity_law, fidelity_points, fidelity_tables
from bench.fidelity_figures import Judged
from mockserver import roofline
from mockserver.engine import Engine, Job, Limits
from mockserver.hardware import Deployment

HOT = Deployment(chip="H100", chips=4, model="Llama-3.1-70B", weight_bits=8)
SPARSE = Deployment(chip="B200", chips=8, model="DeepSeek-V3", weight_bits=8)


@cache
def judged() -> tuple[list[Judged], Counter[str]]:
    return fidelity_figures.judge()


def test_the_committed_tables_are_what_the_law_says_today() -> None:
    points, left_out = judged()
    text = fidelity.DOCUMENT.read_text(encoding="utf-8")
    assert fidelity.filled(text, fidelity_tables.sections(points, left_out)) == text


def test_default_efficiencies_and_one_measured_point_reach_what_was_aimed_at() -> None:
    """30 % over all rows with nothing fitted, 12 % with one point of each configuration."""
    many = [one for one in judged()[0] if one.point.kind != "one sequence"]
    assert len(many) > 4500
    plain = fidelity_figures.errors(one.error for one in many)
    textbook = fidelity_figures.errors(one.textbook_error for one in many)
    calibrated = fidelity_figures.errors(one.error for one in fidelity_figures.calibrate(many))
    assert plain.median < 0.30 < 2 * plain.median < textbook.median
    assert calibrated.median < 0.12
    assert calibrated.count > 4000


def test_a_point_of_calibration_is_chosen_without_looking_at_what_was_measured() -> None:
    groups: dict[object, list[Judged]] = defaultdict(list)
    for one in judged()[0]:
        groups[one.point.configuration].append(one)
    rng = np.random.default_rng(3)
    for members in groups.values():
        chosen = fidelity_figures.middle(members)
        other = [
            replace(
                one, point=replace(one.point, measured_s=one.point.measured_s * float(rng.uniform(0.1, 9)))
            )
            for one in members
        ]
        assert members.index(chosen) == other.index(fidelity_figures.middle(other))


def test_calibration_never_judges_the_point_it_was_made_from() -> None:
    one = judged()[0][0]
    members = [
        replace(one, point=replace(one.point, sequences=batch, measured_s=2.0 * batch), law_s=float(batch))
        for batch in (1, 2, 3, 4)
    ]
    tested = fidelity_figures.calibrate(members)
    assert [calibrated.judged.point.sequences for calibrated in tested] == [1, 2, 4]
    assert all(calibrated.error == pytest.approx(0) for calibrated in tested)
    assert fidelity_figures.calibrate(members[:2]) == []


def limits(law: roofline.Law) -> Limits:
    return Limits(
        max_batch=4096,
        step_tokens=4096 + fidelity_law.CHUNK_TOKENS,
        prefill_tokens=fidelity_law.CHUNK_TOKENS,
        kv_tokens=roofline.kv_capacity_tokens(law),
    )


@pytest.mark.parametrize(
    ("deployment", "clients", "prompt", "output"),
    [(HOT, 16, 2048, 256), (HOT, 32, 1024, 512), (SPARSE, 32, 1024, 512), (SPARSE, 4, 4096, 256)],
)
def test_clients_that_ask_again_see_from_the_closed_form_what_the_engine_gives_them(
    deployment: Deployment, clients: int, prompt: int, output: int
) -> None:
    law, rng = roofline.law(deployment), np.random.default_rng(4)
    engine, asked = Engine(roofline.step_function(law), limits(law)), 0
    took_s: list[float] = []

    def ask(now_ns: int) -> None:
        nonlocal asked
        lengths = rng.uniform(0.8, 1.2, 2) * (prompt, output)
        engine.submit(Job(asked, round(lengths[0]), round(lengths[1])), now_ns)
        asked += 1

    for _ in range(clients):
        ask(0)
    while len(took_s) < 5 * clients and (wakeup_ns := engine.wakeup_ns()) is not None:
        for step in engine.advance(wakeup_ns):
            for done in step.finished:
                took_s.append((done.ended_ns - done.first_token_ns) / (done.job.output_tokens - 1) / 1e9)
                ask(step.ended_ns)
    said = fidelity_law.closed_loop_s(fidelity_law.server(deployment), clients, prompt, output)
    assert said == pytest.approx(np.mean(took_s[clients:]), rel=0.05)


@pytest.mark.parametrize(("batch", "tokens"), [(1, 256), (16, 512), (64, 128)])
def test_a_batch_that_starts_together_takes_from_the_closed_form_what_it_takes_the_engine(
    batch: int, tokens: int
) -> None:
    law = roofline.law(HOT)
    engine = Engine(roofline.step_function(law), limits(law))
    for number in range(batch):
        engine.submit(Job(number, tokens, tokens), 0)
    ended_ns = 0
    while (wakeup_ns := engine.wakeup_ns()) is not None:
        ended_ns = max(ended_ns, *(step.ended_ns for step in engine.advance(wakeup_ns)), 0)
    # The engine lets the first prompts decode beside the last ones; the closed form has them wait.
    said = fidelity_law.waves_s(fidelity_law.server(HOT), batch, tokens)
    assert said == pytest.approx(ended_ns / 1e9, rel=0.02)


def test_what_does_not_fit_the_memory_takes_its_turn() -> None:
    whole = fidelity_law.server(HOT)
    narrow = replace(whole, kv_tokens=8 * 2 * 512.0)
    assert fidelity_law.waves_s(narrow, 24, 512) == pytest.approx(3 * fidelity_law.waves_s(whole, 8, 512))


def test_the_textbook_is_the_larger_of_reading_and_computing_at_the_peaks() -> None:
    step = fidelity_law.textbook(Deployment(chip="H100", model="Llama-3.1-8B")).step
    assert step(1, 0, 0, 0, 0) == pytest.approx(2 * 8.03e9 / 3.35e12)
    pairs = 8192**2 / 2
    flops = 2 * 8.03e9 * 8192 + 32 * 4 * 32 * 128 * pairs
    assert step(0, 0, 8192, 0, pairs) == pytest.approx(flops / 989e12)


def test_repeated_rows_of_deepseek_contradict_each_other_as_the_document_says() -> None:
    same: dict[object, list[float]] = defaultdict(list)
    for one in judged()[0]:
        point = one.point
        if point.deployment.model == "DeepSeek-V3":
            key = point.configuration, point.prompt_tokens, point.output_tokens, point.sequences
            same[key].append(point.measured_s)
    spans = [max(values) / min(values) for values in same.values() if len(values) > 1]
    assert len(spans) == 39
    assert sum(span > 1.25 for span in spans) == 30
    assert max(spans) == pytest.approx(2.3, abs=0.05)
    text = fidelity.DOCUMENT.read_text(encoding="utf-8")
    assert (
        "Of 39 cases that\n  it has more than once 30 differ by more than a quarter, up to 2.3 times" in text
    )


def test_a_document_without_the_place_for_a_table_is_refused() -> None:
    for broken in ("", "<!-- a -->\n", "<!-- a -->\n<!-- end -->\n<!-- a -->\n<!-- end -->\n"):
        with pytest.raises(ValueError, match="<!-- a -->"):
            fidelity.filled(broken, {"a": "table"})
    assert (
        fidelity.filled("<!-- a -->\nold\n<!-- end -->\n", {"a": "new"}) == "<!-- a -->\nnew\n<!-- end -->\n"
    )


def test_every_excerpt_says_where_it_comes_from() -> None:
    said = (fidelity_points.FOLDER / "SOURCE.md").read_text(encoding="utf-8")
    for path in fidelity_points.FOLDER.glob("*.csv"):
        assert f"`{path.name}`" in said
