from counting import count_one
from fastapi import Depends, FastAPI
from fastapi.responses import PlainTextResponse

import locks

app = FastAPI()


def locked():
    with locks.Lock(("counter",)) as lock:
        yield lock


@app.post("/count", response_class=PlainTextResponse)
def count(lock=Depends(locked)):
    count_one()
    return "done"
