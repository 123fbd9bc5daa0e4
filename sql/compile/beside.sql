-- Agents keep their own list of messages. What is recalled for them stands beside that list, and their messages are
-- known again by a chain of hashes, so that a list that comes once more is appended to and not stored anew.

create or replace function memoir.recall_beside(p_user text, p_session text, p_query text,
  p_memory_budget integer default null, p_shown_from integer default 0, p_profile_version integer default null,
  p_query_embedding real[] default null, p_said text default null)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v _memoir.compile_state; v_profile text; v_version integer; v_compile uuid; v_items jsonb;
begin
  v.caller := _memoir.authorise(p_user, 'read');
  perform _memoir.check_range('memory_budget', p_memory_budget, 0, 2147483647);
  v.at := memoir.now();
  v.warnings := '{}';
  v := _memoir.with_session(v, p_session, null);
  v := _memoir.with_budget(v, null, null);
  v := _memoir.with_newest_message(v, p_query, null);
  v_version := coalesce((v.config ->> 'profile_version')::integer, 0);
  if (v.caller).projects is null and v_version > 0 then
    select _memoir.fence('profile', _memoir.neutralise(p.content)), p.memory_ids, p.left_out
    into v_profile, v.profile, v.left_out
    from _memoir.profile_shown(v.user_id, v.user_counters, v_version) p;
  end if;
  -- The list shows the session from this turn on; all before it may be recalled.
  v.exchange_at := coalesce(p_shown_from, 0);
  v.shown := '{}';
  v.reduced := array(select distinct f.turn_index from _memoir.shown_forms f where f.user_id = v.user_id
    and f.session_id = v.session_id and f.call_no = 0 and _memoir.is_shorter(f.fidelity, f.reason)
    union select generate_series(w.first_turn, w.lines_through) from _memoir.session_windows w
    where w.user_id = v.user_id and w.session_id = v.session_id);
  v.unanswered := '{}';
  -- Such a list is paid for with every step: it has no room for what is hardly an answer, or only new.
  v.said := coalesce(p_said, '');
  v.config := v.config || jsonb_build_object(
    'relevance_floor', greatest((v.config ->> 'relevance_floor')::float8, (v.config ->> 'beside_floor')::float8),
    'relevance_share', greatest((v.config ->> 'relevance_share')::float8, (v.config ->> 'beside_share')::float8),
    'own_question_turns', 0);
  v.total := 0;
  v.prefix := 0;
  v.room := v.budget;
  v := _memoir.with_recall(v, null, p_memory_budget, p_query_embedding);
  v.messages := '{}';
  v.tokens := coalesce(v.recall_tokens, 0);
  v.system_tokens := 0;
  v_compile := _memoir.leave_traces(v);
  -- What fits weakly is a few lines of a list made for one question, and none of one that every step pays for.
  if (v.arms ->> 'weak')::boolean then
    select v.experience ->> 'text', jsonb_build_object('shown', coalesce(v.experience -> 'ids', '[]')),
      _memoir.tokens_of(v.experience ->> 'text' || E'\n\n', v.tokenizer) into v.recall, v.recalled, v.recall_tokens;
  end if;
  v_items := (select coalesce(jsonb_agg(distinct i), '[]') from jsonb_array_elements(v.recalled -> 'shown') i);
  if v_version is distinct from p_profile_version and v_profile is not null then
    v_items := v_items || to_jsonb(v.profile);
  else
    v_profile := null;
  end if;
  return jsonb_build_object('text', concat_ws(E'\n\n', v_profile, nullif(v.recall, '')), 'items', v_items,
    'profile_version', v_version, 'tokens', case when v.recall is null then 0 else v.recall_tokens end, 'compile_id',
    v_compile, 'warnings', to_jsonb(v.warnings), 'weak', coalesce((v.arms ->> 'weak')::boolean, false));
end $$;
comment on function memoir.recall_beside(text, text, text, integer, integer, integer, real[], text) is
  'Returns what to set beside the newest message of a list that the application keeps itself: {"text": profile and
recall, fenced, or empty; "items": ids of what it shows, "profile_version", "tokens" of the recall, "compile_id",
"warnings", "weak"}. p_shown_from: the first turn of the session that the list still shows, null or 0: all of them.
p_said: what the list says beside these; what stands there word by word is not recalled. p_profile_version: the
profile that the list shows already; that version is not repeated. Where nothing matches well ("weak") there is no
recall. The session need not be there yet. Writes unlogged statistics only. Raises PM001, PM010, PM014, PM030.';

create or replace function memoir.known_messages(p_user text, p_chains text[])
returns table (chain text, session text, turn_count integer, added jsonb)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
begin
  return query
  select m.chain, s.external_id, m.turn_count,
    -- Is anything of what the message shows forgotten, retracted, erased or secret by now?
    case when i.ids <> '{}' and (
        exists (select from _memoir.memory_store o where o.user_id = v_caller.user_id and o.memory_id = any (i.ids)
          and (o.state in ('forgotten', 'erased') or o.sensitivity = 'secret'))
        or exists (select from _memoir.search_items o where o.user_id = v_caller.user_id and o.ref_id = any (i.ids)
          and (o.sensitivity = 'secret' or exists (select
            from _memoir.exclusions_of(v_caller.user_id, o.session_id, o.turn_index) x where not x.changed)))
        or exists (select from _memoir.space_members p  -- no longer a member
          where p.member_id = v_caller.user_id and p.user_id = any (i.ids) and p.role is null)
        or exists (select from _memoir.object_places p  -- named by its object alone
          cross join lateral _memoir.exclusions_of(v_caller.user_id, p.session_id, p.turn_index) x
          where p.user_id = v_caller.user_id and p.memory_id = any (i.ids) and not x.changed))
      then _memoir.without_texts(m.added) else m.added end
  from _memoir.client_messages m
  join _memoir.sessions s on s.user_id = v_caller.user_id and s.session_id = m.session_id
  cross join lateral (select _memoir.named_items(v_caller.user_id, array(select jsonb_array_elements_text(
    coalesce(m.items, '[]')))) as ids) i
  where m.user_id = v_caller.user_id and m.chain = any (p_chains)
    and (v_caller.projects is null or s.project = any (v_caller.projects))
  order by m.recorded_at, m.chain;
end $$;
comment on function memoir.known_messages(text, text[]) is
  'Which of these messages, each named by a hash over it and all before it, were noted: their session, its turns up to
them, and what was added to them: without its texts where something that it shows (items) was forgotten since,
retracted, erased or made secret. Raises PM001.';

create or replace function memoir.note_messages(p_user text, p_session text, p_messages jsonb)
returns integer language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session); v_count integer;
begin
  perform _memoir.refuse_value(jsonb_typeof(p_messages) is distinct from 'array' or jsonb_path_exists(p_messages,
    '$[*] ? (!(@.chain.type() == "string") || !(@.turns.type() == "number"))'), 'messages', p_messages,
    'a list of objects with chain and turns');
  insert into _memoir.client_messages (user_id, chain, session_id, turn_count, added, items, recorded_at)
  select v_caller.user_id, m ->> 'chain', v_session.session_id, max((m ->> 'turns')::integer),
    (array_agg(nullif(m -> 'added', 'null')))[1], (array_agg(nullif(m -> 'items', 'null')))[1], memoir.now()
  from jsonb_array_elements(p_messages) m group by 2
  on conflict (user_id, chain, session_id) do update set added = coalesce(excluded.added, client_messages.added),
    items = coalesce(excluded.items, client_messages.items)
  where excluded.added is not null;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
comment on function memoir.note_messages(text, text, jsonb) is
  'Notes messages of a list that the application keeps, so that known_messages knows them: [{"chain": a hash over the
message and all before it, "turns": turns of the session up to it, "added": what was sent with it (its texts in "tail",
or as pairs in "told" of what stands in it and what takes its place where it is withdrawn), "items": ids of what that
shows}]. Returns how many were new or changed. Raises PM001, PM003, PM014.';

create or replace function memoir.record_exchange(p_user text, p_session text, p_messages jsonb,
  p_turns integer default 0)
returns jsonb language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write'); v_entry jsonb; v_note jsonb; v_notes jsonb := '[]';
  v_turns integer := coalesce(p_turns, 0); v_counts integer[] := '{}'; v_refused jsonb := '[]';
begin
  perform _memoir.refuse_value(jsonb_typeof(p_messages) is distinct from 'array', 'messages', p_messages,
    'a list of entries with message, key and notes');
  for v_entry in select * from jsonb_array_elements(p_messages) loop
    if jsonb_typeof(v_entry) <> 'object' or jsonb_typeof(coalesce(v_entry -> 'notes', '[]')) <> 'array' then
      perform _memoir.fail('PM014', format('an entry must be an object with message, key and notes, not %s',
        _memoir.shown(v_entry::text)));
    end if;
    if jsonb_typeof(v_entry -> 'message') is distinct from 'null' and v_entry ? 'message' then
      begin
        v_turns := (_memoir.append(v_caller, p_user, p_session, jsonb_build_array(v_entry -> 'message'),
          nullif(v_entry -> 'usage', 'null'), v_entry ->> 'key', v_entry ->> 'actor', '{}', true)
          ->> 'turn_count')::integer;
      exception when others then
        if sqlstate = 'PM006' then  -- another writer recorded it, told a little differently
          v_turns := v_turns + 1;
        elsif sqlstate in ('PM010', 'PM011', 'PM012', 'PM013', 'PM014', 'PM020', 'PM023', 'PM040') then
          v_refused := v_refused || jsonb_build_array(jsonb_build_object('code', sqlstate, 'error', sqlerrm));
        -- A login may not say whose words they are.
        elsif sqlstate <> 'PM001' or v_entry ->> 'actor' is null then
          raise;
        end if;
      end;
    end if;
    for v_note in select * from jsonb_array_elements(coalesce(v_entry -> 'notes', '[]')) loop
      v_notes := v_notes || jsonb_build_array(v_note || jsonb_build_object('turns', v_turns));
    end loop;
    v_counts := array_append(v_counts, v_turns);
  end loop;
  if v_notes <> '[]' then perform memoir.note_messages(p_user, p_session, v_notes); end if;
  return jsonb_build_object('turns', v_counts, 'refused', v_refused);
end $$;
comment on function memoir.record_exchange(text, text, jsonb, integer) is
  'Appends messages of a list that the application keeps, in one transaction, and notes them for known_messages.
p_messages: [{"message": as append_messages takes it, "key": its idempotency key, "actor": whose words it holds,
"usage": of an answer, "notes": [{"chain", "added", "items"}] as note_messages takes them, without "turns"}]. An entry
without a message is only noted. p_turns: turns of the session before. One invalid message does not stop the others.
What another writer recorded under the same key counts as recorded. Returns {"turns": turns of the session after each
entry, "refused": [{"code", "error"}] of the messages that are not stored}. Raises PM001, PM003, PM005, PM014.';
