"""Other memory stores on the same conversations, server and vectors: python -m research.peers (see measure.py)."""
