"""A notebook, run by its kernel: its tasks count in a cell, as those of asyncio."""

import os
import sys
from pathlib import Path

import nbformat

CELL = """
import asyncio
from counting import ROUNDS, WORKERS, count_one_in_task
from locks import aio

async def count():
    for _ in ROUNDS:
        async with aio.Lock(("counter",)):
            await count_one_in_task()

await asyncio.gather(*[count() for _ in WORKERS])
"""
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
book.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "Python"}
if sys.argv[1] == "nbclient":
    from nbclient import NotebookClient

    NotebookClient(book, kernel_name="python3", timeout=None).execute()
else:
    import papermill

    name = f"{os.getpid()}.ipynb"
    nbformat.write(book, Path(name))
    papermill.execute_notebook(name, None, progress_bar=False)
