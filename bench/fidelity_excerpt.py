"""Cuts the committed excerpts in tests/data/fidelity out of two published files.

python bench/fidelity_excerpt.py All_results.csv silicon_sample.csv   (where they come from: SOURCE.md there)
"""

import csv
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench import fidelity_points as points

_CONCURRENCY = re.compile(r"silicon_concurrency=(\d+)")


def argonne(path: Path) -> list[dict[str, str]]:
    """Rows of chips and models that our tables know, with a latency."""
    with path.open(encoding="utf-8") as file:
        return [
            {key: row[key] for key in points.ARGONNE_COLUMNS}
            for row in csv.DictReader(file)
            if row["Hardware"] in points.CHIPS and row["Model"] in points.MODELS and row["Latency"]
        ]


def inferencex(path: Path) -> list[dict[str, str]]:
    """Rows of one server (not of prefill and decode apart) whose concurrency is known; the rest as above."""
    kept = []
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            told = _CONCURRENCY.search(row["silicon_data_source"])
            known = row["system"] in points.CHIPS and row["model_path"] in points.MODELS
            if told and known and row["mode"] == "agg":
                row["concurrency"] = told[1]
                kept.append({key: row[key] for key in points.INFERENCEX_COLUMNS})
    return kept


def _write(rows: list[dict[str, str]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: _short(value) for key, value in row.items()})


def _short(value: str) -> str:
    """Six digits of what was measured are more than enough."""
    return f"{float(value):.6g}" if re.fullmatch(r"\d+\.\d{4,}", value) else value


if __name__ == "__main__":
    _write(argonne(Path(sys.argv[1])), points.FOLDER / "argonne.csv")
    _write(inferencex(Path(sys.argv[2])), points.FOLDER / "inferencex.csv")
