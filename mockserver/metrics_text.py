"""Prometheus' text format (version 0.0.4), written fast enough that a scrape delays no token. Pure.

A page of two engines is some 900 lines; ``prometheus_client`` takes milliseconds for it, which everybody who
waits for a token would see.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from mockserver.histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Family:
    """What all series of one metric have in common. Names of counters end in ``_total``."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    text: str

    def head(self) -> str:
        """The two lines before its series."""
        return f"# HELP {self.name} {_escaped(self.text)}\n# TYPE {self.name} {self.kind}\n"


def labels(named: Mapping[str, str]) -> str:
    """Labels as they stand between the braces of a series."""
    return ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in named.items())


def values(family: Family, series: Iterable[tuple[str, float]]) -> str:
    """A gauge or counter: its head, and a line for each pair of labels and value."""
    return family.head() + "".join(f"{family.name}{{{told}}} {value!r}\n" for told, value in series)


def histograms(family: Family, series: Iterable[tuple[str, Histogram]]) -> str:
    """A histogram: its head, and for each pair of labels and histogram its buckets, sum and count."""
    return family.head() + "".join(
        line for told, found in series for line in _histogram(family.name, told, found)
    )


def _histogram(name: str, told: str, found: Histogram) -> Iterator[str]:
    counts = found.cumulative()
    start = f'{name}_bucket{{{told},le="'
    for bound, count in zip(found.told_bounds, counts, strict=False):
        yield f'{start}{bound}"}} {count}\n'
    yield f'{start}+Inf"}} {counts[-1]}\n'
    yield f"{name}_sum{{{told}}} {found.total!r}\n{name}_count{{{told}}} {counts[-1]}\n"


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text
