-- Recalls that are kept beside the turns for a while: the recall of an open exchange, passages that a question found.
-- All of it goes with what it shows.

-- p_items: ids of what leaves recall; null: everything may have changed.
create or replace function _memoir.drop_recalled(p_user_id uuid, p_items text[])
returns void language plpgsql set plan_cache_mode = force_custom_plan as $$
begin
  delete from _memoir.kept_recalls where user_id = p_user_id and (p_items is null or items ?| p_items);
  delete from _memoir.query_answers where user_id = p_user_id and (p_items is null or items ?| p_items);
end $$;
