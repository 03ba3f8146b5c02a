"""Our tables in Locust's own web UI: latencies and speeds by tier, and how the client fares.

Locust's points of extension are used as they are: two more tabs with tables, and their rows in the answer
that its page polls for.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from flask import Flask, Response, request

from loadtest.status import Quantiles, Status, shown_duration, shown_errors

TIERS, CLIENT = "tierscope-tiers", "tierscope-client"
STATUS_PATH = "/tierscope/status"
_POLLED = "/stats/requests"
_MS = 1e3  # milliseconds: Locust's own unit, for reading only
_QUANTILES = ("p50", "p95", "p99")
_COLUMNS = (
    {"key": "name", "title": "Tier"},
    {"key": "ended", "title": "# requests"},
    {"key": "failed", "title": "# failed"},
    *({"key": f"ttft_{q}", "title": f"TTFT {q} (ms)", "round": 1} for q in _QUANTILES),
    *({"key": f"itl_{q}", "title": f"ITL {q} (ms)", "round": 2} for q in _QUANTILES),
    *({"key": f"otps_{q}", "title": f"tokens/s {q}", "round": 1} for q in _QUANTILES),
)


def extend(web_ui: Any, current: Callable[[], Status | None]) -> None:
    """Add tabs and rows to Locust's ``environment.web_ui``; ``current`` says how the run stands, if it does.

    ``GET /tierscope/status`` gives the same as JSON, ``null`` before a run.
    """
    web_ui.template_args["extended_tabs"] = [
        {"title": "LLM tiers", "key": TIERS},
        {"title": "LLM client", "key": CLIENT},
    ]
    web_ui.template_args["extended_tables"] = [
        {"key": TIERS, "structure": list(_COLUMNS)},
        {
            "key": CLIENT,
            "structure": [{"key": "name", "title": "Client health"}, {"key": "value", "title": "Value"}],
        },
    ]

    def add_rows(response: Response) -> Response:
        if request.path.endswith(_POLLED) and response.is_json:
            status = current()
            found = response.get_json() | {
                "extended_stats": [
                    {"key": TIERS, "data": [] if status is None else tier_rows(status)},
                    {"key": CLIENT, "data": [] if status is None else client_rows(status)},
                ]
            }
            response.set_data(msgspec.json.encode(found))
        return response

    def tell_status() -> Response:
        return Response(msgspec.json.encode(current()), mimetype="application/json")

    app: Flask = web_ui.app
    app.after_request(add_rows)
    app.add_url_rule(STATUS_PATH, view_func=web_ui.auth_required_if_enabled(tell_status))


def tier_rows(status: Status) -> list[dict[str, Any]]:
    """One row a tier of the stage under way: counts, and quantiles in milliseconds or tokens per second."""
    return [
        {"name": tier.tier, "ended": tier.ended, "failed": tier.failed}
        | _cells("ttft", tier.ttft_s, _MS)
        | _cells("itl", tier.itl_s, _MS)
        | _cells("otps", tier.otps_per_s, 1.0)
        for tier in status.tiers
    ]


def client_rows(status: Status) -> list[dict[str, str]]:
    """What is to be known of the load generator and of the stage, one thing a row."""
    client = status.client
    rows = {
        "stage": f"{status.stage} ({status.stage_number} of {status.stages})"
        + (", warm-up" if status.warmup else ""),
        "requests in flight": str(status.in_flight),
        "requests sent per second": f"{status.started_per_s:.3g}",
        "requests ended per second": f"{status.ended_per_s:.3g}",
        "failed": shown_errors(status.errors) or "none",
        "CPU of one core": f"{client.cpu_ratio:.0%}",
        "worst schedule lag": shown_duration(client.worst_lag_s) if status.open_loop else "closed loop",
        "event loop late by, at worst": shown_duration(client.hub_late_s),
        "stamps": client.stamp_source,
        "events read together": f"{client.coalesced_ratio:.1%}",
    }
    cautions = {f"! caution {number}": text for number, text in enumerate(status.cautions, start=1)}
    return [{"name": name, "value": value} for name, value in (rows | cautions).items()]


def _cells(name: str, values: Quantiles | None, factor: float) -> dict[str, float]:
    if values is None:
        return {}
    return {f"{name}_{which}": getattr(values, which) * factor for which in _QUANTILES}
