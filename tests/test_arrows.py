"""The arrows between rooms hold: processes of their own import modules and look at sys.modules.

A module is pure unless it stands in ``MAY`` below, with what it may load besides numpy and msgspec.
"""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("loadtest", "mockserver", "analysis", "grafana")
HEAVY = (
    "gevent",
    "locust",
    "aiohttp",
    "prometheus_client",
    "pandas",
    "scipy",
    "pyarrow",
    "httptools",
    "altair",
    "tokenizers",
)

# I/O modules, and what each may pull in. Everything that is not here must be pure.
MAY: dict[str, set[str]] = {
    "loadtest.framing": {"httptools"},
    "loadtest.waiter": {"gevent"},
    "loadtest.poller": {"gevent"},
    "loadtest.resolve": {"gevent"},
    "loadtest.race": {"gevent"},
    "loadtest.dialer": {"gevent"},
    "loadtest.call": {"gevent", "httptools"},
    "loadtest.pool": {"gevent"},
    "loadtest.transport": {"gevent", "httptools"},
    "loadtest.pacing": {"gevent"},
    "loadtest.slices": {"gevent"},
    "loadtest.scribe": {"gevent"},
    "loadtest.pacer": {"gevent"},
    "loadtest.routes": {"gevent", "httptools"},
    "loadtest.conversations": {"gevent", "httptools"},
    "loadtest.traffic": {"gevent", "httptools"},
    "loadtest.exposition": {"gevent"},
    "loadtest.scrape": {"prometheus_client"},
    "loadtest.server_watch": {"gevent"},
    "loadtest.watching": {"gevent"},
    "loadtest.sending": {"gevent", "httptools"},
    "loadtest.ledger": {"gevent"},
    "loadtest.client_health": {"gevent", "httptools"},
    "loadtest.crew": {"gevent"},
    "loadtest.distribution": {"gevent", "httptools", "locust"},
    "loadtest.muster": {"gevent"},
    "loadtest.parent": {"gevent"},
    "loadtest.share": {"gevent", "httptools"},
    "loadtest.signals": {"gevent"},
    "loadtest.worker": {"gevent", "httptools"},
    "loadtest.run": {"gevent", "httptools"},
    "loadtest.users": {"gevent", "httptools", "locust"},
    "loadtest.locustfile": {"gevent", "httptools", "locust"},
    "loadtest.parquet": {"pyarrow"},
    "mockserver.step_table": {"pyarrow"},
    "mockserver.step_log": {"pyarrow"},
    "mockserver.http_server": {"aiohttp"},
    "mockserver.serving": {"aiohttp"},
}
# Modules of the front door that all rooms share.
SHARED = {"tierscope." + name for name in ("errors", "typedtoml", "prices", "wholefile")}
# What analysis may know of the other rooms.
ANALYSIS_MAY = {
    *("loadtest." + name for name in ("records", "plan", "parquet", "derive")),
    *("mockserver." + name for name in ("roofline", "hardware", "engine", "virtual")),
}


def modules(room: str) -> list[str]:
    files = sorted((ROOT / room).rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return [name for name in names if not name.endswith(("__init__", "__main__"))]


PROCESSES = 2  # what the smallest of machines has cores for
# Forks off a child for each group of modules: what every module may load, and nothing else, is there already.
FORKING = """
import importlib, json, os, sys
import msgspec, numpy
for group in sys.argv[1:]:
    out, into = os.pipe()
    if os.fork() == 0:
        try:
            for module in group.split(","):
                importlib.import_module(module)
            found = sorted(sys.modules)
        except BaseException as error:
            found = [f"{module} cannot be imported: {error!r}"]
        os.write(into, json.dumps(found).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        print(json.dumps([group, json.loads(pipe.read())]), flush=True)
    os.wait()
"""


@cache
def loaded() -> dict[str, set[str]]:
    """Names in sys.modules after importing each module in a process that had not.

    All of analysis and all of grafana are imported together: of them is only said what none may load.
    """
    alone = [*modules("loadtest"), *modules("mockserver"), *sorted(SHARED), "tierscope.cli"]
    groups = [",".join(modules("analysis")), ",".join(modules("grafana")), *alone]
    shares = [groups[start::PROCESSES] for start in range(PROCESSES)]
    commands = [[sys.executable, "-c", FORKING, *share] for share in shares]
    children = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True, cwd=ROOT) for one in commands]
    told = [child.communicate()[0] for child in children]
    assert all(child.returncode == 0 for child in children)
    found = dict(json.loads(line) for lines in told for line in lines.splitlines())
    assert set(found) == set(groups)
    return {module: set(names) for group, names in found.items() for module in group.split(",")}


def loaded_by(module: str) -> set[str]:
    """Names in sys.modules after importing one module."""
    names = loaded()[module]
    assert module in names, names
    return names


def top(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize(
    "module", [m for room in ("loadtest", "mockserver", "grafana") for m in modules(room)]
)
def test_a_module_loads_nothing_heavy_that_it_is_not_known_for(module: str) -> None:
    room = module.partition(".")[0]
    found = loaded_by(module)
    heavy = top(found) & set(HEAVY)
    if room != "grafana" and not MAY.get(module, set()) & {"locust"}:  # locust itself loads what it likes
        assert heavy <= MAY.get(module, set()), f"{module} loads {sorted(heavy)}"
    strangers = top(found) & ({*ROOMS} - {room})
    assert not strangers, f"{module} imports the room {sorted(strangers)}"


@pytest.mark.parametrize("module", sorted(MAY))
def test_a_module_is_known_for_nothing_that_it_does_not_load(module: str) -> None:
    assert MAY[module] <= top(loaded_by(module))


@pytest.mark.parametrize("module", [m for room in ROOMS for m in modules(room)])
def test_a_room_knows_only_the_shared_modules_of_the_front_door(module: str) -> None:
    assert {n for n in loaded_by(module) if n.startswith("tierscope.")} <= SHARED


@pytest.mark.parametrize("module", sorted(SHARED))
def test_shared_modules_are_pure(module: str) -> None:
    assert not top(loaded_by(module)) & {*HEAVY, *ROOMS}


@pytest.mark.parametrize("module", modules("analysis"))
def test_analysis_knows_only_the_pure_modules_of_other_rooms(module: str) -> None:
    found = loaded_by(module)
    assert not top(found) & {"gevent", "locust", "aiohttp", "prometheus_client"}
    others = {n for n in found if n.partition(".")[0] in {"loadtest", "mockserver", "grafana"} and "." in n}
    # What those modules import inside their own rooms is theirs to decide.
    direct = {n for n in others if n in direct_imports(module)}
    assert direct <= ANALYSIS_MAY, f"{module} imports {sorted(direct - ANALYSIS_MAY)}"


def direct_imports(module: str) -> set[str]:
    import ast

    tree = ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_the_command_line_answers_help_without_loading_a_room() -> None:
    assert not top(loaded_by("tierscope.cli")) & {*ROOMS, *HEAVY}


@pytest.mark.parametrize("room", [*ROOMS, "tierscope"])
def test_an_init_file_holds_a_docstring_and_nothing_else(room: str) -> None:
    import ast

    body = ast.parse((ROOT / room / "__init__.py").read_text(encoding="utf-8")).body
    assert len(body) == 1
    assert isinstance(body[0], ast.Expr)
