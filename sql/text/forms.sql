-- Shorter forms of a text, by rule: of what kind it is, which of its lines tell most, which entities a form keeps and
-- lacks. Linear in the length of the text; of one that is longer than read_limit() its two ends are read.

create or replace function _memoir.read_limit() returns integer language sql immutable as $$ select 400000 $$;

-- Returns what can be asked for by name: URLs, paths, codes, numbers, identifiers, and what stands in quotes; each
-- once, in the order in which it comes.
create or replace function _memoir.entities(p_text text)
returns table (kind text, entity text) language sql immutable as $$
  with words as (select rtrim(w, '.:-+#%@~') as w, min(o) as o
    from string_to_table(regexp_replace(left(p_text, _memoir.read_limit()), '[^A-Za-z0-9_./:@~+#%-]+', ' ', 'g'), ' ')
      with ordinality x(w, o)
    where w ~ '[0-9_/]|[a-z][A-Z]|[A-Z][A-Z]|[A-Za-z0-9][.][A-Za-z]' group by 1),
  quotes as (select m[1] as w, min(o) as o
    from regexp_matches(left(p_text, 100000), '["“«「]([^"”»」\n]{3,60})["”»」]', 'g') with ordinality q(m, o)
    where m[1] ~ '[[:alnum:]]' group by 1),
  found as (select case when w ~ '^[a-z]+://' then 'URLs' when w ~ '/' then 'paths'
        when w ~ '^[A-Z][A-Z0-9]*(?:[_-][A-Z0-9]+)+$|^[A-Z]+[0-9]+$|^[0-9a-f-]*[0-9][0-9a-f-]{7,}$' and w ~ '[A-Za-z]'
          then 'codes'
        when w ~ '^[+-]?[0-9][0-9.,:%-]*[A-Za-z]{0,2}$' then 'numbers' else 'identifiers' end as kind, w, o
    from words where length(w) between 2 and 200
    union all select 'quoted strings', w, o + 0.5 from quotes)
  -- A digit or two alone names nothing.
  select f.kind, f.w from found f where f.kind <> 'numbers' or length(f.w) > 2 order by f.o
$$;

-- A line of a search: path:line: text, as grep says it, or a path alone.
create or replace function _memoir.found_file() returns text language sql immutable as $$
  select '^([^\s:]*[^\s:/]+\.[A-Za-z][A-Za-z0-9]*)(?:[:-][0-9]+[:-]|$)'
$$;

-- code, log, search, table, json or prose.
create or replace function _memoir.text_kind(p_text text, p_key text)
returns text language plpgsql immutable as $$
declare
  v_lines text[] := (string_to_array(left(p_text, 20000), E'\n'))[: 200]; v_count integer; v_hits integer;
begin
  if ltrim(left(p_text, 1000)) ~ '^[[{]' and length(p_text) <= _memoir.read_limit()
    and jsonb_typeof(_memoir.try_json(p_text)) in ('object', 'array') then return 'json'; end if;
  if p_key ~* _memoir.pattern_code_files() then return 'code'; end if;
  v_count := (select count(*) from unnest(v_lines) l where l ~ '\S');
  if v_count < 2 then return 'prose'; end if;
  v_hits := (select count(*) from unnest(v_lines) l where l ~ _memoir.found_file());
  if v_hits > 0.6 * v_count then return 'search'; end if;
  v_hits := (select count(*) from unnest(v_lines) l where l ~ _memoir.pattern_log_lines());
  if v_hits > 0.4 * v_count then return 'log'; end if;
  v_hits := (select coalesce(max(n), 0) from (select count(*) as n from unnest(v_lines) l,
      lateral (select length(l) - length(translate(l, E',;\t|', '')) as marks) m
    where m.marks >= 2 and l !~ '[.!?]\s' group by m.marks) x);
  if v_hits > 0.7 * v_count then return 'table'; end if;
  v_hits := (select count(*) from unnest(v_lines) l where l ~ _memoir.pattern_code_lines());
  if v_hits > 0.25 * v_count then return 'code'; end if;
  v_hits := (select count(distinct _memoir.line_shape(l)) from unnest(v_lines) l where l ~ '\S');
  return case when v_count > 20 and (v_hits < 0.6 * v_count or p_key ~ ' ') then 'log' else 'prose' end;
end $$;

-- Returns a text cut to about p_size characters: those of its lines that tell most, in their order; where lines are
-- left out stands which. p_wanted: words that were used since (an edit, a question): lines that have one come first.
create or replace function _memoir.cut_text(p_text text, p_kind text, p_size integer, p_wanted text[])
returns text language sql immutable as $$
  with lines as materialized (select l.nth, l.line_no, l.body, case p_kind when 'log'
      then _memoir.line_shape(l.body) end as shape
    from _memoir.text_lines(p_text) l),
  shapes as materialized (select shape, count(*) as n from lines where p_kind = 'log' group by shape),
  size as (select count(*) as n from lines),
  weighed as materialized (select l.nth, l.line_no, l.body, length(l.body) as size,
      case when exists (select from unnest(p_wanted) w where strpos(l.body, w) > 0) then 4 else 0 end
      + case when l.body !~ '[[:alnum:]]' then -1 else 0 end
      + case p_kind
        when 'code' then case when l.body ~ _memoir.pattern_code_signatures() then 3
          when l.body ~ '^\S.*[=:]' then 1.2 when l.body ~ '^\s*(?:#|//|/?\*|--|""")' then 0.6
          when l.body ~ '\m(?:return|raise|throw)\M' then 0.8 else 0 end
          + case when l.body ~ '^\S' then 0.3 else 0 end
        when 'log' then (l.body ~* _memoir.pattern_telling_lines())::integer * 2.5
          + case when h.n = 1 then 1.5 when h.n <= 3 then 0.8 else 0 end
          + (l.nth <= 5 or l.nth > s.n - 8)::integer * 3
        when 'table' then (l.nth <= 4)::integer * 4 + (l.nth > s.n - 3)::integer * 3
        when 'json' then 3 - least(3, (length(l.body) - length(ltrim(l.body))) / 4) * 0.9 + (l.nth <= 12)::integer
        else (l.body ~ '^\s*(?:#|=|[A-Z0-9][^.!?]{2,60}$)')::integer * 2.5 + (l.nth <= 3)::integer * 2
          + (l.body ~ '\d|[a-z][A-Z]|_')::integer * 0.8 + (l.nth > s.n - 2)::integer end as weight
    from lines l cross join size s left join shapes h on h.shape = l.shape
    where l.body ~ '\S'),
  -- Of a long line its beginning, in a small form; among equals those that lie evenly.
  ordered as (select w.*, sum(least(w.size, greatest(80, p_size / 4)) + 3) over (
      order by w.weight desc, hashint4(w.nth), w.nth) as sum from weighed w),
  taken as (select o.*, lag(o.line_no, 1, 0) over (order by o.nth) as before from ordered o where o.sum <= p_size)
  select string_agg(case when t.line_no > t.before + 1 then '… ' else '' end
      || case when t.size > greatest(80, p_size / 4) then left(t.body, greatest(80, p_size / 4)) || '…' else t.body end,
    E'\n' order by t.nth) from taken t
$$;

-- Returns the paths, names and quotations (p_most 2, else 1) of a text that a form of it does not have, in about so
-- many characters. What code defines and calls is named again long after its lines were read.
create or replace function _memoir.names_left(p_text text, p_form text, p_size integer, p_most integer)
returns text language sql immutable as $$
  select string_agg(x.w, ', ' order by x.o) from (
    -- Short ones first, so that there are more of them.
    select n.w, n.o, sum(length(n.w) + 2) over (order by n.rank, length(n.w), n.o) as sum from (
      select f.w, min(f.rank) as rank, min(f.o) as o from (
        select 1 as rank, m[1] as w, o from regexp_matches(left(p_text, _memoir.read_limit()),
          '([[:alpha:]_][[:alnum:]_]{3,80})', 'g') with ordinality r(m, o)
        where m[1] ~ '[[:alnum:]]_[[:alnum:]]|[a-z][A-Z]'
        union all
        select case when e.kind = 'quoted strings' then 2 else 0 end, e.entity, 1000000 + o
        from _memoir.entities(p_text) with ordinality e(kind, entity, o)
        where e.kind = any ('{URLs,quoted strings}') or e.kind = 'codes' and length(e.entity) < 20
          or e.kind = 'paths' and strpos(substr(e.entity, 2), '/') > 0) f
      where f.rank <= p_most and strpos(p_form, f.w) = 0 group by f.w) n) x
  where x.sum <= p_size
$$;

create or replace function _memoir.files_found(p_text text, p_size integer)
returns text language sql immutable as $$
  select string_agg(x.said, E'\n' order by x.o) from (
    select f.said, f.o, sum(length(f.said) + 1) over (order by f.o) as sum from (
      select m[1] || case when count(*) > 1 then format(' ×%s', count(*)) else '' end as said, min(o) as o
      from string_to_table(p_text, E'\n') with ordinality l(body, o), regexp_match(l.body, _memoir.found_file()) m
      where m is not null group by m[1]) f) x
  where x.sum <= p_size
$$;

-- Returns the files that a search found, or what else a text names in a share of its size: what a stub says of it, and
-- with quotations (p_most 2) a line.
create or replace function _memoir.names_in(p_text text, p_share float8, p_most integer)
returns text language sql immutable as $$
  select coalesce(case when left(p_text, 400) ~ ('(?n)' || _memoir.found_file())
      and _memoir.text_kind(p_text, null) = 'search'
    then replace(_memoir.files_found(left(p_text, 20000), 240), E'\n', ', ') end, 'in it: '
    || _memoir.names_left(p_text, '', least(4000, length(p_text) * p_share)::integer, p_most))
$$;
