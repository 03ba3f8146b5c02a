"""Where requests go and what their bytes are."""

import json

import pytest

from loadtest import endpoint
from loadtest.plan import Api, Closed, Plan, Stage, Target, Tier, Workload
from loadtest.request_bytes import RequestBuilder
from loadtest.wire import WIRES
from loadtest.workload import open_source
from tierscope.errors import BadInputError

PATH = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("url", "path", "authority"),
    [
        ("http://h:8000", PATH, "h:8000"),
        ("http://h:8000/", PATH, "h:8000"),
        ("http://h:8000/v1", PATH, "h:8000"),
        ("http://h:8000/v1/", PATH, "h:8000"),
        ("http://h:8000/v1/chat/completions", PATH, "h:8000"),
        ("http://h/api/openai/v1", "/api/openai" + PATH, "h"),
        ("http://h/api", "/api" + PATH, "h"),
        ("https://h", PATH, "h"),
        ("https://h:443/v1", PATH, "h"),
        ("https://h:80", PATH, "h:80"),
        ("http://[::1]:81/v1", PATH, "[::1]:81"),
        ("http://bücher.example", PATH, "xn--bcher-kva.example"),
    ],
)
def test_a_prefix_may_be_given_or_not(url: str, path: str, authority: str) -> None:
    where = endpoint.parse(url, PATH)
    assert (where.path, where.authority) == (path, authority)
    assert where.tls == url.startswith("https")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:8000",
        "ftp://h",
        "http://",
        "http://h:x",
        "http://h:99999",
        "http://h/?a=1",
        "http://h/#f",
        "http://a b",
        "http://" + "ü" * 80 + ".x",
        "http://" + "a" * 64 + ".x",
        "http://a..b",
        "http://.a",
        "http://h:0",
        "http://h:-1",
        "http://[::1",
        "http://h/a b",
        "http://h/\r\nX: y",
        "http://h\n",
        "http://h/ä",
    ],
)
def test_what_is_no_endpoint_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(BadInputError, match=r"^url: .* is not allowed: .*expected http"):
        endpoint.parse(url, PATH)


def test_a_url_with_credentials_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadInputError) as caught:
        endpoint.parse("http://user:secret@h", PATH)
    assert "secret" not in str(caught.value)
    assert "environment" in str(caught.value)


def plan(*tiers: Tier) -> Plan:
    return Plan(
        name="p",
        tiers=tiers or (Tier(name="standard"),),
        stages=(Stage(name="s", arrivals=Closed(streams=1), requests=5),),
        workload=Workload(prompt_tokens=(16,), output_tokens=8),
    )


def builder(made: Plan, key: str = "") -> RequestBuilder:
    target = Target(url="http://h:1", model="m")
    return RequestBuilder(made, target, key=key, run_id="run")


def test_a_message_is_one_whole_http_request() -> None:
    made = plan(Tier(name="fast", body={"speed": "fast"}, headers={"X-Lane": "1"}, model="m-fast"))
    source = open_source(made)
    asked = source.request(0, 3, index=17)
    message = builder(made, "sekret").build(asked, source.says(asked))
    head, _, body = message.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert first == f"POST {PATH} HTTP/1.1"
    assert headers["Host"] == "h:1"
    assert headers["Content-Length"] == str(len(body))
    assert headers["Accept-Encoding"] == "identity"
    assert headers["Authorization"] == "Bearer sekret"
    assert headers["X-Lane"] == "1"
    assert headers["X-Client-Request-Id"] == "run-17"
    assert json.loads(body)["model"] == "m-fast"
    assert len(json.loads(body)["messages"][0]["content"].split()) == 16


@pytest.mark.parametrize("api", WIRES)
def test_each_api_has_its_path_and_its_header_for_the_key(api: Api) -> None:
    wire, made = WIRES[api], plan()
    target = Target(url="http://h:1/v1", model="m", api=api)
    source = open_source(made)
    asked = source.request(0, 0, index=0)
    message = RequestBuilder(made, target, key="k", run_id="r").build(asked, source.says(asked))
    head, _, body = message.partition(b"\r\n\r\n")
    assert head.startswith(f"POST {wire.path} HTTP/1.1\r\n".encode())
    assert all(
        f"{name}: {value}".encode() in head.split(b"\r\n") for name, value in wire.headers("k").items()
    )
    assert source.says(asked)[0].text in body.decode()


def test_each_tier_is_asked_at_its_own_host_and_path_whichever_comes_first() -> None:
    tiers = (Tier(name="a", url="http://other:2/prefix"), Tier(name="b"))
    for made in (plan(*tiers), plan(*tiers[::-1])):
        source, seen = open_source(made), {}
        for position in range(2):
            asked = source.request(0, position, index=position)
            first, host, *_ = builder(made).build(asked, source.says(asked)).decode().split("\r\n")
            seen[asked.tier.name] = first.split()[1], host
        assert seen == {"a": (f"/prefix{PATH}", "Host: other:2"), "b": (PATH, "Host: h:1")}


def test_a_header_of_a_tier_replaces_ours_whatever_its_case() -> None:
    made = plan(Tier(name="t", headers={"accept": "*/*", "USER-AGENT": "mine"}))
    source = open_source(made)
    asked = source.request(0, 0, index=0)
    lines = builder(made).build(asked, source.says(asked)).partition(b"\r\n\r\n")[0].split(b"\r\n")
    names = [line.split(b":")[0].lower() for line in lines[1:]]
    assert len(names) == len(set(names))
    assert b"accept: */*" in lines
    assert b"USER-AGENT: mine" in lines


@pytest.mark.parametrize("key", ["sk-\nx", "sk-x\n"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(BadInputError, match="API key") as caught:
        builder(plan(), key)
    assert "sk-" not in str(caught.value)
