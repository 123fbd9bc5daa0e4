-- How a memory compares with each of those that it is like (compare.py).
alter type _memoir.judging_state add attribute comparisons jsonb;
