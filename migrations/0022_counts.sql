-- The model server counts tokens, so that not every backend loads the tables.
drop function if exists _memoir.py_count_tokens(text[], text);
