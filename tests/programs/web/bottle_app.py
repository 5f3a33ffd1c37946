from bottle import Bottle
from counting import count_one

import locks

app = Bottle()


@app.post("/count")
def count():
    with locks.Lock(("counter",)):
        count_one()
    return "done"
