"""Reports to render: written down as values, distributions from closed forms, nothing random."""

import itertools
import math
from collections.abc import Callable, Sequence

import pytest
from msgspec import structs

from analysis.model import (
    BatchAnswer,
    Curve,
    DecodeTest,
    Distribution,
    ErrorGroup,
    Estimate,
    FigureData,
    Metric,
    PrefillFit,
    PrefillPoint,
    PrefillTest,
    QuantileRow,
    Report,
    RunSummary,
    SweepPoint,
    TierSummary,
    TimelineBin,
    TrustItem,
    Verdict,
)
from analysis.report import write

NOTHING = Estimate(value=None)
NO_FIGURES = FigureData(prefill_points=[], prefill_curves=[], distributions=[], timeline=[], sweep=[])
GRID = [0.0005 * 2 ** (k / 8) for k in range(97)]
SPEED_GRID = [2.0 * 2 ** (k / 8) for k in range(89)]
CLASSES = (128, 2048, 8192, 16384)


def near(value: float, spread: float = 0.015) -> Estimate:
    return Estimate(value=value, low=value * (1 - spread), high=value * (1 + spread))


def normal_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def lognormal_shares(edges: Sequence[float], parts: Sequence[tuple[float, float, float]]) -> list[float]:
    """Shares per bin of a mixture of (weight, median, sigma of the logarithm)."""
    return [
        sum(w * (normal_cdf(math.log(b / m) / s) - normal_cdf(math.log(a / m) / s)) for w, m, s in parts)
        for a, b in itertools.pairwise(edges)
    ]


def ttft_law_s(tokens: float) -> float:
    return 0.031 + 1.02e-4 * tokens + 6.1e-10 * tokens**2


def quantiles(metric: Metric, p50: float, sigma: float, count: int) -> QuantileRow:
    def at(z: float, spread: float) -> Estimate:
        return near(p50 * math.exp(sigma * z), spread)

    return QuantileRow(
        metric=metric,
        unit="tokens/s" if metric == "otps" else "s",
        count=count,
        mean=p50 * math.exp(sigma**2 / 2),
        p50=at(0, 0.01),
        p90=at(1.2816, 0.02),
        p95=at(1.6449, 0.03),
        p99=at(2.3263, 0.09),
    )


def tier(
    name: str, step_s: float, *, requests: int = 160, echoed: dict[str, int] | None = None
) -> TierSummary:
    return TierSummary(
        tier=name,
        requests=requests,
        outcomes={"ok": requests - 1, "stream_error": 1},
        echoed_tiers=echoed or {name: requests},
        prompt_tokens=requests * sum(CLASSES) // 4,
        output_tokens=requests * 64,
        tokens_per_delivery=1.0,
        step_s=near(step_s, 0.006),
        tokens_per_s=near(1 / step_s, 0.006),
        stalled_gap_ratio=0.031,
        quantiles=[
            quantiles("ttft", 0.48, 0.9, requests - 1),
            quantiles("ttft_from_scheduled", 0.481, 0.9, requests - 1),
            quantiles("first_text", 0.48, 0.9, requests - 1),
            quantiles("itl", step_s, 0.08, (requests - 1) * 63),
            quantiles("tpot", step_s * 1.12, 0.06, requests - 1),
            quantiles("otps", 1 / (step_s * 1.12), 0.06, requests - 1),
            quantiles("e2e", 0.48 + 64 * step_s * 1.12, 0.4, requests - 1),
            quantiles("lag", 0.00021, 0.5, requests - 1),
        ],
    )


def prefill_fit(name: str, factor: float) -> PrefillFit:
    increment = (ttft_law_s(16384) - ttft_law_s(128)) * factor
    return PrefillFit(
        tier=name,
        requests=159,
        n_low_tokens=128.0,
        n_high_tokens=16384.0,
        increment_s=near(increment, 0.012),
        rate_tokens_per_s=near(16256 / increment, 0.012),
        fixed_s=0.031,
        per_token_s=1.02e-4 * factor,
        per_token_squared_s=6.1e-10 * factor,
        queued_ratio=0.18,
        queue_mean_s=0.142,
        noise_s=0.0061,
        identified={"fixed": True, "per_token": True, "per_token_squared": True, "queue": False},
        cautions=["Queue: only 18 % of requests waited, so the mean wait is not identified."],
    )


def run_summary(**changes: object) -> RunSummary:
    base = RunSummary(
        run_id="ab-20260214-101502",
        folder="runs/ab-20260214-101502",
        plan="ab",
        seed=1,
        url="http://127.0.0.1:8000/v1",
        model="llama-3.1-70b",
        api="openai",
        status="complete",
        status_detail="",
        simulated=False,
        started_unix_s=1771064102.0,
        duration_s=61.8,
        requests=336,
        measured_requests=320,
        repeat_command="tierscope run ab --url http://127.0.0.1:8000/v1 --model llama-3.1-70b --seed 1",
        environment={"python": "3.12.8", "kernel": "6.1.0-31-amd64", "cpus": "2", "locust": "2.43.0"},
    )
    return structs.replace(base, **changes)


def distributions(steps: dict[str, float]) -> list[Distribution]:
    made = []
    for name, step_s in steps.items():
        gaps = [(0.955, step_s, 0.045), (0.045, step_s + 0.055, 0.22)]
        ttft = [(0.25, ttft_law_s(n), 0.09) for n in CLASSES]
        made += [
            Distribution(tier=name, metric="itl", edges=GRID, shares=lognormal_shares(GRID, gaps)),
            Distribution(tier=name, metric="ttft", edges=GRID, shares=lognormal_shares(GRID, ttft)),
            Distribution(
                tier=name,
                metric="otps",
                edges=SPEED_GRID,
                shares=lognormal_shares(SPEED_GRID, [(1.0, 1 / (step_s * 1.12), 0.06)]),
            ),
        ]
    return made


def timeline(steps: dict[str, float], stage: str = "compare") -> list[TimelineBin]:
    return [
        TimelineBin(
            tier=name,
            stage="warmup" if k < 3 else stage,
            start_s=2.0 * k,
            width_s=2.0,
            started=5,
            failed=1 if k == 17 and step_s > 0.01 else 0,
            in_flight=4 + 0.6 * math.sin(k / 3 + step_s),
            ttft_p50_s=0.48 + 0.2 * math.sin(k + 40 * step_s),
            itl_p50_s=None
            if k == 9 and step_s < 0.01
            else step_s * (1 + 0.03 * math.sin(1.7 * k + 99 * step_s)),
        )
        for name, step_s in steps.items()
        for k in range(31)
    ]


AB_STEPS = {"standard": 0.02243, "fast": 0.00894}


@pytest.fixture(scope="session")
def ab_report() -> Report:
    """Two tiers, everything known: the case the report is for."""
    decode = DecodeTest(
        answer="changed",
        speed_ratio=Estimate(value=2.509, low=2.468, high=2.551),
        z=88.4,
        p_value=1e-12,
        pairs=158,
        margin_ratio=0.05,
        sentence="One token takes 22.4 ms on standard and 8.94 ms on fast.",
    )
    same = PrefillTest(
        answer="unchanged",
        speed_ratio=Estimate(value=1.003, low=0.972, high=1.034),
        standard_error=0.0158,
        p_value=0.00002,
        margin_ratio=0.10,
        sentence="The interval lies inside of ±10 %, so prefill is the same for practical purposes.",
    )
    echoed = {"priority": 157, "default": 2, "–": 1}
    return Report(
        schema_version=1,
        tierscope_version="0.1.0",
        headline="fast decodes 2.51× (2.47–2.55) as fast as standard; prefill is equal, 1.00× (0.97–1.03).",
        verdict=Verdict(
            conclusion="decode changed, prefill unchanged",
            sentence="The fast tier changes decode and leaves prefill as it is: what a smaller batch does.",
            baseline_tier="standard",
            compared_tier="fast",
            decode=decode,
            prefill=same,
            more_requests_per_tier=0,
            cautions=["A smaller batch alone can make prefill look faster where chunks are small."],
        ),
        trust=[
            TrustItem(topic="time stamps", level="good", sentence="Every arrival was stamped by the kernel."),
            TrustItem(topic="load generator", level="good", sentence="It used 6 % of one core at most."),
            TrustItem(topic="failures", level="good", sentence="2 of 320 requests failed."),
            TrustItem(
                topic="served tier",
                level="caution",
                sentence="2 of 160 responses to fast say that default had served them; they are left out.",
            ),
            TrustItem(
                topic="coalescing", level="good", sentence="0.2 % of events shared a read with another."
            ),
        ],
        runs=[run_summary()],
        tiers=[
            tier("standard", AB_STEPS["standard"], echoed={"default": 160}),
            tier("fast", AB_STEPS["fast"], echoed=echoed),
        ],
        prefill=[prefill_fit("standard", 1.0), prefill_fit("fast", 0.997)],
        batch=batch_answers(),
        figures=FigureData(
            prefill_points=[
                PrefillPoint(
                    tier=name,
                    prompt_tokens=float(n),
                    count=40,
                    p10_s=ttft_law_s(n) * 0.94,
                    p50_s=ttft_law_s(n) * factor,
                    p90_s=ttft_law_s(n) * 1.12 + 0.06,
                )
                for name, factor in (("standard", 1.01), ("fast", 1.004))
                for n in CLASSES
            ],
            prefill_curves=[
                Curve(
                    name=name,
                    x=[128 + 16256 * k / 40 for k in range(41)],
                    y=[factor * ttft_law_s(128 + 16256 * k / 40) for k in range(41)],
                )
                for name, factor in (("standard", 1.0), ("fast", 0.997))
            ],
            distributions=distributions(AB_STEPS),
            timeline=timeline(AB_STEPS),
            sweep=[],
        ),
        errors=[
            ErrorGroup(
                tier=name,
                outcome="stream_error",
                status=200,
                detail="error event: engine overloaded",
                count=1,
            )
            for name in AB_STEPS
        ],
        notes=["requests-0.jsonl: line 337 is cut short and left out"],
    )


def batch_answers() -> list[BatchAnswer]:
    return [
        BatchAnswer(
            tier="standard",
            method="white box",
            quantity="batch",
            estimate=Estimate(value=118.0, low=97.0, high=141.0),
            identified=True,
            sensitivity=0.71,
            sentence="From the named hardware's step law at 22.4 ms and 6,700 tokens of context.",
        ),
        BatchAnswer(
            tier="fast",
            method="white box",
            quantity="batch",
            estimate=Estimate(value=9.0, low=1.0, high=31.0),
            identified=False,
            sensitivity=0.08,
            sentence="At this step time reading weights dominates; the batch hardly shows.",
        ),
        BatchAnswer(
            tier="fast",
            method="two tiers",
            quantity="batch ratio baseline/compared",
            estimate=Estimate(value=None, low=2.468, high=None),
            identified=True,
            sensitivity=None,
            sentence="If only the batch differs, it differs at least as much as the step time.",
        ),
        BatchAnswer(
            tier="fast",
            method="two tiers and price",
            quantity="batch share of step, compared",
            estimate=Estimate(value=0.12, low=0.08, high=0.19),
            identified=True,
            sensitivity=None,
            sentence="With a price ratio of 6.",
        ),
    ]


@pytest.fixture(scope="session")
def failed_report() -> Report:
    """Nothing answered: no number at all."""
    return Report(
        schema_version=1,
        tierscope_version="0.1.0",
        headline="No request succeeded: all 40 were refused a connection.",
        verdict=Verdict(
            conclusion="inconclusive",
            sentence="Nothing was measured, so nothing can be compared.",
            baseline_tier="standard",
            compared_tier="fast",
            decode=None,
            prefill=None,
            more_requests_per_tier=None,
            cautions=[],
        ),
        trust=[TrustItem(topic="failures", level="bad", sentence="40 of 40 requests failed.")],
        runs=[
            run_summary(
                status="partial",
                status_detail="stopped by Ctrl-C after 12 s",
                duration_s=None,
                measured_requests=40,
            )
        ],
        tiers=[
            TierSummary(
                tier=name,
                requests=20,
                outcomes={"connect_error": 18, "timeout": 2},
                echoed_tiers={},
                prompt_tokens=0,
                output_tokens=0,
                tokens_per_delivery=None,
                step_s=NOTHING,
                tokens_per_s=NOTHING,
                stalled_gap_ratio=None,
                quantiles=[],
            )
            for name in ("standard", "fast")
        ],
        prefill=[],
        batch=[],
        figures=NO_FIGURES,
        errors=[
            ErrorGroup(
                tier=name,
                outcome="connect_error",
                status=None,
                detail="[Errno 111] Connection refused",
                count=18,
            )
            for name in ("standard", "fast")
        ],
        notes=[],
    )


@pytest.fixture(scope="session")
def single_report() -> Report:
    """One request: quantiles without intervals, nothing fitted, one point in each figure."""
    bare = [
        structs.replace(
            row, count=1, p50=Estimate(value=row.p50.value), p90=NOTHING, p95=NOTHING, p99=NOTHING
        )
        for row in tier("standard", 0.0205).quantiles
    ]
    only = structs.replace(
        tier("standard", 0.0205),
        requests=1,
        outcomes={"ok": 1},
        echoed_tiers={"–": 1},
        step_s=Estimate(value=0.0205),
        tokens_per_s=Estimate(value=48.78),
        quantiles=bare,
    )
    return Report(
        schema_version=1,
        tierscope_version="0.1.0",
        headline="One request on standard: first token after 480 ms, then one every 20.5 ms.",
        verdict=no_comparison(),
        trust=[TrustItem(topic="sample size", level="caution", sentence="One request is an anecdote.")],
        runs=[run_summary(plan="smoke", requests=1, measured_requests=1, simulated=True)],
        tiers=[only],
        prefill=[],
        batch=[],
        figures=structs.replace(
            NO_FIGURES,
            prefill_points=[
                PrefillPoint(tier="standard", prompt_tokens=64.0, count=1, p10_s=0.48, p50_s=0.48, p90_s=0.48)
            ],
            distributions=[
                Distribution(
                    tier="standard", metric="itl", edges=GRID, shares=[float(k == 42) for k in range(96)]
                )
            ],
            timeline=timeline({"standard": 0.0205})[:1],
        ),
        notes=[],
    )


def no_comparison() -> Verdict:
    return Verdict(
        conclusion="inconclusive",
        sentence="There is one tier, so there is nothing to compare.",
        baseline_tier=None,
        compared_tier=None,
        decode=None,
        prefill=None,
        more_requests_per_tier=None,
        cautions=[],
    )


@pytest.fixture(scope="session")
def sweep_report() -> Report:
    """One tier at rising numbers of streams: the step law and the largest batch."""
    levels = (1, 2, 4, 8, 16, 32, 48, 64, 96)

    def step(streams: float) -> float:
        return 0.0079 + 0.000163 * streams

    points = [
        SweepPoint(
            tier="standard",
            stage=f"c{c}",
            streams=c,
            active_streams=min(c, 64),
            step_s=near(step(min(c, 64)) * (1 + 0.01 * math.sin(c)), 0.02),
            ttft_p50_s=0.03 + 0.0004 * c + (0.9 if c > 64 else 0),
        )
        for c in levels
    ]
    steps = {"standard": step(16)}
    return Report(
        schema_version=1,
        tierscope_version="0.1.0",
        headline="Standard decodes a token in 7.9 ms + 0.163 ms per stream and takes 64 streams at once.",
        verdict=no_comparison(),
        trust=[TrustItem(topic="time stamps", level="good", sentence="Simulated: stamps are exact.")],
        runs=[run_summary(run_id=f"sweep-{k}", plan="sweep", simulated=True, seed=k) for k in (1, 2)],
        tiers=[tier("standard", step(16), requests=813)],
        prefill=[],
        batch=[
            BatchAnswer(
                tier="standard",
                method="sweep",
                quantity="max batch",
                estimate=Estimate(value=64.0, low=64.0, high=64.0),
                identified=True,
                sensitivity=0.57,
                sentence="96 streams were asked for, 64 decoded at once, and the others waited 0.9 s.",
            )
        ],
        figures=structs.replace(
            NO_FIGURES,
            distributions=distributions(steps),
            timeline=[
                structs.replace(
                    b, stage=f"c{levels[min(8, k // 3)]}", in_flight=float(levels[min(8, k // 3)])
                )
                for k, b in enumerate(timeline(steps))
            ],
            sweep=points,
            sweep_curves=[
                Curve(name="standard", x=[float(b) for b in range(1, 65)], y=[step(b) for b in range(1, 65)])
            ],
        ),
        notes=[],
    )


NASTY = (
    "</script><script>alert(1)</script>",
    "<!-- <script> ]]>",
    "a|b\n# c `code` [x](javascript:alert(1)) ![i](http://example.org/i.png)",
    "\"quoted' \\ {{ 7 * 7 }} {% raw %} & &lt;",
    "\u2028\u2029\x00\x1b[31m\ud7ff\u202e",
    "datum['x'] + __proto__.constructor",
)


@pytest.fixture(scope="session")
def nasty_report(ab_report: Report) -> Report:
    """Every free string is hostile: tier names, model, error texts, environment, notes."""
    script, comment, markup, quotes, controls, code = NASTY
    names = {"standard": quotes, "fast": script}
    figures = ab_report.figures

    def renamed(items: Sequence[object], field: str = "tier") -> list[object]:
        return [structs.replace(item, **{field: names[getattr(item, field)]}) for item in items]  # type: ignore[type-var]

    return structs.replace(
        ab_report,
        headline=f"{script} {markup}",
        verdict=structs.replace(
            ab_report.verdict,
            sentence=comment,
            baseline_tier=quotes,
            compared_tier=script,
            cautions=list(NASTY),
        ),
        trust=[TrustItem(topic=text, level="bad", sentence=text) for text in NASTY],
        runs=[
            run_summary(
                model=script,
                url=f"http://[::1]/{comment}",
                repeat_command=f"tierscope run ``` {script} {markup}",
                environment={text: text for text in NASTY},
                status_detail=controls,
            )
        ],
        tiers=[
            structs.replace(t, tier=names[t.tier], echoed_tiers=dict.fromkeys(NASTY, 1))
            for t in ab_report.tiers
        ],
        prefill=renamed(ab_report.prefill),
        batch=[structs.replace(b, tier=names[b.tier], sentence=markup) for b in ab_report.batch],
        figures=structs.replace(
            figures,
            prefill_points=renamed(figures.prefill_points),
            prefill_curves=renamed(figures.prefill_curves, "name"),
            distributions=renamed(figures.distributions),
            timeline=[
                structs.replace(b, tier=names[b.tier], stage=f"{b.stage} {code}") for b in figures.timeline
            ],
        ),
        errors=[
            ErrorGroup(tier=script, outcome="http_error", status=500, detail=text, count=1) for text in NASTY
        ],
        notes=list(NASTY),
    )


@pytest.fixture(
    params=["ab_report", "failed_report", "single_report", "sweep_report", "nasty_report"], scope="session"
)
def any_report(request: pytest.FixtureRequest) -> Report:
    """Each of the samples in turn."""
    report: Report = request.getfixturevalue(request.param)
    return report


@pytest.fixture(scope="session")
def html_of_report(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Report], str]:
    """Render a report as ``report.write`` does, each sample once."""
    path = tmp_path_factory.mktemp("html") / "report.html"
    made: dict[int, tuple[Report, str]] = {}  # holds the reports too, so that no id is used twice

    def render(report: Report) -> str:
        if id(report) not in made:
            write(report, html=path, json=None, md=None)
            made[id(report)] = (report, path.read_text(encoding="utf-8"))
        return made[id(report)][1]

    return render


@pytest.fixture(scope="session")
def any_page(any_report: Report, html_of_report: Callable[[Report], str]) -> str:
    """The HTML of each of the samples in turn."""
    return html_of_report(any_report)
