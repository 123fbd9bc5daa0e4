"""The kernel of a compile: a question, its vector and one user's stored arrays in; a rendered recall and why each
candidate is in or out of it.

Pure: numpy and the standard library, no database. A Store (store.py) answers the statements of queries.sql.
"""
