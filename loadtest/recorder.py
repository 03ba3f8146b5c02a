"""A run folder being written: run.json at the start and the end, records in between.

What was flushed survives any later failure; a disk that is full ends the run, not the records.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from loadtest.records import (
    PARQUET_FILE,
    RUN_FILE,
    ClientHealth,
    PromptCounting,
    RecordWriter,
    RequestRecord,
    RunInfo,
    WorkerInfo,
    write_info,
)
from tierscope.errors import BadInputError, RunFailedError

_PARQUET_S = 600
_MASTER = "master"
"""Names the file of the few records that a process makes which leads others: calibration."""


class Recorder:
    """Opens a folder for one run. Raises BadInputError if it cannot be written or holds a run already.

    A process that ``leads`` others, which send, has a file for the lines of each of them.
    """

    def __init__(self, folder: Path, info: RunInfo, *, leads: bool = False) -> None:
        self.folder = folder
        self._info = info
        self._writers: dict[str, RecordWriter] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / RUN_FILE).exists() or any(folder.glob("requests-*.jsonl")):
                raise BadInputError(f"--out: {folder} holds a run already; name another folder")
            write_info(folder, info)
            if not leads:
                self._writers[_MASTER] = RecordWriter(folder)
        except OSError as error:
            raise BadInputError(f"--out: {folder} cannot be written: {error.strerror}") from error

    def append(self, record: RequestRecord) -> None:
        """Keep a record that this process made until the next flush."""
        self._of(_MASTER).append(record)

    def append_lines(self, lines: bytes, worker: str) -> None:
        """Keep records that a worker made lines of, for a file of its own, until the next flush.

        Raises RunFailedError if there can be no such file.
        """
        self._of(worker).append_lines(lines)

    def flush(self) -> None:
        """Put what was kept on disk. Raises RunFailedError in one line if the disk does not take it."""
        for writer in self._writers.values():
            try:
                writer.flush()
            except OSError as error:
                raise RunFailedError(f"{writer.path} cannot be written: {error.strerror}") from error

    def close(
        self,
        status: Literal["complete", "partial"],
        detail: str,
        *,
        ended_ns: int,
        client: ClientHealth,
        workers: Sequence[WorkerInfo] = (),
        prompt_counting: PromptCounting | None = None,
        prompt_cautions: Sequence[str] = (),
    ) -> str:
        """Write what is left and the final run.json; gives one line if that failed, else nothing.

        Records that were lost make the run partial; a run.json that cannot be written stays at "running".
        """
        trouble = ""
        for writer in self._writers.values():
            try:
                writer.close()
            except OSError as error:
                trouble = f"{writer.path} cannot be written: {error.strerror}"
                status, detail = "partial", detail or trouble
        final = msgspec.structs.replace(
            self._info,
            status=status,
            status_detail=detail,
            ended_ns=ended_ns,
            client=client,
            workers=list(workers),
            prompt_counting=prompt_counting,
            prompt_cautions=list(prompt_cautions),
        )
        try:
            write_info(self.folder, final)
        except OSError as error:
            trouble = trouble or f"{self.folder / RUN_FILE} cannot be written: {error.strerror}"
        return trouble

    def _of(self, name: str) -> RecordWriter:
        """The writer of that name, opened when it is first needed."""
        writer = self._writers.get(name)
        if writer is None:
            try:
                writer = self._writers[name] = RecordWriter(self.folder, name)
            except OSError as error:
                raise RunFailedError(f"{self.folder} cannot be written: {error.strerror}") from error
        return writer


def pack(folder: Path, run: Callable[..., Any] = subprocess.run) -> str:
    """Have another process write ``requests.parquet``; gives one line if that failed, else nothing.

    ``run`` is ``subprocess.run`` or gevent's, which lets other greenlets go on.
    """
    command: Sequence[str] = (sys.executable, "-m", "loadtest.parquet", str(folder))
    try:
        # In a session of its own: a second Ctrl-C in the terminal does not hit it.
        done = run(command, capture_output=True, text=True, timeout=_PARQUET_S, start_new_session=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{PARQUET_FILE} was not written: {error}"
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return f"{PARQUET_FILE} was not written: {lines[-1]}"
