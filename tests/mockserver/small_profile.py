"""A small valid profile as a file, for tests of what a file may say."""

from pathlib import Path

from mockserver import config

GOOD = """
name = "small"
max_context_tokens = 8192
[deployment]
chip = "H100"
model = "Llama-3.1-8B"
[[tiers]]
name = "standard"
service_tiers = ["default"]
max_batch = 64
target_batch = 32
[[tiers]]
name = "fast"
service_tiers = ["priority", "fast"]
max_batch = 8
deployment = { chip = "H200", kv_bits = 8 }
"""


def read(tmp_path: Path, text: str) -> config.ServerConfig:
    path = tmp_path / "server.toml"
    path.write_text(text)
    return config.load(str(path))
