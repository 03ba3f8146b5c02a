"""``tierscope serve``: run the mock server, or explain what its profile amounts to."""

from mockserver import config


def serve_profile(profile: str, *, host: str, port: int) -> None:
    """Serve a profile until SIGINT or SIGTERM; the address is printed once the port is open."""
    from mockserver import app

    loaded = config.load(profile)
    app.serve(loaded, host=host, port=port, ready=lambda url: print(f"{loaded.name}: {url}", flush=True))


def explain_profile(profile: str) -> None:
    """Print floor, slope, best batch, capacity and speed of each tier of a profile."""
    from mockserver.explain import explain

    print(explain(config.load(profile)))
