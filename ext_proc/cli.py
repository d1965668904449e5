"""`isogloss`: serve, explain, check, fit, simulate, envoy bootstrap|validate."""

import argparse
import asyncio
import ipaddress
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from ext_proc import __version__
from ext_proc import config as configuration
from ext_proc.config import Config
from ext_proc.errors import ConfigError, IsoglossError
from models.errors import ModelError


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 the operator's input is wrong (said in one line), 2 usage."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except (IsoglossError, ModelError) as exc:
        print(f"isogloss: {exc}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="isogloss", description=__doc__)
    parser.add_argument("--version", action="version", version=f"isogloss {__version__}")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = _command(commands, "serve", _serve, "run the ext_proc service")
    serve.add_argument("--worker", type=int, help=argparse.SUPPRESS)

    explain = _command(commands, "explain", _explain, "show the decision the service would take, and why")
    what = explain.add_mutually_exclusive_group(required=True)
    what.add_argument("--prompt", help="what the user asks")
    what.add_argument("--body", type=Path, help="a request body, JSON")
    explain.add_argument("--ip", help="the client's address")
    explain.add_argument("--path", default="/v1/chat/completions")
    explain.add_argument("--model", help="with --prompt: the model named (default: auto, where a pool names one)")
    explain.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="a request header")
    explain.add_argument("--json", action="store_true", help="for machines")

    _command(commands, "check", _check, "validate a configuration")

    envoy = commands.add_parser("envoy", help="the Envoy configuration that goes with it")
    actions = envoy.add_subparsers(required=True, metavar="ACTION")
    bootstrap = _command(actions, "bootstrap", _bootstrap, "print a working Envoy bootstrap")
    bootstrap.add_argument("--access-log", type=Path, help="where Envoy writes a JSON line a request")
    _command(actions, "validate", _validate, "let Envoy itself check that bootstrap")

    fit = _command(commands, "fit", _fit, "train intents from labelled seeds and unlabelled traffic")
    fit.add_argument("--seeds", type=Path, default=None, help='JSONL of {"text", "intent"}; default: the shipped set')
    fit.add_argument("--traffic", type=Path, help='JSONL of {"text"}, unlabelled')
    fit.add_argument("--out", type=Path, required=True, help="the bundle directory to write")
    fit.add_argument("--method", choices=("seeded", "plain"), default="seeded")
    fit.add_argument("--k", type=int, default=8, help="clusters")
    fit.add_argument("--seed-weight", type=float, default=20.0, help="what a seed counts while refitting on traffic")
    fit.add_argument("--traffic-weight", type=float, default=1.0, help="what a prompt of the traffic counts")
    fit.add_argument("--random-state", type=int, default=0)

    sim = commands.add_parser("simulate", help="run the strategies on fleets that exist only in numbers")
    sim.add_argument("names", nargs="*", metavar="NAME", help="scenarios; default: all")
    sim.add_argument("--seeds", type=int, default=10, help="how many")
    sim.add_argument("--first-seed", type=int, default=1)
    sim.add_argument("--json", type=Path, metavar="FILE", help="everything, for machines")
    sim.add_argument("--plots", type=Path, metavar="DIR", help="PNG files; needs isogloss[plots]")
    sim.add_argument("--traces", type=Path, metavar="DIR", help="recorded requests; default: ../shared/traces")
    sim.add_argument("--list", action="store_true", help="name the scenarios and stop")
    sim.add_argument("--ablate", action="store_true", help="the default strategy with each of its terms off in turn")
    sim.set_defaults(run=_simulate)
    return parser


def _simulate(options: argparse.Namespace) -> int:
    from ext_proc import simulation_command  # noqa: PLC0415 - the service does without

    return simulation_command.simulate(options)


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[[argparse.Namespace], int],
    help_: str,
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=help_, description=help_)
    command.add_argument("--config", type=Path, default=Path("isogloss.yaml"))
    command.set_defaults(run=run)
    return command


def _serve(options: argparse.Namespace) -> int:
    config = configuration.load(options.config)
    if config.server.workers > 1 and options.worker is None:
        from ext_proc import workers  # noqa: PLC0415 - the supervisor must not load gRPC or the encoder

        command = ["-m", "ext_proc.cli", "--log-level", options.log_level, "serve", "--config", str(options.config)]
        return asyncio.run(workers.Supervisor(command, config.server.workers).run())
    import uvloop  # noqa: PLC0415 - other commands do without

    from ext_proc import app  # noqa: PLC0415

    uvloop.run(app.serve(config, options.worker or 0, supervised=options.worker is not None))
    return 0


def _explain(options: argparse.Namespace) -> int:
    from ext_proc import explain  # noqa: PLC0415 - loads the encoder

    config = configuration.load(options.config)
    headers = dict(_header(text) for text in options.header)
    if options.ip is not None:
        _address(options.ip)
    if options.body is not None:
        body = _read(options.body)
    else:
        # `auto` means something only where a pool names a model.
        auto = config.rules.auto_model if any(pool.model for pool in config.rules.pools.values()) else None
        said = {"model": options.model or auto, "messages": [{"role": "user", "content": options.prompt}]}
        body = json.dumps({name: value for name, value in said.items() if value is not None}).encode()
    told = asyncio.run(explain.ask(config, path=options.path, headers=headers, body=body, address=options.ip))
    print(explain.as_json(told).decode()) if options.json else explain.show(told)
    return 0


def _check(options: argparse.Namespace) -> int:
    from ext_proc import check  # noqa: PLC0415 - reads databases and bundles

    found = check.check(configuration.load(options.config))
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for mistake in found.mistakes:
        print(f"isogloss: {mistake}", file=sys.stderr)
    if found.mistakes:
        return 1
    print(f"{options.config}: good")
    return 0


def _bootstrap(options: argparse.Namespace) -> int:
    print(_envoy(options, options.access_log), end="")
    return 0


def _validate(options: argparse.Namespace) -> int:
    from ext_proc import envoy  # noqa: PLC0415

    envoy.validate(_envoy(options))
    print(f"{options.config}: Envoy accepts the bootstrap")
    return 0


def _envoy(options: argparse.Namespace, access_log: Path | None = None) -> str:
    from ext_proc import envoy  # noqa: PLC0415 - Envoy's types take a second to import

    config: Config = configuration.load(options.config)
    return envoy.render(config, access_log)


def _fit(options: argparse.Namespace) -> int:
    from rich.progress import Progress  # noqa: PLC0415 - fitting is an offline job with its own extra

    from ext_proc.app import encoder  # noqa: PLC0415
    from models import bundle, fit  # noqa: PLC0415
    from models.backends import open_embedder  # noqa: PLC0415

    config = configuration.load(options.config) if options.config.exists() else Config()
    settings = encoder(config.encoder)
    if settings.model is None:  # the packaged encoder is read at the layer the shipped bundle found best for intents
        settings = bundle.load().encoder(settings)
    recipe = fit.Recipe(
        k=options.k,
        method=options.method,
        seed_weight=options.seed_weight,
        traffic_weight=options.traffic_weight,
        seed=options.random_state,
    )
    with Progress(transient=True) as bar:
        task = bar.add_task("embedding", total=None)
        made = fit.fit_bundle(
            options.seeds or bundle.DEFAULT.parent / "data" / "seeds.jsonl",
            options.traffic,
            options.out,
            open_embedder(settings),
            recipe=recipe,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    print(f"{options.out}: bundle {made.manifest.id}, intents {', '.join(made.names)}")
    for name, value in made.manifest.quality.items():
        print(f"  {name} {value:g}")
    return 0


def _header(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise ConfigError(f"--header {text!r}: expected NAME=VALUE")
    return name.strip().lower(), value.strip()


def _address(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ConfigError(f"--ip {text!r}: not an IP address") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"--body: cannot read {path}: {exc.strerror}") from exc


if __name__ == "__main__":
    sys.exit(main())
