-- Shared spaces (base/spaces.sql): users that several people may read or write. A space has an owner's rows of its own,
-- under the name '@space:' and its own; here is who may do what in it.
create type _memoir.space_role as enum ('reader', 'writer', 'owner');
-- user_id: the space; names: as whom the member speaks in it, in small letters; role: null: no longer a member, and kept
-- so that erasing them finds what they said there.
create table _memoir.space_members (
  user_id uuid not null,
  member_id uuid not null,
  space text not null,
  member text not null,
  role _memoir.space_role,
  names text[] not null,
  granted_by text not null,
  granted_at timestamptz not null,
  primary key (user_id, member_id)
);
create index space_members_by_member on _memoir.space_members (member_id);
-- Of a caller in a space: who acts there.
alter type _memoir.caller add attribute member text, add attribute member_id uuid;
-- The spaces that a recall takes beside the user's own, as spaces_of() has them.
alter type _memoir.compile_state add attribute spaces jsonb;
-- These say of which space a hit is, or take the spaces.
drop function if exists memoir.recall(text, text, text, integer, text[], text[], text, text[], timestamptz, timestamptz,
  real[], timestamptz, timestamptz, text, jsonb);
drop function if exists _memoir.tool_hits(_memoir.caller, text, text, jsonb, integer);
drop function if exists _memoir.query_hash(_memoir.shown_turn[], text);
-- What recall finds. space: null for the user's own.
create type _memoir.hit as (
  rank integer, kind text, id uuid, content text, score real, words_score real, vector_score real, matched_by text[],
  session text, turn_index integer, role text, name text, said_at timestamptz, type text, tags text[], project text,
  space text);
