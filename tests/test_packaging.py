"""What is built is whole: a wheel unpacked elsewhere runs without the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("tierscope", "loadtest", "mockserver", "analysis", "grafana")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(argv, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("tierscope-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_every_file_of_a_room_is_in_the_wheel(unpacked: Path) -> None:
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.is_file()]
    names = [path.relative_to(ROOT) for path in files if "__pycache__" not in path.parts]
    assert len(names) > 100
    assert [name for name in names if not (unpacked / name).exists()] == []


def test_nothing_else_is_in_the_wheel(unpacked: Path) -> None:
    others = {path.name for path in unpacked.iterdir()} - set(ROOMS)
    assert all(name.endswith(".dist-info") for name in others), others


def test_the_unpacked_wheel_runs_a_plan_and_reports_away_from_the_checkout(
    unpacked: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}

    def run(*words: str) -> str:
        code = "import sys, tierscope.cli as c; print(c.__file__); sys.exit(c.main(sys.argv[1:]))"
        argv = [sys.executable, "-c", code, *words]
        done = subprocess.run(
            argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(str(unpacked))
        return done.stdout

    run("simulate", "ab", "--profile", "fast-tier", "--out", "run")
    run("report", "run", "--hardware", "fast-tier", "--json", "report.json", "--md", "report.md")
    run("serve", "no-change", "--explain")
    run("grafana", "export", "stack")
    assert (tmp_path / "run/report.html").stat().st_size > 10_000
    assert any((tmp_path / "stack").rglob("*.json"))
