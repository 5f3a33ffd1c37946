import sys

import cherrypy
from counting import count_one

import locks


class App:
    @cherrypy.expose
    def count(self):
        with locks.Lock(("counter",)):
            count_one()
        return "done"


cherrypy.config.update({"server.socket_port": int(sys.argv[1]), "engine.autoreload.on": False})
cherrypy.quickstart(App())
