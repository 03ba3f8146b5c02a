"""PromQL of the dashboards: who is selected, and how a quantile, a rate or a ratio of tiers is asked for."""

# Every selector names job and instance, so that a dashboard on a shared Prometheus shows one generator.
TARGET = 'job=~"$job", instance=~"$instance"'
MODEL = f'{TARGET}, model=~"$model"'
ASKED = f'{MODEL}, stage=~"$stage", requested_tier=~"$tier"'
BASELINE = f'{MODEL}, stage=~"$stage", requested_tier="$baseline"'
COMPARED = f'{MODEL}, stage=~"$stage", requested_tier="$compared"'


def quantile(q: float, metric: str, by: str, selector: str = ASKED) -> str:
    """PromQL of the ``q`` quantile of a histogram over time, one series per ``by``."""
    rate = f"rate({metric}_bucket{{{selector}}}[$__rate_interval])"
    return f"histogram_quantile({q:g}, sum by ({by}, le) ({rate}))"


def class_medians(metric: str, arm: str) -> str:
    """PromQL of a median in each prompt class over the time shown; classes without data are left out."""
    increase = f"increase({metric}_bucket{{{arm}}}[$__range])"
    return f"(histogram_quantile(0.5, sum by (prompt_class, le) ({increase})) > 0)"


def ratio_of_medians(metric: str) -> str:
    """PromQL of compared ÷ baseline: medians within each prompt class, then their geometric mean.

    Pairing by class keeps the ratio right when the tiers saw the classes in unequal numbers, and keeps each
    median away from the gap between two classes.
    """
    return f"exp(avg(ln({class_medians(metric, COMPARED)} / {class_medians(metric, BASELINE)})))"


def ratio_of_spreads(metric: str) -> str:
    """PromQL of compared ÷ baseline of the largest class median less the smallest; nothing with one class."""
    compared, baseline = (
        f"(max({medians}) - min({medians}))"
        for medians in (class_medians(metric, COMPARED), class_medians(metric, BASELINE))
    )
    return f"{compared} / ({baseline} > 0)"


def rate(metric: str, by: str, selector: str = ASKED) -> str:
    """PromQL of a counter's rate per second, summed to one series per ``by``."""
    return f"sum by ({by}) (rate({metric}{{{selector}}}[$__rate_interval]))"
