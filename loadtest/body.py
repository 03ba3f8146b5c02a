"""What the bodies of all APIs' requests have in common: messages, and a tier's own fields. Pure."""

from collections.abc import Sequence
from typing import Any

from loadtest.workload import Message, Request


def turns(messages: Sequence[Message]) -> list[dict[str, str]]:
    """A conversation as chat APIs take it: role and content of each message."""
    return [{"role": message.role, "content": message.text} for message in messages]


def with_tier(fields: dict[str, Any], request: Request) -> dict[str, Any]:
    """Add the fields of a request's tier; they win.

    Tables are merged key by key, so that a tier can add to ``stream_options`` without losing what is there.
    """
    return _merged(fields, request.tier.body)


def _merged(present: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    made = dict(present)
    for key, value in added.items():
        before = made.get(key)
        nested = isinstance(before, dict) and isinstance(value, dict)
        made[key] = _merged(before, value) if nested else value  # type: ignore[arg-type]
    return made
