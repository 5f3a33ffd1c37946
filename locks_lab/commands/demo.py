"""The demo: a bank whose clients run into real deadlocks, and one deadlock in slow motion.

Clients transfer money between accounts. Each client takes the locks of two accounts one by one, in random
order, so two of them often wait for each other. When a client must give way, half of the clients *abort* and
run their transfer again. The other half *surrender* a lock and wait for it again, which is safe here because
they change no balance before they hold both locks. Auditors take a read lock on the parent of all accounts,
which covers them all, and check that no money appeared or disappeared.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import gevent

import locks
from locks.cli.alone import alone
from locks.cli.web import LISTEN, page_served
from locks.runtime.waiter import Event
from locks.transactions import OnDeadlock
from locks_lab.commands.arguments import at_least

__all__ = ["Bank", "add_command", "run"]

ACCOUNTS = ("bank", "accounts")
START_BALANCE = 100
HOUR = 3600.0
WATCHED = 0.3  # seconds between two locks in the watchable demo


@dataclass
class Bank:
    """The accounts and some counters, protected only by the locks."""

    balances: list[int]
    pause: float = (
        0.0  # seconds that a transfer takes between two locks, so that somebody can watch
    )
    transfers: int = 0
    audits: int = 0
    wrong_audits: int = 0
    waits: list[float] = field(default_factory=list)
    over: bool = False

    @property
    def money(self) -> int:
        """The amount of money that there should be."""
        return START_BALANCE * len(self.balances)

    def client(self, rng: random.Random, on_deadlock: OnDeadlock) -> None:
        """Transfer money until the demo ends."""
        while not self.over:
            source, target = rng.sample(range(len(self.balances)), 2)
            amount = rng.randint(1, 10)
            created = time.time_ns()  # a transfer that is run again keeps its age
            done = False
            while not done:
                try:
                    self.transfer(source, target, amount, on_deadlock, created)
                    done = True
                except locks.DeadlockAborted:
                    pass  # run it again

    def transfer(
        self, source: int, target: int, amount: int, on_deadlock: OnDeadlock, created: int
    ) -> None:
        """Move an amount from one account to another."""
        with locks.Transaction({}, on_deadlock, created) as tx:
            for account in (source, target):
                asked = time.perf_counter()
                tx.write_lock((*ACCOUNTS, account))
                self.waits.append(time.perf_counter() - asked)
                gevent.sleep(self.pause)  # lets others run meanwhile, like a network call
            balance = self.balances[source]
            gevent.sleep(0)  # without locks, this is where money would get lost
            self.balances[source] = balance - amount
            self.balances[target] += amount
            self.transfers += 1

    def auditor(self, every: float) -> None:
        """Add up all balances repeatedly."""
        while not self.over:
            with locks.transaction(on_deadlock="surrender") as tx:
                tx.read_lock(ACCOUNTS)
                total = 0
                for balance in self.balances:
                    total += balance
                    gevent.sleep(0)
                self.audits += 1
                self.wrong_audits += total != self.money
            gevent.sleep(every)

    def report(self, seconds: float) -> dict[str, Any]:
        """The final figures."""
        waits = sorted(self.waits) or [0.0]
        counted = locks.statistics()
        return {
            "transfers": self.transfers,
            "audits": self.audits,
            "wrong_audits": self.wrong_audits,
            "deadlocks": counted.deadlocks,
            "surrenders": counted.deadlocks - counted.aborted,
            "aborts": counted.aborted,
            "transfers_per_second": round(self.transfers / seconds, 1),
            "wait_median_ms": round(statistics.median(waits) * 1000, 3),
            "wait_99th_percentile_ms": round(waits[int(len(waits) * 0.99)] * 1000, 3),
            "money_before": self.money,
            "money_after": sum(self.balances),
            "money_conserved": sum(self.balances) == self.money and not self.wrong_audits,
        }


def run(
    clients: int,
    accounts: int,
    seconds: float,
    seed: int,
    show: bool,
    pause: float,
    ended: Event,
) -> dict[str, Any]:
    """Run the bank.

    Args:
        clients: Number of clients that transfer money at the same time.
        accounts: Number of accounts.
        seconds: Duration.
        seed: Seed of the clients' random choices.
        show: Whether to show live progress, in one line of the terminal.
        pause: Seconds between the two locks of a transfer.
        ended: Ends the demo early.

    Returns:
        The report.
    """
    bank = Bank([START_BALANCE] * accounts, pause)
    began = time.perf_counter()
    workers: list[gevent.Greenlet[..., None]] = [
        gevent.spawn(bank.client, random.Random(f"{seed}/{n}"), "surrender" if n % 2 else "abort")
        for n in range(clients)
    ]
    workers += [gevent.spawn(bank.auditor, max(0.05, 10 * pause)) for _ in range(2)]
    for number, worker in enumerate(workers, 1):
        is_client = number <= clients
        worker.name = f"client {number}" if is_client else f"auditor {number - clients}"
    try:
        while (left := seconds - (time.perf_counter() - began)) > 0 and not ended.is_open:
            if any(worker.exception is not None for worker in workers):
                break
            gevent.sleep(min(0.1, left))
            if show:
                print(end=f"\r{_progress(bank, time.perf_counter() - began)}", flush=True)
        if show:
            print("\n")
        bank.over = True
        if not ended.is_open:
            gevent.joinall(workers, raise_error=True)
    finally:
        gevent.killall(workers)  # clients that are still running when the demo is ended early
    return bank.report(time.perf_counter() - began)


def _progress(bank: Bank, elapsed: float) -> str:
    now = locks.statistics()
    return (
        f"{elapsed:5.1f} s  {bank.transfers:,} transfers  {bank.audits:,} audits  "
        f"{now.deadlocks:,} deadlocks  {now.aborted:,} aborts  {now.table.waiting:3} waiting   "
    )


def _summary(report: dict[str, Any]) -> str:
    r = report
    return (
        f"transfers       {r['transfers']:,} ({r['transfers_per_second']:,} a second)\n"
        f"audits          {r['audits']:,}, {r['wrong_audits']} of them failed\n"
        f"deadlocks       {r['deadlocks']:,} found and resolved: "
        f"{r['surrenders']:,} surrenders, {r['aborts']:,} aborts\n"
        f"wait for a lock {r['wait_median_ms']} ms median, "
        f"{r['wait_99th_percentile_ms']} ms 99th percentile\n"
        f"money           {r['money_before']:,} before, {r['money_after']:,} after: "
        + ("conserved" if r["money_conserved"] else "NOT CONSERVED")
    )


EXAMPLES = """\
more examples, in a checkout (`.venv/bin/python -m ...` after `make run`):
  examples.hierarchy          a lock on a tree of ids covers everything below it
  examples.bank               many threads transfer money and deadlock; no money is lost
  examples.worker_pool        workers that share jobs without a coordinator
  examples.cluster            one lock on three nodes; two of them are killed
  examples/processes/         web servers, tasks, batches: docs/web.md says how to run them
  examples.plain_client       a client that does not import locks: the protocol by hand
  examples.gdict              a dictionary that several processes share, with a leader
  examples.workers            a pool of workers that outlives its leaders
  examples.three_ways         a lock for each task, or ownership: agreements counted
  examples.ingest             ownership over five processes: one is killed, one is paused
  examples.kv_store           a transactional store on the MVCC lock table: type `help`
  examples.lock_table_picture a diagram of such a lock table
  examples.cautionary_tale    four locks on an eventually consistent store, and how each one fails
"""


def add_command(commands: Any, about: str) -> None:
    """Add `demo` to the command line."""
    parser = commands.add_parser("demo", help=about, description=__doc__, epilog=EXAMPLES)
    parser.add_argument("--clients", type=at_least(1), default=50, help="default 50")
    parser.add_argument("--accounts", type=at_least(2), default=20, help="default 20")
    parser.add_argument(
        "--seconds", type=_positive, help="default 5; with --web one hour, or until Ctrl-C"
    )
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--json", action="store_true", help="print only one JSON object")
    parser.add_argument(
        "--web",
        nargs="?",
        const=LISTEN,
        metavar="HOST:PORT",
        help=f"show the bank on the live page of `locks web`, slow enough to watch (default: {LISTEN})",
    )
    parser.set_defaults(run=_run_command)


@contextmanager
def _unlogged(*names: str) -> Iterator[None]:
    """Switch off the warnings of these loggers for a block: the demo reports the same events itself."""
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


@_unlogged("locks.deadlocks", "locks.waits")
def _run_command(options: argparse.Namespace) -> int:
    live = sys.stdout.isatty() and not options.json
    seconds = options.seconds or (HOUR if options.web else 5.0)
    if not options.json:
        print(
            f"A bank: {options.clients} clients transfer money between {options.accounts} "
            f"accounts for {seconds:g} seconds; 2 auditors check the balances.\n"
        )
    ended = Event()
    with ExitStack() as stack:
        stack.enter_context(alone("bank@localhost"))
        if options.web:
            signal.signal(signal.SIGINT, lambda *_: ended.open())
            try:
                address = stack.enter_context(page_served(options.web))
            except locks.errors.InvalidOption as error:
                print(f"locks demo: {error}", file=sys.stderr)
                return 2
            print(f"Open {address} in a browser.\n", file=sys.stderr, flush=True)
        pause = WATCHED if options.web else 0.0
        report = run(options.clients, options.accounts, seconds, options.seed, live, pause, ended)
    if not options.json:
        print(_summary(report) + "\n")
    story = []
    from locks_lab.commands.demo_story import tell_story  # imports the simulator

    for line in tell_story():
        story.append(line)
        if not options.json:
            print(line)
            if live:
                time.sleep(0.4)  # nothing else runs; gevent would print a Ctrl-C in its hub
    if options.json:
        print(json.dumps({**report, "seed": options.seed, "story": story}, indent=2))
    if not report["money_conserved"]:
        print("the bank lost or gained money: this is a bug in locks", file=sys.stderr)
        return 1
    return 0


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return value
