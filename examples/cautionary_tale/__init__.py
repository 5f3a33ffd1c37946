"""Locks on an eventually consistent store, and how each of them fails: `docs/cautionary_tale.md`.

drafts    the tale's drafts of a lock, as programs of a worker
model     the store and the workers: every state, and what can happen in it
several   the same for more than one data set
findings  the questions: each claim of the tale, and what was found
stories   schedules as stories
majority  the same with `locks`, by its own simulator

python -m examples.cautionary_tale
"""
