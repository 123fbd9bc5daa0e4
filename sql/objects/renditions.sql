-- Renditions: the shorter forms of objects. Fidelity 0 is the text in the turns; 1 detailed (about 30 % of its tokens),
-- 2 compact (about 5 %), 3 a stub; of 4 nothing is shown. What a form lacks is computed against fidelity 0.

-- The text of an object in full: of its newest reading, all parts. Null where it is no longer there.
create or replace function _memoir.object_text(p_user_id uuid, p_memory uuid)
returns text language plpgsql stable as $$
declare
  v_text text; v_place _memoir.object_places; v_turn _memoir.conversation_history; v_found text;
begin
  for v_place in select * from _memoir.object_places p where p.user_id = p_user_id and p.memory_id = p_memory
      and p.reading = (select max(q.reading) from _memoir.object_places q where q.user_id = p_user_id
        and q.memory_id = p_memory)
    order by p.part_no loop
    v_turn := _memoir.turn(p_user_id, v_place.session_id, v_place.turn_index);
    v_found := case when v_place.call_no = 0 then v_turn.content
      else _memoir.try_json(v_turn.tool_calls #>> array[(v_place.call_no - 1)::text, 'function', 'arguments'])
        #>> v_place.argument end;
    if v_found is not null then v_text := concat_ws(E'\n', v_text, v_found); end if;
  end loop;
  return v_text;
end $$;

create or replace function _memoir.object_name(p_memory uuid)
returns text language sql immutable as $$ select left(p_memory::text, 8) $$;

-- The text of an object without what is out of recall; null where that can't be told apart.
create or replace function _memoir.known_text(p_user_id uuid, p_memory uuid)
returns text language plpgsql stable as $$
declare
  v_spans int4range[];
begin
  select array_agg(int4range(x.span_start, x.span_start + x.span_length)) into v_spans
  from _memoir.object_places p, _memoir.exclusions_of(p_user_id, p.session_id, p.turn_index) x
  where p.user_id = p_user_id and p.memory_id = p_memory and not x.changed;
  if v_spans is null then return _memoir.object_text(p_user_id, p_memory); end if;
  -- Of a whole turn, of arguments, of several turns: then nothing but the stub is left.
  if exists (select from unnest(v_spans) r where lower_inf(r)) or exists (select from _memoir.object_places p
    where p.user_id = p_user_id and p.memory_id = p_memory and (p.part_no > 0 or p.call_no > 0))
      then return null; end if;
  return _memoir.without_spans(_memoir.object_text(p_user_id, p_memory), v_spans);
end $$;

-- The text that forms of an object are made of: of what nobody has looked through yet the ends, and so of what is too
-- long to be read whole.
create or replace function _memoir.form_text(p_user_id uuid, p_memory _memoir.memory_store)
returns text language plpgsql stable as $$
declare
  v_text text := _memoir.known_text(p_user_id, p_memory.memory_id); v_half integer := _memoir.read_limit() / 2;
begin
  if exists (select from _memoir.object_places p
    join _memoir.memory_sources s on s.user_id = p_user_id and s.item_kind = 'memory'
      and s.item_id = p_memory.memory_id and s.session_id = p.session_id and s.turn_index = p.turn_index
    where p.user_id = p_user_id and p.memory_id = p_memory.memory_id
      and _memoir.awaits_scan(p_user_id, s.source_id)) then return _memoir.ends_of('tool', v_text); end if;
  return case when length(v_text) > 2 * v_half then left(v_text, v_half) || E'\n' || right(v_text, v_half)
    else v_text end;
end $$;

create or replace function _memoir.reduced_body(p_text text, p_kind text, p_tokens integer, p_target integer,
  p_wanted text[], p_tokenizer text)
returns text language plpgsql stable as $$
declare
  v_source text := case p_kind when 'json' then jsonb_pretty(_memoir.try_json(p_text)) else p_text end;
  v_size integer := (length(v_source)::bigint * p_target / greatest(1, p_tokens))::integer; v_body text; v_cost integer;
  v_counts text;
begin
  if p_kind = 'log' then
    select string_agg(format('×%s %s', n, left(example, 160)), E'\n' order by n desc, example) into v_counts from (
      select count(*) as n, min(l.body) as example from _memoir.text_lines(p_text) l where l.body ~ '[[:alnum:]]'
      group by _memoir.line_shape(l.body) having count(*) > 3 order by count(*) desc, 2
      limit greatest(2, least(8, p_target / 60))) x;
  end if;
  for v_try in 1 .. 3 loop
    if p_kind = 'search' then
      v_body := _memoir.files_found(v_source, v_size);
      v_body := concat_ws(E'\n', v_body, _memoir.cut_text(v_source, p_kind, v_size - coalesce(length(v_body), 0),
        p_wanted));
    else
      v_body := _memoir.cut_text(v_source, p_kind, v_size, p_wanted);
    end if;
    v_body := concat_ws(E'\n', v_body, v_counts);
    v_cost := _memoir.tokens_of(v_body, p_tokenizer);
    exit when v_cost <= p_target * 1.1 + 10;
    v_size := (v_size::bigint * p_target / v_cost * 9 / 10)::integer;
  end loop;
  return coalesce(v_body, '');
end $$;

-- A form with its head and its losses: p_body between them. What is lost is told against the whole text.
create or replace function _memoir.finished_form(p_user_id uuid, p_memory _memoir.memory_store, p_fidelity integer,
  p_body text, p_text text, p_made_by text)
returns _memoir.memory_renditions language plpgsql stable as $$
declare
  v_form _memoir.memory_renditions; v_name text := _memoir.object_name(p_memory.memory_id); v_full integer;
  v_kinds text[]; v_all text[]; v_lost boolean[]; v_said text; v_lines text; v_known text; v_state text;
begin
  select o.tokens, 'edited since, in turn ' || o.stale_turn || '.' into v_full, v_state
  from _memoir.session_objects o where o.user_id = p_user_id and o.session_id = p_memory.session_id
    and o.memory_id = p_memory.memory_id;
  if p_memory.state = 'superseded' then
    v_state := format('read again since: object %s, turn %s.', _memoir.object_name(p_memory.superseded_by), (
      select max(p.turn_index) from _memoir.object_places p where p.user_id = p_user_id
        and p.memory_id = p_memory.superseded_by));
  end if;
  v_form.user_id := p_user_id;
  v_form.memory_id := p_memory.memory_id;
  v_form.fidelity := p_fidelity;
  v_form.tokenizer := p_memory.tokenizer;
  v_form.made_by := p_made_by;
  v_form.recorded_at := memoir.now();
  v_known := concat_ws(E'\n', p_memory.content, p_body);
  select array_agg(e.kind), array_agg(e.entity), array_agg(k.entity is null and strpos(v_known, e.entity) = 0)
  into v_kinds, v_all, v_lost
  from (select * from _memoir.entities(p_text) limit 4000) e
  left join (select distinct entity from _memoir.entities(v_known)) k using (entity);
  -- How many of each kind it lacks: "codes (7 of 9), numbers (3 of 40)".
  select string_agg(format('%s (%s of %s)', kind, lost, n), ', ' order by array_position(
    '{codes,paths,identifiers,URLs,numbers,quoted strings}', kind)) into v_said
  from (select kind, count(*) filter (where lost) as lost, count(*) as n
    from unnest(v_kinds, v_lost) x(kind, lost) group by kind) y where lost > 0;
  if p_fidelity < 3 and _memoir.text_kind(p_text, p_memory.source_key) <> 'json' then
    -- The lines of which it has nothing, as ranges: "12–40, 44–190".
    with missing as (select l.o, l.o - row_number() over (order by l.o) as run
      from string_to_table(p_text, E'\n') with ordinality l(body, o)
      where l.body ~ '[[:alnum:]]' and l.body not in (
        select regexp_replace(f, '^… ', '') from string_to_table(p_body, E'\n') f)),
    runs as (
      select min(o) as first, max(o) as last from missing group by run order by max(o) - min(o) desc, 1 limit 4)
    select 'lines ' || string_agg(case when first = last then first::text else first || '–' || last end, ', '
      order by first) into v_lines from runs;
  end if;
  v_form.can_answer := (select coalesce(jsonb_agg(e order by o), '[]') from (
    select e, o from unnest(v_all, v_lost) with ordinality x(e, lost, o) where not lost limit 1000) y);
  v_form.key_entities := (select coalesce(jsonb_agg(value order by ordinality), '[]')
    from jsonb_array_elements(v_form.can_answer) with ordinality where ordinality <= 20);
  v_form.fault_when := (select coalesce(jsonb_agg(f), '[]') from unnest(array[v_said, v_lines]) f where f is not null);
  v_form.content := concat_ws(E'\n',
    format('[%s%s of %s tokens, object %s · %s]', (array['detailed, ', 'compact, ', 'stub'])[p_fidelity],
      case when p_fidelity < 3 then '000' end, btrim(to_char(v_full, '999,999,999')), v_name,
      _memoir.stub_subject(p_memory.content)),
    nullif(p_body, ''),
    concat_ws(' ', v_state,
      'Left out: ' || case when p_fidelity < 3 then nullif(concat_ws(', ', v_said, v_lines), '')
        when p_body <> '' then 'all but these names' else 'all' end || '.',
      format('memory_query("…") answers from it, memory_query("%s") shows it whole.', v_name)));
  v_form.token_count := _memoir.tokens_of(v_form.content, p_memory.tokenizer);
  v_form.content := replace(v_form.content, ', 000 of ', format(', %s of ', v_form.token_count));
  v_form.losses := (select coalesce(jsonb_agg(e order by o), '[]') from (
    select e, o from unnest(v_all, v_lost) with ordinality x(e, lost, o) where lost
      -- By chance it may be part of what is said of the form.
      and strpos(v_form.content, e) = 0 limit 1000) y);
  return v_form;
end $$;

-- Returns what stands between the head of a form and what it says of itself.
create or replace function _memoir.form_body(p_content text)
returns text language sql immutable as $$
  select array_to_string((string_to_array(p_content, E'\n'))[2 : cardinality(string_to_array(p_content, E'\n')) - 1],
    E'\n')
$$;

-- Returns the part of a stub line behind its tokens, because the head of a form has them.
create or replace function _memoir.stub_subject(p_stub text)
returns text language sql immutable as $$ select regexp_replace(p_stub, ' · [\d,]+ tokens$', '') $$;

-- One form of an object, made by rule from its text as it is now.
create or replace function _memoir.make_form(p_user_id uuid, p_memory _memoir.memory_store, p_fidelity integer)
returns _memoir.memory_renditions language plpgsql stable as $$
declare
  v_text text := _memoir.form_text(p_user_id, p_memory); v_object _memoir.session_objects; v_tokens integer;
  v_body text := ''; v_target integer; v_kind text; v_turn _memoir.conversation_history; v_step integer; v_used text[];
begin
  if p_fidelity < 3 and v_text is not null then
    v_kind := _memoir.text_kind(v_text, p_memory.source_key);
    select * into v_object from _memoir.session_objects o where o.user_id = p_user_id
      and o.session_id = p_memory.session_id and o.memory_id = p_memory.memory_id;
    -- Of a text that is not read whole, the tokens of what is.
    v_tokens := least(v_object.tokens, _memoir.tokens_of(v_text, p_memory.tokenizer));
    v_target := least(v_tokens / 2, (array[20000, 4000])[p_fidelity],
      -- Which files there are is what a search is for.
      greatest(case v_kind when 'search' then 150 else 60 end,
        (v_tokens * (array[0.25, 0.05])[p_fidelity])::integer - 80));
    -- What of it was used since: lines of the call that edited it.
    if v_object.stale_turn is not null then
      v_step := v_object.stale_turn;
      loop
        v_step := v_step - 1;
        v_turn := _memoir.turn(p_user_id, p_memory.session_id, v_step);
        exit when v_turn.role is distinct from 'tool';
      end loop;
      v_used := array(select distinct btrim(l) from jsonb_array_elements(v_turn.tool_calls) c,
          _memoir.argument_texts(_memoir.try_json(c #>> '{function,arguments}'), 8) a,
          string_to_table(left(a.body, 4000), E'\n') l
        where length(btrim(l)) between 8 and 300 limit 40);
    end if;
    -- Of a short file a few lines tell nothing.
    if p_fidelity = 1 or p_memory.type <> 'file_context' or v_tokens >= 3000 then
      v_body := _memoir.reduced_body(v_text, v_kind, v_tokens, v_target, v_used, p_memory.tokenizer);
    end if;
    v_body := concat_ws(E'\n', nullif(v_body, ''), 'Also in it: ' || _memoir.names_left(v_text, v_body,
      (length(v_text) * (array[0.08, 0.15])[p_fidelity])::integer, 2));
  elsif p_memory.state = 'active' then
    -- Where things are, and what they are called, is used long after what stands there was read.
    v_body := _memoir.names_in(v_text, 0.07, 1);
  end if;
  return _memoir.finished_form(p_user_id, p_memory, p_fidelity, v_body, coalesce(v_text, ''), 'rules');
end $$;

-- Forms of objects that counted at a time (default: now), each of p_ids at the fidelity of the same place: the newest,
-- unless something of it was taken out of recall since.
create or replace function _memoir.stored_forms(p_user_id uuid, p_ids uuid[], p_fidelities smallint[],
  p_at timestamptz)
returns setof _memoir.memory_renditions language plpgsql stable as $$
begin
  return query
  select r.* from rows from (unnest(p_ids), unnest(p_fidelities)) a(id, fidelity)
  cross join lateral (select * from _memoir.memory_renditions r where r.user_id = p_user_id and r.memory_id = a.id
    and r.fidelity = a.fidelity and (p_at is null or r.recorded_at <= p_at)
    and not exists (select
      from _memoir.object_places p, _memoir.exclusions_of(p_user_id, p.session_id, p.turn_index) x
      where p.user_id = p_user_id and p.memory_id = a.id and not x.changed and x.recorded_at > r.recorded_at)
    order by r.recorded_at desc limit 1) r;
end $$;

-- Forms of objects, each of p_ids at the fidelity of the same place: the newest stored by p_at, since which the list
-- may not change, else made anew, the same text as long as the object stays as it is. No row for fidelity 0 and 4,
-- nor for what is secret or no longer there.
create or replace function _memoir.object_forms(p_user_id uuid, p_ids uuid[], p_fidelities smallint[],
  p_at timestamptz default null)
returns setof _memoir.memory_renditions language plpgsql stable as $$
declare
  v_asked record;
begin
  for v_asked in select m, a.fidelity, f as form
    from rows from (unnest(p_ids), unnest(p_fidelities)) with ordinality a(id, fidelity, o)
    join _memoir.memory_store m on m.user_id = p_user_id and m.memory_id = a.id and m.is_object
      and m.sensitivity < 'secret' and m.state in ('active', 'superseded')
    left join _memoir.stored_forms(p_user_id, p_ids, p_fidelities, p_at) f on f.memory_id = a.id
      and f.fidelity = a.fidelity
    where a.fidelity between 1 and 3 order by a.o loop
    if (v_asked.form).memory_id is not null then
      return next v_asked.form;
    else
      return next _memoir.make_form(p_user_id, v_asked.m, v_asked.fidelity);
    end if;
  end loop;
end $$;

-- Stores forms as they are made now, where they differ from what is stored: called at a moment, when what is shown may
-- change. Returns their tokens, in the order of p_ids; null where there is no such form.
create or replace function _memoir.keep_forms(p_user_id uuid, p_ids uuid[], p_fidelities smallint[],
  p_at timestamptz default null)
returns integer[] language plpgsql as $$
declare
  v_memory _memoir.memory_store; v_form _memoir.memory_renditions; v_old _memoir.memory_renditions;
  v_tokens integer[] := '{}'; v_at timestamptz := coalesce(p_at, memoir.now());
begin
  for i in 1 .. coalesce(cardinality(p_ids), 0) loop
    v_form := null;
    select * into v_memory from _memoir.memory_store m where m.user_id = p_user_id and m.memory_id = p_ids[i]
      and m.is_object and m.sensitivity < 'secret' and m.state in ('active', 'superseded');
    if found and p_fidelities[i] between 1 and 3 then
      select * into v_old from _memoir.stored_forms(p_user_id, p_ids[i : i], p_fidelities[i : i], null);
      -- A model's words stay; what is said of them may have changed.
      v_form := case when v_old.made_by <> 'rules' then _memoir.finished_form(p_user_id, v_memory, p_fidelities[i],
          _memoir.form_body(v_old.content), coalesce(_memoir.form_text(p_user_id, v_memory), ''), v_old.made_by)
        else _memoir.make_form(p_user_id, v_memory, p_fidelities[i]) end;
      v_form.recorded_at := v_at;
      if v_form.content is distinct from v_old.content then
        if v_old.memory_id is null and p_fidelities[i] < 3 then
          -- In a language model's words, where one is configured (objects/render.sql): of what may be sent out.
          perform _memoir.enqueue('render', p_user_id, v_memory.memory_id::text,
            jsonb_build_object('session_id', v_memory.session_id))
          where v_memory.sensitivity = 'normal'
            and (select config ->> 'llm_provider' from _memoir.settings_merged) is distinct from 'none';
        end if;
        -- Of the older forms nothing is shown from this moment on.
        delete from _memoir.memory_renditions r where r.user_id = p_user_id and r.memory_id = p_ids[i]
          and r.fidelity = p_fidelities[i];
        insert into _memoir.memory_renditions select v_form.*;
      end if;
    end if;
    v_tokens := v_tokens || v_form.token_count;
  end loop;
  return v_tokens;
end $$;
