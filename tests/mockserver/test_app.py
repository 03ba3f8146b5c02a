"""The HTTP server, spoken to over loopback with another HTTP implementation's client, and with raw bytes."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, ClientTimeout
from prometheus_client.parser import text_string_to_metric_families

from mockserver import config, serving
from mockserver.config import ServerConfig
from tests.mockserver.served import served
from tierscope.errors import BadInputError

CONFIG = config.load("fast-tier")
CHAT = "/v1/chat/completions"
ANTHROPIC = {"anthropic-version": "2023-06-01"}
APIS: dict[str, dict[str, str]] = {
    CHAT: {},
    "/v1/completions": {},
    "/v1/responses": {},
    "/v1/messages": ANTHROPIC,
}


def ask(words: int = 3, **fields: Any) -> dict[str, Any]:
    content = " ".join(["word"] * words)
    return {"model": "mock", "messages": [{"role": "user", "content": content}], "max_tokens": 5, **fields}


def ask_of(path: str, words: int = 3, **fields: Any) -> dict[str, Any]:
    """The same request in the words of any of the APIs."""
    asked, content = ask(words, **fields), " ".join(["word"] * words)
    if path == "/v1/completions":
        return {"prompt": content} | {key: value for key, value in asked.items() if key != "messages"}
    if path == "/v1/responses":
        kept = {key: value for key, value in asked.items() if key not in ("messages", "max_tokens")}
        return {"input": content, "max_output_tokens": asked["max_tokens"], **kept}
    return asked


def with_client(
    body: Callable[[ClientSession], Awaitable[None]], server_config: ServerConfig = CONFIG
) -> None:
    """Run ``body`` with a client of a fresh server."""

    async def main(url: str) -> None:
        async with ClientSession(url, timeout=ClientTimeout(60)) as client:
            await body(client)

    with served(server_config) as url:
        asyncio.run(main(url))


async def samples(client: ClientSession) -> dict[tuple[str, str], float]:
    """Values of /metrics by sample name and tier; of several, the sum."""
    exposition = await (await client.get("/metrics")).text()
    values: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            key = (sample.name, sample.labels.get("tier", ""))
            values[key] = values.get(key, 0.0) + sample.value
    return values


def test_a_stream_brings_a_role_then_tokens_then_usage_then_the_end() -> None:
    async def body(client: ClientSession) -> None:
        options = {"include_usage": True}
        response = await client.post(
            CHAT, json=ask(9, stream=True, stream_options=options, service_tier="fast")
        )
        assert response.status == 200
        assert response.content_type == "text/event-stream"
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


def test_a_connection_serves_one_answer_after_the_other_of_every_api() -> None:
    async def body(client: ClientSession) -> None:
        for path, headers in APIS.items():
            for streamed in (True, False, True):
                response = await client.post(
                    path, json=ask_of(path, stream=streamed, max_tokens=2), headers=headers
                )
                said = await response.text()
                assert response.status == 200, said
                assert said.endswith("\n\n") is streamed

    with_client(body)


def test_streams_side_by_side_do_not_mix() -> None:
    async def body(client: ClientSession) -> None:
        async def one(number: int) -> tuple[str, str]:
            response = await client.post(CHAT, json=ask(50, stream=True, max_tokens=10 + number))
            lines = (await response.text()).splitlines()
            chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
            said = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
            assert len({chunk["id"] for chunk in chunks}) == 1
            assert len(said.split()) == 10 + number
            return chunks[0]["id"].partition("-")[2], response.headers["X-Request-Id"].partition("_")[2]

        ids = await asyncio.gather(*(one(number) for number in range(20)))
        assert len(set(ids)) == 20
        assert all(in_body == in_header for in_body, in_header in ids)

    with_client(body)


def test_choices_and_prompts_are_jobs_of_their_own_whose_tokens_all_arrive() -> None:
    async def body(client: ClientSession) -> None:
        asked = {"model": "mock", "prompt": ["a b", "c d e"], "n": 2, "max_tokens": 6}
        whole = await (await client.post("/v1/completions", json=asked)).json()
        assert whole["usage"]["prompt_tokens"] == 5
        assert whole["usage"]["completion_tokens"] == 24
        response = await client.post("/v1/completions", json={**asked, "stream": True})
        lines = (await response.text()).splitlines()
        said = ["", "", "", ""]
        for line in lines:
            for choice in json.loads(line[6:])["choices"] if line.startswith("data: {") else ():
                said[choice["index"]] += choice["text"]
        assert said == [choice["text"] for choice in whole["choices"]]
        told = await samples(client)
        assert told["vllm:request_success_total", "standard"] == 8

    with_client(body)


def test_raw_bytes_are_chunked_as_http_wants_them_and_old_clients_get_none() -> None:
    with served(CONFIG) as url:
        sent = json.dumps(ask(stream=True)).encode()
        for version, chunked in (("1.1", True), ("1.0", False)):
            fields = f"Host: x\r\nConnection: close\r\nContent-Length: {len(sent)}\r\n\r\n"
            answer = talk(url, f"POST {CHAT} HTTP/{version}\r\n{fields}".encode() + sent)
            head_bytes, _, rest = answer.partition(b"\r\n\r\n")
            assert (b"transfer-encoding: chunked" in head_bytes.lower()) is chunked
            assert unchunked(rest) if chunked else rest.startswith(b"data: {")
            assert (unchunked(rest) if chunked else rest).endswith(b"data: [DONE]\n\n")


def talk(url: str, sent: bytes) -> bytes:
    """Send bytes, and read until the server closes."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(sent)
        received = b""
        while data := sock.recv(65536):
            received += data
    return received


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
    async def body(client: ClientSession) -> None:
        answer = await (await client.post(CHAT, json=ask(4))).json()
        assert answer["usage"] == {**answer["usage"], "prompt_tokens": 4, "completion_tokens": 5}
        models = await (await client.get("/v1/models")).json()
        assert [model["id"] for model in models["data"]] == ["mock"]
        assert (await (await client.get("/v1/models/mock")).json())["object"] == "model"
        theirs = await (await client.get("/v1/models", headers=ANTHROPIC)).json()
        assert [model["type"] for model in theirs["data"]] == ["model"]
        assert await (await client.get("/health")).json() == {"status": "ok"}
        head = await client.head("/health")
        assert (head.status, await head.read()) == (200, b"")
        counted = await client.post("/v1/messages/count_tokens", json=ask(7), headers=ANTHROPIC)
        assert await counted.json() == {"input_tokens": 7}

    with_client(body)


REFUSALS: list[tuple[str, str, bytes | None, int]] = [
    ("POST", CHAT, b"{", 400),
    ("POST", CHAT, json.dumps(ask(model="x")).encode(), 404),
    ("POST", CHAT, json.dumps(ask(stream=True, max_tokens=200_000)).encode(), 400),
    ("POST", CHAT, b" " * 5000, 413),
    ("GET", CHAT, None, 405),
    ("DELETE", "/v1/models", None, 405),
    ("GET", "/v2/nothing", None, 404),
    ("GET", "/v1/models/nobody", None, 404),
    ("POST", "/v1/completions", b"[]", 400),
    ("POST", "/v1/completions", b'{"model":"mock","prompt":[' + b'"a",' * 600 + b'"a"],"n":4}', 400),
    ("POST", "/v1/responses", b"{}", 400),
    ("POST", "/v1/messages", b"{", 400),
    ("POST", "/v1/messages", json.dumps(ask(model="x")).encode(), 404),
    ("POST", "/v1/messages", b" " * 5000, 413),
    ("GET", "/v1/messages", None, 405),
    ("GET", "/v1/messages/count_tokens", None, 405),
    ("POST", "/v1/messages/nothing", b"", 404),
]


def test_every_refusal_has_the_shape_of_the_api_that_was_spoken_to() -> None:
    async def body(client: ClientSession) -> None:
        for method, path, data, status in REFUSALS:
            anthropic = path.startswith("/v1/messages")
            response = await client.request(method, path, data=data, headers=ANTHROPIC if anthropic else {})
            assert (method, path, response.status) == (method, path, status)
            assert response.content_type == "application/json"
            told = await response.json()
            if anthropic:
                assert (told["type"], set(told["error"])) == ("error", {"type", "message"})
                assert told["request_id"] == response.headers.get("request-id", told["request_id"])
            else:
                assert set(told["error"]) == {"message", "type", "param", "code"}
            assert (status == 405) is ("allow" in response.headers)

    with_client(body, msgspec.structs.replace(CONFIG, max_body_bytes=4096))


@pytest.mark.parametrize("path", APIS)
def test_a_compressed_request_is_refused_and_not_taken_for_bad_json(path: str) -> None:
    async def body(client: ClientSession) -> None:
        response = await client.post(
            path, data=b"\x1f\x8b", headers={"content-encoding": "gzip", **ANTHROPIC}
        )
        assert response.status == 415
        assert "content-encoding" in (await response.json())["error"]["message"]

    with_client(body)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_hangs_up_frees_its_place(streamed: bool) -> None:
    alone = msgspec.structs.replace(
        CONFIG, tiers=(msgspec.structs.replace(CONFIG.tiers[1], max_batch=1, target_batch=0),)
    )

    async def body(client: ClientSession) -> None:
        asking = asyncio.create_task(client.post(CHAT, json=ask(stream=streamed, max_tokens=100_000)))
        if streamed:  # in the middle of a stream that would last many minutes
            response = await asking
            await response.content.readuntil(b"content")
            response.close()
        else:
            await asyncio.sleep(0.2)
            asking.cancel()
        answer = await asyncio.wait_for(client.post(CHAT, json=ask()), timeout=20)
        assert answer.status == 200
        told = await samples(client)
        assert told["vllm:num_requests_running", "fast"] == 0
        assert told["vllm:request_success_total", "fast"] == 2

    with_client(body, alone)


def test_metrics_tell_the_batch_that_the_profile_promises() -> None:
    async def body(client: ClientSession) -> None:
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
            serving.serve(CONFIG, host="127.0.0.1", port=port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("no-such-host.invalid", 0)])
def test_an_address_that_cannot_be_is_refused_in_one_line(host: str, port: int) -> None:
    with pytest.raises(BadInputError) as refused:
        serving.serve(CONFIG, host=host, port=port)
    assert "\n" not in str(refused.value)
    assert str(port) in str(refused.value)


@pytest.mark.parametrize("name", config.shipped())
def test_every_shipped_profile_serves_every_api(name: str) -> None:
    async def body(client: ClientSession) -> None:
        async def one(path: str, headers: dict[str, str]) -> None:
            asked = {**ask_of(path, max_tokens=2, stream=True), "model": loaded.model_name}
            response = await client.post(path, json=asked, headers=headers)
            said = await response.text()
            assert response.status == 200, said
            assert said.count("data: ") >= 3

        await asyncio.gather(*(one(path, headers) for path, headers in APIS.items()))

    loaded = config.load(name)
    with_client(body, msgspec.structs.replace(loaded, faults=()))
