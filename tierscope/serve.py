"""``tierscope serve``: run the mock server, or explain what its profile amounts to."""

from pathlib import Path

from mockserver import config


def serve_profile(
    profile: str, *, host: str, port: int, seed: int | None = None, step_log: Path | None = None
) -> None:
    """Serve a profile until SIGINT or SIGTERM; the address is printed once the port is open.

    ``seed`` overrides the profile's; ``step_log`` is a Parquet file for every step of the engines.
    """
    from mockserver import serving

    loaded = config.load(profile, seed=seed)
    serving.serve(
        loaded,
        host=host,
        port=port,
        step_log=step_log,
        ready=lambda url: print(f"{loaded.name}: {url}", flush=True),
    )


def explain_profile(profile: str) -> None:
    """Print floor, slope, best batch, capacity and speed of each tier of a profile."""
    from mockserver.explain import explain

    print(explain(config.load(profile)))
