"""What is often said of LLM servers, reproduced by the engine in virtual time: the figures of docs/claims.md.

python bench/claims.py           writes figures and picture of the document anew
python bench/claims.py --print   prints the figures instead
"""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench import claims_figures, claims_picture, claims_scenarios, claims_tables
from bench.fidelity import filled
from mockserver import roofline

DOCS = Path(__file__).parent.parent / "docs"
DOCUMENT, PICTURE = DOCS / "claims.md", DOCS / "images" / "cost-against-batch.svg"


def picture() -> str:
    """Cost per token against batch, as SVG."""
    law = roofline.law(claims_scenarios.LLAMA)
    return claims_picture.picture(law, claims_figures.costs(), claims_figures.COST_CONTEXT_TOKENS)


def main(arguments: Sequence[str]) -> None:
    sections = claims_tables.sections()
    if "--print" in arguments:
        print("\n\n".join(f"{name}:\n{text}" for name, text in sections.items()))
        return
    DOCUMENT.write_text(filled(DOCUMENT.read_text(encoding="utf-8"), sections), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
