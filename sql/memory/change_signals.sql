-- Whether a message makes an earlier clause untrue that no rule of changes.sql knows: told by signals, each a number,
-- and trees that research/statements/changes.py learnt from sentences written for it (sql/data/change_trees.csv).
-- English only; the signals of other languages were not learnt.

-- Words beside numbers, as what is counted: "27" in "size 27 shoes" is of size and of shoes; years and turning are
-- of age.
create or replace function _memoir.beside_values(p_said text, p_raws text[])
returns text[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_words text[] := regexp_split_to_array(lower(translate(left(p_said, 600), '’', '''')), '[^[:alnum:].%€$£°@-]+');
begin
  if p_raws = '{}' then return '{}'; end if;
  return array(
    select distinct case when w in ('year', 'years', 'yo', 'turning', 'turns', 'turned', 'turn', 'aged', 'month',
      'months') then 'age'
      when w in ('people', 'guests', 'guest', 'persons', 'folks', 'us', 'heads') then 'people' else rtrim(w, 's') end
    from unnest(p_raws) r, lateral (select split_part(lower(r), ' ', 1) as first) f,
      generate_subscripts(v_words, 1) i, lateral (values (v_words[i - 1]), (v_words[i + 1])) b(w)
    where rtrim(v_words[i], '.') in (f.first, lower(r)) and w ~ '^[[:alpha:]€$£%°]'
      and w <> all ('{the,a,an,at,on,in,is,to,and,of,for,my,our,i,by,from,it,are,with}'));
end $$;

-- The signals of a message (its clauses, p_here: which units are of its session) and each of some earlier clauses, in
-- the order in which the trees count them; clause_no: the clause of the message that has most to do with the unit.
create or replace function _memoir.change_signals(p_text text, p_clauses _memoir.said_clause[],
  p_units _memoir.said_unit[],
  p_here boolean[], p_language text)
returns table (unit_no integer, clause_no integer, signals real[]) language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_nestloop = on set enable_mergejoin = off as $$
declare
  v_text text := left(p_text, 1000); v_low text := lower(translate(v_text, '’', ''''));
  v_values _memoir.said_values[] := _memoir.values_in(array(select c.plain from unnest(p_clauses) with ordinality c
    order by ordinality), p_language);
  v_olds _memoir.said_values[] := _memoir.values_in(array(select u.said from unnest(p_units) with ordinality u
    order by ordinality), p_language);
  v_cues text[] := _memoir.word_list(p_language, 'change_cues');
  v_forms text := nullif(_memoir.any_word(p_language, 'change_cue_forms'), '');
  v_own text := '^(?:i|we|' || _memoir.any_word(p_language, 'own_starts') || ')\M';
  v_refers text := '^(?:' || _memoir.any_word(p_language, 'pronouns') || ')\M';
  v_persons text := '\m(?:' || _memoir.any_word(p_language, 'persons') || '|he|she|they|his|her|their)\M';
  v_denies text := '\m(?:' || _memoir.any_word(p_language, 'negations') || ')\M|n''t\M';
  v_replaced text[] := _memoir.values_replaced(v_text, p_language, length(v_text) <= 160);
  v_changing text[] := _memoir.word_list(p_language, 'change_words');
  v_message real[]; v_stems text[]; v_names text[]; v_denied boolean := v_low ~ v_denies;
begin
  v_stems := _memoir.topics(v_text, p_language, '{}');
  v_names := array(select distinct x from unnest(v_values) v, unnest(v.names) x);
  v_message := array[_memoir.has_cue(v_text, v_cues, v_forms)::integer,
    (v_low ~ ('\m(?:' || _memoir.any_word(p_language, 'adding_words') || ')\M'))::integer,
    (v_low ~ nullif(_memoir.any_word(p_language, 'unsure'), ''))::integer,
    (v_low ~ ('\m(?:' || _memoir.any_word(p_language, 'over_words') || ')'))::integer,
    (v_low ~ v_persons)::integer, v_denied::integer, (v_text ~ '[?？][[:space:]"”'')]*$')::integer,
    least(6, (select count(*) from regexp_split_to_table(v_low, '[^[:alnum:]''-]+') w where w = any (v_changing))),
    least(6, (select count(*) from regexp_matches(v_low, '\m[[:alpha:]]{3,}ed\M|\m(?:was|were|had|got|went|came|took'
      '|gave|said|told|did|made|found|sold|bought|left)\M', 'g'))),
    (v_low ~ '\m(?:now|these days|from now on|as of|anymore|any more|no longer|instead|turns out|after all|finally'
      '|since)\M')::integer,
    (v_low ~ '^(?:no|nope|oh|oops|wait|sorry|correction|scratch|ugh|hm+|ok so|right so|so)\M')::integer,
    ln(greatest(length(v_text), 1)), cardinality(p_clauses),
    (v_low ~ '\m(?:was|were|wasn''t|had been|used to|meant|thought)\M')::integer];
  return query
  with n as materialized (
    select c.ordinality::integer as no, c.asks, t.stems, v.kinds, v.vals, v.raws, v.names, _memoir.has_cue(c.said,
      v_cues, v_forms) as cue,
      c.plain ~* v_own as own, c.plain ~* v_refers as refers, _memoir.subject_of(c.plain, p_language) as subject,
      _memoir.subject_phrase(c.plain, p_language) as phrase, _memoir.beside_values(c.said, v.raws) as beside,
      _memoir.liking(c.plain, p_language) as liking
    from unnest(p_clauses) with ordinality c,
      lateral (select (v_values[c.ordinality]).* offset 0) v, lateral (select _memoir.topics(c.plain, p_language,
        '{}') as stems offset 0) t
  ), u as materialized (
    select u.ordinality::integer as no, u.said, u.is_question, t.stems, v.kinds, v.vals, v.raws, v.names, p.plain,
      _memoir.subject_of(p.plain, p_language) as subject, _memoir.subject_phrase(p.plain, p_language) as phrase,
      _memoir.beside_values(u.said, v.raws) as beside, _memoir.liking(p.plain, p_language) as liking
    from unnest(p_units) with ordinality u, lateral (select (v_olds[u.ordinality]).* offset 0) v,
      lateral (select _memoir.plain(u.said, p_language) as plain offset 0) p,
      lateral (select _memoir.topics(p.plain, p_language, '{}') as stems offset 0) t
  ), paired as (
    select u.no as unit, n.no as clause, s.shared::real, s.shared::real / greatest(1, cardinality(n.stems)) as covers,
      s.shared::real / greatest(1, cardinality(u.stems)) as covered,
      exists (select from unnest(n.kinds) k where k = any (u.kinds) and k <> all (_memoir.soft_kinds())
        and k <> 'number' and not same.any_of) as hard,
      'number' = any (n.kinds) and 'number' = any (u.kinds) and not same.any_of as number,
      exists (select from unnest(n.kinds) k where k = any (u.kinds) and k = any (_memoir.soft_kinds())
        and not same.any_of) as soft,
      same.any_of as same, n.beside && u.beside as counted, n.cue, n.own, n.refers, n.asks,
        cardinality(n.stems) as length,
      n.kinds <> '{}' as valued, coalesce(n.subject = u.subject, false) as subject, coalesce(n.phrase = u.phrase,
        false) as phrase,
      coalesce(n.liking = - u.liking, false) as opposite
    from u cross join n,
      lateral (select count(*) as shared from unnest(n.stems) x where x = any (u.stems)) s,
      lateral (select exists (select from unnest(n.kinds, n.vals) a(k, v), unnest(u.kinds, u.vals) b(k, v)
        where a.k = b.k and a.v = b.v) as any_of) same
  ), best as (
    select distinct on (p.unit) p.* from paired p
    order by p.unit, p.covers + p.covered + p.hard::integer + 0.7 * p.number::integer + 0.5 * p.counted::integer
      + 0.5 * p.phrase::integer - p.asks::integer desc, p.clause
  ), together as (
    select p.unit, max(p.covers) as covers, max(p.covered) as covered, bool_or(p.hard) as hard,
      bool_or(p.number) as number,
      bool_or(p.soft) as soft, bool_or(p.same) as same, bool_or(p.counted) as counted, bool_or(p.own) as own,
      bool_or(p.refers) as refers, bool_or(p.subject) as subject, bool_or(p.phrase) as phrase,
        bool_or(p.opposite) as opposite,
      bool_or(p.cue) as cue, bool_or(p.valued) as valued
    from paired p group by 1
  )
  select b.unit, b.clause, v_message || array[m.shared, t.covers, t.covered, b.covers, b.covered,
    cardinality(u.stems), t.hard::integer, t.number::integer, t.soft::integer, t.same::integer, t.counted::integer,
    t.own::integer, t.refers::integer, t.subject::integer, t.phrase::integer, t.opposite::integer, t.cue::integer,
      t.valued::integer,
    b.asks::integer, b.cue::integer, b.own::integer, b.refers::integer, b.length, (u.kinds <> '{}')::integer,
      u.is_question::integer,
    (u.plain ~* v_own)::integer, (u.plain ~* v_persons)::integer, p_here[u.no]::integer, ln(greatest(length(u.said),
      1)),
    ((lower(translate(u.said, '’', '''')) ~ v_denies) <> v_denied)::integer,
    (v_names && u.names)::integer, (exists (select from unnest(v_names) x where x <> all (u.names)))::integer,
      (u.names <> '{}')::integer,
    (exists (select from unnest(u.names) x where _memoir.has_words(v_text, x)))::integer,
    (exists (select from unnest(u.raws) r where _memoir.has_words(v_text, r)))::integer,
    (exists (select from unnest(v_replaced) r where _memoir.has_words(u.said, r)))::integer,
    coalesce((select max(length(x)) from unnest(u.stems) x where x = any (v_stems)), 0),
    m.shared::real / greatest(1, cardinality(u.stems)), m.shared::real / greatest(1, cardinality(v_stems))]::real[]
  from best b join together t on t.unit = b.unit join u on u.no = b.unit,
    lateral (select count(*) as shared from unnest(u.stems) x where x = any (v_stems)) m
  order by b.unit;
end $$;

-- How alike a text is to each of some clauses: cosines of the shared embedder's vectors; null where there is none
-- (texts are not sent elsewhere for this), or it does not answer.
create or replace function _memoir.likeness(p_config jsonb, p_model _memoir.embedding_models, p_vector halfvec,
  p_texts text[])
returns real[] language plpgsql stable as $$
declare
  v_vectors halfvec[]; v_wait constant integer := 3000;
begin
  if p_vector is null or p_texts = '{}' then return null; end if;
  select array_agg(_memoir.to_vector(r.vec, p_model) order by r.nth) into v_vectors
  from _memoir.py_embed_texts(p_config ->> 'embedder_socket', p_model.name, p_texts, v_wait) r where r.vec is not null;
  if cardinality(v_vectors) is distinct from cardinality(p_texts) then return null; end if;
  return array(select (1 - (v <=> p_vector))::real from unnest(v_vectors) with ordinality x(v, o) order by o);
exception when sqlstate 'PM014' or sqlstate 'PM030' then
  return null;
end $$;

-- The items nearest in meaning to a vector, and the messages that they are of.
create or replace function _memoir.near_turns(p_user_id uuid, p_config jsonb, p_vector halfvec, p_model_id smallint,
  out items integer[], out messages uuid[])
language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_counters _memoir.user_counters; v_most constant integer := 16;
begin
  select * into v_counters from _memoir.user_counters where user_id = p_user_id;
  items := (_memoir.vector_scores(p_user_id, v_counters, p_config, p_vector, p_model_id, '{}', '{}', v_most)).items;
  messages := array(select distinct i.ref_id from _memoir.search_items i where i.user_id = p_user_id
    and i.item_no = any (items));
end $$;

-- The chance that something is untrue since, of each row of signals; p_alike: by the trees that know the likeness too,
-- a row's last.
create or replace function _memoir.change_chances(p_rows jsonb, p_alike boolean default false)
returns real[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_a integer[]; v_b integer[]; v_c integer[]; v_x real[]; v_y real[]; v_z real[]; v_leaves real[];
begin
  select array_agg(t.a::integer order by t.nth), array_agg(t.b::integer order by t.nth), array_agg(t.c::integer
    order by t.nth),
    array_agg(t.x::real order by t.nth), array_agg(t.y::real order by t.nth), array_agg(t.z::real order by t.nth),
    string_to_array(string_agg(t.leaves, ' ' order by t.nth), ' ')::real[]
  into v_a, v_b, v_c, v_x, v_y, v_z, v_leaves from (select * from _memoir.data_change_trees() where not p_alike
    union all select * from _memoir.data_doubt_trees() where p_alike) t;
  return array(
    select (1 / (1 + exp(- (select sum(v_leaves[8 * n - 7 + (f.f[v_a[n]] > v_x[n])::integer
        + 2 * (f.f[v_b[n]] > v_y[n])::integer
        + 4 * (f.f[v_c[n]] > v_z[n])::integer]) from generate_subscripts(v_a, 1) n)::float8)))::real
    from jsonb_array_elements_text(p_rows) with ordinality r(signals, o),
      lateral (select r.signals::real[] offset 0) f(f) order by r.o);
end $$;

-- The texts of which a clause may change something by what was learnt: English, not too long, a statement of somebody
-- or something with a name or a value, or the speaker's own.
create or replace function _memoir.stating_texts(p_texts text[], p_clauses _memoir.said_clause[], p_languages text[])
returns integer[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_own text := '\m(?:i|i''m|i''ve|im|ive|me|we|us|my|our|mine|ours)\M';
begin
  return array(select distinct c.text_no from unnest(p_clauses) c
    where p_languages[c.text_no] = 'english' and c.clause_no > 0 and not (c.asks and c.is_last)
      and length(p_texts[c.text_no]) <= 1000 and length(c.plain) >= 8
      and (lower(c.plain) ~ v_own or c.plain ~ '\d' or c.plain ~ '[[:alnum:],] [[:upper:]][[:lower:]]'
        or lower(c.plain) ~ '\m(?:now|is|are|was|has|new)\M')
    order by 1);
end $$;

-- Returns whether a clause speaks of somebody else, or of another thing of the same sort, than an earlier one, does not
-- ask for something where that did, or that tells what was done once.
create or replace function _memoir.is_of_another(p_plain text, p_said text, p_unit _memoir.said_unit, p_language text)
returns boolean language plpgsql stable as $$
declare
  v_old text := _memoir.plain(p_unit.said, p_language); v_subject text := _memoir.subject_of(p_plain, p_language);
  v_theirs text := _memoir.subject_of(v_old, p_language); v_shared text[]; v_values text[]; v_cue boolean;
  v_new _memoir.said_values; v_then _memoir.said_values;
  v_of constant text := '\m([[:alpha:]]{3,}) (?:for|of|with|in) (?:the |my |our |a )?([[:alpha:]]{3,})';
  v_wish constant text := '^(?:' || _memoir.any_word(p_language, 'wish_starts') || ')';
  v_self constant text := '^(?:i|we|my|our)\M'; v_owner text := (regexp_match(p_plain,
    '^([[:upper:]][[:alpha:]]+)''s '))[1];
begin
  if v_subject <> v_theirs or v_old ~* v_self and (v_theirs is null and v_subject <> 'self'
      or coalesce(v_theirs, 'self') = 'self' and p_plain ~* '^(?:she|he|they|her|his|their)\M'
      or not _memoir.has_words(p_unit.context, v_owner)) then
    return true;
  end if;
  v_cue := _memoir.has_cue(p_said, _memoir.word_list(p_language, 'change_cues'),
    nullif(_memoir.any_word(p_language, 'change_cue_forms'), ''));
  -- What was done once stays done; "the exam for algorithms", "the exam for databases": two of them.
  if not v_cue and (v_old ~* ('^(?:i|we) (?:[[:alpha:]]+ly |just |also |once )?(?:'
      || _memoir.any_word(p_language, 'passing_verbs') || ')\M')
    or exists (select from regexp_matches(lower(p_plain), v_of, 'g') n, regexp_matches(lower(v_old), v_of, 'g') o
      where n[1] = o[1] and n[2] <> o[2] and not _memoir.has_words(v_old, n[2]) and not _memoir.has_words(p_plain,
        o[2]))) then
    return true;
  end if;
  -- A wish is changed by another one.
  if v_old ~* ('^please\M|' || v_wish) and p_plain !~* v_wish then return true; end if;
  v_shared := array(select t from unnest(_memoir.topics(p_plain, p_language, '{}')) t
    where t = any (_memoir.topics(v_old, p_language, '{}')));
  v_new := _memoir.values_of(p_plain, p_language);
  v_then := _memoir.values_of(p_unit.said, p_language);
  v_values := v_new.raws || v_then.raws;
  -- Ella's lessons are on Saturdays, her test is on Monday: nothing in common but who.
  if not v_cue and v_new.kinds && v_then.kinds and not exists (select from unnest(v_shared) t
      where strpos(p_plain, initcap(left(t, 4))) = 0) then
    return true;
  end if;
  return _memoir.are_two(p_plain, p_unit.said, p_unit.context, v_shared, p_language)
    or _memoir.sorts_differ(p_plain, p_unit.said, p_unit.context, v_shared, v_values, p_language);
end $$;

-- Returns what a message makes untrue by what was learnt: the likeliest clause, and what says the same as it. What
-- seems to change several matters at once changes none that could be told. What is less likely, or of these the
-- likeliest, is in doubt.
create or replace function _memoir.learnt_changes(p_turn _memoir.conversation_history, p_text text,
  p_clauses _memoir.said_clause[],
  p_language text, p_config jsonb)
returns setof _memoir.found_change language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  -- docs/explain/extraction.md has what other limits find; words alone tell less.
  v_sure constant real := 0.42; v_doubt constant real := 0.15;
  v_sure_by_words constant real := 0.5; v_doubt_by_words constant real := 0.25;
  v_stems text[] := _memoir.topics(left(p_text, 1000), p_language, '{}'); v_units _memoir.said_unit[]; v_row record;
  v_clauses _memoir.said_clause[]; v_all _memoir.found_change[] := '{}';
  v_hits _memoir.found_change[] := '{}'; v_found _memoir.found_change;
  v_values _memoir.said_values[]; v_same boolean[]; v_several boolean;
  v_model _memoir.embedding_models; v_vector halfvec; v_near integer[]; v_messages uuid[]; v_likeness real[];
  v_clause _memoir.said_clause;
  v_replaced text[] := _memoir.values_replaced(p_text, p_language, length(p_text) <= 160);
  v_compared constant integer := 8;
  v_deletes constant text := '\m(?:' || _memoir.any_word(p_language, 'deleting') || ')\M';
  v_asks constant text := '^(?:' || _memoir.any_word(p_language, 'asking_starts') || ')\M';
begin
  v_clauses := array(select c from unnest(p_clauses) c where c.clause_no > 0 order by c.sentence_start, c.clause_no);
  select * into v_model from _memoir.embedding_models where status = 'active' and provider = 'embedder';
  if found then
    v_vector := (_memoir.query_vector(p_config, left(p_text, 1000), null)).vector;
    if v_vector is not null then
      select n.items, n.messages into v_near, v_messages
      from _memoir.near_turns(p_turn.user_id, p_config, v_vector, v_model.model_id) n;
    end if;
  end if;
  v_units := array(
    select u from unnest(_memoir.units_before(p_turn, v_stems, '{user}', 12, coalesce(v_near, '{}'))) u,
      lateral (select count(*) + case when u.message_id = any (v_messages) then 2 else 0 end as shared
        from unnest(v_stems) t where strpos(lower(u.said), t) > 0) s
    where s.shared > 0 or u.session_id = p_turn.session_id and u.turn_index >= p_turn.turn_index - 6
    order by s.shared desc, u.created_at desc, u.turn_index desc, u.span_start limit 24);
  if v_units = '{}' or v_clauses = '{}' then return; end if;
  -- Of the first few: each is a text to embed.
  v_likeness := _memoir.likeness(p_config, v_model, v_vector, array(select u.said from unnest(v_units[1:v_compared])
    with ordinality u order by ordinality));
  for v_row in
    with told as materialized (
      select g.*, g.signals || v_likeness[g.unit_no] as alike
      from _memoir.change_signals(p_text, v_clauses, v_units, array(select u.session_id = p_turn.session_id
        from unnest(v_units) with ordinality u order by ordinality), p_language) g
    ), chances as (
      select c.chance, c.o from unnest(_memoir.change_chances((select jsonb_agg(t.signals::text order by t.unit_no)
        from told t))) with ordinality c(chance, o)
    ), doubts as (
      select c.chance, c.o from unnest(_memoir.change_chances((select jsonb_agg(t.alike::text order by t.unit_no)
        from told t where t.unit_no <= cardinality(v_likeness)), true)) with ordinality c(chance, o)
    )
    select t.clause_no, t.unit_no, s.chance, greatest(c.chance, d.chance) as doubt, s.sure
    from (select told.*, row_number() over (order by told.unit_no) as o from told) t join chances c on c.o = t.o
    left join doubts d on d.o = t.o,
      -- The mean of both log odds is surer than either.
      lateral (select 1 / (1 + sqrt((1 - c.chance) * (1 - d.chance) / (c.chance * d.chance))) as mean) m,
      lateral (select coalesce(m.mean, c.chance) as chance,
        coalesce(m.mean >= v_sure, c.chance >= v_sure_by_words) as sure) s
    where greatest(c.chance, d.chance) >= case when d.chance is null then v_doubt_by_words else v_doubt end
    order by s.sure desc, case when s.sure then s.chance else coalesce(d.chance, c.chance) end desc,
      t.unit_no limit 12
  loop
    v_found.span_start := v_clauses[v_row.clause_no].span_start;
    v_found.span_length := v_clauses[v_row.clause_no].span_length;
    v_found.said := v_clauses[v_row.clause_no].said;
    v_found.unit := v_units[v_row.unit_no];
    v_found.score := case when v_row.sure then v_row.chance else v_row.doubt end;
    if v_row.sure then v_hits := v_hits || v_found; end if;
    -- Nothing but a question says nothing; what is in doubt by its meaning may be said of another in other words.
    continue when not v_row.sure and (p_text ~* v_deletes or (v_found.unit).is_question
        and (v_found.unit).said ~* v_asks)
      or (v_row.sure or v_likeness is null)
        and _memoir.is_of_another(v_clauses[v_row.clause_no].plain, v_found.said, v_found.unit, p_language)
      -- "60 sets instead of 48": no other number.
      or exists (select from unnest(v_replaced) r where r ~ '^[\d.,]*\d$') and not exists (
        select from unnest(v_replaced) r where _memoir.has_words((v_found.unit).said, r));
    v_found.olds := (select array(select r from unnest(v.raws || v.names) r where not _memoir.has_words(p_text, r))
      from _memoir.values_of((v_found.unit).said, p_language) v);
    v_found.kind := case when v_row.sure then 'learnt' else 'doubt' end;
    -- Beside what is in doubt the whole message says it, or the sentence, unless they are long.
    v_clause := v_clauses[v_row.clause_no];
    if v_found.kind = 'doubt' and length(p_text) <= 280 then
      v_found.span_start := 1;
      v_found.span_length := length(p_text);
    elsif v_found.kind = 'doubt' and length(v_clause.sentence) <= 200 then
      v_found.span_start := v_clause.sentence_start;
      v_found.span_length := length(v_clause.sentence);
    end if;
    v_all := v_all || v_found;
  end loop;
  if v_all = '{}' then return; end if;
  v_values := _memoir.values_in(array(select (f.unit).said from unnest(v_all || v_hits) with ordinality f
    order by ordinality), p_language);
  v_same := array(select o = 1 or _memoir.is_one_matter(y.v, v_values[1])
    from generate_subscripts(v_values, 1) o, lateral (select v_values[o] as v) y order by o);
  v_several := (select count(distinct (f.unit).message_id)
    from unnest(v_hits) with ordinality f, lateral (select f.ordinality as o) n
    where not v_same[cardinality(v_all) + n.o] and f.score >= 0.85 * v_all[1].score
      and (f.unit).message_id <> (v_all[1].unit).message_id) >= 2;
  for o in 1 .. cardinality(v_all) loop
    continue when not v_same[o];
    v_found := v_all[o];
    if v_several then v_found.kind := 'doubt'; end if;
    return next v_found;
  end loop;
end $$;
