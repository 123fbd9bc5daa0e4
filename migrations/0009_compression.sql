-- Large texts are compressed by lz4 where the server has it: a third of the processor time of pglz. A leaf made later has it
-- of its table (base/partitions.sql); what is stored already stays as it is.
do $$
declare
  v_table regclass;
begin
  for v_table in select t.relid from unnest('{_memoir.conversation_history,_memoir.api_calls}'::regclass[]) p,
    pg_partition_tree(p) t
  loop
    if v_table::text ~ 'api_calls' then
      execute format('alter table %s alter request set compression lz4, alter response set compression lz4', v_table);
    else
      execute format('alter table %s alter content set compression lz4, alter content_parts set compression lz4, alter tool_calls set compression lz4', v_table);
    end if;
  end loop;
exception when feature_not_supported then null;
end $$;
