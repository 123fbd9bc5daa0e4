-- Extractive summaries: which sentences of a stretch of conversation say most of it, in their own words. Works without
-- a model.
--
--   turns → sentences → what each is about (tf-idf centroid) × what kind of thing it says (salience) → greedy choice of
--   what is not said yet (maximal marginal relevance, Carbonell and Goldstein 1998) → in the order in which it was said

create or replace function _memoir.sentences(p_text text)
returns text[] language sql immutable as $$
  -- Ends are marked first: to look behind from every match is quadratic.
  select array(select btrim(s, E' \t\r-*•')
    from unnest(string_to_array(regexp_replace(p_text, '([.!?][)"''”’]?)\s+|([。！？।؟])|\n+', '\1\2' || chr(2), 'g'),
      chr(2))) with ordinality t(s, o)
    where s ~ '[[:alnum:]]' order by o)
$$;

-- Returns what of a turn is prose: without code, tables, headings and the marks of lists and emphasis.
create or replace function _memoir.prose(p_text text)
returns text language plpgsql immutable strict as $$
declare
  v_text text := p_text;
begin
  if strpos(v_text, '```') > 0 then v_text := regexp_replace(v_text, '```([^`]|`[^`]|``[^`])*(```|$)', E'\n', 'g');
  end if;
  if strpos(v_text, E'\n') > 0 or v_text ~ '^[ \t]*[|#*•>-]' then
    -- Tables, headings, quoted mail; then code: by how a line begins or ends.
    v_text := regexp_replace(v_text, '(^|\n)[ \t]*([|#>]|-{3}|[*=_]{3})[^\n]*', '\1', 'g');
    v_text := regexp_replace(v_text, '(^|\n)[^\n]*([;{}]|=>|\(\)|\):|==|&&|\|\|)[ \t]*(?=\n|$)', '\1', 'g');
    v_text := regexp_replace(v_text,
      '(^|\n)[ \t]*(import|from|def|class|function|return|const|let|var|pip|npm|git|docker|SELECT|INSERT|UPDATE|DELETE'
        '|CREATE|FROM|WHERE|AND|OR|JOIN|SET|VALUES|\$|@[[:alpha:]])[ .(][^\n.!?]*[^\n.!? ]?(?=\n|$)', '\1', 'g');
    v_text := regexp_replace(v_text,
      '(^|\n)[ \t]*([[:alpha:]_][[:alnum:]_.]* ?(=|:=|\+=) ?|[[:alpha:]_][[:alnum:]_.]*\()[^\n]*', '\1', 'g');
    v_text := regexp_replace(v_text, '(^|\n)[ \t]*((\d{1,3}|[[:alpha:]])[.)]|[-*•+])[ \t]+', '\1', 'g');
  end if;
  return regexp_replace(v_text, '\*{2,3}|__', '', 'g');
end $$;

-- Returns the weight of a sentence that must survive: decisions, numbers, names, instructions, corrections, errors and
-- statements about oneself. Small talk, openings, fragments and answers that need their question weigh nothing.
create or replace function _memoir.salience(p_sentence text, p_role _memoir.turn_role, p_is_last boolean)
returns real language sql immutable as $$
  select case when p_sentence ~ ':\W*$' or octet_length(p_sentence) < 2 * length(p_sentence)
    and p_sentence !~ '[[:alnum:]]+\W+[[:alnum:]]+\W+[[:alnum:]]' then 0 else (greatest(0.05, 1
    + case when p_sentence ~* ('\m(' || _memoir.any_word('english', 'cue_decided') || ')\M') then 0.6 else 0 end
    + case when p_sentence ~ '\d' then 0.5
      when p_sentence ~* ('\m(' || _memoir.any_word('english', 'cue_time') || ')\M') then 0.3 else 0 end
    + case when regexp_replace(p_sentence, ', [[:upper:]][[:alpha:]]+\W*$',
      '') ~ '[[:alnum:],;:] +[[:upper:]][[:alpha:]]+|[[:alnum:]]+[_./@][[:alnum:]]+|[[:lower:]][[:upper:]]' then 0.3
      else 0 end
    + case when p_sentence ~* ('\m(' || _memoir.any_word('english', 'cue_duty') || ')\M') then 0.4 else 0 end
    + case when p_sentence ~* ('\m(' || _memoir.any_word('english', 'cue_corrected') || ')\M') then 0.3 else 0 end
    + case when p_sentence ~* ('\m(' || _memoir.any_word('english', 'cue_error') || ')\M') then 0.4 else 0 end
    + case when p_role = 'user' and p_sentence ~* ('\m(' || _memoir.any_word('english', 'cue_self') || ')\M') then 0.4
      else 0 end
    + case when p_sentence ~ '[?？؟]\W*$' then case when p_is_last then 0.6 when p_role = 'user' then -0.2 else -0.5 end
      else 0 end
    - case when p_role = 'user' and not p_is_last and p_sentence ~* ('^\W*(' || _memoir.any_word('english',
        'cue_request') || ')\M') then 0.9 else 0 end
    - case when p_sentence ~* ('^\W*(' || _memoir.any_word('english', 'cue_courtesy') || ')\M')
        and length(p_sentence) < 80
      or p_sentence ~* ('\m(' || _memoir.any_word('english', 'cue_pleasantry') || ')')
        and length(p_sentence) < 100 and p_sentence !~ '\d' then 0.9 else 0 end
    - case when p_role = 'assistant' and length(p_sentence) < 60
      and p_sentence ~* ('^\W*(' || _memoir.any_word('english', 'cue_elliptical') || ')\M') then 0.5 else 0 end
    - case when length(p_sentence) < 16 and p_sentence !~ '\d' then 0.5 else 0 end)
    * case p_role when 'user' then 1.2 when 'tool' then 0.6 else 1 end)::real end
$$;

-- Chooses among sentences (parallel arrays, in the order in which they were said) within a budget of estimated tokens;
-- returns their numbers in that order. Scores are quantised, ties fall to the earlier sentence.
create or replace function _memoir.choose_sentences(p_sentences text[], p_salience real[], p_budget integer,
  p_config regconfig)
returns integer[] language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_numbers integer[]; v_scores integer[]; v_costs integer[]; v_pairs real[]; v_near real[]; v_chosen integer[] := '{}';
  v_open boolean[];
  v_used integer := 0; v_count integer; v_best integer; v_value float8; v_top float8;
begin
  -- The hundred and fifty that are worth most of what they cost; what is alike among them.
  with sentences as materialized (
    -- What is said over and over counts once.
    select distinct on (lower(s)) o::integer as o, s as sentence, w as salience, memoir.estimate_tokens(s) + 4 as cost,
      tsvector_to_array(_memoir.words(p_config, s)) as words
    from unnest(p_sentences, p_salience) with ordinality x(s, w, o) where w >= 0.6 order by lower(s), o
  ), terms as materialized (
    select s.o, t.term from sentences s, unnest(s.words) t(term)
  ), weights as materialized (
    select term, ln(1 + (select count(*) from sentences)::float8 / count(*)) as idf from terms group by term
  ), weighed as materialized (
    select t.o, t.term, w.idf / sqrt(sum(w.idf * w.idf) over (partition by t.o)) as x from terms t join weights w
      using (term)
  ), centroid as (
    select term, sum(x) as c from weighed group by term
  ), central as (
    select w.o, sum(w.x * c.c) as centrality from weighed w join centroid c using (term) group by w.o
  ), best as materialized (
    select s.o, s.cost,
      (10000 * power(s.salience - 0.5, 2) * (0.6 + 0.4 * c.centrality / max(c.centrality) over ()) / power(s.cost,
        0.35))::integer as score
    from sentences s join central c using (o) order by 3 desc, s.o limit 150
  ), numbered as materialized (
    select o, cost, score, row_number() over (order by o)::integer as n from best
  ), alike as (
    select a.n as one, b.n as other, sum(x.x * y.x)::real as similarity
    from numbered a join weighed x on x.o = a.o join weighed y on y.term = x.term join numbered b on b.o = y.o
    group by a.n, b.n
  )
  select (select array_agg(o order by n) from numbered), (select array_agg(score order by n) from numbered),
    (select array_agg(cost order by n) from numbered),
    (select array_agg(coalesce(a.similarity, 0) order by g.one, g.other)
     from (select p.n as one, q.n as other from numbered p, numbered q) g left join alike a using (one, other))
  into v_numbers, v_scores, v_costs, v_pairs;
  v_count := coalesce(cardinality(v_numbers), 0);
  v_near := array_fill(0::real, array[greatest(v_count, 1)]); v_open := array_fill(true, array[greatest(v_count, 1)]);
  loop
    v_best := null; v_top := 0;
    for i in 1 .. v_count loop
      if v_open[i] and v_used + v_costs[i] <= p_budget then
        v_value := v_scores[i] * (1 - 0.8 * v_near[i]);
        if v_value > v_top then v_top := v_value; v_best := i; end if;
      end if;
    end loop;
    exit when v_best is null;
    v_open[v_best] := false; v_used := v_used + v_costs[v_best]; v_chosen := v_chosen || v_numbers[v_best];
    for i in 1 .. v_count loop
      v_near[i] := greatest(v_near[i], least(1, v_pairs[(v_best - 1) * v_count + i]));
    end loop;
  end loop;
  return array(select c from unnest(v_chosen) c order by c);
end $$;

-- Returns what a summary may be made of: the turns of a stretch as texts, without what is excluded, secret or private
-- (a summary is read by whoever may read the session). Long texts are read by their beginning and end.
create or replace function _memoir.summary_turns(p_session _memoir.sessions, p_from integer, p_to integer)
returns table (turn_index integer, role _memoir.turn_role, label text, body text, token_count integer,
  created_at timestamptz)
language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_part record; v_user uuid := p_session.user_id; v_since timestamptz; v_until timestamptz; v_marks jsonb;
begin
  for v_part in select * from _memoir.lineage(p_session) l where l.to_turn >= p_from and l.from_turn <= p_to
    order by l.from_turn loop
    select first_recorded_at, last_recorded_at into v_since, v_until from _memoir.session_counters c
    where c.user_id = v_user and c.session_id = v_part.session_id;
    v_marks := _memoir.marks(v_user, v_part.session_id);
    return query
    select h.turn_index, h.role, _memoir.speaker_label(h.role::text, h.name),
      case when x.hidden or _memoir.sensitivity_now(h.sensitivity, h.turn_index, v_marks) > 'normal' then null
           when length(x.whole) > 6000 then left(x.whole, 4000) || E'\n' || right(x.whole, 1500)
           else x.whole end, h.token_count, h.created_at
    from _memoir.conversation_history h
    cross join lateral (
      select coalesce(nullif(_memoir.without_spans(h.content, array(
          select int4range(e.span_start, e.span_start + e.span_length) from _memoir.recall_exclusions e
          where e.user_id = v_user and e.session_id = h.session_id and e.turn_index = h.turn_index
            and e.lifted_at is null and e.changed and not e.is_doubt)), ''),
        (select string_agg(format('calls %s(%s)', c #>> '{function,name}', left(c #>> '{function,arguments}', 200)),
        E'\n')
          from jsonb_array_elements(h.tool_calls) c)) as whole,
        -- What was changed later is left out; a span that must not be repeated takes its whole turn with it: its
        -- sentences lean on each other.
        exists (select from _memoir.recall_exclusions e where e.user_id = v_user and e.session_id = h.session_id
          and e.turn_index = h.turn_index
                and e.lifted_at is null and not e.changed) as hidden) x
    where h.user_id = v_user and h.session_id = v_part.session_id and h.recorded_at between v_since and v_until
      and h.turn_index between greatest(p_from, v_part.from_turn) and least(p_to, v_part.to_turn)
    order by h.turn_index;
  end loop;
end $$;

-- A sentence that can stand away from its day: "yesterday" and the like made absolute as the package reads them, in
-- English; the day is said behind it where nothing reads.
create or replace function _memoir.dated(p_sentence text, p_at timestamptz, p_config regconfig)
returns text language plpgsql stable as $$
begin
  if p_config::text not in ('english', 'simple')
    or p_sentence !~* '\m(yesterday|tomorrow|last|next|ago|from now|(on|until|till|by|since) [[:alpha:]]+day)\M'
    then return p_sentence; end if;
  if not _memoir.reads_language() then return format('%s (said on %s)', p_sentence, _memoir.day(p_at)); end if;
  return coalesce(_memoir.py_read('with_dates', jsonb_build_object('text', p_sentence, 'said_at', p_at)::text,
    (select config from _memoir.settings_merged) ->> 'embedder_socket') ->> 'text', p_sentence);
end $$;

-- One head line with the stretch and its days, then the chosen sentences, each with who said it.
create or replace function _memoir.extract(p_labels text[], p_roles _memoir.turn_role[], p_bodies text[],
  p_days timestamptz[], p_head text, p_budget integer,
  p_tokenizer text, p_config regconfig)
returns text language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_sentences text[]; v_labels text[]; v_days timestamptz[]; v_salience real[]; v_chosen integer[]; v_text text;
  v_budget integer := p_budget; v_tries integer := 0; v_tokens integer;
begin
  select array_agg(s.sentence order by t.o, s.o), array_agg(t.label order by t.o, s.o),
    array_agg(t.said order by t.o, s.o),
    array_agg(_memoir.salience(s.sentence, t.role, t.o = cardinality(p_bodies)) order by t.o, s.o)
  into v_sentences, v_labels, v_days, v_salience
  from unnest(p_labels, p_roles, p_bodies, p_days) with ordinality t(label, role, body, said, o),
    lateral (select case when length(x) > 300 then left(x, 297) || '…' else x end as sentence, n as o
             from unnest(_memoir.sentences(_memoir.prose(_memoir.visible(t.body)))) with ordinality y(x, n)) s
  where s.o <= 200;
  if v_sentences is null then return p_head; end if;
  loop
    v_chosen := _memoir.choose_sentences(v_sentences, v_salience, v_budget - memoir.estimate_tokens(p_head), p_config);
    select p_head || coalesce(E'\n' || string_agg('- ' || v_labels[c] || ': ' || _memoir.dated(v_sentences[c],
      v_days[c], p_config), E'\n' order by c), '') into v_text from unnest(v_chosen) c;
    v_tokens := _memoir.tokens_of(v_text, p_tokenizer);
    exit when v_chosen = '{}' or v_tries >= 4 or v_tokens <= p_budget and (v_tries > 0 or v_tokens > 0.9 * p_budget
      or cardinality(v_chosen) = cardinality(v_sentences));
    -- Estimates are on the high side: once more with what was left over.
    v_budget := case when v_tokens < p_budget then v_budget * least(1.5, 0.98 * p_budget / v_tokens)
      else v_budget * 9 / 10 - 2 end;
    v_tries := v_tries + 1;
  end loop;
  return v_text;
end $$;
