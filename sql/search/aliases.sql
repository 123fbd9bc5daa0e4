-- Aliases: other names of the same thing (k8s and Kubernetes, GHA and GitHub Actions). The package reads them where
-- the person's own texts or memories say so (aliases.py), and they are given with remember; each belongs to the item
-- that says it, so that what takes the item out of search takes the alias along: a forget, an erase, a clearance, a
-- project, a time before it was known. Queries are widened by them.

create or replace function _memoir.alias_key(p_name text)
returns text language sql immutable as $$ select btrim(regexp_replace(lower(normalize(p_name, nfkc)), '[^[:alnum:]]+',
  ' ', 'g')) $$;

-- The other names of what a query names, by how many items say so. Initials count where the query writes them in
-- capitals. loose: those of what the query calls by common words, which may mean something else.
create or replace function _memoir.other_names(p_user_id uuid, p_counters _memoir.user_counters, p_config regconfig,
  p_query text, p_scope _memoir.search_scope, out names text[], out loose text[])
language plpgsql stable as $$
declare
  v_words text[]; v_names text[]; v_initials text[];
begin
  names := '{}';
  loose := '{}';
  if coalesce(p_counters.aliases, 0) = 0 then return; end if;
  v_words := (string_to_array(_memoir.alias_key(left(p_query, 2000)), ' '))[1 : 100];
  v_names := array(select distinct array_to_string(v_words[i : j], ' ') from generate_series(1, cardinality(v_words)) i,
    generate_series(i, least(cardinality(v_words), i + 4)) j);
  v_initials := array(select lower(x[1]) from regexp_matches(left(p_query, 2000), '\m([[:upper:]]{3,7})\M', 'g') x);
  select coalesce(array_agg(f.other order by f.said desc, f.other) filter (where not f.loose), '{}'),
    coalesce(array_agg(f.other order by f.said desc, f.other) filter (where f.loose), '{}')
  into names, loose
  from (select o.other, max(o.said) as said,
      bool_and(_memoir.query_terms(p_config, o.name) <@ _memoir.common_terms(p_config, _memoir.query_terms(p_config,
        o.name))) as loose
    from (
      select a.name, a.other, count(*) as said, row_number() over (partition by a.name order by count(*) desc, a.other)
        as nth
      from _memoir.search_aliases a join _memoir.search_items i on i.user_id = p_user_id and i.item_no = a.item_no
      where a.user_id = p_user_id and a.name = any (v_names) and a.other <> all (v_names)
        and (a.stated or a.name = any (v_initials))
        and (not i.dead or (p_scope.as_of is not null and i.kind = 'm'))
        and (p_scope.as_of is null or i.recorded_at <= p_scope.as_of)
        and i.sensitivity <= coalesce(p_scope.clearance, 'normal')
        and (p_scope.projects is null or i.project = any (p_scope.projects))
        and (i.kind <> 'm' or i.session_id is null or i.session_id = any (p_scope.local_sessions))
      group by a.name, a.other) o
    where o.nth <= 3 group by o.other order by max(o.said) desc, o.other limit 8) f;
end $$;

create or replace function _memoir.alias_terms(p_config regconfig, p_names text[], p_terms text[])
returns text[] language plpgsql stable as $$
begin
  if p_names = '{}' then return '{}'; end if;
  return array(select distinct t from unnest(p_names) n, unnest(_memoir.query_terms(p_config, n)) t
    where t <> all (p_terms) order by t);
end $$;

create or replace function memoir.list_aliases(p_user text)
returns table (name text, other text, stated boolean, items integer, since timestamptz)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
begin
  return query
  select a.name, a.other, bool_or(a.stated), count(*)::integer, min(i.recorded_at)
  from _memoir.search_aliases a join _memoir.search_items i on i.user_id = v_caller.user_id and i.item_no = a.item_no
  where a.user_id = v_caller.user_id and not i.dead and i.sensitivity <= v_caller.clearance
    and (v_caller.projects is null or i.project = any (v_caller.projects))
  group by a.name, a.other order by a.name, a.other;
end $$;
comment on function memoir.list_aliases(text) is
  'Lists the other names of a user''s things: one row per name and other name, lower case. stated: a memory or a turn
says so, or it was given with remember; else other is a phrase whose initials are name, which counts where a query has
them in capitals. items: how many say so, since when. Raises PM001.';
