"""Is this host too slow for its profile? A judge of lags that has hysteresis and its figures at hand. Pure.

A step that is handed out late delays what clients see by as much. While that stays small against steps, a
client measures the profile; beyond it he measures the host, and must be told.
"""

from array import array
from dataclasses import dataclass

import numpy as np

WINDOW_NS = 5_000_000_000
_FEWEST_STEPS = 20  # of fewer, one hiccup would decide
_MOST_STEPS = 1 << 17  # what a window keeps; what comes beyond is left out
_HARMLESS_NS = 2_000_000
"""What a busy event loop takes now and then; the server's own bound for the worst hundredth of its steps."""
_LATE_OF_STEP = 0.2  # a fifth of a step is what fast and slow tiers may well differ by
_LATE_STEPS_RATIO = 0.02
_LATE_STEPS = 3
_GOOD_WINDOWS = 3


@dataclass(frozen=True, slots=True)
class Late:
    """A host that is too slow, with the figures of the latest window that said so. As text: one sentence."""

    since_ns: int
    """Begin of the first window that was bad."""
    steps: int
    """Steps of the window that brought a client's token."""
    late_ratio: float
    """Share of them handed out later than a fifth of their own duration, and than 2 ms."""
    behind_ratio: float
    """Share of them handed out when the next step should have ended already."""
    lag_p50_s: float
    lag_p99_s: float
    worst_lag_s: float
    step_s: float
    """Median duration of a step."""

    def __str__(self) -> str:
        """What to say to whoever runs the server."""
        behind = f", {self.behind_ratio:.0%} a whole step behind" if self.behind_ratio >= 0.01 else ""
        return (
            f"this host is too slow for its profile: {self.late_ratio:.0%} of {self.steps} steps of "
            f"{self.step_s * 1e3:.3g} ms were handed out late{behind} (lag p50 {self.lag_p50_s * 1e3:.3g}, "
            f"p99 {self.lag_p99_s * 1e3:.3g} ms, worst {self.worst_lag_s * 1e3:.3g} ms); "
            f"clients see longer latencies than the profile's"
        )


class Lateness:
    """Takes every step that brought a client's token, and gives a verdict whenever asked.

    One bad window of five seconds makes the host late; three good ones in a row make it good again. A window
    is bad if more than 2 % of its steps were late, and three at least. Time without steps changes nothing.
    """

    def __init__(self, start_ns: int = 0) -> None:
        self._lags_ns, self._steps_ns = array("q"), array("q")
        self._from_ns = start_ns
        self._good = 0
        self._late: Late | None = None

    def add(self, lag_ns: int, step_ns: int) -> None:
        """Note how late a step was handed out and how long it took."""
        if len(self._lags_ns) < _MOST_STEPS:
            self._lags_ns.append(lag_ns)
            self._steps_ns.append(step_ns)

    def verdict(self, now_ns: int) -> Late | None:
        """None while the host keeps up. To be asked about once a second; costs nothing within a window."""
        if now_ns - self._from_ns >= WINDOW_NS and len(self._lags_ns) >= _FEWEST_STEPS:
            self._judge(self._window())
            self._lags_ns, self._steps_ns, self._from_ns = array("q"), array("q"), now_ns
        return self._late

    def _window(self) -> Late:
        lags, steps = np.array(self._lags_ns), np.array(self._steps_ns)
        p50, p99, worst = np.quantile(lags, (0.5, 0.99, 1.0)) / 1e9
        return Late(
            since_ns=self._from_ns if self._late is None else self._late.since_ns,
            steps=len(lags),
            late_ratio=float(np.mean((lags > _HARMLESS_NS) & (lags > _LATE_OF_STEP * steps))),
            behind_ratio=float(np.mean((lags > _HARMLESS_NS) & (lags > steps))),
            lag_p50_s=float(p50),
            lag_p99_s=float(p99),
            worst_lag_s=float(worst),
            step_s=float(np.median(steps)) / 1e9,
        )

    def _judge(self, window: Late) -> None:
        if window.late_ratio > max(_LATE_STEPS_RATIO, (_LATE_STEPS - 0.5) / window.steps):
            self._late, self._good = window, 0
            return
        self._good += 1
        if self._good >= _GOOD_WINDOWS:
            self._late = None
