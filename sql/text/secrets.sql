-- Secrets are found on the way in. The package pg_memoir_language reads texts for them where PL/Python can run it.
-- Where it can't, what is plain at a glance is found here: private keys, issuers' tokens, cards and accounts. An
-- outside worker then reads the turns (privacy/scans.sql), and no turn is embedded or sent to a model before that.

-- Returns the secrets that are plain at a glance. A run of the same letter or a word like "your" is a placeholder; of a
-- run of more than 4,000 signs, as base64 has them, only the beginning is read.
create or replace function _memoir.plain_secrets(p_text text)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_shape record; v_runs text; v_value text;
begin
  for v_value in select m[1] from regexp_matches(p_text,
    '(---- ?-?BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-? ?----[A-Za-z0-9+/=\\\r\n]*)', 'g') m loop
    return query select 'private key', v_value;
  end loop;
  if p_text ~ '[A-Za-z0-9_.:/+=~!%$@|-]{18}' then
    select string_agg(distinct left(m[1], 4000), E'\n') into v_runs
    from regexp_matches(p_text, '([A-Za-z0-9_.:/+=~!%$@|-]{18,})', 'g') m;
    for v_shape in select * from _memoir.data_token_shapes() t where case when t.marks is null
      then v_runs ~ '[A-Za-z0-9_.-]{50}'
      else exists (select from string_to_table(t.marks, ' ') m where strpos(v_runs, ltrim(m, '*')) > 0) end loop
      return query select v_shape.kind, m[1] from regexp_matches(v_runs, '(?<![A-Za-z0-9+])(' || v_shape.pattern || ')',
        'g') m
        where m[1] ~ '[0-9]|[a-z][A-Z].*[a-z][A-Z]'
          and m[1] !~* '(?:x{6}|0{12}|your|example-|[-_]here$|placeholder|[.]{3})';
    end loop;
  end if;
  if p_text ~ '[0-9][0-9A-Za-z .-]{11}' then
    return query select 'card number', m[1] from regexp_matches(p_text,
      '(?<![0-9A-Za-z/_+.-])([3-6][0-9]{3}(?:[ .-]?[0-9]{4}){2}[ .-]?[0-9]{1,4}(?:[ -]?[0-9]{3})?|3[0-9]{3}[ '
        '.-]?[0-9]{6}[ .-]?[0-9]{4,5})(?![0-9A-Za-z/_-])',
      'g') m
      where m[1] !~ '^(.)\1*$' and (
        -- Luhn's check (ISO/IEC 7812-1): from the right, every second digit is doubled.
        select sum(case when o % 2 = 1 then d when d > 4 then 2 * d - 9 else 2 * d end) % 10 = 0
        from (select d::integer, o from string_to_table(reverse(translate(m[1], ' .-', '')), null)
          with ordinality x(d, o)) digits);
    return query select 'IBAN', m[1] from regexp_matches(p_text,
      '(?<![A-Za-z0-9-])([a-z]{2}[0-9]{2}(?:[ -]?[a-z0-9]{4}){2,7}(?:[ -]?[a-z0-9]{1,3})?)(?![A-Za-z0-9])', 'gi') m
      -- It begins with an account number (ISO 13616): 1 modulo 97 with letters as numbers.
      where exists (select from (select upper(translate(m[1], ' -', '')) as run) r, generate_series(15, length(run)) n
        where (select string_agg(case when ascii(c) < 58 then c else (ascii(c) - 55)::text end, '' order by o)
          from string_to_table(substr(run, 5, n - 4) || left(run, 4), null) with ordinality s(c, o))::numeric % 97 = 1);
  end if;
end $$;

create or replace function _memoir.reads_language()
returns boolean language sql stable as $$
  select to_regprocedure('_memoir.py_find_secrets(text,text)') is not null
$$;

-- Returns what a function of the package says of texts (pg_memoir_server.reading); null where this server can't run it.
create or replace function _memoir.read_texts(p_function text, p_given jsonb)
returns jsonb language plpgsql stable as $$
begin
  if not _memoir.reads_language() then return null; end if;
  return _memoir.py_read(p_function, p_given::text,
    (select config from _memoir.settings_merged) ->> 'embedder_socket');
end $$;

-- Returns the kinds of secrets in each text, apart by commas, '' for none, the tokens of p_counted, and what counted.
create or replace function _memoir.read_messages(p_config jsonb, p_texts text[], p_counted text[],
  inout tokenizer text, out kinds text[], out tokens integer[])
language plpgsql stable as $$
begin
  if tokenizer <> 'estimate' and (p_config ->> 'detect_secrets')::boolean
    and to_regprocedure('_memoir.py_read_messages(text[],text[],text,text)') is not null then
    select r.kinds, r.tokens into kinds, tokens
    from _memoir.py_read_messages(p_texts, p_counted, tokenizer, p_config ->> 'embedder_socket') r;
  end if;
  if tokens is null then
    tokenizer := _memoir.tokenizer_used(tokenizer);
    tokens := _memoir.count_tokens(p_counted, tokenizer);
  end if;
  for i in 1 .. cardinality(p_texts) loop
    if kinds[i] is null then kinds[i] := array_to_string(_memoir.detected(p_config, p_texts[i]), ', '); end if;
  end loop;
end $$;

-- Returns the kinds of secrets in texts: none for nearly every text, and where the setting detect_secrets is off.
create or replace function _memoir.detected(p_config jsonb, variadic p_texts text[])
returns text[] language plpgsql stable as $$
declare
  v_text text := array_to_string(p_texts, E'\n'); v_kinds text[];
begin
  if v_text = '' or not (p_config ->> 'detect_secrets')::boolean then return '{}'; end if;
  if _memoir.reads_language() then v_kinds := _memoir.py_find_secrets(v_text, p_config ->> 'embedder_socket'); end if;
  -- Without disguise: full-width and other fancy digits and letters as plain ones, no invisible marks.
  return coalesce(v_kinds, array(select distinct s.kind from _memoir.plain_secrets(
    case when octet_length(v_text) = length(v_text) then v_text
      else normalize(regexp_replace(translate(v_text, U&'\00a0\202f\3000', '   '),
        '[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]+', '', 'g'), nfkc) end) s order by 1));
end $$;
