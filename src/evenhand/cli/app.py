"""The commands together, and their exit codes."""

from __future__ import annotations

import errno
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
from evenhand.cli.terminal import INTERRUPTED, InterruptionError, said_when_interrupted, say, with_options
from evenhand.exceptions import EvenhandError, EvenhandWarning
from evenhand.system import __version__
from evenhand.system.terminal import outlive_readers, silence

_ENDED = 143  # by SIGTERM
_INTERRUPTED = "Interrupted."
_NO_MEMORY = "There is not enough memory on this machine; read the people in batches (--stream), or use fewer columns."
_NO_TORCH = "Networks and their training need torch, which is not installed: pip install 'evenhand[torch]'."
_FILES = os.strerror(errno.EMFILE)
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


class WithoutMemory(SystemExit):
    """The end of a run that was short of memory."""


def main() -> NoReturn:
    """Run the command line. Exit codes: 0 done, 1 gate crossed, 2 bad input, 70 bug, 130 interrupted, 143 ended."""
    code, told, signals, is_of_memory = 0, "", list[int](), False

    def end(number: int, _frame: object) -> None:
        signals.append(number)
        raise KeyboardInterrupt

    # Ctrl-C is not heard in the background of a shell.
    heard = [signal.SIGTERM, *([signal.SIGINT] if signal.getsignal(signal.SIGINT) != signal.SIG_IGN else [])]
    before = [signal.signal(number, end) for number in heard]
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
        code = app(arguments, prog_name="evenhand", standalone_mode=False) or 0
        if code == INTERRUPTED:  # outside the commands, the parser makes an interrupt a code
            told = _INTERRUPTED
    except (Exception, KeyboardInterrupt) as error:
        # Libraries that are interrupted while they are loaded raise errors of their own.
        code, told = (
            (INTERRUPTED, _INTERRUPTED) if signals and type(error) is not InterruptionError else _outcome(error)
        )
        is_of_memory = code == 2 and _is_of_memory(error, anywhere=True)
    finally:
        for number, handler in zip(heard, before, strict=True):
            signal.signal(number, handler)
    if told:
        say(told, err=True)
    if is_of_memory:
        raise WithoutMemory(code)
    sys.exit(_ENDED if signal.SIGTERM in signals else code)


def _outcome(error: BaseException) -> tuple[int, str]:
    """The exit code of an error, and what is said."""
    if isinstance(error, typer.Exit):
        return error.exit_code, ""
    if isinstance(error, (InterruptionError, KeyboardInterrupt, typer.Abort)):
        return INTERRUPTED, str(error) or _INTERRUPTED
    if _is_of_memory(error):
        message = _NO_MEMORY
    elif isinstance(error, EvenhandError):
        message = str(error)
    elif isinstance(error, ModuleNotFoundError) and error.name == "torch":
        message = _NO_TORCH
    elif isinstance(error, OSError):
        is_named = error.filename is not None and error.strerror is not None
        message = f"{str(error.filename)!r} cannot be read or written: {error.strerror}." if is_named else str(error)
    elif _FILES in str(error):  # in the words of a library
        message = f"{_FILES}: allow more (ulimit -n)."
    elif hasattr(error, "format_message"):  # wrong options: the parser's own messages
        message = error.format_message()
    else:
        traceback.print_exception(error)
        return _FAULT, "This is a bug in evenhand: please report it with the lines above."
    return 2, f"Error: {with_options(message)}"


def _is_of_memory(error: BaseException | None, *, anywhere: bool = False) -> bool:
    """Whether there was no memory, for data or a library; `anywhere`: also where an error of ours says what for."""
    if error is None:
        return False
    # Of libraries, of torch, of Python itself, and of Arrow.
    signs = (
        *("failed to map segment", "annot allocate memory", "can't allocate memory", "without exception set"),
        "Failed to launch worker thread",
    )
    is_ours = isinstance(error, EvenhandError) and not isinstance(error, ImportError)
    if not is_ours and (isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)):
        return True
    is_from_beneath = anywhere or isinstance(error, ImportError)
    return is_from_beneath and _is_of_memory(error.__cause__ or error.__context__, anywhere=anywhere)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Print warnings as sentences, without the line of code that raised them."""
    if issubclass(category, EvenhandWarning):
        say(f"Warning: {with_options(str(message))}", err=True)
