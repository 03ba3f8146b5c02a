"""Files that are replaced as a whole: links stay links, pipes stay pipes, a failure leaves what was there."""

import os
from pathlib import Path

import pytest

from tierscope import wholefile


def test_a_pipe_is_written_into_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        wholefile.write(pipe, b"all of it")
        assert reader.read() == b"all of it"
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "there")
    wholefile.write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_bytes() == b"new"


def test_who_fails_halfway_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    wholefile.write(path, b"old")

    def break_off() -> None:
        with wholefile.replaced(path) as fresh:
            fresh.write_bytes(b"half of the new")
            raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        break_off()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
