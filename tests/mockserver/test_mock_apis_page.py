"""What docs/mock-apis.md shows is what the server reads and writes."""

import re
from pathlib import Path

import pytest

from mockserver.app import DIALECTS
from mockserver.wire_config import Wire
from tests.mockserver.messages_in_memory import VERSION, placed, streamed

PAGE = (Path(__file__).parents[2] / "docs" / "mock-apis.md").read_text("utf-8")
REQUESTS = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("path", "request_json"), [*zip(DIALECTS, REQUESTS, strict=True)])
def test_each_request_shown_is_one_that_a_strict_server_takes(path: str, request_json: str) -> None:
    ask = DIALECTS[path].parse(request_json.encode(), VERSION, Wire(refuse_unknown=True))
    assert (ask.model, ask.stream) == ("mock", True)


def test_the_stream_shown_is_the_one_that_is_written() -> None:
    ask = DIALECTS["/v1/messages"].parse(REQUESTS[3].encode(), VERSION, Wire())
    one = placed(ask, echoed_service_tier="default", echoed_speed="fast")
    shown = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    assert shown == [b"".join(streamed(one)).decode().strip()]


def test_every_path_is_told() -> None:
    assert [path for path in DIALECTS if f"`POST {path}`" not in PAGE] == []
