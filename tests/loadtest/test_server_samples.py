"""What servers say of themselves: pages of each, as their documentation (2026) names the metrics."""

import random
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from loadtest.scrape import parse, without_buckets
from loadtest.server_samples import SERVER_FILE, Row, Scrape, ServerSamples, encode_line, read
from loadtest.server_truth import ServerTruth, truth

S = 1_000_000_000
VLLM = """
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
vllm:num_requests_waiting{{engine="0",model_name="m"}} 2.0
vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}
vllm:generation_tokens_created{{engine="0",model_name="m"}} 1.7e+09
vllm:iteration_tokens_total_count{{engine="0",model_name="m"}} {steps}
vllm:iteration_tokens_total_bucket{{engine="0",model_name="m",le="+Inf"}} {steps}
vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} {queries}
vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {hits}
vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {drafts}
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {drafted}
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {accepted}
python_gc_objects_collected_total{{generation="0"}} 1.0
"""
SGLANG = """
sglang:num_running_reqs{{model_name="m",tp_rank="0"}} {running}
sglang:num_queue_reqs{{model_name="m",tp_rank="0"}} 0.0
sglang:prompt_tokens_total{{model_name="m"}} {prompt}
sglang:cached_tokens_total{{cache_source="device",model_name="m"}} {cached}
sglang:spec_accept_rate{{model_name="m"}} 0.75
"""
TGI = "tgi_batch_current_size {running}\ntgi_queue_size 4\n"
TRTLLM = """
trtllm_num_requests_running{{engine_type="trtllm",model_name="m"}} {running}
trtllm_num_requests_waiting{{engine_type="trtllm",model_name="m"}} 1.0
trtllm_kv_cache_reused_blocks_total{{engine_type="trtllm",model_name="m"}} {reused}
trtllm_kv_cache_missed_blocks_total{{engine_type="trtllm",model_name="m"}} {missed}
"""
LLAMACPP = """
llamacpp:requests_processing {running}
llamacpp:requests_deferred 3
llamacpp:tokens_predicted_total {tokens}
llamacpp:n_decode_total {steps}
llamacpp:predicted_tokens_seconds nan
"""


def scraped(*pages: str) -> ServerSamples:
    return ServerSamples([Scrape(at_ns=k * S, took_s=0.01, samples=parse(p)) for k, p in enumerate(pages)])


def told(samples: ServerSamples) -> ServerTruth:
    found = truth(samples)
    assert found is not None
    return found


def test_vllm_tells_batch_cache_and_speculation() -> None:
    common = {"queries": 100, "hits": 10, "drafts": 50, "drafted": 200, "accepted": 60, "steps": 40}
    before = VLLM.format(running=3, tokens=1000, **common)
    # 30 steps of 4 sequences, each one token and a draft of 4 with 3 accepted: 480 tokens
    later = {"queries": 500, "hits": 110, "drafts": 170, "drafted": 680, "accepted": 420, "steps": 70}
    found = told(scraped(before, VLLM.format(running=5, tokens=1480, **later)))
    assert found.engine == "vllm"
    assert (found.running_mean, found.running_max) == (4, 5)
    assert (found.waiting_mean, found.waiting_max) == (2, 2)
    assert found.mean_batch == 4
    assert found.cache_hit_ratio == 0.25
    assert found.speculation_accepted_ratio == 0.75


def test_sglang_tells_its_gauges_and_what_was_cached() -> None:
    found = told(
        scraped(
            SGLANG.format(running=6, prompt=1000, cached=0), SGLANG.format(running=8, prompt=3000, cached=500)
        )
    )
    assert (found.engine, found.running_mean, found.mean_batch) == ("sglang", 7, 7)
    assert found.mean_batch_source == "mean of sglang:num_running_reqs"
    assert (found.cache_hit_ratio, found.speculation_accepted_ratio) == (0.25, 0.75)


def test_tgi_trtllm_and_llamacpp_are_known() -> None:
    found = told(scraped(TGI.format(running=5)))
    assert (found.engine, found.mean_batch, found.waiting_max) == ("tgi", 5, 4)
    assert found.cache_hit_ratio is None
    found = told(
        scraped(
            TRTLLM.format(running=2, reused=10, missed=10), TRTLLM.format(running=4, reused=40, missed=20)
        )
    )
    assert (found.engine, found.running_mean, found.cache_hit_ratio) == ("trtllm", 3, 0.75)
    found = told(
        scraped(
            LLAMACPP.format(running=1, tokens=7, steps=3), LLAMACPP.format(running=8, tokens=87, steps=13)
        )
    )
    assert (found.engine, found.mean_batch, found.running_max) == ("llamacpp", 8, 8)


def test_what_nobody_counted_is_none_and_an_unknown_server_tells_nothing() -> None:
    assert truth(scraped("http_requests_total 4\n")) is None
    same = SGLANG.format(running=1, prompt=5, cached=1)
    assert told(scraped(same, same)).cache_hit_ratio is None


def test_a_stretch_and_labels_can_be_asked_for() -> None:
    page = 'vllm:num_requests_running{{tier="a"}} {a}\nvllm:num_requests_running{{tier="b"}} {b}\n'
    samples = scraped(*(page.format(a=k, b=10 * k) for k in range(5)))
    instants, values = samples.within(1 * S, 3 * S).level("vllm:num_requests_running", {"tier": "b"})
    assert (instants.tolist(), values.tolist()) == ([1 * S, 2 * S, 3 * S], [10, 20, 30])
    assert samples.level("vllm:num_requests_running")[1].tolist() == [0, 11, 22, 33, 44]
    found = truth(samples, {"tier": "a"})
    assert found is not None
    assert found.running_max == 4


def test_pages_of_prometheus_clients_own_writer_are_read_back() -> None:
    rng = random.Random(5)
    registry = CollectorRegistry()
    gauge = Gauge("vllm:num_requests_running", "with \\ and \n", ["model_name"], registry=registry)
    counter = Counter("vllm:generation_tokens", "tokens", ["model_name"], registry=registry)
    Gauge("process_open_fds", "not kept", registry=registry).set(3)
    expected = {}
    for name in ('a"b', "c\\d", "e\nf", "g,h={}", "ü"):
        expected[name] = (rng.random() * 1e6, float(rng.randrange(10**9)))
        gauge.labels(name).set(expected[name][0])
        counter.labels(name).inc(expected[name][1])
    samples = ServerSamples([Scrape(at_ns=7, took_s=0, samples=parse(generate_latest(registry).decode()))])
    assert samples.names() == {"vllm:num_requests_running", "vllm:generation_tokens_total"}
    for name, (level, total) in expected.items():
        labels = {"model_name": name}
        assert samples.level("vllm:num_requests_running", labels)[1].tolist() == [level]
        assert samples.level("vllm:generation_tokens_total", labels)[1].tolist() == [total]


def test_a_counter_that_began_or_was_reset_in_between_counts_right() -> None:
    name = "vllm:generation_tokens_total"
    pages = ('vllm:x{{t="a"}} 1\n{name}{{t="a"}} {a}\n' + '{name}{{t="b"}} {b}\n',)
    first = f'{name}{{t="a"}} 100\n'
    second = pages[0].format(name=name, a=130, b=7)
    restarted = pages[0].format(name=name, a=4, b=9)
    samples = scraped(first, second, restarted)
    assert samples.increase(name) == 30 + 7 + 4 + 2
    assert samples.increase(name, {"t": "b"}) == 9
    assert samples.increase("vllm:absent") is None
    assert scraped(first).increase(name) is None


def test_a_failed_scrape_is_neither_a_level_nor_a_reset() -> None:
    good = parse("vllm:generation_tokens_total 5\n"), parse("vllm:generation_tokens_total 8\n")
    samples = ServerSamples(
        [
            Scrape(at_ns=0, took_s=0, samples=good[0]),
            Scrape(at_ns=1, took_s=5, trouble="TimeoutError"),
            Scrape(at_ns=2, took_s=0, samples=good[1]),
        ]
    )
    assert samples.increase("vllm:generation_tokens_total") == 3
    assert samples.level("vllm:generation_tokens_total")[0].tolist() == [0, 2]


def test_lines_come_back_as_written_and_damage_is_said(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    written = [
        Scrape(at_ns=-5, took_s=0.25, samples=parse(TGI.format(running=1))),
        Scrape(at_ns=9, took_s=5.0, trouble="HTTP 500"),
    ]
    lines = b"".join(map(encode_line, written))
    (tmp_path / SERVER_FILE).write_bytes(lines + b'{"at_ns": "x"}\n' + lines[:20])
    found = read(tmp_path)
    assert found is not None
    assert found.scrapes == written
    assert len(found.notes) == 2
    assert "line 3 is no scrape" in found.notes[0]
    assert found.notes[1] == "server.jsonl: line 4 is cut short and left out"
    assert list(found.rows()) == [
        Row(-5, "tgi_batch_current_size", "{}", 1.0),
        Row(-5, "tgi_queue_size", "{}", 4.0),
    ]


def test_buckets_can_be_left_out_and_nothing_else_is() -> None:
    common = dict.fromkeys(("tokens", "queries", "hits", "drafts", "drafted", "accepted", "steps"), 1)
    whole = Scrape(at_ns=1, took_s=0, samples=parse(VLLM.format(running=1, **common)))
    assert whole.samples.keys() - without_buckets(whole).samples.keys() == {
        "vllm:iteration_tokens_total_bucket"
    }
    assert not any(name.endswith("_created") for name in whole.samples)


@pytest.mark.parametrize("line", ["vllm:x{a=", "vllm:x", "vllm:x one"])
def test_a_damaged_page_is_an_error_and_no_number(line: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse(f"vllm:y 1\n{line}\n")
