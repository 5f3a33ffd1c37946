"""`python -m examples.kv_store [FILE]`: the store by hand; `... bench`: figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from locks.errors import LocksError

from .bench import bench
from .repl import Repl
from .store import Store


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.kv_store",
        description="A transactional key-value store by hand. It reads commands; `help` lists them.",
        formatter_class=partial(argparse.HelpFormatter, width=79),
    )
    parser.add_argument(
        "file",
        nargs="?",
        default=":memory:",
        help="the file; none: in memory; bench: print figures",
    )
    parser.add_argument(
        "--lock-timeout",
        type=float,
        metavar="SECONDS",
        help="how long a command may wait for another transaction (default: without limit)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="how long a transaction may take until it is aborted (default: without limit)",
    )
    options = parser.parse_args(arguments)
    if options.file == "bench":
        bench()
        return 0
    try:
        limits = {"lock_timeout": options.lock_timeout, "timeout": options.timeout}
        with Store(options.file, **limits) as store:
            Repl(store, sys.stdout, echo=not sys.stdin.isatty()).run(sys.stdin)
    except LocksError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
