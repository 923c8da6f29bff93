"""The program ``evenhand``, also as ``python -m evenhand``."""

import atexit
import os
import signal
import sys
from typing import NoReturn

_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def main() -> NoReturn:
    """Run the command line; a signal ends it in a word from its start, before its modules are loaded, to its end."""
    own = {number: signal.getsignal(number) for number in _CODES}
    heard = [number for number in _CODES if own[number] != signal.SIG_IGN]
    for number in heard:
        signal.signal(number, _end)
    from evenhand.cli.app import WithoutMemory
    from evenhand.cli.app import main as run

    for number in heard:
        signal.signal(number, own[number])
    try:
        run()
    except WithoutMemory:  # threads that libraries could not start would end the process in their own way
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(2)
    finally:
        for number in heard:  # what is left is to say nothing
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _frame: object) -> None:
    os.write(2, b"Interrupted.\n")
    os._exit(_CODES[signal.Signals(number)])


if __name__ == "__main__":
    main()
