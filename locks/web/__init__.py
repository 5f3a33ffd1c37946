"""The live page: who holds locks, who is waiting, and the last deadlocks, live in a browser.

* `picture.py`: the contents of the page at one moment, as tables of rows; pure.
* `changes.py`: the differences between two pictures; pure.
* `rules.py`: which requests of a browser are answered; pure.
* `lookout.py`: asks the cluster repeatedly, while the page is open.
* `serving.py`: the HTTP server.
* `assets/`: the page itself. It keeps a copy of the picture, and draws the visible part.
"""
