"""More than calls of functions and their replies.

Wrapped SDK clients and the shapes of their messages (wrapping*, providers, shapes), backlogs embedded here (plans),
recalls made here (recalls), waiting for events (waiting), spans (tracing).
"""
