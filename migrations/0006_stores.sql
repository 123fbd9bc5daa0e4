-- What frameworks keep beside turns: documents under namespaces, and the items of their sessions as they came.

-- JSON under a namespace and a key, of one project. words: null where it is not searched. vectors: as the application
-- gave them, of any dimension. minutes: how long it lives from when it was last written or, if asked, read.
create table _memoir.documents (
  user_id uuid not null,
  project text not null,
  namespace text[] collate "C" not null,
  key text collate "C" not null,
  value jsonb not null,
  words tsvector,
  word_count integer not null default 0,
  language smallint not null default 0,
  vectors halfvec[],
  sensitivity _memoir.sensitivity not null default 'normal',
  minutes real,
  expires_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  written_by text not null,
  primary key (user_id, project, namespace, key)
) partition by hash (user_id);
create index documents_by_expiry on _memoir.documents (user_id, expires_at) where expires_at is not null;

-- One entry of a framework's session, lossless. What it says is told by turns too, of which turn_index is the first: for a
-- call of a tool not before its result is there, known by what both are part_of. What was taken back stays, with the time.
create table _memoir.session_items (
  user_id uuid not null,
  session_id uuid not null,
  item_no integer not null,
  item jsonb not null,
  part_of text,
  turn_index integer,
  turns integer not null default 0,
  sensitivity _memoir.sensitivity not null default 'normal',
  recorded_at timestamptz not null,
  retracted_at timestamptz,
  primary key (user_id, session_id, item_no)
) partition by hash (user_id);
create index session_items_standing on _memoir.session_items (user_id, session_id, item_no) where retracted_at is null;

insert into _memoir.partitioned_tables (table_name, by_month, unlogged) values
  ('documents', false, false), ('session_items', false, false);
