"""The dashboard *Tier comparison* answers whether a tier changes decode, prefill, or both."""

from grafana.panels import Panel, Query, Row
from grafana.promql import ASKED, MODEL, TARGET, quantile, rate, ratio_of_medians, ratio_of_spreads

TOKENS_PER_S = "suffix: tok/s"  # Grafana has no unit of tokens per second
TIMES = "suffix: ×"


def rows() -> list[Row]:
    """The dashboard's rows, the answer first and its evidence below."""
    return [_verdict(), _prefill(), _decode(), _traffic(), _health()]


def _verdict() -> Row:
    asked = f"increase(tierscope_requests_total{{{ASKED}}}[$__range])"
    failed = f'increase(tierscope_requests_total{{{ASKED}, outcome!="ok"}}[$__range])'
    run = f"max by (run_id, plan, stamp_source) (last_over_time(tierscope_run_info{{{MODEL}}}[$__range]))"
    return Row(
        "Verdict: $compared against $baseline, over the time shown",
        (
            Panel(
                kind="stat",
                title="Decode speed, $compared ÷ $baseline",
                description=(
                    "Median output tokens per second of a request after its first token, compared "
                    "tier ÷ baseline, geometric mean over prompt classes. Well above 1: decode is "
                    "faster. Metric: tierscope_otps_tokens_per_second; warm-up stages are not in it."
                ),
                unit=TIMES,
                decimals=2,
                queries=(Query(ratio_of_medians("tierscope_otps_tokens_per_second")),),
                width=5,
                height=5,
            ),
            Panel(
                kind="stat",
                title="Prefill increment, $compared ÷ $baseline",
                description=(
                    "Median time to first token of the longest prompt class less that of the "
                    "shortest, compared tier ÷ baseline. What both classes share, as the network and "
                    "the wait for the running step, cancels. About 1: prefill is unchanged. Classes "
                    "should lie far apart; a bucket is 9 % wide. Metric: tierscope_ttft_seconds."
                ),
                unit=TIMES,
                decimals=2,
                queries=(Query(ratio_of_spreads("tierscope_ttft_seconds")),),
                width=5,
                height=5,
            ),
            Panel(
                kind="stat",
                title="Time to first token, $compared ÷ $baseline",
                description=(
                    "Median time from the request's last byte sent to its first token, compared tier "
                    "÷ baseline, geometric mean over prompt classes. Below 1 on short prompts even "
                    "when prefill is equal, because faster steps are waited for less. "
                    "Metric: tierscope_ttft_seconds."
                ),
                unit=TIMES,
                decimals=2,
                queries=(Query(ratio_of_medians("tierscope_ttft_seconds")),),
                width=5,
                height=5,
            ),
            Panel(
                kind="stat",
                title="Failed requests",
                description="Share of requests whose outcome is not ok. Metric: tierscope_requests_total.",
                unit="percentunit",
                decimals=1,
                bad_above=0.01,
                queries=(Query(f"(sum({failed}) or vector(0)) / sum({asked})"),),
                width=3,
                height=5,
            ),
            Panel(
                kind="stat",
                title="Runs",
                description=(
                    "Runs seen in the time shown, their plan, and who stamped the tokens: kernel "
                    "stamps do not depend on a busy client. Metric: tierscope_run_info."
                ),
                unit="none",
                text="name",
                queries=(Query(run, "{{run_id}} · plan {{plan}} · {{stamp_source}} stamps"),),
                width=6,
                height=5,
            ),
        ),
    )


def _prefill() -> Row:
    metric = "tierscope_ttft_seconds"
    by_class = "requested_tier, prompt_class"
    legend = "{{requested_tier}} {{prompt_class}}"
    return Row(
        "Prefill",
        (
            Panel(
                kind="timeseries",
                title="Time to first token by tier",
                description=(
                    f"Median and 95th percentile, from the last request byte sent. Metric: {metric}."
                ),
                unit="s",
                queries=_quantiles(metric, "requested_tier", "{{requested_tier}}", (0.5, 0.95)),
            ),
            Panel(
                kind="timeseries",
                title="Time to first token by prompt class, median",
                description=(
                    "One line for each tier and prompt length in tokens; equal lines of two tiers "
                    f"mean equal prefill. Metric: {metric}."
                ),
                unit="s",
                queries=_quantiles(metric, by_class, legend, (0.5,)),
            ),
            Panel(
                kind="timeseries",
                title="Time to first token by prompt class, 95th percentile",
                description=f"The tail is mostly waiting for a place in the batch. Metric: {metric}.",
                unit="s",
                queries=_quantiles(metric, by_class, legend, (0.95,)),
            ),
        ),
    )


def _decode() -> Row:
    itl = f"sum by (le) (increase(tierscope_itl_seconds_bucket{{{ASKED}}}[$__rate_interval]))"
    return Row(
        "Decode",
        (
            Panel(
                kind="heatmap",
                title="Inter-token latency, $tier",
                description=(
                    "Gaps between tokens: the main band is the step time, what lies above it are "
                    "steps that carried somebody's prompt. Metric: tierscope_itl_seconds."
                ),
                unit="s",
                queries=(Query(itl, "{{le}}"),),
                width=12,
                height=9,
                repeat="tier",
            ),
            Panel(
                kind="timeseries",
                title="Output speed by tier",
                description=(
                    "Output tokens per second of a request after its first token: slowest tenth, "
                    "median, fastest tenth. Metric: tierscope_otps_tokens_per_second."
                ),
                unit=TOKENS_PER_S,
                queries=_quantiles(
                    "tierscope_otps_tokens_per_second",
                    "requested_tier",
                    "{{requested_tier}}",
                    (0.1, 0.5, 0.9),
                ),
                width=12,
            ),
            Panel(
                kind="timeseries",
                title="Time per output token by tier",
                description=(
                    "Mean gap of a request after its first token, median and 95th percentile over "
                    "requests. Metric: tierscope_tpot_seconds."
                ),
                unit="s",
                queries=_quantiles(
                    "tierscope_tpot_seconds", "requested_tier", "{{requested_tier}}", (0.5, 0.95)
                ),
                width=12,
            ),
        ),
    )


def _traffic() -> Row:
    asked = f"increase(tierscope_requests_total{{{ASKED}}}[$__range])"
    matrix = f"sum by (requested_tier, served_tier) ({asked})"
    in_flight = f'sum by (requested_tier) (tierscope_requests_in_flight{{{TARGET}, requested_tier=~"$tier"}})'
    return Row(
        "Traffic",
        (
            Panel(
                kind="timeseries",
                title="Requests ended, by outcome",
                description="Requests that ended, per second. Metric: tierscope_requests_total.",
                unit="reqps",
                stacked=True,
                queries=(Query(rate("tierscope_requests_total", "outcome"), "{{outcome}}"),),
                width=6,
            ),
            Panel(
                kind="timeseries",
                title="Requests in flight",
                description="Sent and not ended yet. Metric: tierscope_requests_in_flight.",
                unit="short",
                stacked=True,
                queries=(Query(in_flight, "{{requested_tier}}"),),
                width=6,
            ),
            Panel(
                kind="timeseries",
                title="Output tokens",
                description=(
                    "Tokens per second over all requests of a tier. Metric: tierscope_output_tokens_total."
                ),
                unit=TOKENS_PER_S,
                stacked=True,
                queries=(
                    Query(rate("tierscope_output_tokens_total", "requested_tier"), "{{requested_tier}}"),
                ),
                width=6,
            ),
            Panel(
                kind="table",
                title="Requested tier × tier that the server says it served",
                description=(
                    "Requests over the time shown; an echo is not proof of speed. Metric: "
                    "tierscope_requests_total."
                ),
                unit="short",
                decimals=0,
                queries=(Query(matrix),),
                rows_by="requested_tier",
                columns_by="served_tier",
                width=6,
            ),
        ),
    )


def _health() -> Row:
    coalesced = rate("tierscope_coalesced_events_total", "requested_tier")
    tokens = rate("tierscope_output_tokens_total", "requested_tier")
    return Row(
        "Can the load generator be believed?",
        (
            Panel(
                kind="timeseries",
                title="Client CPU",
                description=(
                    "Share of one core that the load process uses; near 1 it is late with everything "
                    "but kernel stamps. Metric: tierscope_client_cpu_ratio."
                ),
                unit="percentunit",
                bad_above=0.8,
                queries=(Query(f"tierscope_client_cpu_ratio{{{TARGET}}}", "{{instance}}"),),
                height=6,
            ),
            Panel(
                kind="timeseries",
                title="Worst lateness of a request",
                description=(
                    "Largest time between when an open-loop request should have left and did. Metric: "
                    "tierscope_worst_lag_seconds."
                ),
                unit="s",
                queries=(Query(f"tierscope_worst_lag_seconds{{{TARGET}}}", "{{instance}}"),),
                height=6,
            ),
            Panel(
                kind="timeseries",
                title="Coalesced events per output token",
                description=(
                    "Events that came in one read with an earlier one, so that their stamp is only an "
                    "upper bound. Metrics: tierscope_coalesced_events_total, "
                    "tierscope_output_tokens_total."
                ),
                unit="percentunit",
                queries=(Query(f"{coalesced} / {tokens}", "{{requested_tier}}"),),
                height=6,
            ),
        ),
    )


def _quantiles(metric: str, by: str, legend: str, levels: tuple[float, ...]) -> tuple[Query, ...]:
    """One query per quantile, the level added to the legend."""
    return tuple(Query(quantile(q, metric, by), f"{legend} p{q * 100:g}") for q in levels)
