-- Experience: memories of how something is done (types procedure, lesson and skill), and how often that worked.
-- outcome_id: the turn in which it showed, else a random one. note: why, as whoever reports it says.
create table _memoir.experience_outcomes (
  user_id uuid not null,
  memory_id uuid not null,
  outcome_id uuid not null,
  recorded_at timestamptz not null,
  session_id uuid,
  turn_index integer,
  succeeded boolean not null,
  actor _memoir.actor not null,
  set_by text not null,
  note text,
  primary key (user_id, memory_id, outcome_id)
) partition by hash (user_id);
create index experience_outcomes_by_session on _memoir.experience_outcomes (user_id, session_id);
insert into _memoir.partitioned_tables (table_name, by_month, unlogged) values ('experience_outcomes', false, false);
create index memory_store_of_experience on _memoir.memory_store (user_id, project)
  where state = 'active' and type in ('procedure', 'lesson', 'skill');
-- The block of experience of a compile: {"text", "ids"}.
alter type _memoir.compile_state add attribute experience jsonb;
-- A way as it is ranked. word: the weight of whoever stated it; good and bad: outcomes by their age.
create type _memoir.seen_way as (
  memory_id uuid, type text, project text, word float8, trigger text, way text, words text[],
  cosine float8, tried integer, succeeded integer, last_at timestamptz, good float8, bad float8, failed_last boolean,
  note text);
create type _memoir.found_way as (
  rank integer, memory_id uuid, type text, trigger text, way text, verdict text, tried integer, succeeded integer,
  failed integer, last_tried_at timestamptz, note text, fit real, score real, line text);
