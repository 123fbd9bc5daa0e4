"""Calls of language models for jobs: prompts from files, answers checked against a schema, retries, one deadline.

The calls run in a process of their own (child.py), which the caller can end at any moment: nothing of a provider's
library is loaded into a database backend, and no call outlasts its deadline. Keys come from the environment or a
file, nowhere else.
"""

from .parent import ModelUnavailable, run_requests

__all__ = ["ModelUnavailable", "run_requests"]
