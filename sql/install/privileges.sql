-- Grants as data, PUBLIC revoked last. No role holds rights on tables: functions are the API. Run here, and by
-- setup() where a restore found no roles to grant to.
create or replace function _memoir.grant_all()
returns void language plpgsql set search_path from current as $$
declare
  v_grant record; v_object record; v_role text;
  v_roles text := 'memoir_reader, memoir_app, memoir_tenant, memoir_admin, memoir_jobs';
begin
  -- From a clean slate, so that what a release no longer grants is gone after the upgrade.
  execute format('revoke all on all tables in schema memoir, _memoir from public, %s', v_roles);
  execute format('revoke all on all sequences in schema memoir, _memoir from public, %s', v_roles);
  for v_object in
    select p.oid::regprocedure as signature from pg_proc p
    where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and p.proowner = 'memoir_owner'::regrole  -- PL/Python's guard themselves
      and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
  loop
    execute format('revoke all on routine %s from public, %s', v_object.signature, v_roles);
  end loop;

  for v_grant in
    select * from (values
      -- function, roles
      ('compile_context',                 'reader app tenant admin'),
      ('context',                         'reader app tenant admin'),
      ('explain_context',                 'reader app tenant admin'),
      ('report_context',                  'app tenant admin'),
      ('recall',                          'reader app tenant admin'),
      ('match_memories',                  'reader app tenant admin'),
      ('history',                         'reader app tenant admin'),
      ('session_info',                    'reader app tenant admin'),
      ('profile',                         'reader app tenant admin'),
      ('list_compactions',                'reader app tenant admin'),
      ('read_call',                       'reader app tenant admin'),
      ('list_settings',                   'reader app tenant admin'),
      ('part_of',                         'reader app tenant admin'),
      ('now',                             'reader app tenant admin jobs'),
      ('count_tokens',                    'reader app tenant admin'),
      ('estimate_tokens',                 'reader app tenant admin'),
      ('max_tokens',                      'reader app tenant admin'),
      ('version',                         'reader app tenant admin jobs'),
      ('open_session',                    'app tenant admin'),
      ('close_session',                   'app tenant admin'),
      ('branch_session',                  'app tenant admin'),
      ('compact_session',                 'app tenant admin'),
      ('undo_compaction',                 'app tenant admin'),
      ('undo_consolidation',              'app tenant admin'),
      ('summarize_session',               'app tenant admin'),
      ('persist_turn',                    'app tenant admin'),
      ('append_messages',                 'app tenant admin'),
      ('remember',                        'app tenant admin'),
      ('correct',                         'app tenant admin'),
      ('retract',                         'app tenant admin'),
      ('forget',                          'app tenant admin'),
      ('export_user',                     'app admin'),
      ('import_user',                     'admin'),
      ('erase_user',                      'app tenant admin'),
      ('erase_session',                   'app tenant admin'),
      ('erase_turn',                      'app tenant admin'),
      ('mark_turn',                       'app tenant admin'),
      ('lift_tombstone',                  'app tenant admin'),
      ('validate',                        'app tenant admin'),
      ('relate',                          'app tenant admin'),
      ('pin',                             'app tenant admin'),
      ('unpin',                           'app tenant admin'),
      ('pin_turns',                       'app tenant admin'),
      ('unpin_turns',                     'app tenant admin'),
      ('memory_history',                  'reader app tenant admin'),
      ('list_tombstones',                 'reader app tenant admin'),
      ('list_aliases',                    'reader app tenant admin'),
      ('credit_recall',                   'app tenant admin'),
      ('learn_weights',                   'app admin'),
      ('list_judgements',                 'reader app tenant admin'),
      ('claim_judgements',                'app jobs admin'),
      ('store_judgements',                'app jobs admin'),
      ('fail_judgements',                 'app jobs admin'),
      ('extract_session',                 'app tenant admin'),
      ('set_working_memory',              'app tenant admin'),
      ('capture_call',                    'app tenant admin'),
      ('set_user_settings',               'app admin'),
      ('list_ranking_profiles',           'reader app tenant admin'),
      ('set_ranking_profile',             'app admin'),
      ('reset_ranking_profile',           'app admin'),
      ('claim_embeddings',                'app jobs admin'),
      ('store_embeddings',                'app jobs admin'),
      ('embedding_progress',              'app jobs admin'),
      ('queue_backfill',                  'app jobs admin'),
      ('drop_retired_embeddings',         'app jobs admin'),
      ('merge_search',                    'app jobs admin'),
      ('flush_statistics',                'app jobs admin'),
      ('_memoir.users_to_merge',          'app jobs admin'),
      ('_memoir.merge_tail',              'app jobs admin'),
      ('_memoir.flush_batch',             'app jobs admin'),
      ('ensure_embedder',                 'app jobs admin'),
      ('fail_embeddings',                 'app jobs admin'),
      ('_memoir.embedding_endpoint',      'app jobs admin'),
      ('ensure_partitions',               'jobs admin'),
      ('_memoir.partition_plan',          'jobs admin'),
      ('_memoir.try_part',                'jobs admin'),
      ('claim_jobs',                      'app jobs admin'),
      ('heartbeat',                       'app jobs admin'),
      ('complete_job',                    'app jobs admin'),
      ('fail_job',                        'app jobs admin'),
      ('release_job',                     'app jobs admin'),
      ('llm_config',                     'app jobs admin'),
      ('claim_model_calls',               'app jobs admin'),
      ('store_model_result',              'app jobs admin'),
      ('fail_model_call',                 'app jobs admin'),
      ('retry_job',                       'admin'),
      ('health_problems',                 'admin'),
      ('_memoir.statement_times',         'admin'),
      ('run_job',                         'jobs admin'),
      ('list_jobs',                       'app jobs admin'),
      ('bare_statements',                 'jobs admin'),
      ('_memoir.job_begin',               'jobs admin'),
      ('_memoir.job_step',                'jobs admin'),
      ('_memoir.job_note',                'jobs admin'),
      ('_memoir.job_end',                 'jobs admin'),
      ('_memoir.job_report',              'jobs admin'),
      ('_memoir.job_in_python',           'jobs admin'),
      ('enable_jobs',                     'admin'),
      ('disable_jobs',                    'admin'),
      ('_memoir.login',                   'reader app tenant'),
      ('_memoir.sees_all',                'reader app tenant admin jobs'),
      ('_memoir.visible_users',           'reader app tenant admin jobs'),
      ('_memoir.bound_projects',          'reader app tenant admin jobs'),
      ('_memoir.bound_sessions',          'reader app tenant'),
      ('_memoir.own_clearance',           'reader app tenant'),
      ('_memoir.cron_list',               'admin'),
      ('_memoir.authorise_admin',         'admin'),
      ('_memoir.fail',                    'admin'),
      ('set_setting',                     'admin'),
      ('archive_plan',                    'admin'),
      ('export_month',                    'admin'),
      ('confirm_export',                  'admin'),
      ('export_memories',                 'admin'),
      ('confirm_memories',                'admin'),
      ('reset_setting',                   'admin'),
      ('set_schedule',                    'admin'),
      ('set_clock',                       'admin'),
      ('bind_login',                      'admin'),
      ('unbind_login',                    'admin'),
      ('register_model',                  'admin'),
      ('register_embedding_model',        'admin'),
      ('switch_embedding_model',          'admin')
    ) g(name, roles)
  loop
    for v_object in
      select p.oid::regprocedure as signature from pg_proc p
      where p.pronamespace = case when starts_with(v_grant.name, '_memoir.') then '_memoir' else 'memoir' end::regnamespace
        and p.proname = split_part('.' || v_grant.name, '.', -1)
    loop
      foreach v_role in array string_to_array(v_grant.roles, ' ') loop
        execute format('grant execute on routine %s to %I', v_object.signature, 'memoir_' || v_role);
      end loop;
    end loop;
  end loop;

  -- Views are for admins; they hold what their owner may see.
  for v_object in
    select c.oid::regclass as name from pg_class c
    where c.relnamespace = 'memoir'::regnamespace and c.relkind = 'v' and c.relowner = 'memoir_owner'::regrole
      and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
  loop
    execute format('grant select on %s to memoir_admin', v_object.name);
  end loop;

  for v_object in
    select t.oid::regtype as name from pg_type t left join pg_class c on c.oid = t.typrelid
    where t.typnamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and t.typcategory <> 'A' and coalesce(c.relkind, 'c') = 'c'
      and not exists (select from pg_depend d where d.classid = 'pg_type'::regclass and d.objid = t.oid and d.deptype = 'e')
  loop
    execute format('revoke all on type %s from public, %s', v_object.name, v_roles);
  end loop;

  execute format('revoke all on schema memoir, _memoir from public, %s', v_roles);
  execute format('grant usage on schema memoir, _memoir to %s', v_roles);
end $$;

-- What an earlier release had and this one has not goes: routines that the preamble could not drop, and that this transaction
-- did not replace. Should somebody's view need one of them, the upgrade says so and ends.
do $$
declare
  v_stale record;
begin
  for v_stale in
    select p.oid::regprocedure as signature from pg_proc p
    where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and p.proowner = 'memoir_owner'::regrole
      and p.xmin::text::bigint <> pg_current_xact_id()::text::bigint % 4294967296
      and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
  loop
    execute format('drop routine %s', v_stale.signature);
  end loop;
end $$;

select _memoir.grant_all();

reset role;
