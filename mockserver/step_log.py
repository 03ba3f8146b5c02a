"""Every step of a server in a Parquet file, without holding a token up: ``--step-log FILE``.

While it lasts, chunks go as Arrow record batches into ``FILE.part`` beside it, in a thread of its own; at the
end that becomes the Parquet file in one move. A process that is killed leaves the part, short of its last
seconds: ``python -m mockserver.step_log FILE`` makes the file of it.
"""

import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pyarrow as pa

from mockserver import step_table
from mockserver.job import StepDone
from tierscope.errors import BadInputError, RunFailedError

_CHUNK_ROWS = 16_384
_CHUNK_NS = 5_000_000_000
_MOST_CHUNKS = 16  # waiting for a disk; then steps wait too, which shows in their lag

_Chunk = tuple[step_table.Columns, list[str], list[str]]  # rows, names of engines, names of bounds


class StepLog:
    """Takes every step; ``close`` makes the file. A disk that fails ends the log and not the server."""

    def __init__(self, path: Path, bound_by: Callable[[str, StepDone], str]) -> None:
        self._path, self._bound_by = path, bound_by
        self._engines: dict[str, int] = {}
        self._bounds: dict[str, int] = {}
        self._columns = step_table.empty()
        self._chunks: queue.Queue[_Chunk | None] = queue.Queue(_MOST_CHUNKS)
        self._failure: OSError | None = None
        self._part = step_table.begin(path)
        step_table.batch(step_table.empty(), [], [])  # the first one loads pandas: not while tokens are due
        self._thread = threading.Thread(target=self._write, name="step-log", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def failure(self) -> str:
        """Why nothing is logged any more, in one line; empty while all is well."""
        return (
            f"{step_table.part_of(self._path)} cannot be written: {self._failure.strerror}"
            if self._failure
            else ""
        )

    def add(self, engine_name: str, step: StepDone, lag_ns: int = 0) -> None:
        """Log one step, and how long after its end it was handed out."""
        if self._failure is not None:
            return
        bound = self._bound_by(engine_name, step)
        row = (
            step.started_ns,
            step.ended_ns,
            self._engines.setdefault(engine_name, len(self._engines)),
            step.decode_sequences,
            step.context_tokens,
            step.prefill_tokens,
            step.prefill_cached_tokens,
            step.generated_tokens,
            step.kv_tokens,
            step.running,
            step.waiting,
            step.preempted,
            step.drafted_tokens,
            step.accepted_tokens,
            self._bounds.setdefault(bound, len(self._bounds)),
            len(step.emitted),
            lag_ns,
        )
        columns = self._columns
        for column, value in zip(columns, row, strict=True):
            column.append(value)
        if len(columns[0]) >= _CHUNK_ROWS or step.ended_ns - columns[0][0] >= _CHUNK_NS:
            self._hand_over()

    def close(self) -> None:
        """Write what is left and make the Parquet file. Raises RunFailedError if that cannot be done."""
        if not self._thread.is_alive():
            return
        self._hand_over()
        self._chunks.put(None)
        self._thread.join()
        if self._failure is not None:
            raise RunFailedError(
                f"{self.failure}; `python -m mockserver.step_log {self._path}` saves what is there"
            )
        step_table.finish(self._path)

    def _hand_over(self) -> None:
        if len(self._columns[0]):
            self._chunks.put((self._columns, list(self._engines), list(self._bounds)))
            self._columns = step_table.empty()

    def _write(self) -> None:
        """In the thread: chunks become record batches until None comes."""
        try:
            with (
                self._part,
                pa.ipc.new_stream(self._part, step_table.SCHEMA, options=step_table.OPTIONS) as stream,
            ):
                while (chunk := self._chunks.get()) is not None:
                    stream.write_batch(step_table.batch(*chunk))
                    self._part.flush()
        except OSError as error:
            self._failure = error
            while self._chunks.get() is not None:  # whoever hands chunks over must not wait for ever
                pass


def main(arguments: list[str]) -> int:
    """Make the file of a part that a killed process left; 2 and one line on stderr if that cannot be done."""
    if len(arguments) != 1:
        print("usage: python -m mockserver.step_log FILE", file=sys.stderr)
        return 2
    try:
        rows = step_table.finish(Path(arguments[0]))
    except (BadInputError, RunFailedError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{arguments[0]}: {rows} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
