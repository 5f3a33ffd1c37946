"""The runtime: actors on gevent, monitors and links, waits across threads, an executor for the node.

It depends on Pykka and gevent, and contains nothing about locks. Importing it patches nothing, and
makes no hub and no thread.
"""
