"""What runs beside PostgreSQL for pg_memoir: embedding runtimes, the shared embedder with its client, exact token
counts.

The PL/Python functions in ../functions.sql are shims over this package. Modules that a database backend imports
(`embed_client`, `supervise`, `tokens`, `private`, `protocol`) load nothing but the standard library at import.
"""
