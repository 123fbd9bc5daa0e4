-- Comparisons of a memory with those that are like it (compare.py).
alter type _memoir.judging_state add attribute comparisons jsonb;
