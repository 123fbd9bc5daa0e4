-- Directives: what a model says of its own window, in its text, in one tag. They change what is shown, never what is
-- stored: <memory-window> begins the tag.
--   drop: 3f2a91bc                         need not be shown any more
--   anchor: 3f2a91bc                       stays whole for a while
--   summarize: 3f2a91bc: what it says      the compact form, in the model's words
--   collapse: 4-19: what came of it        all objects of these turns; the first says what came of it
--   declare_losses: 3f2a91bc: error codes  what its compact form also lacks
-- </memory-window> ends it. The tag is not shown again.

create or replace function _memoir.directive_tag()
returns text language sql immutable as $$ select '<memory-window>(.*?)(?:</memory-window>|$)' $$;

-- Directed: carries out the directives of the assistant's messages, on objects of the session only. A directive that
-- fails becomes a warning.
create or replace function _memoir.append_directed(inout p_state _memoir.append_state)
language plpgsql as $$
declare
  v_message _memoir.message; v_turn integer := p_state.first_turn - 1; v_line text[]; v_memory _memoir.memory_store;
  v_range integer[]; v_first boolean; v_pin integer := (p_state.config ->> 'fault_pin_turns')::integer;
begin
  foreach v_message in array p_state.messages loop
    v_turn := v_turn + 1;
    continue when (v_message.role = 'assistant' and strpos(v_message.text, '<memory-window>') > 0) is not true;
    for v_line in select regexp_match(l, '^\s*(drop|anchor|summarize|collapse'
        '|declare_losses)\s*:\s*([0-9a-f-]{1,36})\s*(?::\s*(.*?)\s*)?$')
      from regexp_matches(v_message.text, _memoir.directive_tag(), 'g') m, string_to_table(m[1], E'\n') l
      where l ~ '\S' limit 100 loop
      begin
        if v_line is null or v_line[1] in ('summarize', 'collapse', 'declare_losses') and coalesce(v_line[3],
          '') = '' then
          perform _memoir.fail('PM014', 'a directive is not like "drop: 3f2a91bc" or "summarize: 3f2a91bc: text"');
        end if;
        if v_line[1] = 'collapse' then
          v_range := regexp_match(v_line[2], '^(\d{1,9})-(\d{1,9})$')::integer[];
          v_first := true;
          for v_memory in select m.* from _memoir.objects_at(p_state.user_id, p_state.session_id, v_range[1],
              least(v_range[2], v_turn - 1)) o
            join _memoir.memory_store m on m.user_id = p_state.user_id and m.memory_id = o.memory_id
            where m.sensitivity < 'secret' and o.part_no = 0 order by o.turn_index loop
            perform _memoir.release_object(p_state.user_id, p_state.session_id, v_memory, 'collapsed');
            if v_first then perform _memoir.authored_form(v_memory, 3, v_line[3], '[]', p_state.recorded_at); end if;
            v_first := false;
          end loop;
          continue;
        end if;
        v_memory := _memoir.named_object(p_state.caller, p_state.session, v_line[2]);
        case v_line[1]
        when 'drop' then
          perform _memoir.release_object(p_state.user_id, p_state.session_id, v_memory, 'dropped');
        when 'anchor' then
          insert into _memoir.session_objects (user_id, session_id, memory_id, pinned_until_turn, pin_reason)
          values (p_state.user_id, p_state.session_id, v_memory.memory_id, v_turn + v_pin, 'anchor')
          on conflict (user_id, session_id, memory_id) do update set fidelity_ceiling = 0,
            pinned_until_turn = greatest(session_objects.pinned_until_turn, excluded.pinned_until_turn),
            pin_reason = excluded.pin_reason;
        when 'summarize' then
          perform _memoir.authored_form(v_memory, 2, v_line[3], '[]', p_state.recorded_at);
          insert into _memoir.session_objects (user_id, session_id, memory_id, fidelity_ceiling, pin_reason)
          values (p_state.user_id, p_state.session_id, v_memory.memory_id, 2, 'summarize')
          on conflict (user_id, session_id, memory_id) do update set fidelity_ceiling = 2,
            pin_reason = excluded.pin_reason;
        else
          perform _memoir.authored_form(v_memory, 2, null, to_jsonb(array(select btrim(x)
            from string_to_table(v_line[3], ';') x where x ~ '\S')), p_state.recorded_at);
        end case;
      exception when sqlstate 'PM004' or sqlstate 'PM014' then
        p_state.warnings := p_state.warnings || to_jsonb('directive: ' || sqlerrm);
      end;
    end loop;
  end loop;
end $$;

-- A form in a model's words, or the one that there is with what it also lacks; from the next moment on.
create or replace function _memoir.authored_form(p_memory _memoir.memory_store, p_fidelity integer, p_text text,
  p_losses jsonb, p_at timestamptz)
returns void language plpgsql as $$
declare
  v_form _memoir.memory_renditions; v_user uuid := p_memory.user_id;
begin
  select * into v_form from _memoir.object_forms(v_user, array[p_memory.memory_id], array[p_fidelity::smallint]);
  if v_form.memory_id is null then return; end if;
  v_form := _memoir.finished_form(v_user, p_memory, p_fidelity, case when p_text is not null
      then _memoir.one_line(_memoir.neutralise(left(p_text, 8000))) else _memoir.form_body(v_form.content)
        || format(E'\nAlso left out: %s.', _memoir.one_line(_memoir.neutralise(left((select string_agg(x, ', ')
          from jsonb_array_elements_text(p_losses) x), 2000)))) end,
    coalesce(_memoir.form_text(v_user, p_memory), ''), 'agent');
  v_form.losses := v_form.losses || p_losses;
  v_form.made_by := 'agent';
  v_form.recorded_at := p_at;
  v_form.token_count := _memoir.tokens_of(v_form.content, v_form.tokenizer);
  insert into _memoir.memory_renditions select v_form.* on conflict (user_id, memory_id, fidelity, recorded_at)
  do update set content = excluded.content, losses = excluded.losses, made_by = excluded.made_by,
    token_count = excluded.token_count;
end $$;
