"""Twelve exercises on deadlocks without a judge; `docs/playing.md` says how to do them.

test_exercises    the file to fill in: pytest examples/exercises
scores            what a rule costs, beside ours and a central detector: python -m examples.exercises.scores
"""
