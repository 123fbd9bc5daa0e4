-- Which jobs there are, and the step of each.

-- Those of sql/data/jobs.csv. A new job: a row there, with its schedule, and a line in step().
create or replace function _memoir.job_list()
returns table (job text, batch_least integer, batch integer, in_python boolean, description text)
language sql immutable as $$
  select job, batch_least::integer, batch::integer, in_python = 'yes', description
  from _memoir.data_jobs() order by nth
$$;

create or replace function _memoir.step(p_job text, p_limit integer)
returns jsonb language plpgsql as $$
begin
  return case p_job
    when 'embedder' then _memoir.step_embedder(p_limit)
    when 'extract' then _memoir.step_extract(p_limit)
    when 'merge' then _memoir.step_merge(p_limit)
    when 'scan' then _memoir.step_scan(p_limit)
    when 'flush' then _memoir.step_flush(p_limit)
    when 'partitions' then _memoir.step_partitions(p_limit)
    when 'backfill' then _memoir.step_backfill(p_limit)
    when 'sweep' then _memoir.step_sweep(p_limit)
    when 'erase' then _memoir.step_erase(p_limit)
    when 'hygiene' then _memoir.step_hygiene(p_limit)
    when 'promotion' then _memoir.step_promotion(p_limit)
    when 'demotion' then _memoir.step_demotion(p_limit)
    when 'expiry' then _memoir.step_expiry(p_limit)
    when 'profiles' then _memoir.step_profiles(p_limit)
    when 'compaction' then _memoir.step_compaction(p_limit)
    when 'summaries' then _memoir.step_summaries(p_limit)
    when 'consolidation' then _memoir.step_consolidation(p_limit)
    when 'renditions' then _memoir.step_renditions(p_limit)
    when 'phases' then _memoir.step_phases(p_limit)
    when 'archive' then _memoir.step_archive(p_limit)
  end;
end $$;
