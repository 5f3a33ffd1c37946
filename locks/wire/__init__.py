"""The messages between lock servers and agents, as Erlang terms.

* `fields.py`: how the forms of messages are made from their fields.
* `forms.py`: the parts that they are made of.
* `messages.py`: the messages themselves.
* `pages.py`: views, by pages.
* `refusals.py`: errors that actors answer to other nodes.
* `values.py`: views.
"""
