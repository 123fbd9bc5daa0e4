create or replace function memoir.open_session(p_user text, p_session text, p_model text default null,
  p_system_prompt text default null, p_project text default null, p_task text default null, p_parent text default null,
  p_settings jsonb default '{}', p_metadata jsonb default '{}', p_temperature real default null,
    p_top_p real default null, p_context_window integer default null, p_response_tokens integer default null)
returns uuid language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_warning text := case when p_model is not null then _memoir.model_warning(p_model) end;
begin
  if v_warning is not null then
    raise warning '%', v_warning
      using hint = 'give p_context_window and p_response_tokens; an admin registers it with register_model';
  end if;
  return _memoir.open_session(v_caller, p_user, p_session, p_model, p_system_prompt, p_project, p_task, p_parent,
    p_settings, p_metadata, p_temperature, p_top_p, p_context_window, p_response_tokens);
end $$;
comment on function memoir.open_session(text, text, text, text, text, text, text, jsonb, jsonb, real, real,
  integer, integer) is
  'Opens a session, or changes what is given (not null) of one that exists, and returns its id. p_task: continuation,
knowledge, new_session, tool_heavy. p_parent: the session this one continues. p_settings: overrides for this session.
p_temperature (0 to 2), p_top_p (0 to 1): how its model is to be called, kept for the caller: context and session_info
return them. p_context_window, p_response_tokens: tokens of this session''s window, and how many of them are set aside
for the answer; by default the model''s, which a change of the model brings back. A model that nobody registered
counts as "default" does, which a warning says, with the names near it. Writes users, sessions. Raises PM001, PM003
(parent), PM005, PM012, PM014, PM015.';

-- SHA-256 of a prompt, a tenant's together with his name's.
create or replace function _memoir.prompt_hash(p_tenant text, p_prompt text)
returns bytea language sql immutable strict as $$
  select sha256(case p_tenant when '' then '' else sha256(convert_to(p_tenant, 'UTF8')) end || convert_to(p_prompt,
    'UTF8'))
$$;

-- Prompts are stored once per text, with what they cost in each tokenizer that a session used them with.
-- A tenant's are his own: two who have the same text never wait for each other.
create or replace function _memoir.store_prompt(p_prompt text, p_tokenizer text)
returns bytea language plpgsql as $$
declare
  v_tenant text := case when pg_has_role(_memoir.login(), 'memoir_app', 'usage')
    or pg_has_role(_memoir.login(), 'memoir_admin', 'usage') then '' else _memoir.login() end;
  v_hash bytea := _memoir.prompt_hash(v_tenant, p_prompt); v_tokenizer text := _memoir.tokenizer_used(p_tokenizer);
begin
  -- Locked, so that the sweep of unused prompts does not take it before the session is there to see.
  perform from _memoir.system_prompts where prompt_hash = v_hash and tokens ? v_tokenizer for key share;
  if not found then
    insert into _memoir.system_prompts as s (prompt_hash, tenant, content, tokens)
    values (v_hash, v_tenant, p_prompt, jsonb_build_object(v_tokenizer, _memoir.tokens_of(p_prompt, v_tokenizer)))
    on conflict (prompt_hash) do update set tokens = s.tokens || excluded.tokens;
  end if;
  return v_hash;
end $$;

create or replace function _memoir.open_session(p_caller _memoir.caller, p_user text, p_session text, p_model text,
  p_system_prompt text, p_project text, p_task text, p_parent text, p_settings jsonb, p_metadata jsonb,
  p_temperature real default null, p_top_p real default null, p_context_window integer default null,
  p_response_tokens integer default null)
returns uuid language plpgsql as $$
declare
  v_config jsonb := (select config from _memoir.settings_merged);
  v_old _memoir.sessions; v_given _memoir.sessions; v_found boolean;
begin
  perform _memoir.check_name('session', p_session, 500);
  if p_project is not null then perform _memoir.check_project(p_caller, p_project); end if;
  perform _memoir.check_choice('task', p_task, enum_range(null::_memoir.task_type)::text[]) where p_task is not null;
  if p_model is not null then perform _memoir.check_name('model', p_model, 200); end if;
  perform _memoir.check_range('temperature', p_temperature, 0, 2), _memoir.check_range('top_p', p_top_p, 0, 1);
  v_given.metadata := coalesce(_memoir.check_object('metadata', p_metadata), '{}');
  perform _memoir.check_size('metadata', v_given.metadata::text, (v_config ->> 'text_bytes_max')::integer);
  perform _memoir.check_size('system_prompt', p_system_prompt, (v_config ->> 'text_bytes_max')::integer);
  perform _memoir.touch_user(p_caller, p_user);
  v_given.user_id := p_caller.user_id;
  v_given.session_id := _memoir.session_id(p_caller.user_id, p_session);
  v_given.external_id := p_session;
  v_given.project := p_project;
  v_given.task_type := p_task;
  v_given.settings := coalesce(nullif(p_settings, 'null'), '{}');
  v_given.temperature := p_temperature;
  v_given.top_p := p_top_p;

  select * into v_old from _memoir.sessions where user_id = v_given.user_id and session_id = v_given.session_id;
  v_found := found;
  if v_found then
    perform _memoir.check_session_of(p_caller, p_session, v_old.project);
    perform _memoir.check_open(v_old);
  end if;
  v_given := _memoir.with_window(p_caller, v_given, v_old, p_parent, p_model, p_context_window, p_response_tokens,
    v_config);

  if not v_found then
    v_given.project := coalesce(p_project, _memoir.default_project(p_caller));
    if not _memoir.new_session(v_given, p_system_prompt, v_config) then
      -- Somebody opened it at the same moment: what is given here changes it.
      return _memoir.open_session(p_caller, p_user, p_session, p_model, p_system_prompt, p_project, p_task, p_parent,
        p_settings, p_metadata, p_temperature, p_top_p, p_context_window, p_response_tokens);
    end if;
  elsif v_old.status = 'paused' then
    perform _memoir.resume_session(v_old, v_config);
  end if;
  if v_found and (num_nonnulls(p_model, p_system_prompt, p_project, p_task, p_parent, p_temperature, p_top_p,
        p_context_window, p_response_tokens) > 0 or v_given.settings <> '{}' or v_given.metadata <> '{}') then
    perform _memoir.change_session(v_old, v_given, p_model is not null, p_system_prompt);
  end if;
  return v_given.session_id;
end $$;

-- What a session continues, its model and its window: as given, else as the session has it, else as its model says.
-- The parent is one the caller may use, or PM003; a branch has its parent for good.
create or replace function _memoir.with_window(p_caller _memoir.caller, p_given _memoir.sessions,
  p_old _memoir.sessions, p_parent text, p_model text, p_window integer, p_response integer, p_config jsonb)
returns _memoir.sessions language plpgsql stable as $$
declare
  v_model _memoir.models; v_old _memoir.sessions := case when p_model is null then p_old end; v_parent uuid;
begin
  if p_parent is not null then
    v_parent := _memoir.session_id(p_caller.user_id, p_parent);
    if v_parent = p_given.session_id or not exists (
        select from _memoir.sessions where user_id = p_caller.user_id and session_id = v_parent
          and (p_caller.projects is null or project = any (p_caller.projects))) then
      perform _memoir.fail('PM003', format('unknown parent session %s', _memoir.shown(p_parent)));
    end if;
    if p_old.parent_turn is not null and v_parent <> p_old.parent_session_id then
      perform _memoir.fail('PM014', format('session %s is a branch and can''t get the parent %s',
        _memoir.shown(p_given.external_id), _memoir.shown(p_parent)));
    end if;
    p_given.parent_session_id := v_parent;
  end if;
  v_model := _memoir.model(coalesce(p_model, p_old.model, p_config ->> 'default_model'));
  p_given.model := v_model.model;
  p_given.tokenizer := coalesce(v_old.tokenizer, v_model.tokenizer);
  p_given.context_window := coalesce(p_window, v_old.context_window, v_model.context_window);
  -- An answer that was not given its share has a quarter of a smaller window at most.
  p_given.max_response_tokens := coalesce(p_response, least(coalesce(v_old.max_response_tokens, v_model.max_output),
    case when p_window is not null then greatest(1, p_window / 4) end));
  if p_given.context_window < 2 or p_given.max_response_tokens < 1
     or p_given.max_response_tokens >= p_given.context_window then
    perform _memoir.fail('PM014', format('session %s can''t have a window of %s tokens, %s of them for the answer',
      _memoir.shown(p_given.external_id), p_given.context_window, p_given.max_response_tokens),
      'both must be positive, p_response_tokens less than p_context_window');
  end if;
  return p_given;
end $$;

-- A session that is not there yet, with its counters. False: it is there now.
create or replace function _memoir.new_session(p_given _memoir.sessions, p_system_prompt text, p_config jsonb)
returns boolean language plpgsql as $$
declare
  v_now timestamptz := memoir.now();
begin
  insert into _memoir.sessions (user_id, session_id, external_id, project, task_type, model, context_window,
    max_response_tokens, tokenizer, system_prompt_hash, created_at, expires_at, parent_session_id, settings, metadata,
    temperature, top_p)
  values (p_given.user_id, p_given.session_id, p_given.external_id, p_given.project, p_given.task_type, p_given.model,
    p_given.context_window, p_given.max_response_tokens, p_given.tokenizer,
    case when p_system_prompt <> '' then _memoir.store_prompt(p_system_prompt, p_given.tokenizer) end,
    v_now, v_now + make_interval(hours => (p_config ->> 'session_ttl_hours')::integer), p_given.parent_session_id,
    _memoir.merge_overrides('{}', p_given.settings), p_given.metadata, p_given.temperature, p_given.top_p)
  on conflict do nothing;
  if not found then return false; end if;
  insert into _memoir.session_counters (user_id, session_id, first_recorded_at, last_recorded_at)
  values (p_given.user_id, p_given.session_id, v_now, v_now) on conflict do nothing;
  return true;
end $$;

-- Replaces session values by those given; merges settings and metadata. p_new_model: its window and tokenizer count.
create or replace function _memoir.change_session(p_old _memoir.sessions, p_given _memoir.sessions,
  p_new_model boolean, p_system_prompt text)
returns void language plpgsql as $$
declare
  v_user uuid := p_old.user_id; v_id uuid := p_old.session_id;
  v_moves boolean := coalesce(p_given.project <> p_old.project, false);
begin
  if p_new_model and p_system_prompt is null and p_old.system_prompt_hash is not null then
    perform _memoir.store_prompt(content, p_given.tokenizer) from _memoir.system_prompts
      where prompt_hash = p_old.system_prompt_hash;
  end if;
  if v_moves then  -- what was said in it moves with it; locks in their order
    perform from _memoir.session_counters where user_id = v_user and session_id = v_id for update;
    perform from _memoir.user_counters where user_id = v_user for update;
  end if;
  update _memoir.sessions set
    model = p_given.model, context_window = p_given.context_window, max_response_tokens = p_given.max_response_tokens,
    tokenizer = p_given.tokenizer, project = coalesce(p_given.project, project),
    task_type = coalesce(p_given.task_type, task_type),
    system_prompt_hash = case when p_system_prompt is null then system_prompt_hash when p_system_prompt = '' then null
                              else _memoir.store_prompt(p_system_prompt, p_given.tokenizer) end,
    parent_session_id = coalesce(p_given.parent_session_id, parent_session_id),
    settings = _memoir.merge_overrides(settings, p_given.settings), metadata = metadata || p_given.metadata,
    temperature = coalesce(p_given.temperature, temperature), top_p = coalesce(p_given.top_p, top_p)
  where user_id = v_user and session_id = v_id;
  -- Another window has other limits.
  update _memoir.session_counters set compact_after = 0
  where user_id = v_user and session_id = v_id and compact_after <> 0;
  if v_moves then
    update _memoir.search_items set project = p_given.project where user_id = v_user and session_id = v_id
      and kind <> 'm';
  end if;
end $$;

create or replace function _memoir.session(p_caller _memoir.caller, p_session text)
returns _memoir.sessions language plpgsql stable as $$
declare
  v_session _memoir.sessions; v_id uuid;
begin
  perform _memoir.check_name('session', p_session, 500);
  v_id := _memoir.session_id(p_caller.user_id, p_session);
  select * into v_session from _memoir.sessions where user_id = p_caller.user_id and session_id = v_id;
  if not found then perform _memoir.fail('PM003', format('unknown session %s', _memoir.shown(p_session))); end if;
  perform _memoir.check_session_of(p_caller, p_session, v_session.project);
  return v_session;
end $$;

create or replace function memoir.close_session(p_user text, p_session text)
returns void language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
begin
  if v_session.status in ('closed', 'expired') then return; end if;
  perform _memoir.end_session(v_session, 'closed', memoir.now());
end $$;
comment on function memoir.close_session(text, text) is
  'Closes a session: no more turns; its working notes go, its local memories live on for local_memory_hours, a job
summarises it. Closing twice is harmless. Writes sessions, memory_store, work_items. Raises PM001, PM003.';

create or replace function memoir.pause_session(p_user text, p_session text)
returns void language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
begin
  perform _memoir.check_open(v_session);
  update _memoir.sessions set status = 'paused', expires_at = 'infinity'
  where user_id = v_session.user_id and session_id = v_session.session_id and status = 'active';
end $$;
comment on function memoir.pause_session(text, text) is
  'Lets a session rest: it is not compacted and does not expire. Its next turn, or open_session, resumes it. Pausing
twice is harmless. Raises PM001, PM003, PM005.';

create or replace function _memoir.resume_session(p_session _memoir.sessions, p_config jsonb)
returns void language plpgsql as $$
begin
  update _memoir.sessions set status = 'active',
    expires_at = memoir.now() + make_interval(hours => (p_config ->> 'session_ttl_hours')::integer)
  where user_id = p_session.user_id and session_id = p_session.session_id and status = 'paused';
end $$;

create or replace function _memoir.check_open(p_session _memoir.sessions)
returns void language plpgsql as $$
begin
  if p_session.status in ('closed', 'expired') then
    perform _memoir.fail('PM005', format('session %s is %s', _memoir.shown(p_session.external_id), p_session.status),
      'open one under another name, with p_parent => this one');
  end if;
end $$;

create or replace function memoir.branch_session(p_user text, p_session text, p_new_session text,
  p_at_turn integer default null)
returns uuid language plpgsql security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'write');
  v_parent _memoir.sessions := _memoir.session(v_caller, p_session);
  v_counters _memoir.session_counters; v_new uuid; v_at integer; v_next _memoir.conversation_history;
  v_last _memoir.conversation_history; v_now timestamptz := memoir.now();
begin
  perform _memoir.check_name('session', p_new_session, 500);
  v_new := _memoir.session_id(v_caller.user_id, p_new_session);
  select * into v_counters from _memoir.session_counters
  where user_id = v_caller.user_id and session_id = v_parent.session_id for share;
  v_at := coalesce(p_at_turn, v_counters.turn_count);
  if v_at not between 0 and v_counters.turn_count or (v_at = v_counters.turn_count and v_counters.open_calls <> '{}')
    then
    perform _memoir.fail('PM014', format('can''t branch session %s at turn %s', _memoir.shown(p_session), v_at),
      format('0 to %s turns can be shared, tool calls only with their results', v_counters.turn_count));
  end if;
  if v_at > 0 then v_last := _memoir.turn_seen(v_parent, v_at - 1); end if;
  if v_at < v_counters.turn_count then
    v_next := _memoir.turn_seen(v_parent, v_at);
    perform _memoir.fail('PM014',
      format('turn %s of session %s is a tool result: its call would be shared without it', v_at,
      _memoir.shown(p_session))) where v_next.role = 'tool';
    -- Where that turn was erased, all before it counts.
    v_counters.tokens := coalesce(v_next.tokens_before, v_last.tokens_before + v_last.token_count, v_counters.tokens);
  end if;
  insert into _memoir.sessions
  select r.* from jsonb_populate_record(v_parent, jsonb_build_object('session_id', v_new, 'external_id', p_new_session,
    'status', 'active', 'created_at', v_now, 'closed_at', null, 'parent_session_id', v_parent.session_id, 'parent_turn',
      v_at, 'expires_at', v_now + make_interval(hours => (_memoir.config(v_caller.user_id, v_parent.settings)
      ->> 'session_ttl_hours')::integer), 'summary_text', null, 'summary_through', null)) r
  on conflict do nothing;
  perform _memoir.fail('PM014', format('session %s exists already', _memoir.shown(p_new_session))) where not found;
  -- It goes on where the shared turns end, inside an exchange too.
  insert into _memoir.session_counters (user_id, session_id, turn_count, extracted_through, tokens, exchange_start,
    last_role, has_objects, first_recorded_at, last_recorded_at)
  values (v_caller.user_id, v_new, v_at, v_at, v_counters.tokens, coalesce(v_last.exchange_start, v_at), v_last.role,
    v_counters.has_objects, v_now, v_now);
  perform _memoir.refresh_summary(v_caller.user_id, v_new);
  return v_new;
end $$;
comment on function memoir.branch_session(text, text, text, integer) is
  'Starts a session that shares the first p_at_turn turns (default all) of another by reference and goes its own way
from there. Writes sessions. Raises PM001, PM003, PM014.';

create or replace function memoir.session_info(p_user text, p_session text)
returns jsonb language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
  v_session _memoir.sessions := _memoir.session(v_caller, p_session);
begin
  return (select jsonb_build_object('session_id', v_session.session_id, 'session', v_session.external_id, 'status',
    v_session.status, 'model', v_session.model, 'context_window', v_session.context_window,
      'response_tokens', v_session.max_response_tokens, 'tokenizer', v_session.tokenizer,
      'project', v_session.project, 'task', v_session.task_type, 'temperature', v_session.temperature,
      'top_p', v_session.top_p, 'created_at', v_session.created_at, 'closed_at', v_session.closed_at, 'turns',
        c.turn_count, 'tokens', c.tokens, 'prompt_tokens', c.prompt_tokens, 'completion_tokens', c.completion_tokens,
      'cost_microcents', c.cost_microcents, 'open_calls', to_jsonb(c.open_calls), 'last_recorded_at',
        c.last_recorded_at, 'settings', v_session.settings, 'metadata', v_session.metadata)
      || jsonb_strip_nulls(jsonb_build_object('archived', _memoir.archived_ranges(v_session)))
    from _memoir.session_counters c where c.user_id = v_caller.user_id and c.session_id = v_session.session_id);
end $$;
comment on function memoir.session_info(text, text) is
  'A session''s state: model and how it is called, window, turns, tokens, costs (microcents), tool calls still open,
and in "archived" the turns that are in an archive. Raises PM001, PM003.';

-- A session's end, at p_at: no more turns, its local memories live on for a while, its working notes and kept recall
-- go, a summary of it is asked for. Takes the locks of writers, in their order: a turn is before the end or refused.
create or replace function _memoir.end_session(p_session _memoir.sessions, p_status _memoir.session_status,
  p_at timestamptz)
returns void language plpgsql as $$
declare
  v_user uuid := p_session.user_id; v_id uuid := p_session.session_id;
begin
  perform from _memoir.session_counters where user_id = v_user and session_id = v_id for update;
  perform from _memoir.user_counters where user_id = v_user for update;
  update _memoir.sessions set status = p_status, closed_at = coalesce(closed_at, p_at) where user_id = v_user
    and session_id = v_id;
  update _memoir.memory_store
  set expires_at = p_at + make_interval(hours => (_memoir.config(v_user, p_session.settings)
    ->> 'local_memory_hours')::integer)
  where user_id = v_user and local_to = v_id and state = 'active' and expires_at is null;
  delete from _memoir.memory_store_working where user_id = v_user and session_id = v_id;
  delete from _memoir.kept_recalls where user_id = v_user and session_id = v_id;
  delete from _memoir.query_answers where user_id = v_user and session_id = v_id;
  update _memoir.session_windows set lines = null where user_id = v_user and session_id = v_id and lines <> '{}';
  if p_session.status not in ('closed', 'expired')
     and exists (select from _memoir.session_counters where user_id = v_user and session_id = v_id and turn_count > 0)
       then
    perform _memoir.enqueue('session_summary', v_user, v_id::text);
  end if;
end $$;
