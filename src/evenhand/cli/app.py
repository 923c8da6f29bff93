"""The commands together, and their exit codes."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from typing import Annotated, Any, NoReturn

import typer

from evenhand.cli.audits import audit, check, compare, demo, monitor, report, sensitivity, verify
from evenhand.cli.models import search, train
from evenhand.cli.other import app as pages
from evenhand.cli.other import data_app, reproduce
from evenhand.cli.terminal import INTERRUPTED, said_when_interrupted, say, with_options
from evenhand.exceptions import EvenhandError, EvenhandWarning
from evenhand.system import __version__
from evenhand.system.terminal import outlive_readers, silence

_ENDED = 143  # by SIGTERM
_NO_MEMORY = "There is not enough memory on this machine; read the people in batches (--stream), or use fewer columns."
_NO_TORCH = "Networks and their training need torch, which is not installed: pip install 'evenhand[torch]'."
_FAULT = 70  # EX_SOFTWARE of sysexits.h: not the code of a crossed gate

app = typer.Typer(
    name="evenhand",
    help="Audit how a credit model decides, not only what it decides.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (check, audit, report, sensitivity, verify, demo, compare, monitor, train, search, reproduce, pages):
    app.command()(said_when_interrupted(command))
app.add_typer(data_app, name="data")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        say(__version__)
        raise typer.Exit


@app.callback()
def start(
    context: typer.Context,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print warnings and errors only. It may also follow the command.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Audit how a credit model decides, not only what it decides."""
    if quiet:
        context.with_resource(silence())


@app.command("version")
def print_version() -> None:
    """Print the version."""
    say(__version__)


@app.command()
def versions() -> None:
    """Print the versions of evenhand, Python and the libraries it uses, to include in a bug report."""
    from evenhand.system.libraries import show_versions

    show_versions()


def main() -> NoReturn:
    """Run the command line. Exit codes: 0 done, 1 gate crossed, 2 bad input, 70 bug, 130 interrupted, 143 ended."""
    code: object = 0
    ended: list[int] = []

    def end(number: int, _frame: object) -> None:
        ended.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    outlive_readers()
    # By default, torch's threads wait for each other in a busy loop: beside other work, that can double the CPU time.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded, which no command has done yet
    arguments = sys.argv[1:]
    if arguments in ([], ["data"]):
        arguments.append("--help")
    quiet = [argument for argument in arguments if argument in ("--quiet", "-q")][:1]
    arguments = [*quiet, *(argument for argument in arguments if argument not in quiet)]
    try:
        code = app(arguments, prog_name="evenhand", standalone_mode=False)
    except EvenhandError as error:
        _fail(str(error))
    except OSError as error:
        is_named = error.filename is not None and error.strerror is not None
        _fail(f"{str(error.filename)!r} cannot be read or written: {error.strerror}." if is_named else str(error))
    except typer.Exit as done:
        code = done.exit_code
    except (KeyboardInterrupt, typer.Abort):
        say("Interrupted.", err=True)
        code = INTERRUPTED
    except MemoryError:
        _fail(_NO_MEMORY)
    except Exception as error:  # wrong options: the parser's own messages
        if "allocate memory" in str(error):  # of torch
            _fail(_NO_MEMORY)
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            _fail(_NO_TORCH)
        if not hasattr(error, "format_message"):
            traceback.print_exc()
            say("This is a bug in evenhand: please report it with the lines above.", err=True)
            sys.exit(_FAULT)
        _fail(error.format_message())
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(_ENDED if ended else code if isinstance(code, int) else 0)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Print warnings as sentences, without the line of code that raised them."""
    if issubclass(category, EvenhandWarning):
        say(f"Warning: {with_options(str(message))}", err=True)


def _fail(message: str) -> NoReturn:
    say(f"Error: {with_options(message)}", err=True)
    sys.exit(2)
