"""A small tokenizer on disk, so that tools which insist on one need no network.

    python bench/tokenizer_folder.py FOLDER

Run it with the interpreter of an environment that has ``tokenizers`` (all of the tools' have). A byte-level
BPE is trained on common words; what it counts does not matter, since the reference server counts its own.
"""

import json
import sys
from pathlib import Path
from typing import Any

TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def make(folder: Path, words: list[str]) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, as transformers loads them."""
    import tokenizers  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from tokenizers import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        decoders,
        models,
        pre_tokenizers,
        trainers,
    )

    made: Any = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([f" {word} {word}" for word in words], trainer)
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "</s>",
        "model_max_length": 131072,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 4096}), "utf-8")


if __name__ == "__main__":
    text = Path(__file__).parent.parent / "loadtest" / "words.txt"
    make(Path(sys.argv[1]), text.read_text("utf-8").split())
