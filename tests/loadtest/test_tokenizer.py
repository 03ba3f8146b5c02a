"""A local tokenizer file: prompts of exactly the tokens aimed at, and clear words where that cannot be."""

import sys
from pathlib import Path
from typing import Any

import pytest

from loadtest import tokenizer, workload
from loadtest.plan import Closed, Plan, Stage, Workload
from loadtest.plan_workload import Lognormal, Prompts, SharedPrefix, Trace
from loadtest.prose import WORDS
from tierscope.errors import BadInputError

TRACE = Path(__file__).parent.parent / "data" / "traces" / "mooncake_conversation_excerpt.jsonl"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE tokenizer, trained here: most common words are one token, marks are several."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )  # a token in front that is the template's and not the text's
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<s>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([" ".join(["so", *WORDS[:300]])] * 3, trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return path


def count(file: Path, text: str) -> int:
    tokenizers = pytest.importorskip("tokenizers")
    return len(tokenizers.Tokenizer.from_file(str(file)).encode(text, add_special_tokens=False).ids)


def opened(work: Workload, folder: Path) -> workload.Source:
    stages = (Stage(name="s", arrivals=Closed(streams=1), requests=1),)
    return workload.open_source(Plan(name="p", stages=stages, workload=work), folder=folder)


def test_prompts_have_exactly_the_tokens_aimed_at(file: Path) -> None:
    drawn = Lognormal(median=100, sigma=1.0, minimum=12, maximum=3000)
    for shared in (None, SharedPrefix(tokens=40, groups=3)):
        made = opened(
            Workload(prompt_tokens=drawn, output_tokens=8, tokenizer=file.name, shared_prefix=shared),
            file.parent,
        )
        for position in range(60):
            request = made.request(0, position, index=position)
            text = made.says(request)[0].text
            assert count(file, text) == request.prompt_tokens
            assert made.prompt_words(request) == len(text.split()) < request.prompt_tokens


def test_blocks_of_a_trace_have_exactly_their_tokens(file: Path) -> None:
    work = Workload(trace=Trace(file=str(TRACE), format="mooncake", limit=3), tokenizer=file.name)
    made = opened(work, file.parent)
    texts = [made.says(made.request(0, k, index=k))[0].text for k in range(3)]
    assert [count(file, text) for text in texts] == [6758, 7322, 7236]
    words = [text.split(" ") for text in texts]
    shared = next(place for place, pair in enumerate(zip(*words[:2], strict=False)) if pair[0] != pair[1])
    assert count(file, " ".join(words[0][:shared])) == 512


def test_prompts_of_a_file_are_counted(file: Path, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "Überraschend viele Zeichen"}\n')
    work = Workload(prompts=Prompts(file="p.jsonl"), output_tokens=8, tokenizer=str(file))
    request = opened(work, tmp_path).request(0, 0, index=0)
    assert request.prompt_tokens == count(file, "Überraschend viele Zeichen") > 3


def test_words_of_several_tokens_are_not_used(file: Path) -> None:
    words = tokenizer.lexicon(file).words
    assert 50 <= len(words) < len(WORDS)
    assert all(count(file, f"the {word}") - count(file, "the") == 1 for word in words)


def test_a_vocabulary_that_knows_too_few_words_is_refused(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizers.Tokenizer(tokenizers.models.BPE()).save(str(tmp_path / "poor.json"))
    with pytest.raises(BadInputError, match=r"poor\.json: 0 of 521 words cost one token each; at least 50"):
        tokenizer.lexicon(tmp_path / "poor.json")


@pytest.mark.parametrize(("data", "words"), [(b"{}", "is no tokenizer.json: "), (b"\xff", "is not UTF-8")])
def test_a_file_that_is_no_tokenizer_is_one_line(tmp_path: Path, data: bytes, words: str) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "t.json").write_bytes(data)
    with pytest.raises(BadInputError, match=words) as caught:
        tokenizer.lexicon(tmp_path / "t.json")
    assert "\n" not in str(caught.value)
    with pytest.raises(BadInputError, match=r"gone\.json: cannot be read: No such file"):
        tokenizer.lexicon(tmp_path / "gone.json")


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    absent: Any = None
    monkeypatch.setitem(sys.modules, "tokenizers", absent)
    with pytest.raises(BadInputError, match=r"^t\.json: to read it, .* needed: pip install tokenizers$"):
        tokenizer.lexicon(Path("t.json"))
