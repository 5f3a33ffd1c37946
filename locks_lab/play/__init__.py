"""Worlds to play with, step by step, in a browser (`locks play`) and in a terminal (`locks sim step`).

A *situation* is a world before anything has happened, as text (`locks_lab.play.situations`). A *board* is the world
after some moves (`locks_lab.play.board`). Nothing is kept between two looks: each one makes the world anew and plays
all moves again. So to step back is to play one move less, a branch is another list of moves, and a link is a
situation with its moves.

The boards are of three kinds: our machines (`ours`), the model of the Erlang original (`original`), and elections
(`elections`). `exercises` asks questions about situations, and checks answers. `requests` answers the page, and
`stepping` a terminal.
"""
