-- Secrets: what looks like a key, a card, an account or a personal number is marked secret on its way in, without a
-- model and without a network. Shapes that also occur innocently are believed only when their check digits agree.
-- Formats: the issuers' documentation; ISO 13616 (IBAN), ISO/IEC 7812 (cards), RFC 7519 (JWT), RFC 7468 (keys).

-- Each kind with its pattern; the first captured group is what the check sees. Flags as in regexp_matches. looks_in:
-- where it can stand, so that texts without such a place cost next to nothing (run: unbroken runs of 15 characters and
-- more; digits; word; text). needles: one of these must stand there too, before a pattern is compiled: long repeats
-- make that slow.
create or replace function _memoir.secret_patterns()
returns table (kind text, looks_in text, needles text[], flags text, pattern text) language sql immutable as $$
  values
    ('private key', 'word', '{-----BEGIN,PuTTY-User-Key-File-,AGE-SECRET-KEY-1}'::text[], 'g',
      '(-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-[23]:|\mAGE-SECRET-KEY-1[0-9A-Z]{58})'),
    -- AWS
    ('access key', 'run', '{A3T,AKIA,ASIA,ABIA,ACCA}', 'g', '\m((?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16})\M'),
    -- GitHub
    ('access key', 'run', '{ghp_,gho_,ghu_,ghs_,ghr_}', 'g', '\m(gh[pousr]_[A-Za-z0-9]{36,})'),
    ('access key', 'run', '{github_pat_}', 'g', '\m(github_pat_[A-Za-z0-9_]{60,})'),
    -- GitLab
    ('access key', 'run', '{glpat-}', 'g', '\m(glpat-[A-Za-z0-9_-]{20,})'),
    -- Slack
    ('access key', 'run', '{xox,xapp-}', 'g', '\m(xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{20,})'),
    ('access key', 'run', '{hooks.slack.com}', 'g',
      '\m(hooks\.slack\.com/services/T[A-Za-z0-9]{6,}/B[A-Za-z0-9]{6,}/[A-Za-z0-9]{16,})'),
    -- Stripe
    ('access key', 'run', '{k_live_,k_test_,whsec_}', 'g',
      '\m([rs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/]{24,})'),
    -- Google
    ('access key', 'run', '{AIza,ya29.,GOCSPX-}', 'g',
      '\m(AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,}|GOCSPX-[A-Za-z0-9_-]{28})'),
    -- SendGrid, Twilio, Mailgun
    ('access key', 'run', '{SG.,SK,key-}', 'g',
      '\m(SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}|SK[0-9a-f]{32}|key-[0-9a-f]{32})'),
    ('access key', 'run', '{npm_,pypi-AgE,hf_,dckr_pat_}', 'g',
      '\m(npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{50,}|hf_[A-Za-z0-9]{34}|dckr_pat_[A-Za-z0-9_-]{27})'),
    -- Telegram
    ('access key', 'run', '{:AA}', 'g', '\m([0-9]{8,10}:AA[A-Za-z0-9_-]{33})'),
    -- DigitalOcean, Shopify
    ('access key', 'run', '{_v1_,shpat_,shpca_,shppa_,shpss_}', 'g',
      '\m(do[opr]_v1_[a-f0-9]{64}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32})'),
    ('access key', 'run', '{AccountKey=,vault:v,hvb.,hvs.,lin_api_,NRAK-}', 'g',
      '\m(AccountKey=[A-Za-z0-9+/]{86}==|vault:v[0-9]:[A-Za-z0-9+/=]{30,}'
      || '|hv[bs]\.[A-Za-z0-9_-]{24,}|lin_api_[A-Za-z0-9]{40}|NRAK-[A-Z0-9]{27})'),
    -- OpenAI, Anthropic and those who write theirs like them.
    ('model key', 'run', '{sk-,xai-,gsk_}', 'g',
      '\m(sk-(?:[a-z0-9]+-){0,2}[A-Za-z0-9_-]{20,}|xai-[A-Za-z0-9]{40,}|gsk_[A-Za-z0-9]{40,})'),
    ('web token', 'run', '{eyJ}', 'g', '\m(eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})'),
    ('authorization', 'text', null, 'gi', '\m(?:bearer|basic|token)\s+([a-z0-9._~+/=-]{20,})'),
    ('connection string', 'text', '{://}', 'gi',
      '\m[a-z][a-z0-9+.-]{1,20}://[^\s:/@"''<>]*:([^\s/@"''<>]{3,})@[^\s/@"''<>]+'),
    ('password', 'word', null, 'gi',
      '(?:pass(?:word|wd|phrase|code)|\mpwd|\mpw|secret(?:[_ -]?(?:access[_ -]?)?key)?|api[_ -]?key|(?:access|auth|refresh|session|api)[_ -]?token|private[_ -]?key'
      || '|passwort|kennwort|contrase[nñ]a|mot de passe|senha|wachtwoord|пароль|密码|密碼|パスワード|비밀번호)[^\s:=]{0,3}\s*'
      || '(?:(?::=|=>|[:=：]|\m(?:is|ist|es|est|é|это)\M)\s*)["''`]?([^\s"''`,;]{6,})'),
    ('token', 'word', null, 'gi', '\m(?:token|secret|key)["'']?\s*[:=]\s*["''`]?([a-z0-9_+/=.-]{20,})'),
    ('PIN', 'word', null, 'gi',
      '\m(?:pin|cvv2?|cvc2?)(?:[ -]?(?:code|number|nr\.?))?\s*(?:[:=]|\mis\M|\mist\M)?\s*([0-9]{3,8})\M'),
    ('IBAN', 'digits', null, 'gi', '\m([a-z]{2}[0-9]{2}(?: ?[a-z0-9]{4}){2,7}(?: ?[a-z0-9]{1,3})?)\M'),
    ('UK national insurance number', 'digits', null, 'g',
      '\m((?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-D])\M'),
    ('ES id', 'digits', null, 'gi', '\m([0-9xyz][0-9]{7}-?[a-z])\M'),
    ('IT id', 'digits', null, 'gi', '\m([a-z]{6}[0-9]{2}[abcdehlmprst][0-9]{2}[a-z][0-9]{3}[a-z])\M'),
    ('card number', 'digits', null, 'g',
      '(?:^|[^0-9A-Za-z./_-])([2-6][0-9]{3}(?:[ -]?[0-9]{4}){2}[ -]?[0-9]{1,4}(?:[ -]?[0-9]{3})?|3[0-9]{3}[ -]?[0-9]{6}[ -]?[0-9]{4,5})(?:$|[^0-9A-Za-z/_.-]|\.(?:$|[^0-9]))'),
    ('US social security number', 'digits', null, 'g', '(?:^|[^0-9-])([0-8][0-9]{2}-[0-9]{2}-[0-9]{4})(?:$|[^0-9-])'),
    ('FR id', 'digits', null, 'gi',
      '\m([12] ?[0-9]{2} ?(?:0[1-9]|1[0-2]) ?(?:[0-9]{2}|2[ab]) ?[0-9]{3} ?[0-9]{3} ?[0-9]{2})\M'),
    ('BR id', 'digits', null, 'g', '\m([0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2})\M'),
    ('IN id', 'digits', null, 'g',
      '(?:^|[^0-9 ]|[^0-9] )([2-9][0-9]{3}[ -][0-9]{4}[ -][0-9]{4})(?:$|[^0-9 -]|[ -](?:$|[^0-9]))'),
    ('CN id', 'digits', null, 'gi',
      '\m([1-9][0-9]{5}(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[0-9]{3}[0-9x])\M'),
    ('CH id', 'digits', null, 'g', '\m(756\.[0-9]{4}\.[0-9]{4}\.[0-9]{2})\M'),
    ('SE id', 'digits', null, 'g', '\m((?:19|20)?[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[-+][0-9]{4})\M'),
    ('KR id', 'digits', null, 'g', '\m([0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])-[1-8][0-9]{6})\M'),
    -- Bare digits say nothing without their name.
    ('NL id', 'digits', null, 'gi', '\m(?:bsn|burgerservicenummer)\M[^0-9]{0,12}([0-9]{9})\M'),
    ('DE id', 'digits', null, 'gi',
      '\m(?:steuer-?id(?:nr)?|steueridentifikationsnummer|idnr)\M[^0-9]{0,12}([1-9][0-9] ?[0-9]{3} ?[0-9]{3} ?[0-9]{3})\M'),
    ('PL id', 'digits', null, 'gi', '\mpesel\M[^0-9]{0,12}([0-9]{11})\M'),
    ('CA id', 'digits', null, 'gi',
      '\m(?:sin|social insurance number)\M[^0-9]{0,12}([0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{3})\M')
$$;

-- Luhn (ISO/IEC 7812-1): the digits from the right, every second doubled.
create or replace function _memoir.luhn(p_digits text)
returns boolean language sql immutable strict as $$
  select sum(case when n % 2 = 1 then d when d > 4 then 2 * d - 9 else 2 * d end) % 10 = 0
  from (select substr(reverse(p_digits), n, 1)::integer as d, n from generate_series(1, length(p_digits)) n) s
$$;

-- Sum of digit times weight; the weights repeat from the left.
create or replace function _memoir.weighted(p_digits text, variadic p_weights integer[])
returns integer language sql immutable strict as $$
  select sum(substr(p_digits, n, 1)::integer * p_weights[(n - 1) % cardinality(p_weights) + 1])::integer
  from generate_series(1, length(p_digits)) n
$$;

-- Verhoeff (1969): multiplication in the dihedral group D5; what every Aadhaar number satisfies.
create or replace function _memoir.verhoeff(p_digits text)
returns boolean language plpgsql immutable strict as $$
declare
  v_d constant text[] :=
    '{0123456789,1234067895,2340178956,3401289567,4012395678,5987604321,6598710432,7659821043,8765932104,9876543210}';
  v_p constant text[] := '{0123456789,1576283094,5803796142,8916043527,9453126870,4286573901,2793806415,7046913258}';
  v_c integer := 0;
begin
  for i in 0 .. length(p_digits) - 1 loop
    v_c := substr(v_d[v_c + 1], substr(v_p[i % 8 + 1], substr(reverse(p_digits), i + 1, 1)::integer + 1, 1)::integer
      + 1, 1)::integer;
  end loop;
  return v_c = 0;
end $$;

-- ISO 13616: the length of the country, and 1 modulo 97 with letters as numbers. What follows the account in the text
-- is not it.
create or replace function _memoir.is_iban(p_text text)
returns boolean language plpgsql immutable strict as $$
declare
  v_text text := upper(replace(p_text, ' ', ''));
  v_length integer :=
    substring('AD24AE23AL28AT20AZ28BA20BE16BG22BH22BR29BY28CH21CR22CY28CZ24DE22DK18DO28EE20EG29ES24FI18FO18FR27GB22GE22GI23GL18GR27GT28'
    'HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22MK19MR27MT31MU30NL18NO15PK24PL28PS29PT25QA29RO24RS22SA24SC31SD18SE24'
    'SI19SK24SM27SO23ST25SV28TL23TN24TR26UA29VA22VG24XK20' from left(v_text, 2) || '([0-9]{2})')::integer;
  v_number text := '';
begin
  if v_length is null or length(v_text) < v_length then return false; end if;
  v_text := substr(v_text, 5, v_length - 4) || left(v_text, 4);
  for i in 1 .. length(v_text) loop
    v_number := v_number || case when substr(v_text, i, 1) between '0' and '9' then substr(v_text, i, 1)
      else (ascii(substr(v_text, i, 1)) - 55)::text end;
  end loop;
  return v_number::numeric % 97 = 1;
end $$;

-- The check character of a codice fiscale: odd positions by table, even ones by their number in the alphabet.
create or replace function _memoir.is_codice_fiscale(p_text text)
returns boolean language sql immutable strict as $$
  select chr(65 + (sum(case when n % 2 = 1 then
      ('{1,0,5,7,9,13,15,17,19,21,2,4,18,20,11,3,6,8,12,14,16,10,22,25,24,23}'::integer[])[case
        when c ~ '[0-9]' then c::integer + 1 else ascii(c) - 64 end]
    else case when c ~ '[0-9]' then c::integer else ascii(c) - 65 end end) % 26)::integer) = substr(upper(p_text), 16,
      1)
  from (select n, substr(upper(p_text), n, 1) as c from generate_series(1, 15) n) s
$$;

-- Whether what a pattern found is what it looks like.
create or replace function _memoir.passes_check(p_kind text, p_found text)
returns boolean language plpgsql immutable strict as $$
declare
  v_digits text := regexp_replace(p_found, '[^0-9]', '', 'g');
  v_n integer;
begin
  case p_kind
    when 'card number' then
      return v_digits !~ '^(.)\1*$' and _memoir.luhn(v_digits) and case
        when v_digits ~ '^4' then length(v_digits) in (13, 16, 19)
        when v_digits ~ '^(5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720)' then length(v_digits) = 16
        when v_digits ~ '^3[47]' then length(v_digits) = 15
        when v_digits ~ '^(6011|65|64[4-9]|62|35(2[89]|[3-8]))' then length(v_digits) between 16 and 19
        when v_digits ~ '^(30[0-5]|36|38|39)' then length(v_digits) between 14 and 19
        else false end;
    when 'US social security number' then return p_found !~ '^(000|666)|-00-|-0000$';
    when 'IBAN' then return _memoir.is_iban(p_found);
    when 'model key' then return p_found ~ '[0-9]' and p_found ~ '[A-Za-z]'
      and p_found !~* '(x{6}|your|example|\.\.\.)';
    when 'authorization' then return p_found ~ '[0-9]' and p_found ~* '[a-z]' and p_found !~ '^[a-z-]+$';
    when 'token' then
      -- Random, not a path, a name or a version: digits between letters of it, no run of words.
      return p_found ~ '[0-9]' and p_found ~* '[a-z]' and p_found !~ '(\.[a-z]{2,4}$|^/|//|\./)'
        and p_found !~* '(x{6}|your|example)'
        and p_found !~ '^[a-z]+([._-][a-z0-9]+)*$' or p_found ~ '^[0-9a-f]{32,}$';
    when 'connection string', 'password' then
      return p_found !~*
        '(^([<${\[%*(#]|x{3,}|\.{3}|your|example|placeholder|redacted|none|null|true|false|undefined|os\.|process\.|env)|[(\[{<>]|\*{3}|^passw?o?r?d?$)'
        and (p_kind = 'connection string' or p_found ~ '[0-9]' and p_found ~ '[^0-9.,:;!?/-]'
        or p_found ~ '[[:alpha:]][@#$%^&*+=~!][[:alnum:]]');
    when 'ES id' then
      return substr('TRWAGMYFPDXBNJZSQVHLCKE',
        (translate(upper(left(p_found, 1)), 'XYZ', '012') || substr(p_found, 2, 7))::integer % 23 + 1, 1)
        = upper(right(p_found, 1));
    when 'IT id' then return _memoir.is_codice_fiscale(p_found);
    when 'FR id' then
      v_digits := replace(replace(upper(replace(p_found, ' ', '')), '2A', '19'), '2B', '18');
      return length(v_digits) = 15 and v_digits ~ '^[0-9]+$' and 97 - left(v_digits, 13)::bigint % 97 = right(v_digits,
        2)::bigint;
    when 'BR id' then
      return v_digits !~ '^(.)\1*$'
        and _memoir.weighted(left(v_digits, 9), 10, 9, 8, 7, 6, 5, 4, 3, 2) * 10 % 11 % 10 = substr(v_digits, 10,
          1)::integer
        and _memoir.weighted(left(v_digits, 10), 11, 10, 9, 8, 7, 6, 5, 4, 3, 2) * 10 % 11 % 10 = substr(v_digits, 11,
          1)::integer;
    when 'IN id' then return _memoir.verhoeff(v_digits);
    when 'CN id' then
      return substr('10X98765432', _memoir.weighted(left(p_found, 17), 7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4,
        2) % 11 + 1, 1) = upper(right(p_found, 1));
    when 'CH id' then return _memoir.weighted(v_digits, 1, 3) % 10 = 0;
    when 'SE id' then return _memoir.luhn(right(v_digits, 10));
    when 'NL id' then return _memoir.weighted(v_digits, 9, 8, 7, 6, 5, 4, 3, 2, -1) % 11 = 0
      and v_digits <> '000000000';
    when 'DE id' then  -- ISO 7064 mod 11, 10
      v_n := 10;
      for i in 1 .. 10 loop
        v_n := coalesce(nullif((substr(v_digits, i, 1)::integer + v_n) % 10, 0), 10) * 2 % 11;
      end loop;
      return (11 - v_n) % 10 = right(v_digits, 1)::integer;
    when 'PL id' then return _memoir.weighted(v_digits, 1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1) % 10 = 0;
    when 'CA id' then return _memoir.luhn(v_digits);
    else return true;
  end case;
end $$;

-- The kinds of secrets in a text: none for nearly every text, which three plain patterns tell. Few, since a backend
-- keeps but 32 compiled.
create or replace function _memoir.secret_kinds(p_text text)
returns text[] language plpgsql immutable as $$
declare
  -- Full-width digits and invisible marks disguise nothing.
  v_text text := case when octet_length(p_text) = length(p_text) then p_text
    else regexp_replace(normalize(p_text, nfkc), '[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]', '', 'g') end;
  v_kinds text[] := '{}'; v_pattern record; v_found text[]; v_tries integer;
  v_digits boolean; v_word boolean; v_run boolean; v_runs text; v_where text;
begin
  if v_text is null then return v_kinds; end if;
  -- Nine digits in a row but for single separators; ES id; IBAN; UK number; codice fiscale; born on Corsica. A date is
  -- none of these.
  v_digits := v_text ~
    '(?:[0-9][ .+-]?){8}[0-9xX]|[0-9]{7}-?[A-Za-z]|[A-Za-z]{2}[0-9]{2} ?[A-Za-z0-9]{4} ?[A-Za-z0-9]{4}|[A-Z]{2} ?(?:[0-9]{2} ?){3}[A-D]|[A-Za-z][0-9]{2}[A-Za-z][0-9]{3}|2[AaBb] ?[0-9]{3} ?[0-9]{3}';
  v_word := v_text ~
    '[Pp][Aa][Ss][Ss]|[Pp][Ww]|ecret|SECRET|[Kk]ey|KEY|oken|TOKEN|ennwort|contrase|mot de|senha|wachtwoord|[Pp][Ii][Nn][^a-z]|[Cc][Vv][VvCc]|PuTTY|парол|密|パスワ|비밀';
  v_run := v_text ~ '[A-Za-z0-9_+/.=:-]{15}';
  if not (v_digits or v_word or v_run or strpos(v_text, '://') > 0) then return v_kinds; end if;
  v_runs := case when v_run then (select string_agg(r[1], ' ') from regexp_matches(v_text, '[A-Za-z0-9_+/.=:-]{15,}',
    'g') r) end;
  for v_pattern in select * from _memoir.secret_patterns() loop
    v_where := case v_pattern.looks_in when 'run' then v_runs when 'digits' then case when v_digits then v_text end
      when 'word' then case when v_word then v_text end when 'text' then case when v_run
        or strpos(v_text, '://') > 0 then v_text end end;
    continue when v_where is null or not coalesce((select bool_or(strpos(v_where, n) > 0)
      from unnest(v_pattern.needles) n), true);
    v_tries := 0;
    for v_found in select regexp_matches(v_where, v_pattern.pattern, v_pattern.flags) loop
      if _memoir.passes_check(v_pattern.kind, v_found[1]) then
        v_kinds := v_kinds || v_pattern.kind;
        exit;
      end if;
      v_tries := v_tries + 1;
      exit when v_tries >= 10000;
    end loop;
  end loop;
  return v_kinds;
end $$;

-- The same text with what was found blotted out: for what has to go to a model before it is stored, like a query's
-- vector.
create or replace function _memoir.redacted(p_text text)
returns text language plpgsql immutable as $$
declare
  v_text text := p_text; v_pattern record; v_found text[];
begin
  if _memoir.secret_kinds(p_text) = '{}' then return p_text; end if;
  for v_pattern in select * from _memoir.secret_patterns() loop
    for v_found in select regexp_matches(p_text, v_pattern.pattern, v_pattern.flags) loop
      if _memoir.passes_check(v_pattern.kind, v_found[1]) then v_text := replace(v_text, v_found[1], '(withheld)');
      end if;
    end loop;
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
returns text[] language plpgsql stable as $$
begin
  return _memoir.detected(p_config, p_message.text, p_message.name,
    (select string_agg(_memoir.part_text(p), E'\n' order by o) filter (where p ->> 'type' not in ('text', 'refusal'))
      from jsonb_array_elements(p_message.parts) with ordinality t(p, o)),
    (select string_agg(c #>> '{function,arguments}', E'\n' order by o)
      from jsonb_array_elements(p_message.tool_calls) with ordinality t(c, o)),
    p_message.extra::text, nullif(p_metadata, '{}')::text);
end $$;
