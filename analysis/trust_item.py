"""One reason to believe the numbers, or not to, and how it is graded."""

from analysis.model import Level, TrustItem


def item(topic: str, level: Level, sentence: str) -> TrustItem:
    """One reason, as the report holds it."""
    return TrustItem(topic=topic, level=level, sentence=sentence)


def graded(value: float, caution: float, bad: float) -> Level:
    """Grade a value by the bounds from which it is a caution, and bad."""
    return "bad" if value >= bad else "caution" if value >= caution else "good"
