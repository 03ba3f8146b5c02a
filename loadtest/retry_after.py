"""How long a server's ``retry-after`` asks to wait. Pure: a date is read against the server's own."""

import email.utils
from collections.abc import Mapping


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds as told, or from the Date header to the date told; None if nothing can be read."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        return _seconds_between(headers.get("date"), value)
    return seconds if 0 <= seconds < 1e9 else None


def _seconds_between(earlier: str | None, later: str) -> float | None:
    if earlier is None:
        return None
    try:
        wait = email.utils.parsedate_to_datetime(later) - email.utils.parsedate_to_datetime(earlier)
    except (ValueError, TypeError):
        return None
    return max(0.0, wait.total_seconds())
