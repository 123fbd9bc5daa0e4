-- One clock. Everything that stores or compares time asks now(), so that tests move time instead of sleeping.

create or replace function memoir.now()
returns timestamptz language plpgsql stable security definer set search_path from current as $$
begin
  return coalesce((select clock from _memoir.settings_merged), pg_catalog.now());
end $$;
comment on function memoir.now() is
  'The clock of the memory: the transaction''s start, or the time an admin has set with set_clock.';
