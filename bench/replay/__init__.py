"""Sessions of coding agents, replayed call by call (python -m bench.replay)."""
