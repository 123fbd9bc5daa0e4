-- Which jobs there are, and the step of each.

-- A new job: a row here, a line in step(), and its schedule (schedule_<job>, settings.sql). batch_least, batch: p_limit of its step, from and to;
-- extraction has its rules to compile in each, and finds without a lock.
create or replace function _memoir.job_list()
returns table (job text, batch_least integer, batch integer, in_python boolean, description text) language sql immutable as $$
  values ('embedder',   1, 1,   false, 'starts the shared embedder unless it answers'),
         ('embed',      1, 32,  true,  'makes the vectors that lack'),
         ('extract',    16, 64,  false, 'finds memories in new turns'),
         ('model',      1, 4,   true,  'asks the language model what extraction, judging, consolidation and summaries leave to it'),
         ('merge',      1, 1,   false, 'merges the word tails of users into posting lists'),
         ('flush',      1, 500, false, 'moves compile statistics from the unlogged buffer to the ledger and the counters'),
         ('partitions', 1, 8,   false, 'makes the partitions of the months ahead'),
         ('backfill',   1, 500, false, 'queues what an embedding model has not reached'),
         ('sweep',      1, 500, false, 'removes what is past its time: receipts, months of logs, old runs, vectors of retired models'),
         ('erase',      1, 1,   false, 'writes the leaves anew that erases have touched, so that the bytes are gone'),
         ('hygiene',    1, 200, false, 'counts duplicate, stale, never recalled and orphaned memories'),
         ('promotion',  1, 50,  false, 'raises memories that are used to a higher tier'),
         ('demotion',   1, 200, false, 'lowers memories of tiers 1 and 2 that nobody uses'),
         ('expiry',     1, 500, false, 'ends memories, sessions and working notes whose time is over'),
         ('profiles',   1, 50,  false, 'rebuilds the profiles whose memories changed'),
         ('compaction', 1, 500, false, 'puts summaries beside the old turns of long sessions'),
         ('summaries',  1, 1,   false, 'summarises sessions that have ended'),
         ('consolidation', 1, 20, false, 'makes one memory of several about one thing'),
         ('archive',    1, 10,  false, 'takes out months of turns past retention')
$$;

create or replace function _memoir.step(p_job text, p_limit integer)
returns jsonb language plpgsql as $$
begin
  return case p_job
    when 'embedder' then _memoir.step_embedder(p_limit)
    when 'extract' then _memoir.step_extract(p_limit)
    when 'merge' then _memoir.step_merge(p_limit)
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
    when 'archive' then _memoir.step_archive(p_limit)
  end;
end $$;
