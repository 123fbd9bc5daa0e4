"""Other memory stores on the same conversations, server and vectors: python -m bench.peers (see measure.py)."""
