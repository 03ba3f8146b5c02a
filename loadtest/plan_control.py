"""When a run ends before its stages do, and what it does when it is told to wait. Pure types."""

from typing import Literal, get_args

import msgspec

from loadtest.quantities import Count, Dollars, Ratio

End = Literal["stages", "verdict"]
ENDS: tuple[End, ...] = get_args(End)
CONCLUSIVE = "stopped: the verdict is conclusive"
"""Why a run ended early that was asked to end at its verdict; its ``status_detail`` begins so."""


class Control(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on a whole run; each that strikes ends it in order, as complete, and says so."""

    until: End = "stages"
    """``verdict``: end as soon as the comparison of two tiers is conclusive (``tierscope run`` looks)."""
    stop_at_error_ratio: Ratio | None = None
    """End once this share of the latest ``error_window_requests`` has failed."""
    error_window_requests: Count = 100
    cost_ceiling_usd: Dollars | None = None
    """Send nothing that could take the run past this sum at the price book's prices; warm-up and calibration
    count. Several workers get equal shares, and the run ends when the first has used up its own."""
    honour_retry_after: bool = False
    """After a 429, 503 or 529 with retry-after, send that tier nothing until then. The wait is schedule and
    never latency: later requests of the tier are scheduled at its end. Each of several workers minds what it
    was told itself."""
