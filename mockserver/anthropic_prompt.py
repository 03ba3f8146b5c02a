"""The text of a request to Anthropic's Messages API in the order in which it is cached, and its marks. Pure.

Rules for whoever edits this file:

1. A prompt is tools, then system, then messages.
2. Only text is tokens. Images and PDFs are accepted and count nothing; there is nothing here that sees.
"""

from collections.abc import Iterator, Sequence

from mockserver import text
from mockserver.anthropic_fields import (
    Block,
    CacheControl,
    Document,
    Image,
    PromptRequest,
    RedactedThinking,
    SearchResult,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from mockserver.ask import RefusedError

MOST_MARKS = 4
Piece = tuple[str, CacheControl | None]
"""Some text, and the mark at its end."""


def pieces_of(request: PromptRequest) -> list[Piece]:
    """All text of a prompt in the order in which it is cached, each piece with the mark at its end.

    Raises RefusedError (400) for too many marks, or an hour's after one of five minutes.
    """
    pieces = [*_tool_pieces(request), *_content_pieces(request.system)]
    for message in request.messages:
        pieces += _content_pieces(message.content)
    if request.cache_control is not None:  # marks the last block, whatever it is
        pieces.append(("", request.cache_control))
    marks = [mark for _, mark in pieces if mark is not None]
    if len(marks) > MOST_MARKS:
        raise RefusedError(
            400,
            f"cache_control: {len(marks)} blocks have one; expected at most {MOST_MARKS}",
            param="cache_control",
        )
    if [mark.ttl for mark in marks] != sorted((mark.ttl for mark in marks), key=("1h", "5m").index):
        raise RefusedError(
            400,
            "cache_control: a block with ttl '1h' comes after one with '5m'; expected '1h' first",
            param="ttl",
        )
    return pieces


def cacheable_tokens(pieces: list[Piece]) -> tuple[int, int]:
    """Tokens up to the last mark, and up to the last one that asks for an hour."""
    total = cacheable = for_an_hour = 0
    for piece, mark in pieces:
        total += text.count_tokens(piece)
        if mark is not None:
            cacheable = total
            if mark.ttl == "1h":
                for_an_hour = total
    return cacheable, for_an_hour


def _tool_pieces(request: PromptRequest) -> Iterator[Piece]:
    for tool in request.tools or ():
        schema = bytes(tool.input_schema).decode()
        yield f"{tool.name}\n{tool.description or ''}\n{schema}", tool.cache_control


def _content_pieces(content: str | Sequence[Block] | None) -> Iterator[Piece]:
    if isinstance(content, str):
        yield content, None
        return
    for block in content or ():
        match block:
            case Text():
                yield block.text, block.cache_control
            case Thinking():
                yield block.thinking, None
            case ToolUse():
                yield f"{block.name}\n{bytes(block.input).decode()}", block.cache_control
            case ToolResult():
                yield from _content_pieces(block.content)
                yield "", block.cache_control
            case SearchResult():
                yield f"{block.source}\n{block.title}", None
                yield from _content_pieces(block.content)
                yield "", block.cache_control
            case Document():
                yield f"{block.title or ''}\n{block.context or ''}", None
                yield block.source.data if block.source.type == "text" else "", None
                yield from _content_pieces(block.source.content)
                yield "", block.cache_control
            case Image():
                yield "", block.cache_control
            case RedactedThinking():
                pass
