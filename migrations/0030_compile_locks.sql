-- What a compile shares with others of its user and an erase has alone: unlogged, so that to lock it writes no log. A row
-- is made by the first compile or erase that finds none, also after a crash.
create unlogged table _memoir.compile_locks (user_id uuid primary key);

-- It says now whether it kept one.
drop function if exists _memoir.keep_recall(_memoir.compile_state);
