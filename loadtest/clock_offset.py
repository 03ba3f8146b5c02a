"""How far apart two machines' monotonic clocks are, from questions and answers. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """One question: asked and answered on the asker's clock, read in between on the other one; all in ns."""

    asked_ns: int
    read_ns: int
    answered_ns: int


def offset(answers: Sequence[Answer]) -> tuple[int, int]:
    """How many ns the asker's clock is ahead, and the most by which that can be wrong.

    The quickest answer tells most: the other clock was read somewhere between question and answer, so half of
    their distance bounds the error, however unequal the two ways are (Cristian, 1989).
    """
    best = min(answers, key=lambda answer: answer.answered_ns - answer.asked_ns)
    width_ns = best.answered_ns - best.asked_ns
    return best.asked_ns + width_ns // 2 - best.read_ns, (width_ns + 1) // 2
