"""What is answered to an ask: which words, how many, why they end. Pure.

The words follow from prompt, seed and place among the choices alone; the same ask is answered the same.
"""

from zlib import crc32

from mockserver import text
from mockserver.ask import Answer, Ask
from mockserver.wire_config import Wire


def answers_for(ask: Ask, *, default_output_tokens: int, wire: Wire) -> tuple[Answer, ...]:
    """All answers to an ask: prompts times choices, the choices of the first prompt first.

    An answer is as long as the ask allows, or ``default_output_tokens`` where it sets no limit; a stop
    sequence may end the text before. A call of a tool, or a text that must be JSON, is complete however short
    it is, so that no limit ended it, and no stop sequence is looked for in it.
    """
    found = []
    for place, prompt in enumerate(ask.prompts):
        tokens, said = max(1, text.count_tokens(prompt)), prompt.encode("utf-8", "surrogatepass")
        for choice in range(ask.choices):
            begun = f"{ask.seed},{place * ask.choices + choice};".encode()
            found.append(_answer(ask, crc32(said, crc32(begun)), tokens, default_output_tokens, wire))
    return tuple(found)


def _answer(ask: Ask, key: int, prompt_tokens: int, default_output_tokens: int, wire: Wire) -> Answer:
    tokens = ask.max_tokens or default_output_tokens
    thought = _reasoning_tokens(ask, tokens, wire)
    if ask.tool is not None:
        return Answer(
            key=key,
            prompt_tokens=prompt_tokens,
            output_tokens=tokens,
            reasoning_tokens=thought,
            tool=ask.tool,
            frame=ask.frame,
            finish="tool",
        )
    met = _stopped(key, thought, tokens, ask.stop) if ask.frame is None else None
    bounded = ask.frame is None and (ask.max_tokens is not None or ask.ignore_eos)
    return Answer(
        key=key,
        prompt_tokens=prompt_tokens,
        output_tokens=met[0] if met else tokens,
        reasoning_tokens=thought,
        frame=ask.frame,
        finish="stop_sequence" if met else "length" if bounded else "stop",
        stop_sequence=met[1] if met else None,
    )


def _reasoning_tokens(ask: Ask, tokens: int, wire: Wire) -> int:
    """The share of the output that is reasoning; at least one token is left for what it leads to."""
    if ask.reasoning is False:
        return 0
    thought = min(int(tokens * wire.reasoning_ratio), tokens - 1)
    limit = ask.reasoning_limit_tokens
    return thought if limit is None else min(thought, limit)


def _stopped(key: int, thought: int, tokens: int, stop: tuple[str, ...]) -> tuple[int, str] | None:
    """The number of tokens after which a stop sequence is complete, and which it is; None if none is met.

    Only text stops, not reasoning. Of several the one that is complete first counts, of those the longest.
    """
    if not stop or tokens == thought:
        return None
    said = b"".join(text.spaced(key, thought, tokens - thought))[1:].decode("ascii")
    met = [(place, sequence) for sequence in stop if (place := said.find(sequence)) >= 0]
    if not met:
        return None
    place, sequence = min(met, key=lambda found: (found[0] + len(found[1]), found[0]))
    end = place + len(sequence)
    return thought + said.count(" ", 0, end) + 1, sequence
