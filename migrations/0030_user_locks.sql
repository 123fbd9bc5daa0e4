-- What compiles and writers of a user share and an erase has alone: unlogged, so that to lock it writes no log. A row
-- comes with its user, and after a crash by the first of them that finds none.
create unlogged table _memoir.user_locks (user_id uuid primary key);
insert into _memoir.user_locks select user_id from _memoir.users;

-- It says now whether it kept one.
drop function if exists _memoir.keep_recall(_memoir.compile_state);
