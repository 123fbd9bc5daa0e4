create or replace function memoir.part_of(p_user text)
returns integer language plpgsql stable security definer set search_path from current as $$
begin
  return _memoir.part_of((_memoir.authorise(p_user, 'read')).user_id);
end $$;
comment on function memoir.part_of(text) is
  'The hash part, 0 to modulus - 1, that holds all rows of a user; equals PostgreSQL''s partition remainder, so that a
router can send the user''s calls to the server that owns it. Raises PM001.';

-- The row that makes a user exist; any write makes it.
create or replace function _memoir.touch_user(p_caller _memoir.caller, p_user text)
returns void language plpgsql as $$
begin
  if not exists (select from _memoir.users where user_id = p_caller.user_id) then
    perform _memoir.ensure_month(p_caller.user_id, memoir.now());
    insert into _memoir.users (user_id, namespace, external_id, created_at)
    values (p_caller.user_id, p_caller.namespace, p_user, memoir.now()) on conflict do nothing;
    insert into _memoir.user_counters (user_id) values (p_caller.user_id) on conflict do nothing;
    insert into _memoir.user_locks values (p_caller.user_id) on conflict do nothing;
    insert into _memoir.user_keys (user_id, secret) values (p_caller.user_id, gen_random_bytes(32))
      on conflict do nothing;
  end if;
end $$;

-- Features that a user ever used, so that a compile does not look for the others. Triggers note them.

create or replace function _memoir.note_feature()
returns trigger language plpgsql set plan_cache_mode = force_custom_plan set search_path from current as $$
begin
  update _memoir.user_counters c set features = c.features || tg_argv[0]
  where c.user_id = new.user_id and tg_argv[0] <> all (c.features);
  return null;
end $$;

-- Made once: an upgrade that replaced them would wait for every writer.
do $$
begin
  if not exists (select from pg_trigger where tgrelid = '_memoir.turn_marks'::regclass and tgname = 'note_mark') then
    create trigger note_mark after insert on _memoir.turn_marks
      for each row execute function _memoir.note_feature('marks');
    update _memoir.user_counters c set features = c.features || 'marks'::text
    where 'marks' <> all (c.features) and exists (select from _memoir.turn_marks m where m.user_id = c.user_id);
  end if;
  if exists (select from pg_trigger where tgrelid = '_memoir.search_items'::regclass and tgname = 'note_sensitive') then
    return;
  end if;
  -- Of new items add_items says it.
  create trigger note_sensitive after update of sensitivity on _memoir.search_items
    for each row when (new.sensitivity <> 'normal') execute function _memoir.note_feature('sensitive');
  create trigger note_echo after update of echo on _memoir.search_items
    for each row when (new.echo) execute function _memoir.note_feature('echoes');
  create trigger note_pin after insert on _memoir.turn_pins
    for each row execute function _memoir.note_feature('pins');
  create trigger note_ceiling after insert or update on _memoir.session_objects
    for each row when (new.fidelity_ceiling > 0 or new.pinned_until_turn is not null)
    execute function _memoir.note_feature('ceilings');
  create trigger note_working after insert on _memoir.memory_store_working
    for each row execute function _memoir.note_feature('working');
  create trigger note_change after insert or update on _memoir.recall_exclusions
    for each row when (new.changed) execute function _memoir.note_feature('changes');
end $$;
