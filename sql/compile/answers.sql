-- Questions that a language model answers from the passages that memory_query found. The caller has these at once; the
-- model is asked by job `model`, with no transaction open, and what it says then stands in their place (query_answer).

create or replace function _memoir.is_above(p_level _memoir.sensitivity, p_user_id uuid, p_id uuid)
returns boolean language plpgsql stable as $$
begin
  return exists (select from _memoir.search_items i where i.user_id = p_user_id and i.ref_id = p_id
      and i.sensitivity > p_level)
    or exists (select from _memoir.memory_store m where m.user_id = p_user_id and m.memory_id = p_id
      and m.sensitivity > p_level);
end $$;

-- answer: dedup_key is the question's id, payload {"session_id"}.
create or replace function _memoir.answer_store(p_work _memoir.work_items, p_output jsonb, p_made_by text)
returns integer language plpgsql as $$
declare
  v_row _memoir.query_answers; v_answer text := nullif(btrim(p_output ->> 'answer', E' \n\t'), ''); v_problem text;
  v_tokenizer text;
begin
  perform from _memoir.user_counters where user_id = p_work.user_id for update;
  select * into v_row from _memoir.query_answers where user_id = p_work.user_id
    and query_id = p_work.dedup_key::uuid and answered_at is null;
  if not found then return 0; end if;
  select _memoir.tokenizer_used(s.tokenizer) into v_tokenizer from _memoir.sessions s
  where s.user_id = v_row.user_id and s.session_id = v_row.session_id;
  if v_answer is not null then
    v_problem := _memoir.form_problem(v_answer, v_row.question || E'\n' || v_row.passages, v_row.max_tokens,
      v_tokenizer);
    perform _memoir.fail('PM014', format('the answer can''t stand: %s', v_problem)) where v_problem is not null;
    v_answer := _memoir.neutralise(v_answer);
  end if;
  update _memoir.query_answers set answer = v_answer, made_by = p_made_by, answered_at = memoir.now(),
    tokens = _memoir.tokens_of(v_answer, v_tokenizer)
  where user_id = v_row.user_id and query_id = v_row.query_id;
  return 1;
end $$;

create or replace function memoir.query_answer(p_user text, p_session text, p_query_id uuid)
returns jsonb language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session); v_row _memoir.query_answers;
begin
  select * into v_row from _memoir.query_answers a where a.user_id = v_caller.user_id and a.query_id = p_query_id
    and a.session_id = v_session.session_id and a.clearance <= v_caller.clearance
    and (v_caller.projects is null or a.projects <@ v_caller.projects);
  perform _memoir.fail('PM004', format('session %s has no question %s', _memoir.shown(p_session),
    coalesce(p_query_id::text, 'null')),
    'questions are kept for a day, and go with what their passages show; ask again') where not found;
  return jsonb_strip_nulls(jsonb_build_object('id', v_row.query_id, 'state', case
      when v_row.answer is not null then 'answered' when v_row.answered_at is not null then 'unanswered'
      when exists (select from _memoir.work_items w where w.kind = 'answer' and w.user_id = v_row.user_id
        and w.dedup_key = v_row.query_id::text and w.state <> 'dead') then 'waiting' else 'failed' end,
    'text', v_row.answer, 'tokens', v_row.tokens, 'made_by', v_row.made_by));
end $$;
comment on function memoir.query_answer(text, text, uuid) is
  'Returns the language model''s answer to a question of memory_query, whose passages it was given: {"id" (as
memory_query says it), "state": waiting (for job model), answered, unanswered (the passages don''t say) or failed,
"text", "tokens", "made_by" (model and prompt)}. Raises PM001, PM003, PM004.';
