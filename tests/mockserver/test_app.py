"""The HTTP server, spoken to over loopback with another HTTP implementation's client, and with raw bytes."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request
from prometheus_client.parser import text_string_to_metric_families

from mockserver import app, config
from mockserver.app import Server
from mockserver.config import ServerConfig
from tierscope.errors import BadInputError

CONFIG = config.load("fast-tier")
CHAT = "/v1/chat/completions"
Client = TestClient[Any, Any]


def ask(words: int = 3, **fields: Any) -> dict[str, Any]:
    content = " ".join(["word"] * words)
    return {"model": "mock", "messages": [{"role": "user", "content": content}], "max_tokens": 5, **fields}


def with_client(body: Callable[[Client], Awaitable[None]], server_config: ServerConfig = CONFIG) -> None:
    """Run ``body`` with a client of a fresh server on a free port of loopback."""

    async def main() -> None:
        server = TestServer(Server(server_config).application())
        async with TestClient(server) as client:
            await body(client)

    asyncio.run(main())


async def samples(client: Client) -> dict[tuple[str, str], float]:
    """Values of /metrics by sample name and tier; of several, the sum."""
    exposition = await (await client.get("/metrics")).text()
    values: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            key = (sample.name, sample.labels.get("tier", ""))
            values[key] = values.get(key, 0.0) + sample.value
    return values


def test_a_stream_brings_a_role_then_tokens_then_usage_then_the_end() -> None:
    async def body(client: Client) -> None:
        options = {"include_usage": True}
        response = await client.post(
            CHAT, json=ask(9, stream=True, stream_options=options, service_tier="fast")
        )
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        assert response.headers["X-Request-Id"].startswith("chatcmpl-")
        events = [line[6:] for line in (await response.text()).splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        chunks = [json.loads(event) for event in events[:-1]]
        contents = [c["choices"][0]["delta"].get("content") for c in chunks if c["choices"]]
        assert contents[0] == ""
        assert all(contents[1:6])
        assert chunks[-1]["usage"]["prompt_tokens"] == 9
        assert chunks[-1]["usage"]["completion_tokens"] == 5
        assert {chunk["service_tier"] for chunk in chunks} == {"priority"}

    with_client(body)


def test_a_connection_serves_one_stream_after_the_other() -> None:
    async def body(client: Client) -> None:
        for _ in range(3):
            response = await client.post(CHAT, json=ask(stream=True))
            assert (await response.text()).endswith("data: [DONE]\n\n")
        assert (await client.post(CHAT, json=ask())).status == 200

    with_client(body)


def test_streams_side_by_side_do_not_mix() -> None:
    async def body(client: Client) -> None:
        async def one(number: int) -> tuple[str, str]:
            response = await client.post(CHAT, json=ask(50, stream=True, max_tokens=10 + number))
            lines = (await response.text()).splitlines()
            chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
            said = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
            assert len({chunk["id"] for chunk in chunks}) == 1
            assert len(said.split()) == 10 + number
            return chunks[0]["id"], response.headers["X-Request-Id"]

        ids = await asyncio.gather(*(one(number) for number in range(20)))
        assert len(set(ids)) == 20
        assert all(in_body == in_header for in_body, in_header in ids)

    with_client(body)


def test_raw_bytes_are_chunked_as_http_wants_them_and_old_clients_get_none() -> None:
    async def body(client: Client) -> None:
        sent = json.dumps(ask(stream=True)).encode()
        for version, chunked in (("1.1", True), ("1.0", False)):
            reader, writer = await asyncio.open_connection(client.host, client.port)
            fields = f"Host: x\r\nConnection: close\r\nContent-Length: {len(sent)}\r\n\r\n"
            writer.write(f"POST {CHAT} HTTP/{version}\r\n{fields}".encode() + sent)
            answer = await reader.read()
            writer.close()
            head_bytes, _, rest = answer.partition(b"\r\n\r\n")
            assert (b"transfer-encoding: chunked" in head_bytes.lower()) is chunked
            assert unchunked(rest) if chunked else rest.startswith(b"data: {")
            assert (unchunked(rest) if chunked else rest).endswith(b"data: [DONE]\n\n")

    with_client(body)


def unchunked(data: bytes) -> bytes:
    """Chunked transfer coding by RFC 9112 §7.1, without extensions or trailers."""
    whole = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        count = int(size, 16)
        whole += data[:count]
        assert data[count : count + 2] == b"\r\n"
        data = data[count + 2 :]
        if count == 0:
            assert data == b""
            return whole


def test_whole_answers_models_and_health() -> None:
    async def body(client: Client) -> None:
        answer = await (await client.post(CHAT, json=ask(4))).json()
        assert answer["usage"] == {**answer["usage"], "prompt_tokens": 4, "completion_tokens": 5}
        models = await (await client.get("/v1/models")).json()
        assert [model["id"] for model in models["data"]] == ["mock"]
        assert (await client.get("/health")).status == 200

    with_client(body)


@pytest.mark.parametrize(
    ("method", "path", "data", "status"),
    [
        ("POST", CHAT, b"{", 400),
        ("POST", CHAT, json.dumps(ask(model="x")).encode(), 404),
        ("POST", CHAT, json.dumps(ask(stream=True, max_tokens=200_000)).encode(), 400),
        ("POST", CHAT, b" " * 5000, 413),
        ("GET", CHAT, None, 405),
        ("GET", "/v2/nothing", None, 404),
    ],
)
def test_every_refusal_has_openais_shape(method: str, path: str, data: bytes | None, status: int) -> None:
    async def body(client: Client) -> None:
        response = await client.request(method, path, data=data)
        assert response.status == status
        assert response.content_type == "application/json"
        assert set((await response.json())["error"]) == {"message", "type", "param", "code"}

    with_client(body, msgspec.structs.replace(CONFIG, max_body_bytes=4096))


def test_a_client_that_hangs_up_frees_its_place() -> None:
    alone = msgspec.structs.replace(
        CONFIG, tiers=(msgspec.structs.replace(CONFIG.tiers[1], max_batch=1, target_batch=0),)
    )

    async def body(client: Client) -> None:
        async with ClientSession() as session:
            url = str(client.make_url(CHAT))
            response = await session.post(url, json=ask(stream=True, max_tokens=100_000))
            await response.content.readuntil(b"content")
            response.close()  # in the middle of a stream that would last many minutes
        answer = await asyncio.wait_for(client.post(CHAT, json=ask()), timeout=20)
        assert answer.status == 200
        told = await samples(client)
        assert told["vllm:num_requests_running", "fast"] == 0
        assert told["vllm:request_success_total", "fast"] == 2

    with_client(body, alone)


def test_metrics_tell_the_batch_that_the_profile_promises() -> None:
    async def body(client: Client) -> None:
        before = await samples(client)
        await asyncio.gather(*(client.post(CHAT, json=ask(max_tokens=40)) for _ in range(4)))
        after = await samples(client)
        for tier in CONFIG.tiers:
            steps = difference(before, after, "vllm:iteration_tokens_total_count", tier.name)
            tokens = difference(before, after, "vllm:generation_tokens_total", tier.name)
            gaps = difference(before, after, "vllm:inter_token_latency_seconds_count", tier.name)
            assert steps > 10
            assert tokens / steps == pytest.approx(tier.target_batch, rel=0.25)
            assert gaps == pytest.approx(tokens, rel=0.05)
            assert difference(before, after, "mockserver_step_seconds_count", tier.name) == steps
            assert 0 < after["vllm:kv_cache_usage_perc", tier.name] < 1
        assert after["vllm:request_success_total", "standard"] == 4
        assert after["mockserver_lag_seconds_count", "standard"] >= 40

    with_client(body)


def difference(
    before: dict[tuple[str, str], float], after: dict[tuple[str, str], float], name: str, tier: str
) -> float:
    return after[name, tier] - before[name, tier]


def test_a_port_in_use_is_refused_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            BadInputError, match=rf"--host, --port: 127\.0\.0\.1:{port} cannot be listened on: [A-Za-z ]+$"
        ):
            app.serve(CONFIG, host="127.0.0.1", port=port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("no-such-host.invalid", 0)])
def test_an_address_that_cannot_be_is_refused_in_one_line(host: str, port: int) -> None:
    with pytest.raises(BadInputError) as refused:
        app.serve(CONFIG, host=host, port=port)
    assert "\n" not in str(refused.value)
    assert str(port) in str(refused.value)


def test_a_client_that_is_gone_before_its_answer_is_no_error_of_the_server() -> None:
    async def gone(_: web.Request) -> web.StreamResponse:
        raise ConnectionResetError("Cannot write to closing transport")

    request = make_mocked_request("POST", "/v1/chat/completions")
    assert asyncio.run(app._errors_as_openai(request, gone)).status == 499
