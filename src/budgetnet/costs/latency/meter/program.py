"""`budgetnet meter`, and the same as one file to copy: arguments, the token, and what is printed."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from budgetnet.costs.latency.meter import machine
from budgetnet.costs.latency.meter.server import Limits, Server

TOKEN = "BUDGETNET_METER_TOKEN"
"""The environment variable that may hold the token, here and where the client runs."""
SHORTEST = 16
"""The least number of characters of a token that a user chooses."""
FILES = (
    "costs/latency/timing.py",
    *(f"costs/latency/meter/{name}.py" for name in ("screening", "machine", "child", "server", "program")),
)
"""What the one file holds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the meter until it is interrupted.

    Args:
        arguments: the words of the command line; those of this process if not given.

    Returns:
        The exit code: 0 after an interrupt, 2 for bad input.
    """
    try:
        given = _parser().parse_args(arguments)
    except SystemExit as ended:  # help was asked for, or an argument was wrong
        return int(ended.code or 0)
    try:
        if given.write is not None:
            write_program(given.write)
            print(f"{given.write} holds the meter: copy it to the device and run it there with python3")
            return 0
        _need_runtime()
        token, shown = _token(given.token_file)
        limits = Limits(
            body=given.max_megabytes << 20,
            seconds=given.max_seconds,
            memory=given.max_memory_megabytes << 20,
            request_seconds=given.max_request_seconds,
        )
        server = Server((given.host, given.port), token, limits, _log)
    except (OSError, ValueError, OverflowError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    _serve(server, token if shown else None)
    return 0


def _serve(server: Server, token: str | None) -> None:
    """Answers until an interrupt or a termination signal, and then ends what it was measuring."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    host, port = server.server_address[:2]
    about = machine.describe()
    try:
        print(f"meter: {about['processor']}, {about['cores']} cores; listening on http://{host!s}:{port}", flush=True)
        if token is not None:
            print(f"token: {token}   (where the search runs: export {TOKEN}=…)", flush=True)
        if host not in ("127.0.0.1", "::1"):
            print("the link is not encrypted: use a network that you trust, or a tunnel such as ssh -L", flush=True)
        server.serve_forever()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        server.server_close()


def write_program(path: Path) -> None:
    """Writes the whole meter as one file, which any Python 3.11 or later runs: `python3 meter.pyz`.

    Args:
        path: The file to write, such as meter.pyz.
    """
    package = Path(__file__).parents[3]
    with path.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in FILES:
                archive.writestr(f"budgetnet/{name}", (package / name).read_bytes())
            for folder in ("", "costs/", "costs/latency/", "costs/latency/meter/"):
                archive.writestr(f"budgetnet/{folder}__init__.py", b"")
            archive.writestr(
                "__main__.py",
                b"from budgetnet.costs.latency.meter.program import main\nraise SystemExit(main())\n",
            )


def _need_runtime() -> None:
    try:
        import numpy  # noqa: F401
        import onnxruntime  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise ValueError(f"the meter needs {error.name} on this machine: pip install numpy onnxruntime") from None


def _token(file: Path | None) -> tuple[str, bool]:
    """The token and whether to show it: from a file, from the environment, or made now."""
    if file is None and TOKEN not in os.environ:
        return secrets.token_urlsafe(24), True
    token = (os.environ[TOKEN] if file is None else file.read_text(encoding="utf-8")).strip()
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        where = TOKEN if file is None else file
        raise ValueError(
            f"the token in {where} is not {SHORTEST} or more printable characters; leave it out for a new one"
        )
    return token, False


def _log(line: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="budgetnet meter",
        description="Measure networks on this machine for searches that run elsewhere. Needs no torch.",
        epilog="There, a budget names this machine: latency(target=http://HOST:8700)<=30ms",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine only)"
    )
    parser.add_argument("--port", type=int, default=8700, help="port to listen on (default: %(default)s)")
    parser.add_argument("--token-file", type=Path, help=f"file that holds the token (else {TOKEN}, else a new one)")
    parser.add_argument("--max-megabytes", type=_positive, default=64, help="largest request (default: %(default)s)")
    parser.add_argument("--max-seconds", type=_positive, default=120, help="longest measurement (default: %(default)s)")
    parser.add_argument(
        "--max-request-seconds",
        type=_positive,
        default=60,
        help="longest time to send a request (default: %(default)s)",
    )
    parser.add_argument(
        "--max-memory-megabytes",
        type=_positive,
        default=2048,
        help="most memory of a measurement (default: %(default)s)",
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the meter as one file (meter.pyz), and stop")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above zero")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
