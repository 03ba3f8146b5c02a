"""A run folder read while it is being written: only what is new, and no line before it is whole. Pure."""

from pathlib import Path

from loadtest.records import LINES_FILES, RequestRecord, decode_line


class Tail:
    """The records of a run under way; each call of ``read`` gives those that were not given before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[Path, int] = {}

    def read(self) -> list[RequestRecord]:
        """Read what was written since the last call; a line that is no record is left out.

        A last line that is still being written is left for the next call. Raises OSError if a file that was
        there cannot be read.
        """
        found: list[RequestRecord] = []
        for path in sorted(self._folder.glob(LINES_FILES)):
            place = self._places.get(path, 0)
            with path.open("rb") as file:
                file.seek(place)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._places[path] = place + len(whole)
            lines = (decode_line(line) for line in whole.splitlines())
            found += [record for record in lines if record is not None]
        return found
