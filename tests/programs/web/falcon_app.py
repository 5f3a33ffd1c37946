import falcon
from counting import count_one

import locks


class Count:
    def on_post(self, request, response):
        with locks.Lock(("counter",)):
            count_one()
        response.text = "done"


app = falcon.App()
app.add_route("/count", Count())
