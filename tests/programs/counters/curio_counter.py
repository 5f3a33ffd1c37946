import curio
from counting import ROUNDS, WORKERS, count_one

import locks

locked = locks.locked(("counter",))(count_one)


async def count():
    for _ in ROUNDS:
        await curio.run_in_thread(locked)


async def main():
    async with curio.TaskGroup() as group:
        for _ in WORKERS:
            await group.spawn(count)


curio.run(main)
