-- What makes a sentence worth remembering, by language: extraction_rules and the list extraction_stops in
-- plpython/pg_memoir_language/data/<language>.toml. Another language is another file.

-- The rules of a language in their order; a language without any has none.
create or replace function _memoir.extraction_rules(p_language text)
returns table (rule text, roles text[], pattern text, not_if text, at_least integer, type text, provenance text,
  category text, importance text, utility real, slot text, value text) language sql immutable as $$
  select rule, string_to_array(roles, ' '), pattern, not_if, at_least::integer, type, provenance, category,
    importance, utility::real, slot, value
  from _memoir.data_extraction_rules() where language = p_language order by nth
$$;

-- Patterns of sentences that say nothing of their speaker that lasts, whatever rule would fit them.
create or replace function _memoir.extraction_stops(p_language text)
returns setof text language sql immutable as $$
  select unnest(_memoir.word_list(p_language, 'extraction_stops'))
$$;

-- Extraction: from what was said to memories, by rules (extraction_rules.sql) or a model. Found here, stored through
-- the door of remember like everything else.

-- Sentences of many texts against the rules. Each pattern goes over all sentences before the next one does, since the
-- server keeps few compiled patterns. p_names: null where the speaker has none. p_roles: user, assistant, tool.
create or replace function _memoir.extract_texts(p_texts text[], p_names text[], p_roles text[], p_said timestamptz[],
  p_language text default 'english')
returns setof _memoir.extracted language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_text_nos integer[]; v_starts integer[]; v_lengths integer[]; v_said text[]; v_bare text[]; v_specifics integer[];
  v_stopped boolean[];
  v_hits integer[]; v_rules jsonb := '[]'; v_rule record; v_stop text; v_found integer[]; v_number integer := 0;
  v_hit integer; v_row _memoir.extracted;
begin
  -- Nobody says so much at once as was pasted: of a long text its beginning and its end. A sentence about oneself is
  -- short, too.
  select array_agg(s.text_no order by s.text_no, s.span_start), array_agg(s.span_start order by s.text_no,
    s.span_start),
    array_agg(s.span_length order by s.text_no, s.span_start), array_agg(s.said order by s.text_no, s.span_start)
  into v_text_nos, v_starts, v_lengths, v_said
  from (
    select t.text_no, s.*, row_number() over (partition by t.text_no order by s.span_start) as nth,
      count(*) over (partition by t.text_no) as sentences
    from unnest(p_texts) with ordinality t(body, text_no), _memoir.own_sentences(t.body) s
    where p_roles[t.text_no] in ('user', 'assistant') and s.span_length between 8 and 400) s
  where s.nth <= 200 or s.nth > s.sentences - 200;
  if v_text_nos is null then return; end if;
  -- A sentence broken by the end of a line goes on in the next, but rules see sentences: so be it.
  v_bare := array(select _memoir.bare(s) from unnest(v_said) with ordinality x(s, o) order by o);
  v_stopped := array(select s ~ '[?？]["”''\)\]]*$' or s !~ '[[:alpha:]].* .*[[:alpha:]]'
    or lower(s) ~ _memoir.any_word('english', 'sarcasm')
    from unnest(v_said) with ordinality x(s, o) order by o);
  v_specifics := _memoir.specifics(v_said, v_bare);
  v_hits := array_fill(0, array[cardinality(v_said)]);
  -- Bit 1: a question; the other stops do not concern what is asked of us or put right.
  for v_rule in
    select * from _memoir.extraction_rules(p_language) r where r.provenance in ('instruction', 'correction')
      or r.category in ('identity', 'outcome') union all
    select null, null, null, null, null, null, null, null, null, null, null, null union all
    select * from _memoir.extraction_rules(p_language) r where not (r.provenance in ('instruction', 'correction')
      or r.category in ('identity', 'outcome'))
  loop
    if v_rule.rule is null then
      for v_stop in select * from _memoir.extraction_stops(p_language) loop
        v_stopped := array(select s or b ~ v_stop from unnest(v_stopped, v_bare) with ordinality x(s, b, o) order by o);
      end loop;
      -- A name before it may be what it is about.
      v_stopped := array(select s or _memoir.dangles(b) and w !~ '[[:alpha:],;:] +[[:upper:]][[:alpha:]]{2,}'
        from unnest(v_stopped, v_bare, v_said) with ordinality x(s, b, w, o) order by o);
      continue;
    end if;
    v_number := v_number + 1;
    v_rules := v_rules || to_jsonb(v_rule);
    v_found := array(select x.o from unnest(v_bare, v_stopped, v_hits, v_specifics, v_text_nos) with ordinality x(b, s,
      h, specifics, text_no, o)
      where not s and h = 0 and specifics >= v_rule.at_least and b ~ v_rule.pattern
        and ('user' = any (v_rule.roles) and p_roles[text_no] = 'user' or 'named' = any (v_rule.roles)
        and p_names[text_no] is not null
             or 'agent' = any (v_rule.roles) and p_roles[text_no] = 'assistant' and p_names[text_no] is null));
    if v_found <> '{}' and v_rule.not_if is not null then
      v_found := array(select n from unnest(v_found) n where v_bare[n] !~ v_rule.not_if);
    end if;
    foreach v_hit in array v_found loop v_hits[v_hit] := v_number; end loop;
  end loop;
  for v_n in 1 .. cardinality(v_said) loop
    continue when v_hits[v_n] = 0;
    v_row := _memoir.worded(v_text_nos[v_n], v_starts[v_n], v_lengths[v_n], v_said[v_n], v_bare[v_n], v_specifics[v_n],
      coalesce(p_names[v_text_nos[v_n]], case p_roles[v_text_nos[v_n]] when 'user' then 'User' else 'Assistant' end),
        p_names[v_text_nos[v_n]] is not null,
      p_said[v_text_nos[v_n]], v_rules -> (v_hits[v_n] - 1));
    return next v_row;
  end loop;
end $$;

-- How much a sentence holds that could be asked for: a number, a name, a point in time, eight words or more; one each.
create or replace function _memoir.specifics(p_said text[], p_bare text[])
returns integer[] language sql immutable as $$
  select array(select (s ~ '\d')::integer + (s ~ '[[:alpha:],;:] +[[:upper:]][[:alpha:]]{2,}'
    and s !~ '^[[:upper:] !.]+$')::integer
    + (b ~ ('\m(' || _memoir.any_word('english', 'time_words', 'full_weekdays', 'sure_months') || ')\M'))::integer
    + (b ~ '^([^ ]+ ){7}')::integer
  from unnest(p_said, p_bare) with ordinality x(s, b, o) order by o)
$$;

-- Of what tools returned, the little that is asked for again: errors, identifiers, totals. Content names the tool.
create or replace function _memoir.extract_tool(p_text_no integer, p_text text, p_tool text, p_at timestamptz)
returns setof _memoir.extracted language plpgsql immutable as $$
declare
  v_out _memoir.extracted; v_hit text; v_at integer; v_count integer := 0; v_tries integer := 0;
  v_text text := left(p_text, 20000); v_tool text := 'Tool' || coalesce(' ' || p_tool, '');
  c_error text :=
    '\m([[:alpha:]]+(Error|Exception): [^\n"]{5,200}|"?error"?( ?message)?"?: *"[^"\n]{4,200}|(fatal|error|failed'
      '|failure)\M[: ][^\n"{}]{5,200})';
  c_value text :=
    '"?\m((order|ticket|invoice|booking|reservation|confirmation|reference|tracking|case|claim|refund|issue|account'
      '|customer|transaction|shipment|flight)[_ -]?(id|number|no|nr|code|ref|key)|(grand[_ -]?)?total([_ -]?(price'
      '|amount|cost|due))?|balance|amount[_ -]?due)\M"? ?[:=#]+ ?"?([[:alnum:]$€£][[:alnum:].,:/_-]{0,40})"?';
begin
  v_out.text_no := p_text_no; v_out.provenance := 'tool_output'; v_out.importance := 'normal'; v_out.valid_from := p_at;
  v_at := regexp_instr(v_text, c_error);
  if v_at > 0 then
    v_hit := regexp_substr(v_text, c_error);
    v_out.rule := 'tool error'; v_out.type := 'error_context'; v_out.category := 'error'; v_out.utility := 0.6;
    v_out.span_start := v_at; v_out.span_length := length(v_hit);
    v_out.content := v_tool || ' failed: ' || translate(v_hit, '"', '');
    return next v_out;
  end if;
  v_at := 1;
  loop
    v_at := regexp_instr(v_text, c_value, v_at, 1, 0, 'i');
    -- A few tries: each looks through the rest.
    exit when v_at = 0 or v_count >= 3 or v_tries >= 20;
    v_tries := v_tries + 1;
    v_hit := regexp_substr(v_text, c_value, v_at, 1, 'i');
    if v_hit ~ '\d' then
      v_out.rule := 'tool value'; v_out.type := 'tool_result'; v_out.category := 'outcome'; v_out.utility := 0.6;
      v_out.span_start := v_at; v_out.span_length := length(v_hit);
      v_out.content := v_tool || ' returned ' || btrim(regexp_replace(translate(v_hit, '"', ''), ' ?[:=#]+ ?', ' '));
      v_count := v_count + 1;
      return next v_out;
    end if;
    v_at := v_at + length(v_hit);
    exit when v_at > length(v_text);
  end loop;
end $$;

-- Admission of memories

-- S = 0.35 type's prior + 0.25 novelty + 0.25 utility + 0.15 recency ([MN] 9), logged with its parts. False: not worth
-- keeping. What a person said and corrections (p_exempt) are scored but never rejected. p_memory_id: null for what did
-- not become a memory.
create or replace function _memoir.admit(p_user_id uuid, p_type text, p_novelty float8, p_utility float8,
  p_said_at timestamptz, p_exempt boolean,
  p_memory_id uuid, p_config jsonb, p_log_admitted boolean)
returns boolean language plpgsql as $$
declare
  v_threshold real := (p_config ->> 'admission_threshold')::real; v_now timestamptz := memoir.now();
  v_type float8 := coalesce((p_config -> 'admission_type_priors' ->> p_type)::float8, 0.5);
  v_novelty float8 := greatest(0, least(1, p_novelty));
  v_recency float8; v_score real; v_admitted boolean;
begin
  -- Of a hundred half-lives nothing is left, and a real can't hold less.
  v_recency := power(2, - least(100, greatest(0, extract(epoch from v_now - p_said_at)::float8 / 86400)
    / coalesce((p_config -> 'half_life_days' ->> p_type)::float8, 365)));
  v_score := 0.35 * v_type + 0.25 * v_novelty + 0.25 * p_utility + 0.15 * v_recency;
  v_admitted := p_exempt or v_score >= v_threshold;
  if p_log_admitted or not v_admitted then
    insert into _memoir.admission_scores (user_id, score_id, recorded_at, memory_id, admitted, score_total, score_type,
      score_novelty, score_utility,
      score_recency, threshold)
    values (p_user_id, gen_random_uuid(), v_now, p_memory_id, v_admitted, v_score, v_type, v_novelty, p_utility,
      v_recency, v_threshold);
  end if;
  return v_admitted;
end $$;

-- Judged once more when its vector is there: now novelty is 1 - the greatest cosine to another memory. Only what a rule
-- or a model brought in; called with the user's lock held.
create or replace function _memoir.review_admission(p_user_id uuid, p_memory_id uuid, p_by text)
returns boolean language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_memory _memoir.memory_store; v_vector halfvec; v_model smallint; v_distance float8; v_admitted boolean;
begin
  select * into v_memory from _memoir.memory_store where user_id = p_user_id and memory_id = p_memory_id
    and state = 'active' and metadata ? 'utility';
  if not found then return null; end if;
  select e.embedding, e.model_id into v_vector, v_model
  from _memoir.search_items i join _memoir.embeddings e on e.user_id = p_user_id and e.item_no = i.item_no
  join _memoir.embedding_models m on m.model_id = e.model_id and m.status = 'active'
  where i.user_id = p_user_id and i.ref_id = p_memory_id and i.chunk = 0;
  if not found then return null; end if;
  select min(e.embedding <=> v_vector) into v_distance
  from _memoir.search_items i join _memoir.embeddings e on e.user_id = p_user_id and e.item_no = i.item_no
    and e.model_id = v_model
  where i.user_id = p_user_id and i.kind = 'm' and i.chunk = 0 and not i.dead and i.ref_id <> p_memory_id;
  v_admitted := _memoir.admit(p_user_id, v_memory.type, coalesce(v_distance, 1),
    (v_memory.metadata ->> 'utility')::float8,
    coalesce((v_memory.metadata ->> 'said_at')::timestamptz, v_memory.recorded_at),
    v_memory.actor = 'person' or v_memory.provenance in ('user_stated', 'correction', 'instruction', 'preference'),
      p_memory_id,
    _memoir.config(p_user_id, null), true);
  if not v_admitted then
    perform _memoir.set_state(p_user_id, array[p_memory_id], 'invalidated', p_by, 'not admitted', null, memoir.now());
  end if;
  return v_admitted;
end $$;

-- From a session's new turns

-- The turns of a session from the cursor on that may be extracted, at most p_limit indexes; none that is secret,
-- without words, or out of recall altogether.
create or replace function _memoir.turns_to_extract(p_counters _memoir.session_counters, p_from integer,
  p_limit integer)
returns _memoir.conversation_history[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_user uuid := p_counters.user_id; v_session uuid := p_counters.session_id;
  v_first timestamptz := p_counters.first_recorded_at;
  v_last timestamptz := p_counters.last_recorded_at; v_turns _memoir.conversation_history[]; v_stones bytea[];
  v_marks jsonb := _memoir.marks(v_user, v_session);
begin
  select array_agg(h order by h.turn_index) into v_turns from _memoir.conversation_history h
  where h.user_id = v_user and h.session_id = v_session and h.recorded_at between v_first and v_last
    and h.turn_index >= p_from and h.turn_index < p_from + p_limit and h.role <> 'system'
    and _memoir.sensitivity_now(h.sensitivity, h.turn_index, v_marks) <> 'secret' and h.content ~ '[[:alpha:]]'
    and not exists (select from _memoir.recall_exclusions x where x.user_id = v_user and x.session_id = v_session
    and x.turn_index = h.turn_index
                    and x.span_start is null and x.lifted_at is null);
  v_stones := array(select key_hash from _memoir.tombstones where user_id = v_user and kind = 'turn'
    and lifted_at is null);
  if v_stones <> '{}' then
    v_turns := array(select t from unnest(v_turns) t
      where not (_memoir.tombstone_keys(v_user, array[t.message_id::text]))[1] = any (v_stones) order by t.turn_index);
  end if;
  return coalesce(v_turns, '{}');
end $$;

-- Returns what persons without a name said in turns; null for every other turn.
create or replace function _memoir.own_texts(p_turns _memoir.conversation_history[])
returns text[] language sql immutable as $$
  select array(select case when t.role = 'user' and t.actor = 'person' and nullif(btrim(t.name), '') is null
    then t.content end from unnest(p_turns) with ordinality t order by ordinality)
$$;

-- Returns what rules find in turns; text_no counts turns from 1. p_clauses: of what persons without a name said.
create or replace function _memoir.found_in(p_turns _memoir.conversation_history[], p_clauses _memoir.said_clause[],
  p_languages text[], p_requests _memoir.forget_request[])
returns _memoir.extracted[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_found _memoir.extracted[]; v_turn _memoir.conversation_history; v_tool text; v_language text;
begin
  -- What persons say of themselves, clause by clause; the rest, sentence by sentence. A request to forget is no memory.
  v_found := array(select e from _memoir.statements(array(select c from unnest(p_clauses) c
      where not exists (select from unnest(p_requests) r where r.text_no = c.text_no
        and r.span_start < c.span_start + c.span_length and c.span_start < r.span_start + r.span_length)), p_languages,
    array(select t.created_at from unnest(p_turns) with ordinality t order by ordinality)) e);
  foreach v_language in array array(select distinct l from unnest(p_languages) l order by l) loop
    v_found := v_found || array(select e from _memoir.extract_texts(
      array(select case when t.role <> 'tool' and p_languages[ordinality] = v_language
          then _memoir.without_spans(t.content, array(
            select int4range(f.span_start, f.span_start + f.span_length) from unnest(v_found) f
            where f.text_no = ordinality
            union all select int4range(r.span_start, r.span_start + r.span_length) from unnest(p_requests) r
            where r.text_no = ordinality)) end
        from unnest(p_turns) with ordinality t order by ordinality),
      array(select nullif(btrim(t.name), '') from unnest(p_turns) with ordinality t order by ordinality),
      -- What an agent or a tool sends in the person's place is not the person's.
      array(select case when t.role = 'tool' then 'tool' when t.role = 'user' and t.actor = 'person' then 'user'
        else 'assistant' end from unnest(p_turns) with ordinality t order by ordinality),
      array(select t.created_at from unnest(p_turns) with ordinality t order by ordinality), v_language) e);
  end loop;
  for i in 1 .. cardinality(p_turns) loop
    v_turn := p_turns[i];
    continue when v_turn.role <> 'tool' or not exists (select from _memoir.extraction_rules(p_languages[i]));
    v_tool := _memoir.tool_of_result(v_turn);
    continue when v_tool is null;
    v_found := v_found || array(select e from _memoir.extract_tool(i, v_turn.content, nullif(v_tool, ''),
      v_turn.created_at) e);
  end loop;
  return coalesce(v_found, '{}');
end $$;

-- Returns the clauses of texts in their languages. The package reads them where PL/Python can run it.
create or replace function _memoir.read_clauses(p_texts text[], p_languages text[], p_config jsonb)
returns _memoir.said_clause[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_read jsonb;
begin
  if _memoir.reads_language() then
    v_read := _memoir.py_read('read_clauses', jsonb_build_object('texts', p_texts, 'languages', p_languages),
      p_config ->> 'embedder_socket');
  end if;
  if jsonb_typeof(v_read) is distinct from 'array' then return _memoir.said_clauses(p_texts, p_languages); end if;
  return array(select c from jsonb_populate_recordset(null::_memoir.said_clause, v_read) c
    order by c.text_no, c.sentence_start, c.clause_no);
end $$;

-- Returns the tool that a turn's result is from; null for a tool of memory, whose result is nothing new.
create or replace function _memoir.tool_of_result(p_turn _memoir.conversation_history)
returns text language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_tool text := (select c -> 'function' ->> 'name' from _memoir.conversation_history h,
      jsonb_array_elements(h.tool_calls) c
    where h.user_id = p_turn.user_id and h.session_id = p_turn.session_id and h.recorded_at <= p_turn.recorded_at
      and h.turn_index between p_turn.exchange_start and p_turn.turn_index and h.tool_calls is not null
      and c ->> 'id' = p_turn.tool_call_id limit 1);
begin
  return case when not _memoir.is_memory_tool(v_tool) then coalesce(v_tool, p_turn.name, '') end;
end $$;

-- Returns what rules find in turns, as found_in does. The package reads them where PL/Python can run it.
create or replace function _memoir.find_memories(p_turns _memoir.conversation_history[],
  p_clauses _memoir.said_clause[], p_languages text[], p_requests _memoir.forget_request[], p_config jsonb)
returns _memoir.extracted[] language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_read jsonb;
begin
  if p_turns = '{}' then return '{}'; end if;
  if _memoir.reads_language() then
    v_read := _memoir.py_read('find_memories', jsonb_build_object('turns', (select jsonb_agg(jsonb_build_object(
        'text', case when t.role <> 'tool' or x.tool is not null then t.content else '' end,
        -- An agent or a tool may send in the person's place.
        'role', case when t.role = 'tool' then 'tool' when t.role = 'user' and t.actor = 'person' then 'user'
          else 'assistant' end,
        'name', nullif(btrim(t.name), ''), 'said_at', t.created_at, 'language', p_languages[t.ordinality],
        'tool', nullif(x.tool, '')) order by t.ordinality)
      from unnest(p_turns) with ordinality t
      left join lateral (select case when t.role = 'tool'
        then _memoir.tool_of_result(p_turns[t.ordinality]) end) x(tool)
        on true),
      'requests', (select coalesce(jsonb_agg(jsonb_build_array(r.text_no, r.span_start, r.span_length)), '[]')
        from unnest(p_requests) r)), p_config ->> 'embedder_socket');
  end if;
  if jsonb_typeof(v_read) is distinct from 'array' then
    return _memoir.found_in(p_turns, p_clauses, p_languages, p_requests);
  end if;
  return array(select jsonb_populate_record(null::_memoir.extracted, e.one)
    from jsonb_array_elements(v_read) with ordinality e(one, o) order by e.o);
end $$;

-- Returns whether an active memory holds the slot of what was found with another value, and the judge does not say that
-- it is over: both stay.
create or replace function _memoir.still_holds(p_user_id uuid, p_found _memoir.extracted,
  p_read _memoir.turn_changes[])
returns boolean language sql stable set plan_cache_mode = force_custom_plan as $$
  select exists (
    select from unnest(p_read) r join _memoir.memory_store m on m.user_id = p_user_id
      and m.slot = _memoir.normalise(p_found.slot) and m.state = 'active'
      and m.slot_value is distinct from _memoir.normalise(p_found.slot_value)
    where r.text_no = p_found.text_no and r.is_judged and m.memory_id <> all (r.ended)
      and not exists (select from unnest(r.changes) c join _memoir.memory_sources s on s.user_id = p_user_id
        and s.item_kind = 'memory' and s.item_id = m.memory_id and s.source_kind = 'turn'
        and s.source_id = (c.unit).message_id and s.span_start < (c.unit).span_start + (c.unit).span_length
        and (c.unit).span_start < s.span_start + s.span_length where c.grade = 'certain'))
$$;

-- Hands what was found to the door. The caller holds the user's lock; the month of the admission log is made. What was
-- extracted from a span before is not extracted again, whatever became of it; p_replace: what rules made of it goes on
-- in the new words.
create or replace function _memoir.enter_found(p_session _memoir.sessions, p_turns _memoir.conversation_history[],
  p_found _memoir.extracted[],
  p_by text, p_made_by text, p_replace boolean, p_config jsonb, p_read _memoir.turn_changes[] default '{}')
returns jsonb language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
  v_found _memoir.extracted; v_turn _memoir.conversation_history; v_memory _memoir.memory_store;
  v_blank _memoir.memory_store; v_result jsonb; v_novelty float8;
  v_gone text[]; v_counts jsonb := '{}'; v_outcome text; v_exempt boolean;
  v_before uuid[]; v_replaceable boolean; v_new uuid[] := '{}'; v_id uuid;
begin
  foreach v_found in array p_found loop
    v_turn := p_turns[v_found.text_no];
    v_memory := v_blank;
    select array_agg(m.memory_id), bool_and(p_replace
      and coalesce(m.state = 'active' or m.superseded_by = any (v_new), false)
      and coalesce(m.metadata ->> 'extracted_by' like 'rules %', false))
    into v_before, v_replaceable
    from _memoir.memory_sources s join _memoir.memory_store m on m.user_id = s.user_id and m.memory_id = s.item_id
    where s.user_id = v_turn.user_id and s.source_kind = 'turn' and s.source_id = v_turn.message_id
      and s.item_kind = 'memory' and m.memory_id <> all (v_new)
      and s.span_start < v_found.span_start + v_found.span_length and v_found.span_start < s.span_start + s.span_length;
    continue when not v_replaceable
      or exists (select from _memoir.recall_exclusions x where x.user_id = v_turn.user_id
      and x.session_id = v_turn.session_id and x.turn_index = v_turn.turn_index
                 and x.lifted_at is null and not x.is_doubt and (x.span_start is null
                 or x.span_start < v_found.span_start + v_found.span_length
                                              and v_found.span_start < x.span_start + x.span_length));
    v_memory.user_id := v_turn.user_id;
    v_memory.recorded_at := memoir.now();
    v_memory.content := v_found.content;
    v_memory.type := v_found.type;
    v_memory.category := v_found.category;
    v_memory.importance := v_found.importance;
    v_memory.provenance := v_found.provenance;
    v_memory.actor := case when v_turn.role = 'tool' then 'tool' else 'agent' end;
    v_memory.sensitivity := _memoir.strictest_of(array[v_turn]);
    v_memory.project := p_session.project;
    v_memory.valid_from := v_found.valid_from;
    v_memory.valid_to := v_found.valid_to;
    v_memory.source_tool := case when v_turn.role = 'tool' then split_part(substr(v_found.content, 6), ' ', 1) end;
    v_memory.written_by := p_by;
    v_memory.aliases := '{}'; v_memory.tags := '{}';
    v_memory.metadata := jsonb_strip_nulls(jsonb_build_object('extracted_by', p_made_by, 'rule', v_found.rule,
      'utility', round(v_found.utility::numeric, 2), 'standing', nullif(coalesce(v_found.standing, false), false),
      'said_at', v_turn.created_at, 'event_from', v_found.event_from, 'event_to', v_found.event_to));
    -- One who has left is nowhere: the slot is emptied only if it holds what is left.
    if v_found.rule = 'no longer' then
      v_gone := regexp_match(substr(v_turn.content, v_found.span_start, v_found.span_length),
        '\m(live|living|work|working|left|quit)(?: +(?:in|at|for))? +([[:upper:]][[:alnum:]''-]+(?: '
          '[[:upper:]][[:alnum:]''-]+){0,3})');
      v_found.slot := case when v_turn.name is null then '' else lower(v_turn.name) || ': ' end || case
        when v_gone[1] like 'liv%' then 'home city' else 'employer' end;
      v_found.slot_value := case when exists (select from _memoir.memory_store m where m.user_id = v_turn.user_id
        and m.slot = _memoir.normalise(v_found.slot)
        and m.state = 'active' and m.slot_value = _memoir.normalise(v_gone[2])) then 'no longer ' || v_gone[2] end;
    end if;
    -- An older statement does not replace a newer one that happened to come first.
    if v_found.slot_value is not null and not exists (select from _memoir.memory_store m
      where m.user_id = v_turn.user_id and m.slot = _memoir.normalise(v_found.slot)
        and m.state = 'active' and coalesce((m.metadata ->> 'said_at')::timestamptz, m.valid_from, m.recorded_at)
          > v_turn.created_at) and not _memoir.still_holds(v_turn.user_id, v_found, p_read) then
      v_memory.slot := v_found.slot; v_memory.slot_value := v_found.slot_value;
    end if;
    select 1 - coalesce(max(similarity(m.content, v_found.content)), 0) into v_novelty from (
      select content from _memoir.memory_store m where m.user_id = v_turn.user_id
        and m.session_id = p_session.session_id and m.state = 'active'
      order by m.recorded_at desc, m.memory_id limit 200) m;
    -- What it may count as is the door's to decide; what no person said must be worth it first.
    v_exempt := v_turn.role = 'user' and v_turn.actor = 'person';
    if _memoir.admit(v_turn.user_id, v_found.type, v_novelty, v_found.utility, v_turn.created_at, v_exempt, null,
      p_config, false) then
      v_result := _memoir.enter(v_memory, p_session, array[v_turn], array[v_found.span_start],
        array[v_found.span_length], v_turn.created_at, null, p_config);
      v_outcome := v_result ->> 'outcome';
      v_id := (v_result ->> 'memory_id')::uuid;
      if v_outcome = 'stored' then
        v_new := v_new || v_id;
        if jsonb_array_length(v_result -> 'superseded') > 0 then
          perform _memoir.mark_sources(v_turn.user_id, array(select x::uuid
            from jsonb_array_elements_text(v_result -> 'superseded') x), v_turn, memoir.now());
        end if;
        perform _memoir.merge_memory(v_turn.user_id, m.memory_id, v_id, p_by, m2.recorded_at)
          from _memoir.memory_store m
        join _memoir.memory_store m2 on m2.user_id = v_turn.user_id and m2.memory_id = v_id and m2.trust >= m.trust
          and m2.state = 'active'
        where m.user_id = v_turn.user_id and m.memory_id = any (v_before) and m.state = 'active';
        perform _memoir.admit(v_turn.user_id, v_found.type, v_novelty, v_found.utility, v_turn.created_at, v_exempt,
          v_id, p_config, true);
      end if;
    else
      v_outcome := 'not_admitted';
    end if;
    v_counts := v_counts || jsonb_build_object(v_outcome, coalesce((v_counts ->> v_outcome)::integer, 0) + 1);
  end loop;
  return v_counts;
end $$;
