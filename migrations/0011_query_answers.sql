-- Questions to memory_query that a language model is asked too: the passages it gets, and what it answers. Made anew by asking again,
-- hence unlogged; gone with what the passages show, with the session, and after a day.
create table _memoir.query_answers (
  user_id uuid not null,
  query_id uuid not null,
  session_id uuid not null,
  asked_at timestamptz not null,
  question text not null,
  passages text not null,
  items jsonb not null,                 -- ids of what the passages show, as texts
  max_tokens integer not null,
  clearance _memoir.sensitivity not null,   -- of whom it was made for
  projects text[],
  answer text,
  tokens integer,
  made_by text,
  answered_at timestamptz,
  primary key (user_id, query_id)
) partition by hash (user_id);
insert into _memoir.partitioned_tables (table_name, by_month, unlogged) values ('query_answers', false, true);
