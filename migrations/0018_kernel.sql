-- The kernel (plpython/pg_memoir_kernel) makes the recall of a compile. What it hands back: text, tokens and the like
-- (recalled), numbers of the candidates, what the ledger keeps of them, and all of it for people who look (rows, where
-- explained).
alter type _memoir.compile_state
  drop attribute candidates,
  add attribute recalled jsonb, add attribute considered integer[], add attribute trace json, add attribute rows jsonb,
  add attribute explained boolean;

-- The buffer keeps candidates as the kernel writes them; the job that moves them to the ledger takes them apart.
alter table _memoir.compile_buffer add column candidates json;
update _memoir.compile_buffer set candidates = json_build_object(
  'scores', array(select round(s * 100000) from unnest(scores) s),
  'words', array(select round(s * 100000) from unnest(words) s),
  'vectors', array(select round(s * 100000) from unnest(vectors) s),
  'around', array(select round(s * 100000) from unnest(around) s),
  'session_scores', array(select round(s * 100000) from unnest(session_scores) s),
  'item_tokens', item_tokens, 'positions', positions, 'forms', forms, 'reason_names', reasons,
  'reasons', array(select generate_series(0, cardinality(reasons) - 1)), 'facts', facts);
alter table _memoir.compile_buffer
  drop column scores, drop column words, drop column vectors, drop column around, drop column session_scores,
  drop column item_tokens, drop column positions, drop column forms, drop column reasons, drop column facts,
  alter column candidates set not null;

-- The signs of a user's vectors, of 256 item numbers together. items: the numbers, four bytes each, the most
-- significant first; signs: in the same order a bit for each dimension, the first one most significant. Made anew from
-- embeddings: a segment is packed once all its items have their vectors, and goes when one of them does.
-- docs/explain/design.md
create table _memoir.packed_signs (
  user_id uuid not null,
  model_id smallint not null,
  segment integer not null,
  items bytea not null,
  signs bytea not null,
  primary key (user_id, model_id, segment)
) partition by hash (user_id);
alter table _memoir.packed_signs alter column signs set storage external;
insert into _memoir.partitioned_tables (table_name, by_month, unlogged) values ('packed_signs', false, false);

-- Packed signs took their place.
alter table _memoir.embeddings drop constraint embeddings_pkey;
alter table _memoir.embeddings drop column signs;
alter table _memoir.embeddings add primary key (user_id, model_id, item_no);

-- Variables of the SQL that made recalls before.
drop type _memoir.recall_block, _memoir.recall_line, _memoir.reduced_text, _memoir.session_name, _memoir.item_text,
  _memoir.breadth, _memoir.candidate, _memoir.memory_facts, _memoir.fit_floor, _memoir.ranked_item,
  _memoir.item_scores, _memoir.posting_list cascade;
