-- Comparison (compare.py) of a memory with each of those that it is like.
alter type _memoir.judging_state add attribute comparisons jsonb;
