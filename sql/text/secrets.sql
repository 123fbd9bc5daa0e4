-- Secrets: what looks like a key, a password, a card, an account or a personal number is marked secret on its way in,
-- without a model and without a network. Three kinds of evidence: the shape of an issuer's token
-- (sql/data/token_shapes.csv), a number with its check digits (text/numbers.sql), and a value where values of secrets
-- stand: behind a name like "password" in code, on a command line or in a sentence (names by language in sql/data),
-- in a header, in a URL. Formats: the issuers' documentation; RFC 7519 (JWT), RFC 7468 (keys), RFC 7617 (Basic), RFC
-- 6265 (cookies).

-- All that is found in a text; unless p_all, one of each kind is enough. Plans are kept: what they hold as constants
-- takes longer to make than to use.
create or replace function _memoir.secrets_in(p_text text, p_all boolean)
returns table (kind text, value text) language plpgsql immutable
set plan_cache_mode = force_generic_plan as $$
declare
  v_digits boolean := p_text ~ '[0-9][0-9A-Z .-]{0,2}[0-9]';
  v_marks text[] := _memoir.marks_in(lower(p_text), v_digits);
  v_pieces text[] := case when p_all then array[p_text] else _memoir.text_pieces(p_text) end;
begin
  if _memoir.has_run(p_text) then return query select * from _memoir.secret_tokens(p_text, p_all); end if;
  if v_marks <> '{}' then
    return query select * from _memoir.placed_secrets(v_pieces, v_marks, p_all);
    return query select * from _memoir.named_secrets(v_pieces, v_marks, p_all);
  end if;
  if v_digits then
    return query select * from _memoir.secret_numbers(v_pieces, v_marks, p_all);
    return query select * from _memoir.secret_codes(v_pieces, v_marks, p_all);
  end if;
  if v_marks <> '{}' or _memoir.has_list_of_words(p_text) then
    return query select * from _memoir.seed_phrases(v_pieces, p_text, v_marks);
  end if;
end $$;

-- A text without disguise: full-width and other fancy digits and letters as plain ones, no invisible marks.
create or replace function _memoir.undisguised(p_text text)
returns text language plpgsql immutable strict as $$
declare
  v_text text := p_text;
begin
  if octet_length(p_text) = length(p_text) then return p_text; end if;
  v_text := replace(replace(replace(v_text, U&'\00a0', ' '), U&'\202f', ' '), U&'\3000', ' ');
  if v_text ~ '[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]' then
    v_text := regexp_replace(v_text, '[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]+', '', 'g');
  end if;
  -- Full-width signs are known to the patterns.
  return case when v_text
    ~ '[\u00b2\u00b3\u00b9\u2000-\u200a\u2070-\u209f\u2460-\u24ff\uff10-\uff19\uff20-\uff3a\uff3f\uff41-\uff5a\U0001d400-\U0001d7ff]'
    then normalize(v_text, nfkc) else v_text end;
end $$;

-- The kinds of secrets in a text: none for nearly every text.
create or replace function _memoir.secret_kinds(p_text text)
returns text[] language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return array(select s.kind from _memoir.secrets_in(_memoir.undisguised(p_text), false) s group by s.kind
    order by s.kind);
end $$;

-- The same text with what was found blotted out: for what has to go to a model before it is stored, like a
-- query's vector.
create or replace function _memoir.redacted(p_text text)
returns text language plpgsql immutable as $$
declare
  v_text text := p_text; v_values text[]; v_value text;
begin
  if _memoir.secret_kinds(p_text) = '{}' then return p_text; end if;
  v_values := array(select s.value from _memoir.secrets_in(p_text, true) s group by s.value
    order by length(s.value) desc);
  -- Each is looked for in the whole text: a list of a thousand secrets is withheld whole.
  if cardinality(v_values) > 1000 then return ''; end if;
  foreach v_value in array v_values loop
    v_text := replace(v_text, v_value, '(withheld)');
  end loop;
  -- A disguise hides where it stands: then nothing of the text is passed on.
  return case when _memoir.secret_kinds(v_text) = '{}' then v_text else '' end;
end $$;

-- The kinds of secrets in texts, unless the setting is off.
create or replace function _memoir.detected(p_config jsonb, variadic p_texts text[])
returns text[] language plpgsql stable as $$
begin
  if not (p_config ->> 'detect_secrets')::boolean then return '{}'; end if;
  return _memoir.secret_kinds(array_to_string(p_texts, E'\n'));
end $$;

create or replace function _memoir.message_secrets(p_message _memoir.message, p_metadata jsonb, p_config jsonb)
returns text[] language plpgsql stable set plan_cache_mode = force_generic_plan as $$
declare
  v_parts text; v_arguments text;
begin
  if p_message.parts is not null then
    v_parts := (select string_agg(_memoir.part_text(p), E'\n' order by o)
        filter (where p ->> 'type' not in ('text', 'refusal'))
      from jsonb_array_elements(p_message.parts) with ordinality t(p, o));
  end if;
  if p_message.tool_calls is not null then
    v_arguments := (select string_agg(c #>> '{function,arguments}', E'\n' order by o)
      from jsonb_array_elements(p_message.tool_calls) with ordinality t(c, o));
  end if;
  return _memoir.detected(p_config, _memoir.ends_of(p_message.role, p_message.text), p_message.name, v_parts,
    v_arguments, p_message.extra::text, nullif(p_metadata, '{}')::text);
end $$;
