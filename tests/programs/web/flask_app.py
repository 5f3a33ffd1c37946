from counting import count_one
from flask import Flask

import locks

app = Flask(__name__)


@app.post("/count")
def count():
    with locks.Lock(("counter",)):
        count_one()
    return "done"
