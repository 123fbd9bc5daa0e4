-- Returns the beginning of the newest stretch without a summary that one compaction would take.
create or replace function _memoir.unsummarised_from(p_session _memoir.sessions, p_last integer, p_config jsonb)
returns integer language plpgsql stable as $$
declare
  v_from integer := coalesce(p_session.summary_through + 1, 0);
begin
  return greatest(v_from, coalesce((select min(t.turn_index) from (
    select h.turn_index, sum(h.token_count) over (order by h.turn_index desc) as behind
    from _memoir.summary_turns(p_session, v_from, p_last) h) t
    where t.behind <= (p_config ->> 'compaction_tokens')::bigint), p_last));
end $$;

-- A summary of a whole session, level 0: for search and for people, it hides nothing. Made from the summaries that
-- count and the turns behind them. Null when those changed meanwhile; the existing row where nothing was said since.
create or replace function _memoir.summarise_session(p_session _memoir.sessions, p_config jsonb, p_by text)
returns _memoir.compactions language plpgsql as $$
declare
  v_user uuid := p_session.user_id; v_id uuid := p_session.session_id; v_row _memoir.compactions; v_last integer;
  v_from integer; v_read record; v_until timestamptz; v_tokens bigint;
  v_tokenizer text := _memoir.tokenizer_used(p_session.tokenizer); v_excluded bigint; v_head text; v_day text;
begin
  select turn_count - 1, tokens into v_last, v_tokens from _memoir.session_counters where user_id = v_user
    and session_id = v_id;
  if coalesce(v_last, -1) < 0 then return null; end if;
  select * into v_row from _memoir.compactions c where c.user_id = v_user and c.session_id = v_id and c.level = 0
    and c.undone_at is null and c.to_turn = v_last
  order by c.recorded_at desc limit 1;
  if found then return v_row; end if;
  v_excluded := _memoir.count_excluded(p_session, 0, v_last);
  v_from := _memoir.unsummarised_from(p_session, v_last, p_config);
  select * into v_read from _memoir.turns_to_summarise(p_session, v_from, v_last);
  v_until := coalesce(v_read.last_at, p_session.created_at);
  v_head := _memoir.summary_head(coalesce(v_read.first_at, p_session.created_at), v_until);
  if p_session.summary_text is not null then
    v_day := rtrim(split_part(split_part(p_session.summary_text, E'\n', 1), ' to ', 1), ':');
    v_head := v_day || case when v_day <> _memoir.day(v_until) then ' to ' || _memoir.day(v_until) else '' end || ':';
  end if;
  v_row.user_id := v_user; v_row.session_id := v_id; v_row.compaction_id := gen_random_uuid(); v_row.from_turn := 0;
  v_row.to_turn := v_last; v_row.level := 0;
  v_row.made_by := 'extract'; v_row.recorded_at := memoir.now();
  v_row.summary_text := _memoir.extract(
    array(select l from regexp_split_to_table(p_session.summary_text, '\n') l where l like '- %'), v_read.turns, false,
    v_head, greatest(40, least(v_tokens / (p_config ->> 'compaction_ratio')::real,
      (p_config ->> 'session_summary_tokens')::integer))::integer, v_tokenizer,
    (p_config ->> 'text_search_config')::regconfig);
  v_row.sources := jsonb_build_array(jsonb_build_object('session_id', v_id, 'from_turn', 0, 'to_turn', v_last));
  v_row.metadata := jsonb_build_object('by', p_by, 'tokens', v_tokens, 'summary_tokens',
    _memoir.tokens_of(v_row.summary_text, v_tokenizer), 'tokenizer', v_tokenizer);
  if not _memoir.lock_for_summary(p_session, 0, v_last, v_excluded, p_by) then return null; end if;
  update _memoir.compactions set undone_at = v_row.recorded_at where user_id = v_user and session_id = v_id
    and level = 0 and undone_at is null;
  perform _memoir.add_compaction(v_row, p_session, coalesce(v_read.last_at, v_row.recorded_at), p_config);
  perform _memoir.refresh_summary(v_user, v_id);
  return v_row;
end $$;

create or replace function memoir.summarize_session(p_user text, p_session text)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_session _memoir.sessions; v_row _memoir.compactions;
begin
  for i in 1 .. 5 loop
    v_session := _memoir.session(v_caller, p_session);
    v_row := _memoir.summarise_session(v_session, _memoir.config(v_caller.user_id, v_session.settings), v_caller.login);
    exit when v_row.compaction_id is not null
      or not exists (select from _memoir.session_counters c where c.user_id = v_caller.user_id
      and c.session_id = v_session.session_id and c.turn_count > 0);
  end loop;
  return jsonb_build_object('compaction_id', v_row.compaction_id, 'through', v_row.to_turn, 'summary',
    v_row.summary_text, 'tokens', v_row.metadata -> 'tokens', 'summary_tokens', v_row.metadata -> 'summary_tokens',
    'made_by', v_row.made_by);
end $$;
comment on function memoir.summarize_session(text, text) is
  'A summary of all that was said in a session so far, made now unless nothing was said since the last one:
{"compaction_id", "through", "summary", "tokens", "summary_tokens", "made_by"}, nulls for a session without turns. It
is found by recall (kind summary); what compile shows of the session does not change. Closed sessions get one by a job.
Writes compactions. Raises PM001, PM003.';

create or replace function _memoir.step_summaries(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_work _memoir.work_items; v_session _memoir.sessions; v_row _memoir.compactions; v_made integer := 0; v_error text;
begin
  -- One session a step: it is read before its locks are taken, and those end with the step. Those first whose summary
  -- has less in it since.
  select * into v_work from _memoir.work_items where kind in ('summary_refresh', 'session_summary') and state = 'ready'
    and run_after <= greatest(memoir.now(), clock_timestamp())
  order by kind desc, priority desc, run_after, work_id limit 1 for update skip locked;
  if not found then return '{"summaries": 0, "more": false}'; end if;
  select * into v_session from _memoir.sessions where user_id = v_work.user_id and session_id = v_work.dedup_key::uuid;
  begin
    if found then
      if not _memoir.is_free(v_work.user_id, v_session.session_id) or v_work.kind = 'summary_refresh'
        and not _memoir.try_lock(v_work.user_id, v_session.session_id) then
        raise lock_not_available using message = 'it is being written';
      end if;
      if v_work.kind = 'summary_refresh' then
        perform _memoir.refresh_summary(v_work.user_id, v_session.session_id);
        -- Let the next run of job compaction look whether the turns shown again are too many.
        update _memoir.session_counters set compact_after = 0 where user_id = v_work.user_id
          and session_id = v_session.session_id;
        delete from _memoir.work_items where work_id = v_work.work_id;
        return '{"refreshed": 1, "more": true}';
      end if;
      v_row := _memoir.summarise_session(v_session, _memoir.config(v_work.user_id, v_session.settings), 'summaries');
      v_made := (v_row.compaction_id is not null)::integer;
    end if;
    delete from _memoir.work_items where work_id = v_work.work_id;
  exception when others then
    perform _memoir.put_back(v_work, sqlerrm);
    v_error := format('session %s: %s', v_work.dedup_key, sqlerrm);
  end;
  return jsonb_strip_nulls(jsonb_build_object('summaries', v_made, 'failed', (v_error is not null)::integer, 'error',
    v_error, 'more', true));
end $$;
