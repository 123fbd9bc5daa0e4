-- Of questions asked before this release nobody knows who may read them, and what they were about.
update _memoir.fault_history set question = null where answer is null and items is null;
-- The model server counts tokens, so that not every backend loads the tables.
drop function if exists _memoir.py_count_tokens(text[], text);
