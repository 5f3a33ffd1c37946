"""Makes the pictures of the live page in the documentation, of real lock servers and programs: `make screenshots`."""

from __future__ import annotations

import sys
import time

from tests.cluster.browser import NO_BROWSER, Browser, find_browser
from tests.cluster.harness import ROOT, World
from tests.cluster.pages import web
from tests.cluster.servers import Servers
from tests.cluster.test_operator import night

FOLDER = ROOT / "docs" / "img"
LARGEST = 150_000  # bytes
WHOLE = """  // no panel is cut off
for (const id of ['leaders', 'groups', 'servers', 'rates']) document.getElementById(`${id}-panel`).style.display = 'none';
for (const id of ['tree', 'deadlocks']) document.getElementById(id).style.height = '390px';
"""
RING = """
import sys, threading, locks
sys.argv[0] = "bank.py"
all_have_one = threading.Barrier(3)
accounts = ("ann", "bob", "eve")
def work(number):
    source, target = accounts[number], accounts[(number + 1) % 3]
    def transfer(tx):
        tx.write_lock(("bank", source))
        if first:
            first.pop()
            all_have_one.wait()
        tx.write_lock(("bank", target))
    first = [True]
    with locks.Owner(f"{source} to {target}"):
        locks.run_transaction(transfer)
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for each in threads: each.start()
"""


def main() -> int:
    """Make them; 1 if there is no browser."""
    path = find_browser()
    if path is None:
        print(NO_BROWSER, file=sys.stderr)
        return 1
    with World() as world, Browser(path) as browser:
        servers = Servers(world, net_ticktime=15)
        with web(servers) as page, night(servers):
            print(servers.run(RING), end="")
            for dark, kind in ((False, "light"), (True, "dark")):
                browser.look(1280, 720, dark)
                browser.open(page.address)
                browser.wait_for("#tree", "monthly report")
                browser.wait_for("#deadlocks .deadlock", "a cycle of 3")
                time.sleep(3)  # rates have a line then
                browser.run(WHOLE)
                browser.look(
                    1280, browser.run("document.querySelector('main').scrollHeight + 46"), dark
                )
                browser.save(FOLDER / f"web-{kind}.png")
                browser.save(FOLDER / f"web-deadlock-{kind}.png", "#deadlocks .deadlock")
    for picture in sorted(FOLDER.glob("web*.png")):
        size = picture.stat().st_size
        print(f"{picture.relative_to(ROOT)}: {size:,} bytes")
        assert size < LARGEST
    return 0


if __name__ == "__main__":
    sys.exit(main())
