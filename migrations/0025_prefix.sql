-- Tokens of all lists of a session up to its last moment, and how many of them the list after it did not begin with.
alter table _memoir.session_windows add column sent_tokens bigint, add column lost_tokens bigint;
-- These take the tokens of the system prompt and the tools.
drop function if exists memoir.window_forms(text, text, integer, boolean);
drop function if exists _memoir.moment_due(_memoir.past, _memoir.session_windows, _memoir.sessions, jsonb, timestamptz,
  boolean);
drop function if exists _memoir.move_pays(_memoir.past, jsonb, boolean);
drop function if exists _memoir.move_window(_memoir.sessions, _memoir.session_counters, jsonb, _memoir.session_windows,
  _memoir.past, text, timestamptz, text, boolean);
drop function if exists _memoir.first_frame(_memoir.sessions, _memoir.session_counters, integer, timestamptz);
