"""Reads language for pg_memoir: texts in, typed facts out. Needs no database, and reads no file but its own data."""
