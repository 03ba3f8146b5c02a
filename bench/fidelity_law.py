"""What the law says a published measurement should have been, in closed form.

Symbols: B sequences, n prompt and m output tokens of each, t(…) a step of ``roofline.step_function``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from bench.fidelity_points import Point
from mockserver import roofline
from mockserver.hardware import Deployment
from mockserver.roofline import Law

CHUNK_TOKENS = 8192
"""Prompt tokens in one step (vLLM's usual max_num_batched_tokens)."""
_PANELS = 8
Step = Callable[[float, float, float, float, float], float]


@dataclass(frozen=True, slots=True)
class Server:
    """A law as what is asked of it here: a step's seconds, and room for KV in tokens."""

    step: Step
    kv_tokens: float


def server(deployment: Deployment) -> Server:
    """With the deployment's own efficiencies."""
    law = roofline.law(deployment)
    step = cast("Step", roofline.step_function(law))  # the engine counts in whole tokens, a mean need not
    return Server(step, law.kv_room_bytes / law.kv_bytes_per_token)


def textbook(deployment: Deployment) -> Server:
    """max(memory, compute) at the peaks of the data sheet, without any overhead."""
    law = roofline.law(deployment)
    slower = Peaks(law, deployment.mbu_ratio, deployment.mfu_ratio)
    return Server(slower.step, law.kv_room_bytes / law.kv_bytes_per_token)


@dataclass(frozen=True, slots=True)
class Peaks:
    """The roofline as textbooks have it."""

    law: Law
    mbu_ratio: float
    mfu_ratio: float

    def step(self, batch: float, context: float, prefill: float, cached: float, pairs: float) -> float:
        """Seconds of a step, as ``roofline.step_function``."""
        told = roofline.parts(self.law, batch, context, prefill, cached, pairs)
        return max(float(told.memory_s) * self.mbu_ratio, float(told.compute_s) * self.mfu_ratio)


def seconds_per_token(point: Point, made_by: Server) -> float:
    """What ``point.measured_s`` should have been."""
    if point.kind == "clients":
        return closed_loop_s(made_by, point.sequences, point.prompt_tokens, point.output_tokens)
    if point.kind == "one sequence":
        return one_sequence_s(made_by, point.sequences, point.prompt_tokens) / point.output_tokens
    return waves_s(made_by, point.sequences, point.prompt_tokens) / point.output_tokens


def waves_s(made_by: Server, sequences: int, tokens: float) -> float:
    """Seconds until B sequences are done that start together; those that do not fit wait for the rest."""
    at_once, left, total = max(1, int(made_by.kv_tokens // (2 * tokens))), sequences, 0.0
    while left > 0:
        batch = min(left, at_once)
        total += _prefill_s(made_by.step, batch, tokens) + _decode_s(made_by.step, batch, tokens)
        left -= batch
    return total


def _prefill_s(step: Step, batch: int, tokens: float) -> float:
    """All prompts, as many in a step as its chunk holds; the last step of it brings the first tokens."""
    together = max(1, int(CHUNK_TOKENS // tokens))
    whole, rest = divmod(batch, together)
    total = whole * step(0, 0, together * tokens, 0, together * tokens * tokens / 2)
    return total + (step(0, 0, rest * tokens, 0, rest * tokens * tokens / 2) if rest else 0.0)


def _decode_s(step: Step, batch: int, tokens: float) -> float:
    """Σ t(B, B·(n + i)) over i = 1 … n − 1, by the trapezoidal rule: t is all but linear in the context."""
    width = (tokens - 2) / _PANELS
    contexts = [tokens + 1 + width * place for place in range(_PANELS + 1)]
    steps = [step(batch, batch * context, 0, 0, 0) for context in contexts]
    return (tokens - 1) * (sum(steps) - (steps[0] + steps[-1]) / 2) / _PANELS


def one_sequence_s(made_by: Server, piece_tokens: int, tokens: float) -> float:
    """Seconds for one sequence whose prompt is read in pieces of ``piece_tokens``."""
    pieces = tokens / piece_tokens
    read = made_by.step(0, 0, piece_tokens, tokens / 2, piece_tokens * tokens / 2)
    return pieces * read + _decode_s(made_by.step, 1, tokens)


def closed_loop_s(made_by: Server, clients: int, prompt: float, output: float) -> float:
    """Mean TPOT that C clients see who ask again as soon as they are answered.

    B of them decode, the others wait for their first token: B = C·m·TPOT/(TTFT + m·TPOT) (Little). A
    sequence's step comes with the prefill of those who follow the ones that end, (B − 1)/m prompts a step:
    TPOT = t(B, B·c) + (B − 1)/m·added, c = n + m/2. Solved by damped iteration.
    """
    step, context = made_by.step, prompt + output / 2
    clients_in = min(float(clients), max(1.0, made_by.kv_tokens / (prompt + output)))
    chunk = min(prompt, CHUNK_TOKENS)
    batch, tpot = clients_in, 0.0
    for _ in range(40):
        plain = step(batch, batch * context, 0, 0, 0)
        prefill = step(batch, batch * context, chunk, (prompt - chunk) / 2, chunk * prompt / 2)
        tpot = plain + max(0.0, batch - 1) / output * (prefill - plain) * prompt / chunk
        alone = prefill * prompt / chunk
        busy = min(0.9, alone * batch / (output * tpot))
        ttft = plain / 2 + alone / (1 - busy / 2)
        decoding = clients_in * output * tpot / (ttft + output * tpot)
        if abs(decoding - batch) < 1e-4 * batch:
            break
        batch = (batch + decoding) / 2
    return tpot
