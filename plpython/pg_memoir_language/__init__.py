"""Reads language for pg_memoir: texts in, typed facts out. Needs no database and does no I/O but reading its own data."""
