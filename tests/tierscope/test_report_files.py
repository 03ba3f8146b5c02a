"""Where a report may be written: never over what was recorded, never into one file twice."""

from pathlib import Path

import pytest

from tierscope.errors import BadInputError
from tierscope.report import report_runs
from tierscope.simulate import simulate_run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    simulate_run("smoke", profile="fast-tier", seed=1, out=folder)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("option", ["html", "json", "md"])
@pytest.mark.parametrize("name", ["run.json", "requests-0.jsonl", "requests.parquet"])
def test_a_report_never_takes_the_place_of_what_was_recorded(recorded: Path, option: str, name: str) -> None:
    before = content(recorded)
    files: dict[str, Path | None] = {"html": recorded / "r.html", "json": None, "md": None}
    with pytest.raises(BadInputError, match=f"{name} is what a run recorded"):
        report_runs([recorded], hardware=None, **(files | {option: recorded / name}))  # type: ignore[arg-type]
    assert content(recorded) == before


def test_two_forms_of_a_report_need_two_files(recorded: Path, tmp_path: Path) -> None:
    same = tmp_path / "r"
    with pytest.raises(BadInputError, match=r"--json: .* is the file of --out too"):
        report_runs([recorded], html=same, json=same, md=None, hardware=None)


def test_a_folder_is_no_file_for_a_report(recorded: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, Path()):
        with pytest.raises(BadInputError, match=r"--out: .* is a folder; name a file in it"):
            report_runs([recorded], html=folder, json=None, md=None, hardware=None)
