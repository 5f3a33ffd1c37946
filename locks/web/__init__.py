"""The live page: who holds, who waits, and which deadlocks there were, in a browser, as it changes.

* `picture.py`: all that the page shows at one moment, as tables of rows; pure.
* `changes.py`: what differs between two pictures; pure.
* `rules.py`: which requests of a browser are answered; pure.
* `lookout.py`: looks at the cluster again and again, while somebody watches.
* `serving.py`: the HTTP server.
* `assets/`: the page itself. It keeps a copy of the picture, and draws what is in view.
"""
