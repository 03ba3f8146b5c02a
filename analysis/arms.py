"""The tiers of a run as the arms of an experiment: which requests are whose, and which two are compared."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.deliveries import Gaps
from analysis.load import Loaded
from analysis.ragged import Bools
from analysis.table import Requests
from tierscope.errors import BadInputError

USUAL_BASELINE = "standard"


@dataclass(frozen=True, slots=True)
class Arm:
    """One tier's measured requests in order of sending.

    ``good`` are those that succeeded; ``step_gaps`` and ``token_gaps`` belong to the same rows as ``good``.
    """

    tier: str
    requests: Requests
    good: Requests
    step_gaps: Gaps
    token_gaps: Gaps

    @property
    def streamed(self) -> bool:
        """Whether any answer came in pieces; one that came whole has neither TTFT nor a speed."""
        return self.good.event_ns.size > 0

    @property
    def models(self) -> list[str]:
        """Names of the models that were asked for, sorted."""
        return sorted(set(self.requests.text("model").tolist()))


def split(loaded: Loaded, measured: Bools) -> list[Arm]:
    """One arm per tier of the plan, in its order; an arm may be empty."""
    arms = []
    for tier in loaded.infos[0].plan.tiers:
        mine = measured & loaded.requests.text_is("requested_tier", tier.name)
        good = mine & loaded.requests.text_is("outcome", "ok")
        arms.append(
            Arm(
                tier=tier.name,
                requests=loaded.requests.where(mine),
                good=loaded.requests.where(good),
                step_gaps=loaded.step_gaps.where(good),
                token_gaps=loaded.token_gaps.where(good),
            )
        )
    return arms


def choose(arms: Sequence[Arm], baseline: str | None, compared: str | None) -> tuple[Arm, Arm] | None:
    """The two arms to compare: as told, else ``standard`` or the first, and the next after it.

    None if the plan has one tier. Raises BadInputError for a tier that is not in the plan.
    """
    by_name = {arm.tier: arm for arm in arms}
    for option, name in (("baseline", baseline), ("compared", compared)):
        if name is not None and name not in by_name:
            raise BadInputError(
                f"--{option}: {name!r} is no tier of this run; its tiers: {', '.join(by_name)}"
            )
    if baseline is not None and baseline == compared:
        raise BadInputError(f"--compared: {compared!r} is the baseline; a tier is not compared with itself")
    if len(arms) < 2:
        return None
    first = baseline or next(
        name for name in (USUAL_BASELINE, *by_name) if name in by_name and name != compared
    )
    second = compared or next(name for name in by_name if name != first)
    return by_name[first], by_name[second]
