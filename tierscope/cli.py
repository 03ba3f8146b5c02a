"""The command line: reads arguments, calls one function per command, and turns failures into one line.

Exit codes: 0 done · 1 the thing asked is not so · 2 bad usage or input · 3 the run itself failed. Commands
import what they need when they run, so that ``--help`` is instant and locust patches only its own process.
"""

import contextlib
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from tierscope.errors import BadInputError, RunFailedError, ToldError

_TYPER_STOPPED = 130
"""What typer makes of Ctrl-C."""

app = typer.Typer(
    name="tierscope",
    help="Tell from the outside what an LLM server is doing: load it, stamp every token, explain the timing.",
    no_args_is_help=True,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
grafana_app = typer.Typer(
    help="Dashboards, Prometheus configuration and a compose file.", no_args_is_help=True
)
app.add_typer(grafana_app, name="grafana")


def _within(low: float, high: float) -> Any:
    """Make an option's callback that refuses a number outside of [low, high], naming it."""

    def check(param: typer.CallbackParam, value: float | None) -> float | None:
        if value is not None and not low <= value <= high:
            option = max(param.opts, key=len)
            raise BadInputError(f"{option}: {value} is not allowed; expected {low:.15g} to {high:.15g}")
        return value

    return check


Port = Annotated[int, typer.Option(callback=_within(0, 65535), help="0 takes a free one.")]
MetricsPort = Annotated[
    int, typer.Option(callback=_within(0, 65535), help="Prometheus metrics while the run lasts; 0: none.")
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", callback=_within(0, 2**63 - 1), help="Overrides the seed of the plan or profile."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Write into a folder that holds files already.")]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tierscope {version('tierscope')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Hold what comes before a command."""


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="Folder for the run and its report.")] = None,
    profile: Annotated[
        str, typer.Option(help="Server profile: a shipped name or a TOML file.")
    ] = "fast-tier",
    seed: SeedOption = None,
) -> None:
    """Start a mock server with a standard and a fast tier, load both, and report: one command, a minute.

    Example: tierscope demo
    """
    from tierscope.demo import run_demo

    run_demo(profile=profile, out=out, seed=seed)


@app.command()
def serve(
    profile: Annotated[str, typer.Argument(help="A shipped profile's name or a TOML file.")] = "fast-tier",
    port: Port = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    seed: Annotated[
        int | None,
        typer.Option("--seed", callback=_within(0, 2**63 - 1), help="Overrides the profile's seed."),
    ] = None,
    step_log: Annotated[
        Path | None, typer.Option(help="Parquet file for every step of the engines (docs/truth.md).")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print the law's numbers and exit.")] = False,
) -> None:
    """Run the mock server: OpenAI's and Anthropic's APIs at http://HOST:PORT/v1, its own truth on /metrics.

    Example: tierscope serve fast-tier --port 8000 --step-log steps.parquet
    """
    from tierscope.serve import explain_profile, serve_profile

    if explain:
        explain_profile(profile)
    else:
        serve_profile(profile, host=host, port=port, seed=seed, step_log=step_log)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": False})
def run(
    context: typer.Context,
    plan: Annotated[str, typer.Argument(help="A shipped plan's name (ab, smoke, steady, …) or a TOML file.")],
    url: Annotated[str, typer.Option(help="Where the server is: http://host:port, with or without /v1.")],
    model: Annotated[
        str | None, typer.Option(help="The model to ask for; left out, the server is asked what it has.")
    ] = None,
    api: Annotated[
        str, typer.Option(help="How the server speaks: openai (chat), completions, responses or anthropic.")
    ] = "openai",
    out: Annotated[Path | None, typer.Option(help="Run folder; default: runs/PLAN-TIME.")] = None,
    seed: SeedOption = None,
    metrics_port: MetricsPort = 9464,
    scrape: Annotated[
        str | None, typer.Option(help="Record the server's own metrics from this URL; auto: where they are.")
    ] = None,
    linger_s: Annotated[
        int,
        typer.Option(callback=_within(0, 3600), help="Wait so long at most for a last scrape by Prometheus."),
    ] = 15,
    web: Annotated[bool, typer.Option("--web", help="Locust's web UI instead of a headless run.")] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Accept any TLS certificate.")] = False,
    ca_file: Annotated[
        Path | None, typer.Option(help="Trust these authorities (PEM) in place of the system's.")
    ] = None,
    stamps: Annotated[
        str, typer.Option(help="Whose clock stamps arrivals: kernel, user (the reader's), or auto.")
    ] = "auto",
    until: Annotated[
        str | None,
        typer.Option(help="verdict: stop once the comparison of tiers is conclusive; stages: at the end."),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(help="A price file, laid over the shipped one, for the plan's cost ceiling."),
    ] = None,
    workers: Annotated[
        int, typer.Option(callback=_within(0, 256), help="Send from so many processes; 0: from one alone.")
    ] = 0,
) -> None:
    """Load a server according to a plan and record every token's arrival.

    The API key comes from the environment (TIERSCOPE_API_KEY, or OPENAI_API_KEY or ANTHROPIC_API_KEY) and is
    written nowhere. What follows -- goes to Locust.

    Example: tierscope run ab --url http://127.0.0.1:8000 --model demo
    """
    from tierscope.run import run_plan

    run_plan(
        plan,
        url=url,
        model=model,
        api=api,
        out=out,
        seed=seed,
        metrics_port=metrics_port,
        web=web,
        insecure=insecure,
        ca_file=ca_file,
        stamps=stamps,
        workers=workers,
        scrape=scrape,
        linger_s=linger_s,
        until=until,
        prices=prices,
        locust_options=context.args,
    )


@app.command()
def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="INPUT...",
            help="Run folders of one target; or files of other tools, a summary or a /metrics page "
            "(docs/sources.md), each FILE or TIER=FILE.",
        ),
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Ask a Prometheus server instead, http://HOST:PORT.")
    ] = None,
    run: Annotated[str | None, typer.Option("--run", help="For --prometheus: id of the run.")] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="For --prometheus: unix seconds or ISO 8601.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="For --prometheus: the same; default: now.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="HTML file; default: report.html in the run, or beside the file."),
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Also as JSON (docs/report.md).")] = None,
    md: Annotated[Path | None, typer.Option("--md", help="Also as Markdown, figures beside it.")] = None,
    hardware: Annotated[
        str | None,
        typer.Option(help="What the server runs on: a profile's name or a TOML file with \\[deployment]."),
    ] = None,
    context_tokens: Annotated[
        float | None,
        typer.Option(
            callback=_within(1, 10_000_000), help="Mean context of all users of the server, for --hardware."
        ),
    ] = None,
    price_ratio: Annotated[
        float | None,
        typer.Option(callback=_within(0.01, 1000), help="Price of the compared tier / of the baseline."),
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="Tier to compare with.")] = None,
    compared: Annotated[str | None, typer.Option(help="Tier to compare.")] = None,
    margin: Annotated[
        float,
        typer.Option(
            "--margin",
            "--prefill-margin",
            callback=_within(0.01, 0.5),
            help="A smaller change of prefill is no change.",
        ),
    ] = 0.10,
    decode_margin: Annotated[
        float, typer.Option(callback=_within(0.01, 0.5), help="A smaller change of decode is no change.")
    ] = 0.05,
    law_error: Annotated[
        float | None,
        typer.Option(
            callback=_within(0.01, 2),
            help="How far steps may be off the hardware's law, for --hardware: 0.2 is 20 %.",
        ),
    ] = None,
    profit_ratios: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="For --price-ratio: price/cost of the compared tier over the baseline's, from … to ….",
        ),
    ] = None,
    calibration: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN_DIR", help="A sweep of these tiers with nobody else there; repeatable."),
    ] = None,
) -> None:
    """Say what the server must be doing: verdict, step time, batch, all with intervals.

    Example: tierscope report runs/ab-20260101-120000 --hardware fast-tier
    """
    from tierscope.report import question, report_runs

    paths = report_runs(
        runs or [],
        asked=question(prometheus, run, begin, end),
        html=out,
        json=json,
        md=md,
        hardware=hardware,
        context_tokens=context_tokens,
        price_ratio=price_ratio,
        baseline=baseline,
        compared=compared,
        margin=margin,
        decode_margin=decode_margin,
        law_error=law_error,
        profit_ratios=profit_ratios,
        calibration=calibration or [],
    )
    for path in paths:
        typer.echo(str(path))


@app.command()
def simulate(
    plan: Annotated[str, typer.Argument(help="A shipped plan's name or a TOML file.")],
    profile: Annotated[str, typer.Option(help="A shipped profile's name or a TOML file.")],
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    seed: SeedOption = None,
    force: ForceOption = False,
    step_log: Annotated[Path | None, typer.Option(help="Write every step into this Parquet file.")] = None,
) -> None:
    """Do a run in virtual time against the mock's engine: same run folder, in a second or two.

    Example: tierscope simulate ab --profile fast-tier --seed 7 --out runs/sim-7
    """
    from tierscope.simulate import simulate_run

    simulate_run(plan, profile=profile, seed=seed, out=out, force=force, step_log=step_log)


@app.command()
def capacity(
    trace: Annotated[
        Path, typer.Argument(help="A published trace: Azure, BurstGPT, Mooncake, Qwen-Bailian.")
    ],
    profile: Annotated[str, typer.Option(help="A shipped profile's name or a TOML file.")],
    ttft_s: Annotated[
        float, typer.Option(callback=_within(0.001, 3600), help="Most seconds to the first token.")
    ],
    tpot_s: Annotated[
        float, typer.Option(callback=_within(0.0001, 60), help="Most seconds for each further token.")
    ],
    tier: Annotated[str | None, typer.Option(help="Which tier serves it; default: the first.")] = None,
    goodput: Annotated[
        float, typer.Option(callback=_within(0.01, 1), help="Share of the requests to keep both.")
    ] = 0.99,
    replicas: Annotated[str, typer.Option(help="Where to look: LOW..HIGH.")] = "1..64",
    trace_format: Annotated[
        str | None, typer.Option("--format", help="azure, mooncake, qwen or burstgpt; default: as it looks.")
    ] = None,
    scale: Annotated[
        float, typer.Option(callback=_within(0.001, 1000), help="Times the trace's own rate.")
    ] = 1.0,
    limit: Annotated[
        int | None,
        typer.Option(callback=_within(1, 100_000_000), help="Use the first so many requests only."),
    ] = None,
    seed: SeedOption = None,
) -> None:
    """Find how many replicas of a tier keep a promise under a trace of traffic, in virtual time.

    Example: tierscope capacity conv.csv --profile h100-70b --ttft-s 2 --tpot-s 0.08
    """
    from tierscope.capacity import plan_capacity

    plan_capacity(
        trace,
        profile=profile,
        tier=tier,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        goodput_ratio=goodput,
        replicas=replicas,
        format_name=trace_format,
        scale=scale,
        limit=limit,
        seed=seed,
    )


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="Plans, server profiles and price files.")],
) -> None:
    """Check plans, server profiles and price files: a line each; a bad one's says what is wrong and where.

    Example: tierscope validate my-plan.toml my-server.toml
    """
    from tierscope.validate import validate_files

    if not validate_files(files):
        raise typer.Exit(2)


@grafana_app.command("export")
def grafana_export(
    folder: Annotated[Path, typer.Argument(help="Where to write.")],
    force: ForceOption = False,
) -> None:
    """Write dashboards, provisioning, Prometheus configuration, rules and a compose file.

    Example: tierscope grafana export ./monitoring
    """
    from grafana.stack import export

    for path in export(folder, force=force):
        typer.echo(str(path))


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code; ``argv`` defaults to the process's arguments."""
    command: Any = typer.main.get_command(app)
    _take_any_character()
    try:
        outcome = command.main(args=argv, prog_name="tierscope", standalone_mode=False)
        if sys.stdout is not None:  # it is None where it was closed from the start
            sys.stdout.flush()  # here, where what goes wrong can be told
    except TyperException as error:
        return _say(_usage_line(error), code=2) if error.format_message() else 2  # else: help was printed
    except BadInputError as error:
        return _say(str(error), code=2)
    except RunFailedError as error:
        return _say(str(error), code=3)
    except ToldError as error:
        return error.code
    except (KeyboardInterrupt, typer.Abort):
        return _stopped()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # typer makes an exit of it
            return _unread()
        raise
    except BrokenPipeError:
        return _unread()
    except OSError as error:  # a full disk behind stdout, no more file descriptors, …
        where = f"{error.filename}: " if error.filename else ""
        _forget_output()
        return _say(f"{where}{error.strerror or error}", code=3)
    if outcome == _TYPER_STOPPED:
        return _stopped()
    return outcome if isinstance(outcome, int) else 0


def _take_any_character() -> None:
    """A terminal or a locale that lacks a character is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _stopped() -> int:
    return _say("stopped by you", code=3)


def _unread() -> int:
    """The reader of our output went away (``| head``); nothing of ours failed."""
    _forget_output()
    return 0


def _forget_output() -> None:
    """Let nothing be written to stdout any more, or Python complains on its way out."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage_line(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tierscope"
    message = error.format_message().strip().rstrip(".").replace("\n", " ")
    return f"{message} (see '{path} --help')"


def _say(line: str, *, code: int) -> int:
    if sys.stderr is not None:
        sys.stderr.write(f"tierscope: {line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
