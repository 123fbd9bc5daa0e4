-- What a compile shares with others of its user and an erase has alone: unlogged, so that to lock it writes no log. A row
-- comes with its user, and after a crash by the first compile or erase that finds none.
create unlogged table _memoir.compile_locks (user_id uuid primary key);
insert into _memoir.compile_locks select user_id from _memoir.users;

-- It says now whether it kept one.
drop function if exists _memoir.keep_recall(_memoir.compile_state);
