"""How long a server asked each tier to wait. Pure: the present is handed in."""

_HOLDING = (429, 503, 529)
"""Statuses whose ``retry-after`` is a hold; on others it has another meaning (a redirect's, for one)."""


class Holds:
    """Instants (ns since the run's start) before which a tier gets nothing."""

    def __init__(self, *, honoured: bool) -> None:
        self._honoured = honoured
        self._until_ns: dict[str, int] = {}

    def told(self, tier: str, status: int | None, retry_after_s: float | None, now_ns: int) -> None:
        """Take in an answer that came at ``now_ns``; a shorter wait never ends a longer one."""
        if self._honoured and status in _HOLDING and retry_after_s is not None:
            self.hold(tier, now_ns + round(retry_after_s * 1e9))

    def hold(self, tier: str, until_ns: int) -> None:
        """Send a tier nothing before ``until_ns``."""
        self._until_ns[tier] = max(until_ns, self.until_ns(tier))

    def until_ns(self, tier: str) -> int:
        """When the tier may be asked again; 0 if nothing was said."""
        return self._until_ns.get(tier, 0)
