"""Which tests look at a clock: they run with nothing beside them, all others two at a time."""

from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_CLOCK = (
    "real",
    "test_end_to_end.py",
    "test_prometheus.py",
    "test_server_metrics.py",
    "test_two_clocks.py",
    "tierscope/test_demo.py",
    "tierscope/test_until_run.py",
    "loadtest/test_connection.py",
    "loadtest/test_departures.py",
    "loadtest/test_health.py",
    "loadtest/test_locust_run.py",
    "loadtest/test_pacing.py",
    "loadtest/test_scribe.py",
    "loadtest/test_traffic.py",
    "loadtest/test_transport.py",
    "mockserver/test_timer.py",
)


def pytest_configure() -> None:
    """Refuse a list that names what is no longer there."""
    if gone := [path for path in _CLOCK if not (_HERE / path).exists()]:
        raise pytest.UsageError(f"tests/conftest.py names {', '.join(gone)}: no such tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    paths = tuple(_HERE / path for path in _CLOCK)
    for item in items:
        if any(item.path.is_relative_to(path) for path in paths):
            item.add_marker(pytest.mark.clock)
