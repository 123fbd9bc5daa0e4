"""Pages that memory writes of what it knows, and what edits of them mean.

markdown.py writes and reads a page's text, comparing.py finds what a person changed, plans.py has the calls. None of
them needs a language model.
"""

from .markdown import find_heading, is_page, read, render

__all__ = ["find_heading", "is_page", "read", "render"]
