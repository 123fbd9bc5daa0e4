-- Large outputs of tools. What a large one says is read at its two ends when it comes; what stands between them is a
-- job's (objects/scans.sql), and until that has looked for secrets it is shown in its own session and nowhere else.

-- Characters of an end, and from how many on an output is large.
create or replace function _memoir.end_size() returns integer language sql immutable as $$ select 16000 $$;
create or replace function _memoir.is_large(p_role _memoir.turn_role, p_text text)
returns boolean language sql immutable as $$
  -- Where bytes decide it, characters are not counted.
  select p_role = 'tool' and octet_length(p_text) > 4 * 16000
    and (octet_length(p_text) > 16 * 16000 or length(p_text) > 4 * 16000)
$$;

-- Returns the size of an end whose words are kept: a character of Han says what three of a Latin word do, and is
-- indexed three times, too.
create or replace function _memoir.indexed_end(p_bytes integer, p_length integer)
returns integer language sql immutable as $$
  select case when p_bytes > 2 * p_length then 5000 else _memoir.end_size() end
$$;

create or replace function _memoir.ends_of(p_role _memoir.turn_role, p_text text)
returns text language plpgsql immutable as $$
begin
  return case when _memoir.is_large(p_role, p_text)
    then left(p_text, _memoir.end_size()) || E'\n…\n' || _memoir.tail(p_text, _memoir.end_size())
    else p_text end;
end $$;

-- A text as pieces: its lines, and of long lines stretches of 200 characters. Lines count from 1.
create or replace function _memoir.text_lines(p_text text)
returns table (nth integer, line_no integer, span_start integer, body text) language sql immutable as $$
  with lines as (select l.body, l.line_no,
      (1 + sum(length(l.body) + 1) over (order by l.line_no) - length(l.body) - 1)::integer as span_start
    from string_to_table(p_text, E'\n') with ordinality l(body, line_no))
  select (row_number() over (order by p.line_no, p.o))::integer, p.line_no::integer, p.span_start, p.body from (
    select l.line_no, 1::bigint as o, l.span_start, l.body from lines l where length(l.body) <= 400
    union all
    select l.line_no, x.o, l.span_start + (x.o - 1)::integer * 200, x.m[1] from lines l,
      regexp_matches(l.body, '.{1,200}', 'g') with ordinality x(m, o) where length(l.body) > 400) p
$$;

-- A line without its numbers: lines of a log that differ in nothing else have one shape.
create or replace function _memoir.line_shape(p_line text)
returns text language sql immutable as $$
  select regexp_replace(left(p_line, 300), '[0-9a-fA-F]{6,}|\d+', '#', 'g')
$$;

-- Where a text says most of p_terms: passages of some lines, the best first, at most p_most, with the lines they are.
-- A term counts by how few lines have it. What has none of them gives no row.
create or replace function _memoir.passages_in(p_text text, p_terms text[], p_most integer default 5,
  p_around integer default 2)
returns table (first_line integer, last_line integer, span_start integer, span_length integer, score float8, body text)
language plpgsql immutable as $$
declare
  v_terms text[] := p_terms[: 24];
begin
  if p_text is null or v_terms = '{}' then return; end if;
  return query
  with lines as materialized (select l.nth, l.line_no, l.span_start, length(l.body) as size, lower(l.body) as low
    from _memoir.text_lines(p_text) l),
  hits as materialized (select l.nth, t.term from lines l, unnest(v_terms) t(term) where strpos(l.low, t.term) > 0),
  weights as (
    select h.term, ln(1 + (select count(*) from lines)::float8 / count(*)) as weight from hits h group by h.term),
  most as (select (select coalesce(sum(w.weight), 0) from weights w)
    + (select count(*) from unnest(v_terms) t where t not in (select w.term from weights w))
      * ln(1 + (select count(*) from lines)::float8) as weight),
  own as (select h.nth, sum(w.weight) as weight from hits h join weights w using (term) group by h.nth
    order by 2 desc, 1 limit 200),
  near as (select n.nth, sum(n.weight * case when n.far = 0 then 1 else 0.5 end) as score from (
      select o.nth, w.term, w.weight, min(abs(d)) as far from own o cross join generate_series(-p_around, p_around) d
      join hits h on h.nth = o.nth + d join weights w on w.term = h.term group by o.nth, w.term, w.weight) n
    group by n.nth),
  best as (select n.nth, n.score, row_number() over (order by n.score desc, n.nth) as place from near n),
  taken as materialized (select b.* from best b where b.place <= 4 * p_most),
  runs as (select t.*, sum(case when t.nth - coalesce(t.before, -100000) > p_around then 1 else 0 end)
      over (order by t.nth) as run
    from (select x.*, lag(x.nth) over (order by x.nth) as before from taken x) t),
  passages as (
    select min(r.nth) - p_around as first, max(r.nth) + p_around as last, max(r.score) as score from runs r
    group by r.run order by max(r.score) desc, min(r.nth) limit p_most)
  select min(l.line_no), max(l.line_no), min(l.span_start), (max(l.span_start + l.size) - min(l.span_start))::integer,
    p.score / (select m.weight from most m), substr(p_text, min(l.span_start),
      (max(l.span_start + l.size) - min(l.span_start))::integer)
  from passages p join lines l on l.nth between p.first and p.last
  group by p.first, p.last, p.score order by p.score desc, p.first;
end $$;
