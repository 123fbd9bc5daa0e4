-- A user's own rows: made when somebody first writes for them; which part they lie in.

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
    insert into _memoir.user_keys (user_id, secret) values (p_caller.user_id, gen_random_bytes(32))
      on conflict do nothing;
  end if;
end $$;
