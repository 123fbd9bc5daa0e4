"""What is more than a call of a function or reading its reply.

Wrapped SDK clients and the shapes of their messages (wrapping*, providers, shapes), backlogs embedded here (plans),
recalls made here (recalls), waiting for events (waiting), spans (tracing).
"""
