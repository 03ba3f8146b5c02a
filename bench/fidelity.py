"""How true the law is: published measurements of real servers against what it says of them.

python bench/fidelity.py            writes the tables of docs/fidelity.md anew and prints the headline
python bench/fidelity.py --points   prints every point as CSV instead
"""

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench import fidelity_figures, fidelity_tables
from bench.fidelity_figures import Judged

DOCUMENT = Path(__file__).parent.parent / "docs" / "fidelity.md"


def filled(document: str, sections: Mapping[str, str]) -> str:
    """The document with each part between ``<!-- NAME -->`` and ``<!-- end -->`` replaced by the section."""
    for name, text in sections.items():
        mark = f"<!-- {name} -->\n"
        before, _, rest = document.partition(mark)
        _, end, after = rest.partition("<!-- end -->")
        if document.count(mark) != 1 or not end:
            raise ValueError(f"the document has no {mark.strip()} with an end, or two")
        document = f"{before}{mark}{text}\n{end}{after}"
    return document


def _print_points(judged: Sequence[Judged]) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(
        ("source", "engine", "hardware", "model", "prompt_tokens", "output_tokens", "sequences", "kind",
         "measured_s", "law_s", "textbook_s")
    )  # fmt: skip
    for one in judged:
        point = one.point
        lengths = point.prompt_tokens, point.output_tokens, point.sequences, point.kind
        writer.writerow((*point.configuration, *lengths, point.measured_s, one.law_s, one.textbook_s))


def main(arguments: Sequence[str]) -> None:
    judged, left_out = fidelity_figures.judge()
    if "--points" in arguments:
        _print_points(judged)
        return
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(filled(text, fidelity_tables.sections(judged, left_out)), encoding="utf-8")
    print(fidelity_tables.headline(judged))


if __name__ == "__main__":
    main(sys.argv[1:])
