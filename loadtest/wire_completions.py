"""OpenAI-compatible completions: request bodies out. Pure.

The older API, which many engines still serve: the prompt is one text, and no chat template is put around it.
Its answers are read by ``loadtest.wire_openai``.
"""

from collections.abc import Sequence

import msgspec

from loadtest.body import with_tier
from loadtest.plan import Plan
from loadtest.wire_openai import how
from loadtest.workload import Message, Request

PATH = "/v1/completions"


def body(plan: Plan, request: Request, *, model: str, messages: Sequence[Message]) -> bytes:
    """The body of one request: the texts of all messages, a line break between two."""
    prompt = "\n".join(message.text for message in messages)
    fields = {"model": model, "prompt": prompt} | how(plan, request, length="max_tokens")
    return msgspec.json.encode(with_tier(fields, request))
