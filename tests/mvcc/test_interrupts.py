"""Ctrl-C at any moment: the table stays whole, and a wait ends."""

from __future__ import annotations

from tests.helpers import run_script


def test_ctrl_c_does_not_tear_the_table() -> None:
    """It comes hundreds of times in the middle of operations; the invariants hold each time."""
    out = run_script(
        """
        import _thread, queue, random, sys, threading, time
        from locks.errors import LocksError
        from locks.mvcc import Aborted, LockTable, Request, Span, Txn
        from tests.mvcc.invariants import check_invariants

        table = LockTable()
        armed = queue.SimpleQueue()
        draw = random.Random(1)
        sys.setswitchinterval(0.0005)  # or each press takes ten milliseconds

        def press():
            while armed.get():
                time.sleep(0.001)
                _thread.interrupt_main()

        presser = threading.Thread(target=press, daemon=True)
        presser.start()
        pressed = number = 0
        while pressed < 150:
            try:
                armed.put(True)
                while True:
                    number += 1
                    txn = Txn(number, number)
                    keys = draw.sample(range(8), 3)
                    _, guard = table.scan_and_enqueue(Request(writes=keys[:2]), txn)
                    try:
                        table.acquire_lock(keys[2], txn)
                    except LocksError:
                        pass
                    table.update_locks(Span(0, 9), Aborted(Txn(max(1, number - 5), 0)))
                    table.dequeue(guard)
            except KeyboardInterrupt:
                pressed += 1
                check_invariants(table._states)
        armed.put(False)
        presser.join()
        print(pressed)
        """
    )
    assert int(out) == 150


def test_ctrl_c_ends_a_wait() -> None:
    """The request is dequeued on the way out, and nothing is left of it."""
    out = run_script(
        """
        import signal, threading
        from locks.mvcc import LockTable, Request, Txn
        from tests.helpers import eventually

        table = LockTable()
        table.acquire_lock("a", Txn(1, 1))
        _, guard = table.scan_and_enqueue(Request(writes=["a"]), Txn(2, 2))

        def press():
            eventually(lambda: guard in table._waiters)
            signal.pthread_kill(main, signal.SIGINT)

        main = threading.main_thread().ident
        presser = threading.Thread(target=press)
        presser.start()
        try:
            table.wait_for(guard, 30)
        except KeyboardInterrupt:
            print("interrupted")
        finally:
            table.dequeue(guard)
        presser.join()
        print(table.statistics().guards, len(table._waiters), len(table.state("a").queued_writers))
        """
    )
    assert out == "interrupted\n0 0 0\n"


def test_ctrl_c_at_the_end_of_a_turn_leaves_nothing_behind() -> None:
    """When a scan has made a guard that nobody gets to know, and when a wait has just begun."""
    out = run_script(
        """
        import signal
        from locks.mvcc import LockTable, Request, Txn

        class Key(str):
            def __hash__(self):
                if presses:
                    signal.raise_signal(presses.pop())
                return str.__hash__(self)

        presses = []
        table = LockTable()
        table.acquire_lock(Key("a"), Txn(1, 1))
        request = Request(writes=[Key("a")])
        presses.append(signal.SIGINT)
        try:
            table.scan_and_enqueue(request, Txn(2, 2))
        except KeyboardInterrupt:
            print("interrupted", table.statistics().guards, table.state("a").queued_writers)

        _, guard = table.scan_and_enqueue(request, Txn(2, 2))
        park = table._park

        def press_and_park(guard, waiter):
            signal.raise_signal(signal.SIGINT)
            return park(guard, waiter)

        table._park = press_and_park
        try:
            table.wait_for(guard)
        except KeyboardInterrupt:
            print("interrupted", len(table._waiters), len(table.state("a").queued_writers))
        """
    )
    assert out == "interrupted 0 ()\ninterrupted 0 1\n"
