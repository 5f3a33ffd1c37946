"""The messages between lock servers and agents, as Erlang terms.

* `fields.py`: how the forms of messages are made from their fields.
* `forms.py`: the parts that they are made of.
* `messages.py`: the messages themselves.
* `pages.py`: what grows with the number of rows, by pages.
* `refusals.py`: errors, for clients of other nodes.
* `urgency.py`: which messages overtake others.
* `values.py`: what agents answer to clients, and lock servers to others, of other nodes.
"""
