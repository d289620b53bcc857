"""`rangecast serve`, `token`, `publish`, `subscribe` and `tail`: the live broker from the shell."""

from __future__ import annotations

import json
import logging
import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rangecast.cli.console import OK, REJECTED, options_of, say
from rangecast.client import Client
from rangecast.durable.bucket import local_place
from rangecast.errors import OptionError, SetupError, extra_hint
from rangecast.types.schema import Schema

Address = Annotated[str, typer.Option(help="Address of the broker.", envvar="RANGECAST_URL")]
TokenText = Annotated[str | None, typer.Option(help="Token of the broker.", envvar="RANGECAST_TOKEN")]
SpaceName = Annotated[str, typer.Option(help="Space of the broker.")]
_HERE = "http://127.0.0.1:8080"
_log = logging.getLogger("rangecast.broker")


def serve(
    data: Annotated[Path | None, typer.Option(help="Folder for subscriptions, events and cursors.")] = None,
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT to listen on.", show_default="127.0.0.1:8080")
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="Schema file (TOML) for creating the space.")] = None,
    space: Annotated[str, typer.Option(help="The space that --schema is for.")] = "main",
    tokens: Annotated[Path | None, typer.Option(help="File of tokens; see `rangecast token`.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with these options, limits and spaces.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="Certificate file (PEM), for TLS.")] = None,
    key: Annotated[Path | None, typer.Option(help="Key file (PEM) of the certificate.")] = None,
    origin: Annotated[
        list[str] | None, typer.Option(help="Origin whose pages may call the broker (CORS); repeat for more.")
    ] = None,
    host_name: Annotated[
        list[str] | None,
        typer.Option(help="Name that requests without tokens may call the broker by; repeat for more."),
    ] = None,
    object_key: Annotated[
        str | None, typer.Option(help="Attribute of --schema whose events are states of one object.")
    ] = None,
    index: Annotated[
        str | None, typer.Option(help="Index of the space, when --schema makes it.", show_default="auto")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Option of that index, as in 'on=price'; repeat for more.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Has no effect since 0.5: one process serves and delivers.")
    ] = None,
    log: Annotated[str | None, typer.Option(help="How logs are written to stderr: text or json.")] = None,
) -> None:
    """Serve subscriptions and events over HTTP, until SIGTERM or Ctrl-C.

    The page is at the address itself; docs/broker.md has the guide.
    """
    given = _read_config(config)
    folder = data or (Path(given["data"]) if "data" in given else None)
    if folder is None:
        raise OptionError("--data must name the folder of the broker")
    folder = Path(local_place(folder, "--data"))
    spaces = given.get("spaces", {})
    host, port = _host_and_port(listen or given.get("listen", "127.0.0.1:8080"))
    try:
        from rangecast.broker.access import SpaceLimits
        from rangecast.broker.broker import Broker, BrokerSettings
        from rangecast.broker.metrics import log_to
        from rangecast.broker.server import check_address, check_connections
        from rangecast.broker.server import serve as run
    except ImportError as error:
        raise SetupError(f"rangecast serve needs {error.name}: {extra_hint('serve')}") from None
    log_to(sys.stderr, log or given.get("log", "text"))
    if given.get("workers", 0) if workers is None else workers:
        _log.warning(
            "--workers has no effect since 0.5: one process serves and delivers; to use more cores, "
            "divide the spaces among several brokers"
        )
    token_file = tokens or (Path(given["tokens"]) if "tokens" in given else None)
    settings = BrokerSettings(
        data=folder,
        host=host,
        port=port,
        tokens=token_file,
        certificate=certificate or _path(given.get("certificate")),
        key=key or _path(given.get("key")),
        origins=[*(origin or []), *given.get("origins", [])],
        host_names=[*(host_name or []), *given.get("host_names", [])],
        open_connections=given.get("open_connections", BrokerSettings.open_connections),
        limits=SpaceLimits.of(given.get("limits", {})),
        space_limits={name: SpaceLimits.of(entry.get("limits", {})) for name, entry in spaces.items()},
        private_hooks=bool(given.get("private_hooks", False)),
    )
    check_address(settings)
    check_connections(settings)
    broker = Broker(settings)
    scheme = "http" if settings.certificate is None else "https"
    wanted: dict[str, tuple[Any, ...]] = {}
    if schema is not None:
        options = options_of(option) if option else None
        wanted[space] = Schema.from_toml(schema), object_key, index, options
    for name, entry in spaces.items():
        if "attributes" in entry:
            made = Schema.from_dict(entry["attributes"])
            wanted[name] = made, entry.get("object_key"), entry.get("index"), entry.get("options")

    def open_spaces() -> None:
        broker.open()
        for name, arguments in wanted.items():
            broker.ensure_space(name, *arguments)
        for name in spaces:
            if name not in broker.spaces:
                raise OptionError(
                    f"{config}: the space {name!r} is not there yet, so it must have attributes"
                )

    def tell_ready() -> None:
        names = ", ".join(sorted(broker.spaces)) or "no space yet"
        say(f"rangecast: serving {names} at {scheme}://{host}:{port}")

    run(broker, open_spaces, tell_ready)


def token(
    name: Annotated[str, typer.Argument(help="Who it is for; also the consumer that it may be.")],
    tokens: Annotated[Path, typer.Option(help="File of tokens, created if it does not exist.")],
    scope: Annotated[list[str], typer.Option(help="publish, subscribe, read or admin; repeat for more.")],
    space: Annotated[list[str] | None, typer.Option(help="A space; all by default.")] = None,
    consumer: Annotated[list[str] | None, typer.Option(help="A consumer, or *; the name by default.")] = None,
) -> None:
    """Make a token and print it once; the file keeps only its hash."""
    from rangecast.broker.access import add_token

    typer.echo(add_token(tokens, name, scope, space or ["*"], consumer or []))


def publish(
    url: Address = _HERE,
    token: TokenText = None,
    space: SpaceName = "main",
    batch: Annotated[int, typer.Option(min=1, help="Events in one request.")] = 500,
) -> None:
    """Publish JSON lines from stdin; rejected lines go to stderr, with exit code 1."""
    with Client(url, token, space=space) as client, client.publisher(batch) as publisher:
        n = 0
        bad = 0
        for event in _lines_of_stdin():
            if event is None:
                bad += 1
                continue
            publisher.send(event)
            n += 1
        publisher.flush()
        for row in publisher.rejected:
            say(f"rangecast: rejected {json.dumps(row['event'])}: {row['reason']}")
    bad += len(publisher.rejected)
    published = n - len(publisher.rejected)
    say(f"rangecast: published {published:,} event{'s' * (published != 1)}, rejected {bad:,}")
    raise typer.Exit(REJECTED if bad else OK)


def subscribe(
    consumer: Annotated[str, typer.Argument(help="The consumer.")],
    name: Annotated[str, typer.Argument(help="Name of the subscription.")],
    condition: Annotated[
        str | None, typer.Argument(help="The condition; leave it out to delete the subscription.")
    ] = None,
    ttl: Annotated[str | None, typer.Option(help="How long it is kept, as in 90s, 2h or 1d.")] = None,
    payload: Annotated[str | None, typer.Option(help="JSON that is kept with it.")] = None,
    url: Address = _HERE,
    token: TokenText = None,
    space: SpaceName = "main",
) -> None:
    """Add a subscription to a broker, replace it, or delete it."""
    try:
        kept = None if payload is None else json.loads(payload)
    except ValueError as error:
        raise OptionError(f"--payload must be JSON: {error}") from None
    with Client(url, token, space=space) as client:
        if condition is None:
            answer = client.unsubscribe(consumer, name)
        else:
            answer = client.subscribe(consumer, name, condition, ttl, kept)
    typer.echo(json.dumps(answer))


def tail(
    consumer: Annotated[str, typer.Argument(help="The consumer.")],
    start: Annotated[
        str, typer.Option("--from", help="earliest (after what was acknowledged), now, or a number.")
    ] = "earliest",
    ack: Annotated[bool, typer.Option(help="Acknowledge each message after it was printed.")] = False,
    most: Annotated[int | None, typer.Option("--max", min=1, help="End after this many messages.")] = None,
    notices: Annotated[
        bool, typer.Option(help="Print other messages too, such as progress and gaps.")
    ] = False,
    url: Address = _HERE,
    token: TokenText = None,
    space: SpaceName = "main",
) -> None:
    """Print the messages of a consumer as JSON lines, as they come; resumes when the connection breaks."""
    n = 0
    with Client(url, token, space=space) as client:
        for message in client.stream(consumer, start, notices=notices):
            content = {"type": message.kind, **message.content} if notices else message.content
            typer.echo(json.dumps(content, ensure_ascii=False))
            sys.stdout.flush()
            if ack and message.sequence is not None:
                client.ack(consumer, message.sequence)
            n += message.kind == "match"
            if most is not None and n >= most:
                return


def _lines_of_stdin() -> Iterator[dict[str, Any] | None]:
    """The objects of stdin's lines; None for a line that is none, after a word to stderr."""
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError as error:
            say(f"rangecast: line {number}: not JSON: {error}")
            yield None
            continue
        if not isinstance(event, dict):
            say(f"rangecast: line {number}: must be a JSON object, got {type(event).__name__}")
            yield None
            continue
        yield event


def _read_config(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    known = {
        "data", "listen", "tokens", "certificate", "key", "origins", "limits", "spaces", "private_hooks",
        "log", "workers", "host_names", "open_connections",
    }  # fmt: skip
    try:
        with open(path, "rb") as file:
            given = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"{path}: cannot be read: {error}") from None
    extra = sorted(set(given) - known)
    if extra:
        raise OptionError(
            f"{path}: there is no setting {', '.join(extra)}; there are {', '.join(sorted(known))}"
        )
    for name, entry in given.get("spaces", {}).items():
        extra = sorted(set(entry) - {"attributes", "limits", "object_key", "index", "options"})
        if extra:
            raise OptionError(
                f"{path}: a space has attributes, limits, object_key, index and options; "
                f"{name} has {extra[0]}"
            )
    return given


def _path(text: Any) -> Path | None:
    return None if text is None else Path(os.fspath(text))


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise OptionError(f"--listen takes HOST:PORT, such as 127.0.0.1:8080, got {text!r}")
    return host.strip("[]"), int(port)
