"""The figures of docs/claims.md as its sentences and tables, in Markdown."""

from collections.abc import Sequence

from bench import claims_figures as figures
from bench import claims_prices as priced
from bench.claims_prices import WIDE, WINDOWED
from bench.claims_scenarios import EXPERTS, LLAMA
from mockserver import economics, roofline


def sections() -> dict[str, str]:
    """Every generated part of the document by its name."""
    return {
        "doubling": _doubling(),
        "sweep": _sweep(),
        "best-batch": _best_batch(),
        "fast-tier": _fast_tier(),
        "slow-mode": _slow_mode(),
        "speculation": _speculation(),
        "bus": _bus(),
        "context": _context(),
        "cost": _cost(),
        "output-input": _output_input(),
        "cache-hit": _cache_hit(),
        "long-context": _long_context(),
        "pipeline": _pipeline(),
        "chips": _chips(),
    }


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 0) -> str:
    """Columns are numbers, except the first ``texts`` of them."""
    rule = "|" + "---|" * texts + "---:|" * (len(head) - texts)
    first, *others = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return "\n".join([first, rule, *others])


def _doubling() -> str:
    found, long = figures.doubling(), figures.doubling(LLAMA, 32_000, 100)
    base, output, prompt = found.base.end_s, found.output_doubled.end_s, found.input_doubled.end_s
    return (
        f"1,000 tokens in and 500 out: {base:.2f} s. Twice the output: {output:.2f} s, {output / base:.3f} "
        f"times. Twice the input: {prompt:.2f} s, {prompt / base:.3f} times. A prompt token takes "
        f"{found.prompt_token_s * 1e6:.0f} µs and an output token {found.base.tpot_s * 1e3:.1f} ms, as long "
        f"as {found.base.tpot_s / found.prompt_token_s:.0f} prompt tokens. With 32,000 in and 100 out it is "
        f"the other way round: {long.output_doubled.end_s / long.base.end_s:.2f} and "
        f"{long.input_doubled.end_s / long.base.end_s:.2f} times."
    )


def _sweep() -> str:
    ideal_s, real_s = figures.sweep_s(1), figures.mi300x_step_s()
    return (
        f"A step takes {ideal_s * 1e3:.1f} ms: {1 / ideal_s:.1f} tokens/s. With the default efficiencies and "
        f"overheads, Llama-3.1-70B in 16 bits on one MI300X of 5.3 TB/s takes {real_s * 1e3:.1f} ms: "
        f"{1 / real_s:.1f} tokens/s."
    )


def _best_batch() -> str:
    rows = [
        [
            f"{one.deployment.chip}",
            f"{one.deployment.model}",
            f"{one.deployment.weight_bits}",
            f"{one.sparsity:.1f}",
            f"{one.batch:,.0f}",
            f"{one.batch / one.sparsity:.0f}",
        ]
        for one in figures.knees()
    ]
    achieved = roofline.best_batch(roofline.law(figures.knees()[0].deployment))
    table = _table(["chip", "model", "bits", "N/N_act", "best batch", "over sparsity"], rows, texts=2)
    return f"{table}\n\nWith the default efficiencies the first of them is {achieved:.0f}."


def _fast_tier() -> str:
    standard, fast = figures.fast_tier()
    speed, batches = fast.tokens_per_s / standard.tokens_per_s, standard.batch / fast.batch
    two, six = (economics.two_tiers_from_prices(2.5, price) for price in (2, 6))
    return (
        f"Batches of {standard.batch} and {fast.batch}: {standard.tokens_per_s:.0f} and "
        f"{fast.tokens_per_s:.0f} tokens/s, {speed:.2f} times; 8,064 more tokens of prompt take "
        f"{standard.added_prefill_s * 1e3:.0f} and {fast.added_prefill_s * 1e3:.0f} ms, "
        f"{standard.added_prefill_s / fast.added_prefill_s:.2f} times. The fast token costs "
        f"{batches:.0f}/{speed:.2f} = {batches / speed:.1f} times as much. From the other side: 2.5 times "
        f"the speed at twice the price says that batches are {two.batch_ratio:.0f} to 1 and "
        f"β·B_fast = {two.fast_share_ratio:.2f}·α; at six times, {six.batch_ratio:.0f} to 1 and "
        f"{six.fast_share_ratio:.2f}·α."
    )


def _slow_mode() -> str:
    kv = figures.kv_chip_s_per_mtok(LLAMA, figures.SLOW_CONTEXT_TOKENS)
    modes, (opus, slow) = figures.slow_modes(), figures.slow_opus()
    half, full = modes[2], modes[-1]
    filled = ("", "a quarter", "half", "three quarters", "all")
    rows = [
        [
            f"{one.batch}",
            f"{part}",
            f"{one.tokens_per_s:.0f}",
            f"{one.chip_s_per_mtok:,.0f}",
            f"{kv / one.chip_s_per_mtok:.0%}",
        ]
        for one, part in zip(modes, filled, strict=True)
    ]
    return (
        _table(["batch", "of KV memory", "tokens/s each", "chip-s a million", "of it KV"], rows)
        + f"\n\nFrom memory half full to full, a token is "
        f"{_less(full.chip_s_per_mtok, half.chip_s_per_mtok)} cheaper and "
        f"{_less(full.tokens_per_s, half.tokens_per_s)} slower; with a batch of {figures.FAST_BATCH} it is "
        f"{modes[0].chip_s_per_mtok / half.chip_s_per_mtok:.1f} times as dear. Reading KV alone costs "
        f"{kv:,.0f}, however long one waits. If prices tell costs (claim 4), no wait makes a token "
        f"of a server with a fast tier cheaper than {_shared(6):.0%} (6 times the price) or {_shared(2):.0%} "
        f"(twice) of the standard one. Where KV is small there is more to gain: the standard tier of "
        f"`opus-like` with four times its batch would be "
        f"{_less(slow.chip_s_per_mtok, opus.chip_s_per_mtok)} cheaper and "
        f"{_less(slow.tokens_per_s, opus.tokens_per_s)} slower."
    )


def _shared(price_ratio: float) -> float:
    """What remains of the slow tier's cost when its fixed part is shared by infinitely many."""
    two = economics.two_tiers_from_prices(2.5, price_ratio)
    growing = two.batch_ratio * two.fast_share_ratio
    return growing / (1 + growing)


def _less(now: float, before: float) -> str:
    return f"{1 - now / before:.0%}"


def _speculation() -> str:
    rows, told = [], []
    for acceptance in (0.7, 0.8):
        found = figures.speculation(acceptance)
        stops = figures.drafts_stop_paying(LLAMA, acceptance, context_tokens=250, most=2000)
        rows.append(
            [
                f"{acceptance}",
                f"{figures.drafted_tokens_per_step(acceptance):.2f}",
                *(f"{one.speed_ratio:.2f}" for one in found),
            ]
        )
        told.append(f"{stops} at {acceptance}")
    head = ["acceptance", "tokens a step", *(f"B = {batch}" for batch in figures.SPECULATION_BATCHES)]
    return (
        _table(head, rows) + f"\n\nContexts of 1,000 tokens. At 250, drafts stop paying at a batch of "
        f"{' and '.join(told)}."
    )


def _bus() -> str:
    seats, joined = figures.bus_fill(2.0, static=True), figures.bus_fill(2.0, static=False)
    mean_s, apart_s = (sum(one.wait_s for one in each) / len(each) for each in (seats, joined))
    tpot_s = sum(one.tpot_s for one in joined) / len(joined)
    return (
        f"Eight seats and two requests a second: the first passenger waits {seats[0].wait_s:.2f} s, all of "
        f"them {mean_s:.2f} s in the mean, the last one {seats[-1].wait_s:.2f} s; then each of them gets a "
        f"token every {seats[0].tpot_s * 1e3:.2f} ms, the first as the last ({seats[-1].tpot_s * 1e3:.2f} "
        f"ms). With continuous batching the same requests wait {apart_s * 1e3:.1f} ms and get a token every "
        f"{tpot_s * 1e3:.2f} ms."
    )


def _context() -> str:
    rows = [
        [
            f"{one.context_tokens:,}",
            f"{one.alone_s * 1e3:.2f}",
            f"{one.four_s * 1e3:.2f}",
            f"{one.four_kv_int8_s * 1e3:.2f}",
        ]
        for one in figures.contexts()
    ]
    return _table(["context", "alone, ms", "four, ms", "four with KV in 8 bits, ms"], rows)


def _cost() -> str:
    rows = [
        [f"{one.batch}", f"{one.step_s * 1e3:.2f}", f"{one.tokens_per_s:.0f}", f"{one.chip_s_per_mtok:,.0f}"]
        for one in figures.costs()
    ]
    first, last = figures.costs()[0], figures.costs()[-1]
    return (
        _table(["batch", "step, ms", "tokens/s each", "chip-s a million"], rows)
        + f"\n\n{last.batch} times the batch: {first.chip_s_per_mtok / last.chip_s_per_mtok:.0f} times as "
        f"cheap and {first.tokens_per_s / last.tokens_per_s:.1f} times as slow."
    )


def _output_input() -> str:
    dense = [f"{priced.output_input_ratio(LLAMA, batch):.1f}" for batch in (16, 64, 150)]
    sparse = [f"{priced.output_input_ratio(WIDE, batch):.1f}" for batch in (16, 64, 1024)]
    five = priced.batch_of_price_ratio(WIDE, 5.0, most=1024)
    six = priced.batch_of_price_ratio(LLAMA, 6.0, most=150)
    listed = " or ".join(
        f"{ratio:g}" for ratio in sorted({one.output_over_input for one in priced.list_ratios()})
    )
    return (
        f"Llama-3.1-70B at batches of 16, 64 and 150 (where its memory ends): {', '.join(dense)}. "
        f"DeepSeek-V3 on 8 B200, attention in data parallel, at 16, 64 and 1,024: {', '.join(sparse)}. Price "
        f"lists say {listed}: 6 is a batch of {six} of the first, 5 one of {five} of the second. At smaller "
        f"batches output costs more than lists say, next to input."
    )


def _cache_hit() -> str:
    lengths = ((20_000, 2000), (96_000, 4000), (190_000, 10_000))
    found = [
        f"{cached:,} + {fresh:,}: {priced.cache_hit_ratio(EXPERTS, cached, fresh):.3f}"
        for cached, fresh in lengths
    ]
    listed = sorted({one.read_over_input for one in priced.list_ratios()})
    return (
        f"DeepSeek-V3 on 8 B200, tokens found + tokens after them: {'; '.join(found)}. Price lists say "
        f"{', '.join(f'{ratio:g}' for ratio in listed[:-1])} or {listed[-1]:g}."
    )


def _long_context() -> str:
    rows = []
    for name, deployment, long in (
        ("Llama-3.1-70B, 4 × H100", LLAMA, 128_000),
        ("DeepSeek-V3, 8 × B200", EXPERTS, 128_000),
        ("DeepSeek-V3, 8 × B200, attention in data parallel", WIDE, 128_000),
        ("DeepSeek-V3, 8 × B200, attention in data parallel", WIDE, 200_000),
        ("gpt-oss-120b, 1 × B200", WINDOWED, 128_000),
    ):
        found = priced.long_context(deployment, 8000, long, 256)
        batches = f"{found.short_batch} → {found.long_batch}"
        rows.append(
            [name, f"{long:,}", batches, f"{found.input_ratio:.1f}", f"{found.output_ratio:.1f}"],
        )
    return _table(["8,000 against", "context", "batch", "input", "output"], rows, texts=1)


def _pipeline() -> str:
    found = [figures.pipeline(stages) for stages in (1, 2, 4)]
    rows = [
        [
            f"{one.stages}",
            f"{one.weights_gb_per_chip:.1f}",
            f"{one.kv_gb_per_chip:.1f}",
            f"{one.tpot_s * 1e3:.1f}",
        ]
        for one in found
    ]
    return _table(["stages", "weights, GB a chip", "KV, GB a chip", "a token, ms"], rows)


def _chips() -> str:
    rows = [
        [f"{chips}", f"{figures.sweep_s(chips) * 1e3:.2f}", f"{figures.b200_step_s(chips) * 1e3:.1f}"]
        for chips in (1, 2, 4, 8)
    ]
    return _table(["chips", "140 GB, ideal, ms", "Llama-3.1-70B on B200, ms"], rows)
