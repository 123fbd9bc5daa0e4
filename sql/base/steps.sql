-- Steps of jobs: counts that add up, and cursors that say how far a job has come.

-- Where a step that goes through all users by id has got to; null at the beginning.
create or replace function _memoir.job_cursor(p_job text)
returns uuid language sql stable as $$ select after_user from _memoir.job_cursors where job = p_job $$;

-- Null: all users have been seen, the next run begins anew.
create or replace function _memoir.put_job_cursor(p_job text, p_after uuid)
returns void language sql as $$
  insert into _memoir.job_cursors (job, after_user) values (p_job, p_after)
  on conflict (job) do update set after_user = excluded.after_user where job_cursors.after_user is distinct
    from excluded.after_user
$$;

create or replace function _memoir.add_counts(p_sum jsonb, p_more jsonb)
returns jsonb language sql immutable as $$
  select p_sum || coalesce((select jsonb_object_agg(key, coalesce((p_sum ->> key)::numeric, 0) + value::numeric)
                            from jsonb_each(p_more) where jsonb_typeof(value) = 'number' and value <> '0'), '{}')
$$;
