-- render: forms of an object in a language model's words, instead of those that rules made. dedup_key is the object,
-- payload {"session_id", "asked": hash of the text it was given}. One call makes both forms; they are shown from the
-- next moment on (keep_forms).

-- The object as it is now; none that is not to be sent out, was rendered by a model already or has no text any more.
create or replace function _memoir.rendered_object(p_work _memoir.work_items)
returns _memoir.memory_store language plpgsql stable as $$
begin
  return (select m from _memoir.memory_store m where m.user_id = p_work.user_id
    and m.memory_id = p_work.dedup_key::uuid and m.is_object and m.sensitivity = 'normal' and m.state = 'active'
    and not exists (select from _memoir.object_places p join _memoir.memory_sources s on s.user_id = p_work.user_id
      and s.item_kind = 'memory' and s.item_id = m.memory_id and s.turn_index = p.turn_index
      where p.user_id = p_work.user_id and p.memory_id = m.memory_id
        and _memoir.awaits_scan(p_work.user_id, s.source_id)));
end $$;

create or replace function _memoir.form_size(p_tokens integer, p_fidelity integer)
returns integer language sql immutable as $$
  select least((array[20000, 4000])[p_fidelity], greatest(60, (p_tokens * (array[0.3, 0.05])[p_fidelity])::integer))
$$;

create or replace function _memoir.render_input(p_work _memoir.work_items)
returns jsonb language plpgsql as $$
declare
  v_memory _memoir.memory_store := _memoir.rendered_object(p_work); v_text text; v_tokens integer;
begin
  if v_memory.memory_id is null then return null; end if;
  v_text := _memoir.form_text(p_work.user_id, v_memory);
  if v_text is null then return null; end if;
  -- What is left out, forgotten or marked while the model is at it must not be stored.
  update _memoir.work_items set payload = payload || jsonb_build_object('asked', md5(v_text))
  where work_id = p_work.work_id;
  if length(v_text) > 60000 then v_text := left(v_text, 40000) || E'\n…\n' || right(v_text, 20000); end if;
  v_tokens := _memoir.tokens_of(v_text, v_memory.tokenizer);
  return jsonb_build_object('type', v_memory.type, 'what', _memoir.stub_subject(v_memory.content),
    'tokens', jsonb_build_object('detailed', _memoir.form_size(v_tokens, 1), 'compact', _memoir.form_size(v_tokens, 2)),
    'text', v_text);
end $$;

-- Returns what is wrong with a form in a model's words; null if nothing: it names nothing that the text does not name,
-- and is no longer than it may be.
create or replace function _memoir.form_problem(p_form text, p_text text, p_most integer, p_tokenizer text)
returns text language plpgsql stable as $$
declare
  v_tokens integer := _memoir.tokens_of(p_form, p_tokenizer); v_entity text;
begin
  if _memoir.is_blank(p_form) then return 'it is empty'; end if;
  if v_tokens > p_most * 1.2 + 40 then return format('it has %s tokens, %s were asked for', v_tokens, p_most); end if;
  select e.entity into v_entity from _memoir.entities(p_form) e where strpos(p_text, e.entity) = 0 limit 1;
  if found then return format('the text does not say %s', _memoir.shown(v_entity)); end if;
  return null;
end $$;

create or replace function _memoir.render_store(p_work _memoir.work_items, p_output jsonb, p_made_by text)
returns integer language plpgsql as $$
declare
  v_memory _memoir.memory_store; v_text text; v_form _memoir.memory_renditions; v_body text; v_problem text;
  v_tokens integer; v_now timestamptz := memoir.now();
begin
  perform from _memoir.user_counters where user_id = p_work.user_id for update;
  v_memory := _memoir.rendered_object(p_work);
  if v_memory.memory_id is null then return 0; end if;
  v_text := _memoir.form_text(p_work.user_id, v_memory);
  if md5(v_text) is distinct from p_work.payload ->> 'asked' then return 0; end if;
  v_tokens := _memoir.tokens_of(v_text, v_memory.tokenizer);
  for v_fidelity in 1 .. 2 loop
    v_body := btrim(p_output ->> (array['detailed', 'compact'])[v_fidelity], E' \n\t');
    v_problem := _memoir.form_problem(v_body, v_text, _memoir.form_size(v_tokens, v_fidelity), v_memory.tokenizer);
    perform _memoir.fail('PM014', format('the %s form can''t stand: %s', (array['detailed', 'compact'])[v_fidelity],
      v_problem)) where v_problem is not null;
    v_form := _memoir.finished_form(p_work.user_id, v_memory, v_fidelity, v_body, v_text, p_made_by);
    select greatest(v_now, max(r.recorded_at) + interval '1 microsecond') into v_form.recorded_at
    from _memoir.memory_renditions r where r.user_id = p_work.user_id and r.memory_id = v_memory.memory_id
      and r.fidelity = v_fidelity;
    insert into _memoir.memory_renditions select v_form.*;
  end loop;
  return 2;
end $$;

-- Declared losses, checked on samples: what a form can answer stands in it, what it lost does not, and both stand
-- in the text. Ten of each list are looked at. A model's form that fails goes, so that the rule's counts again; one of
-- rules is made anew when it is needed.
create or replace function _memoir.step_renditions(p_limit integer)
returns jsonb language plpgsql as $$
declare
  v_users uuid[] := _memoir.next_users('renditions', p_limit); v_user uuid; v_form _memoir.memory_renditions;
  v_checked integer := 0; v_wrong integer := 0; v_text text;
begin
  foreach v_user in array v_users loop
    for v_form in select * from _memoir.memory_renditions r where r.user_id = v_user
      order by r.recorded_at desc, r.memory_id, r.fidelity limit 10 loop
      v_checked := v_checked + 1;
      v_text := _memoir.object_text(v_user, v_form.memory_id);
      continue when not exists (select from (select e from jsonb_array_elements_text(v_form.can_answer) e
          order by md5(e) limit 10) k where strpos(v_form.content, k.e) = 0)
        and not exists (select from (select e from jsonb_array_elements_text(v_form.losses) e
          order by md5(e) limit 10) k where strpos(v_form.content, k.e) > 0 or strpos(v_text, k.e) = 0);
      v_wrong := v_wrong + 1;
      delete from _memoir.memory_renditions r where r.user_id = v_user and r.memory_id = v_form.memory_id
        and r.fidelity = v_form.fidelity and r.recorded_at = v_form.recorded_at;
    end loop;
  end loop;
  return jsonb_build_object('more', cardinality(v_users) = p_limit, 'users', cardinality(v_users), 'checked',
    v_checked, 'wrong', v_wrong);
end $$;
