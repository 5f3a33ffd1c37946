from counting import count_one
from pyramid.config import Configurator
from pyramid.response import Response

import locks


def count(request):
    with locks.Lock(("counter",)):
        count_one()
    return Response("done")


with Configurator() as config:
    config.add_route("count", "/count")
    config.add_view(count, route_name="count")
    app = config.make_wsgi_app()
