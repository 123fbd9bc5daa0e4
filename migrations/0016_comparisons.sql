-- What the package says of a memory's text beside each of those that it is like (Comparison in compare.py).
alter type _memoir.judging_state add attribute comparisons jsonb;
