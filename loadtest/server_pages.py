"""Where a server's own metrics are: the URL that was given, or the pages that are worth a try. Pure."""

import dataclasses

from loadtest import endpoint
from loadtest.endpoint import Endpoint
from tierscope.errors import BadInputError


def where(url: str) -> Endpoint:
    """Take a page's URL apart, ``/metrics`` if it names no path; BadInputError in one line if it is none."""
    try:
        found = endpoint.parse(url, "")
    except BadInputError as error:
        raise BadInputError(f"--scrape: {error}; or auto") from error
    return found if found.path else dataclasses.replace(found, path="/metrics")


def candidates(option: str, target_url: str) -> list[str]:
    """URLs to try for ``--scrape``: its own, or for ``auto`` where servers have their page.

    TensorRT-LLM has it at /prometheus/metrics (2026), the others at /metrics. Raises BadInputError.
    """
    if option != "auto":
        page = where(option)
        return [page.origin + page.path]
    origin = endpoint.parse(target_url, "").origin
    return [f"{origin}/metrics", f"{origin}/prometheus/metrics"]
