-- What people say of themselves that holds in every conversation: home, work, names, health, wishes. Rules for clauses
-- (statement_rules of each language) find it, give it a slot where there is one value at a time, and tell what
-- belongs in the profile. What they leave to others stands in extraction_rules.sql.

-- The rules of a language in their order.
create or replace function _memoir.statement_rules(p_language text)
returns setof jsonb language sql immutable as $$
  select to_jsonb(r) from _memoir.data_statement_rules() r where language = p_language order by nth
$$;

-- A captured value up to where its clause goes on: "Graz with my sister" is "Graz".
create or replace function _memoir.value_cut(p_value text, p_language text)
returns text language plpgsql immutable as $$
declare
  v_value text := p_value; v_ends text := nullif(_memoir.any_word(p_language, 'value_ends'), '');
begin
  v_value := regexp_replace(v_value, '(?:[,;:(!?.]+(?: |$)| [-–—]+ ).*$', '');
  if v_ends is not null then
    v_value := regexp_replace(v_value, '(.) (?:' || v_ends || ')\M.*$', '\1', 'i');
  end if;
  v_value := regexp_replace(v_value, '^(?:the|an?|my|our) ', '', 'i');
  return nullif(array_to_string((string_to_array(btrim(v_value, ' .,;:"''!('), ' '))[1:7], ' '), '');
end $$;

-- A slot or value of a rule filled with what its pattern captured.
create or replace function _memoir.filled(p_form text, p_captured text[])
returns text language sql immutable as $$
  select replace(replace(p_form, '{1}', coalesce(p_captured[1], '')), '{2}', coalesce(p_captured[2], ''))
$$;

-- Slots have one name each, however the matter is called: "e-mail address" is "email", "phone" is "phone number".
create or replace function _memoir.slot_name(p_slot text)
returns text language sql immutable as $$
  select case
    when s ~ '^(work |home |office )?(e-?mail|mail)( address)?$' then 'email'
    when s ~ '^(mobile |cell |private )?(phone|number|mobile|cell|telephone)( number)?$' then 'phone number'
    when s ~ '^(home |postal )?address$' then 'address'
    when s ~ '^name of .*(boss|manager|supervisor|team lead)$' then 'name of boss'
    when s ~ '^name of (mum|mom|mother)$' then 'name of mother'
    when s ~ '^name of (dad|father)$' then 'name of father'
    when s ~ '^number of (kids?|child|children)$' then 'number of children'
    when s ~ '^number of (grandchild|grandchildren|grandkids)$' then 'number of grandchildren'
    when s = 'mobile number' then 'phone number'
    else regexp_replace(replace(replace(s, 'favorite', 'favourite'), 'color', 'colour'),
      '^(name of|all-time) (?:new|little|old|dear) ', '\1 ') end
  from (select btrim(regexp_replace(lower(p_slot), '\s+', ' ', 'g'))) x(s)
$$;

-- Which of these plain clauses fit which rule, the first that fits each: its number in the list, and the rule with its
-- slot and value. Each pattern goes over all clauses before the next one does, since the server keeps few compiled
-- ones. p_wholes: which are whole sentences; p_slots: only rules that have a slot.
create or replace function _memoir.statements_in(p_plains text[], p_wholes boolean[], p_language text,
  p_slots boolean default false)
returns table (clause_no integer, rule jsonb) language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_rule jsonb; v_pattern text; v_left integer[]; v_found integer[]; v_captured text[]; v_begins text[];
  v_padded text[] := array(select _memoir.padded(t) from unnest(p_plains) with ordinality x(t, o) order by o);
  v_all text := array_to_string(v_padded, ' '); v_needs text[];
begin
  v_left := array(select o::integer from unnest(p_plains) with ordinality x(t, o) where length(t) <= 400 order by o);
  for v_rule in select r from _memoir.statement_rules(p_language) r where not p_slots or r ->> 'slot' is not null loop
    exit when v_left = '{}';
    v_pattern := v_rule ->> 'pattern';
    -- What needs words of which no clause has one is not tried.
    v_needs := string_to_array(v_rule ->> 'needs', ' ');
    continue when v_needs is not null and not _memoir.has_phrase(v_all, v_needs);
    -- Nor what can't fit for its first word.
    v_begins := case when v_pattern like '^I %' or v_pattern like '^(?:I|we)%' then '{i,we}'
      when v_pattern like '^(?:my|our)%' then '{my,our}' else '{}' end::text[];
    v_found := array(select n from unnest(v_left) n where p_wholes[n] = (coalesce(v_rule ->> 'whole', 'no') = 'yes')
      and (v_begins = '{}' or lower(split_part(p_plains[n], ' ', 1)) = any (v_begins)));
    -- Nor what has none of the words that it needs.
    if v_needs is not null and v_found <> '{}' then
      v_found := array(select n from unnest(v_found) n where _memoir.has_phrase(v_padded[n], v_needs));
    end if;
    continue when v_found = '{}';
    if v_rule ->> 'exact' = 'yes' then
      v_pattern := regexp_replace(v_pattern, '^\^(I|\(\?:I\|we\))', '^(?:\1|i)');
      v_found := array(select n from unnest(v_found) n where p_plains[n] ~ v_pattern);
    else
      v_found := array(select n from unnest(v_found) n where p_plains[n] ~* v_pattern);
    end if;
    if v_found <> '{}' and v_rule ->> 'not_if' is not null then
      v_found := array(select n from unnest(v_found) n where p_plains[n] !~* (v_rule ->> 'not_if'));
    end if;
    foreach clause_no in array v_found loop
      v_captured := regexp_match(p_plains[clause_no], v_pattern, case when v_rule ->> 'exact' = 'yes' then 'c'
        else 'i' end);
      rule := _memoir.with_value(v_rule, p_plains[clause_no], v_captured, p_language);
      v_left := array_remove(v_left, clause_no);
      return next;
    end loop;
  end loop;
end $$;

-- A rule with the slot and value that it finds in a clause, without them where the clause has no value or denies it.
create or replace function _memoir.with_value(p_rule jsonb, p_plain text, p_captured text[], p_language text)
returns jsonb language plpgsql immutable as $$
declare
  v_value text;
begin
  if p_rule ->> 'slot' is null then return p_rule; end if;
  v_value := _memoir.value_cut(_memoir.filled(p_rule ->> 'value', p_captured), p_language);
  if v_value is null or p_rule ->> 'slot' like 'name of%'
    and p_captured[1] ~* ('\m(?:' || _memoir.any_word('english', 'several') || ')$')
    or p_rule ->> 'value' not like 'not %' and split_part(p_plain, ',', 1) ~*
    '\m(?:not|never|used to|part-time|temporarily|for (?:now|the summer|a (?:while|few|couple))|other|also|another'
      '|second)\M'
  then
    return p_rule - 'slot' - 'value';
  end if;
  return p_rule || jsonb_build_object('slot', _memoir.slot_name(_memoir.filled(p_rule ->> 'slot', p_captured)), 'value',
    v_value);
end $$;

-- Does a sentence, or what stands in it before a clause, only suppose or report?
create or replace function _memoir.is_supposed(p_text text, p_language text)
returns boolean language sql immutable as $$
  select p_text <> '' and p_text ~* nullif(_memoir.any_word(p_language, 'supposed', 'sarcasm'), '')
$$;

-- Statements among the clauses of persons without a name, with the spans they take.
create or replace function _memoir.statements(p_clauses _memoir.said_clause[], p_languages text[], p_said timestamptz[])
returns setof _memoir.extracted language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_language text; v_rows _memoir.said_clause[]; v_row _memoir.said_clause; v_plains text[]; v_hit record;
  v_taken int4range[]; v_last integer; v_self text; v_count integer;
begin
  for v_language in select distinct p_languages[c.text_no] from unnest(p_clauses) c order by 1 loop
    v_rows := _memoir.clauses_to_state(array(select c from unnest(p_clauses) c
      where p_languages[c.text_no] = v_language), v_language);
    v_self := nullif(_memoir.any_word(v_language, 'first_person'), '') || ' ';
    v_plains := array(select _memoir.without_reasons(case when r.inherits then v_self else '' end || r.plain,
        v_language)
      from unnest(v_rows) with ordinality r order by ordinality);
    -- At last as they were said: "keep in mind that I'm in Hobart" is known by how it begins.
    v_count := cardinality(v_rows);
    v_plains := v_plains || array(select r.plain from unnest(v_rows) with ordinality r
      where ltrim(r.plain, '(') <> v_plains[r.ordinality] and not r.inherits order by ordinality);
    v_rows := v_rows || array(select v_rows[r.ordinality] from unnest(v_rows) with ordinality r
      where ltrim(r.plain, '(') <> v_plains[r.ordinality] and not r.inherits order by ordinality);
    v_taken := '{}';
    v_last := 0;
    -- Whole sentences first: their clauses are theirs.
    for v_hit in
      select h.* from _memoir.statements_in(v_plains, array(select r.clause_no = 0
        from unnest(v_rows) with ordinality r order by ordinality), v_language) h
      order by v_rows[h.clause_no].text_no, h.clause_no > v_count, v_rows[h.clause_no].clause_no > 0, h.clause_no
    loop
      v_row := v_rows[v_hit.clause_no];
      if v_row.text_no <> v_last then v_taken := '{}'; v_last := v_row.text_no; end if;
      continue when int4range(v_row.span_start, v_row.span_start + v_row.span_length) && any (v_taken)
        or v_hit.rule ->> 'category' not in ('instruction', 'identity')
          and (_memoir.is_supposed(v_row.plain, v_language)
          or v_plains[v_hit.clause_no] ~* nullif(_memoir.any_word(v_language, 'conditions'), ''));
      v_taken := v_taken || int4range(v_row.span_start, v_row.span_start + v_row.span_length);
      return next _memoir.stated(v_row.text_no, v_row.span_start, v_row.span_length,
        case when v_row.inherits then v_self else '' end || v_row.said, v_hit.rule, p_said[v_row.text_no], v_language);
    end loop;
  end loop;
end $$;

-- "Since I'm deaf", "(I indent with tabs", "I live in Ulm if that matters": without what only says why it is said.
create or replace function _memoir.without_reasons(p_text text, p_language text)
returns text language plpgsql immutable as $$
declare
  v_opening text := nullif(_memoir.any_word(p_language, 'reason_openings'), '');
  v_end text := nullif(_memoir.any_word(p_language, 'aside_ends'), '');
begin
  p_text := rtrim(ltrim(p_text, '('), '?');
  if strpos(p_text, '(') = 0 then p_text := rtrim(p_text, ')'); end if;
  if v_opening is not null then
    p_text := regexp_replace(p_text, '^(?:' || v_opening || ')\s*(?=(?:i|we|my|our|the only|all my)\M)', '',
      'i');
  end if;
  if v_end is not null then p_text := regexp_replace(p_text, ',? (?:' || v_end || ')[).]*$', '', 'i'); end if;
  return p_text;
end $$;

-- Returns what may be a statement: sentences, and clauses that neither ask nor stand behind "if" or "he said". A reason
-- at the end of a question ("…, given I live on a boat?") asks nothing.
create or replace function _memoir.clauses_to_state(p_clauses _memoir.said_clause[], p_language text)
returns _memoir.said_clause[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
declare
  v_rows _memoir.said_clause[] := p_clauses; v_asks boolean[]; v_before text[];
begin
  -- "Can you always answer in Dutch?" asks for no answer.
  v_asks := array(select c.asks and not coalesce(c.sentence ~* nullif(_memoir.any_word(p_language, 'asked_wishes'),
    ''), false)
    from unnest(v_rows) with ordinality c order by ordinality);
  v_before := array(select coalesce(string_agg(case when c.clause_no > 0 then c.said end, ' ') over (
      partition by c.text_no, c.sentence_start order by c.clause_no
      rows between unbounded preceding and 1 preceding), '')
    from unnest(v_rows) with ordinality c order by ordinality);
  return array(select v_rows[o] from unnest(v_rows) with ordinality c(text_no, sentence_start, clause_no, span_start,
      span_length, said, sentence, plain, inherits, is_last, asks, o)
    where case when c.clause_no = 0 then not v_asks[o]
      else not (c.is_last and v_asks[o] and not coalesce(left(c.sentence, c.span_start - c.sentence_start)
          ~* ('\m(?:' || nullif(_memoir.any_word(p_language, 'reasons_given'), '') || ')$'), false))
        and not coalesce(_memoir.is_supposed(v_before[o], p_language)
        or v_before[o] ~* nullif(_memoir.any_word(p_language, 'conditions'), ''), false) end
    order by o);
end $$;

-- The memory a rule makes of a sentence.
create or replace function _memoir.worded(p_text_no integer, p_start integer, p_length integer, p_said text,
  p_bare text, p_specifics integer,
  p_name text, p_is_named boolean, p_at timestamptz, p_rule jsonb)
returns _memoir.extracted language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_out _memoir.extracted; v_text text := _memoir.without_opening(regexp_replace(p_said, '^(no|nope)[,.!;]+ +', '',
    'i')); v_until date; v_value text; v_first text;
begin
  v_out.text_no := p_text_no; v_out.span_start := p_start; v_out.span_length := p_length;
  v_out.rule := p_rule ->> 'rule'; v_out.type := p_rule ->> 'type'; v_out.provenance := p_rule ->> 'provenance';
  v_out.category := p_rule ->> 'category'; v_out.importance := p_rule ->> 'importance';
  v_out.utility := least(1, (p_rule ->> 'utility')::real + 0.05 * p_specifics);
  select r.resolved, r.event_from, r.event_to, r.valid_until into v_text, v_out.event_from, v_out.event_to, v_until
  from _memoir.resolve_dates(v_text, (p_at at time zone 'UTC')::date, v_out.type <> 'plan'
    and p_bare !~ '\m(will|going to|plan(ning)?|starting|am|are|is(?= (?:on|at|due|from|by|now|\d))|due|comes|leaves'
      '|starts|begins|opens|ends|expires|gets) ') r;
  v_text := upper(left(v_text, 1)) || substr(v_text, 2);
  -- "Went to Ulm": the speaker did.
  if p_rule ->> 'rule' = 'did, without saying who' then
    v_first := lower(split_part(v_text, ' ', 1));
    v_text := case when v_first = 'been' then 'I have ' when v_first ~ 'ing$' or v_first = 'gonna' then 'I am '
      else 'I ' end
      || lower(left(v_text, 1)) || substr(v_text, 2);
  elsif v_out.type in ('event', 'plan', 'fact') and v_out.provenance = 'user_stated'
    and v_text ~ ('^(' || _memoir.any_word('english', 'past_verbs') || ')\M(?! by\M)') then
    v_text := 'I ' || lower(left(v_text, 1)) || substr(v_text, 2);
  end if;
  -- What asks for an answer goes with the answer.
  v_text := regexp_replace(regexp_replace(v_text, '(\*{1,3}|\m_)([^*_\s][^*_]*)\1|\*{2,}', '\2', 'g'),
    '( -|,|;|\.) (so )?(can|could|would|will) you .*$', '.', 'i');
  v_text := regexp_replace(v_text,
    '( -|,|;)? (and|but|so) (I|we) (want|need|''d like|would like) to (make|be) (sure|certain) .*$', '.');
  -- "…, ok?", "…, any tips?" ask for no more than assent, or for help.
  v_text := regexp_replace(v_text, ',[^,.!?]{2,24}\?+$', '');
  v_text := _memoir.named(v_text, p_name);
  if strpos(v_text, p_name) = 0 then
    v_text := p_name || case v_out.type when 'instruction' then ' asks: ' else case v_out.provenance
      when 'correction' then ' corrects: ' else ': ' end end || v_text;
  elsif starts_with(v_text, p_name) or v_out.type <> 'instruction' then
    v_text := upper(left(v_text, 1)) || substr(v_text, 2);
  else
    v_text := p_name || ' asks: ' || v_text;
  end if;
  v_out.content := v_text || case when v_text ~ '[.!…。]["”'')]*$' then '' else '.' end;
  if p_rule ->> 'slot' is not null and p_bare !~
    '\m(not|never|used|was|were|no longer|part-time|temporarily|for (now|the summer|a (while|few|couple)))\M' then
    v_value := (regexp_match(translate(p_said, '’', ''''), p_rule ->> 'value'))[1];
    if v_value is not null and v_value !~* ('\m(' || _memoir.any_word('english', 'full_weekdays', 'sure_months')
      || '|mom|dad)\M')
       or v_value is not null and p_rule ->> 'slot' = 'birthday' then
      v_out.slot := case when p_is_named then lower(p_name) || ': ' else '' end || (p_rule ->> 'slot');
      v_out.slot_value := v_value;
    end if;
  end if;
  -- What began is true from then; what is planned is known from when it was said, and stays worth knowing after its
  -- day.
  v_out.valid_from := least(p_at, v_out.event_from::timestamp at time zone 'UTC');
  if v_until is not null and v_until::timestamp at time zone 'UTC' > v_out.valid_from
    then v_out.valid_to := v_until::timestamp at time zone 'UTC'; end if;
  return v_out;
end $$;

-- A statement as what a rule found.
create or replace function _memoir.stated(p_text_no integer, p_start integer, p_length integer, p_said text,
  p_rule jsonb, p_at timestamptz, p_language text)
returns _memoir.extracted language plpgsql stable as $$
declare
  v_out _memoir.extracted; v_type text := p_rule ->> 'type'; v_bare text := _memoir.bare(p_said);
  v_said text := case when p_language = 'english' then _memoir.without_reasons(_memoir.without_preamble(p_said,
    p_language), p_language) else p_said end;
begin
  v_out := _memoir.worded(p_text_no, p_start, p_length, v_said, v_bare, 0, 'User', false, p_at,
    p_rule - 'slot' - 'value' || jsonb_build_object('utility', 0.9, 'provenance', case
      when v_type in ('instruction', 'preference') then v_type else 'user_stated' end));
  if p_language <> 'english' then v_out.content := 'User: ' || btrim(p_said, ' .') || '.'; end if;
  v_out.slot := p_rule ->> 'slot';
  v_out.slot_value := p_rule ->> 'value';
  v_out.standing := p_rule ->> 'standing' = 'yes'
    and not coalesce(p_said ~* nullif(_memoir.any_word(p_language, 'no_standing'), ''), false);
  return v_out;
end $$;

-- "Btw, I live in Ulm" without what opens it, as it was written.
create or replace function _memoir.without_preamble(p_said text, p_language text)
returns text language plpgsql immutable as $$
declare
  v_said text := p_said; v_before text;
begin
  while length(v_said) <= 600 loop
    v_before := v_said;
    v_said := regexp_replace(v_said, '^(?:' || _memoir.any_word(p_language, 'preambles')
      || ')(?:[,.:;!…]+ *| *[–—-]+ +| +)(?=[^ ])', '', 'i');
    exit when v_said = v_before;
  end loop;
  return v_said;
end $$;

-- The slot of what is remembered without one, said by or of the user: "Lives in Ulm", "The user's name is Ida".
create or replace function _memoir.slot_of(p_content text, out slot text, out slot_value text, out standing boolean)
language plpgsql immutable as $$
declare
  v_language text; v_plain text; v_rule jsonb; v_clauses integer;
begin
  if length(p_content) > 300 then return; end if;
  v_language := _memoir.spoken_language(p_content);
  v_plain := _memoir.plain(p_content, v_language);
  if v_language = 'english' then
    v_plain := regexp_replace(v_plain, '^(?:the )?user''?s (?=[[:alpha:]])', 'My ', 'i');
    v_plain := regexp_replace(v_plain, '^(?:the )?user ', 'I ', 'i');
    if v_plain ~ '^(?:Lives|Works|Drives|Speaks|Prefers|Reports|Is|Has|Wears|Takes|Goes|Earns|Weighs|Drinks) ' then
      v_plain := 'I ' || lower(left(v_plain, 1)) || substr(v_plain, 2);
    end if;
    v_plain := regexp_replace(v_plain, '^I is\M', 'I am');
    v_plain := regexp_replace(v_plain, '^I has\M', 'I have');
    v_plain := regexp_replace(v_plain, '^I goes\M', 'I go');
  end if;
  select count(*) into v_clauses from _memoir.clauses(v_plain, v_language);
  if v_clauses > 1 or coalesce(_memoir.is_supposed(v_plain, v_language), false) then return; end if;
  if v_plain !~ '^(?:I|We|My|Our|i|we|my|our|Ich|Mein|Vivo|Mi|J|Mon|Ma|Moro|O meu|A minha|Abito|Il mio|La mia)'
    then return; end if;
  v_rule := (select r.rule from _memoir.statements_in(array[v_plain], array[false], v_language, true) r limit 1);
  slot := v_rule ->> 'slot';
  slot_value := v_rule ->> 'value';
  standing := v_rule ->> 'standing' = 'yes';
end $$;

-- Returns the same, read by the package where PL/Python can run it.
create or replace function _memoir.read_statement(p_content text, p_config jsonb, out slot text, out slot_value text,
  out standing boolean)
language plpgsql stable as $$
declare
  v_read jsonb;
begin
  if length(p_content) > 300 then return; end if;
  if _memoir.reads_language() then
    v_read := _memoir.py_read('read_statement', p_content, p_config ->> 'embedder_socket');
    slot := v_read ->> 'slot';
    slot_value := v_read ->> 'value';
    standing := (v_read ->> 'standing')::boolean;
    return;
  end if;
  select s.slot, s.slot_value, s.standing into slot, slot_value, standing from _memoir.slot_of(p_content) s;
end $$;
