-- Secrets: what looks like a key, a password, a card, an account or a personal number is marked secret on its way in,
-- without a model and without a network. Three kinds of evidence: the shape of an issuer's token (sql/data/token_shapes.csv),
-- a number with its check digits (text/numbers.sql), and a value where values of secrets stand: behind a name like
-- "password" in code, on a command line or in a sentence (names by language in sql/data), in a header, in a URL.
-- Formats: the issuers' documentation; RFC 7519 (JWT), RFC 7468 (keys), RFC 7617 (Basic), RFC 6265 (cookies).

-- What a value may be written as: in quotes, or up to a blank or what ends a field.
create or replace function _memoir.value_pattern()
returns text language sql immutable as $$
  select '\\*"[^"\n]+"|\\*''[^''\n]+''|`[^`\n]+`|「[^」\n]+」|『[^』\n]+』|[„“][^“”„\n]+[“”]|«[^»\n]+»'
    || '|(?:[^\s"''`<>&;,、。，；「」『』„“”«»\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]'
    || '|[&;,](?![A-Za-z_.-]*[=:]|\s|\Z))+'
$$;

-- A value with its quotes, or what follows it in a sentence, taken off.
create or replace function _memoir.bare_value(p_value text)
returns text language sql immutable strict as $$
  select case when ltrim(p_value, '\') <> ltrim(p_value, '\"''`「『„“«') then btrim(p_value, '\"''`「」『』„“”«»')
    else rtrim(p_value, '\.,:;)]}*') end
$$;

-- What is no value by its looks: a placeholder, an expression, a path, an address, a date, a version, an amount, the
-- name of an algorithm. One pattern, since a backend keeps but 32 compiled and this is asked for each candidate.
create or replace function _memoir.no_value()
returns text language sql immutable as $$
  select '^[<\[{(%!]|^\*\*|^\$[a-z_{(]|^@[a-z_.]+\(?$|^(?:list|dict|set|tuple|optional|array|string|map|union)\[|^:[a-z_]+$|^[*•●.x_?-]+$|[*•●]{3}|x{4}|\.{3}|…|0{8}'
    || '|\$[{(]|(?<![A-Za-z0-9])[$][a-z_]{3}|\{\{|<%|%\(|%s|[a-z]\[["'']|\(\)'
    || '|^(?:' || _memoir.any_word('english', 'placeholders') || ')$'
    || '|(?:^|[-_. ])(?:your|example|placeholder|change|changeme|replace|insert|redacted|dummy|withheld|goes)(?:[-_. ]|$)'
    || '|^(?:[~.]*/[^ ]*/|/[a-z]+|\./|[a-z]:\\|[a-z]+://|(?:op|arn|vault|file|env|ssm|secretsmanager|projects|sops|enc|ref|keyring|pass)[:/!\[])'
    || '|\.(?:txt|pem|key|json|ya?ml|env|py|js|ts|tsx|md|html?|php|rb|go|java|pdf|png|jpe?g|cfg|conf|ini|crt|cer|p12|pub|sh|sql|com|org|net|kdbx?|gpg|csv)$'
    || '|^[0-9]{1,4}[-/.:][0-9]{1,2}(?:[-/.:T][0-9:.TZ+-]*)?$|^v?[0-9]+(?:\.[0-9]+)+$|^[0-9]{1,3}$|^[0-9]+(?:[.,][0-9]+)+$'
    || '|^[0-9.,]+-?(?:px|m?s|[kmgt]i?b|[kmgt]|days?|chars?|characters?|digits?|bits?|bytes?|st|nd|rd|th|x|%|h|hours?|min|mins|minutes?|years?|times|eur|usd|€|am|pm|ft|cm|mm|km|w|v)$'
    || '|^(?:sha[-_]?[0-9]+|md[45]|utf-?(?:8|16)|base-?(?:16|32|58|64)|o?auth-?[12]|argon2(?:id|i|d)?|pbkdf2\S*|rsa-?[0-9]*|aes-?[0-9]\S*|ed25519|x509|x25519|hmac\S*|[rhep]s(?:256|384|512)'
    || '|[2u]fa?2?|fido2?|web[1-4]|python[23]|ipv[46]|k8s|s3|ec2|win(?:dows)?[0-9]+|wpa[23]?|http/?[123]|bcrypt2?|scrypt|pkcs#?[0-9]+|[0-9]+-?(?:factor|step)|step[0-9]+|v[0-9]+|p[0-9]|q[1-4])$'
$$;

-- What a value may be by its looks alone: 0 none, 1 a word or a plain number, 2 mixed as passwords are, 3 random.
create or replace function _memoir.value_strength(p_value text, p_quoted boolean)
returns integer language plpgsql immutable strict as $$
declare
  v_plain text := rtrim(p_value, '.,:;!?'); v_digits boolean; v_letters boolean;
begin
  if v_plain = '' or v_plain ~* _memoir.no_value() then return 0; end if;
  -- Code: calls, attributes.
  if not p_quoted and p_value
    ~ ('^[A-Za-z_][A-Za-z0-9_.:>$-]*\(|^[A-Za-z_$][A-Za-z_]*(?:(?:\.|->|::)[A-Za-z_][A-Za-z0-9_]*)+[;,]?$'
    || '|^(?:self|this|os|process|env|config|req|request|params|args|opts)[.\[]') then return 0; end if;
  v_digits := translate(v_plain, '0123456789', '') <> v_plain;
  v_letters := lower(v_plain) <> upper(v_plain);
  if length(v_plain) >= 16 and v_letters and v_plain ~ '^[A-Za-z0-9_+/=.~:%-]+$' and (case when v_digits
      then v_plain !~ '^[a-z]+(?:[._/-][a-z]+)*(?:[._-]?v?[0-9]{1,4})?$|^[A-Za-z]+(?:[_/.-][A-Za-z]+)+[0-9]{0,4}$'
      else length(v_plain) >= 20 and v_plain ~ '(?:[a-z]+[A-Z]+){5}' end) then
    return 3;
  end if;
  return case when v_digits and v_letters
    or v_plain ~ ('[[:alnum:]][]@#$%^&*+=~!|?\\[{}]+[[:alnum:]]|[0-9][@#$%^&*!?_-]|^[@#$%^&*!?]+[[:alnum:]]{4}'
      || '|^[a-z]+[-_.][a-z]+[-_.][a-z]+[-_.][a-z._-]+$')
    or p_quoted and length(v_plain) >= 8 and v_plain ~ '^[A-Za-z]*[a-z][A-Z][A-Za-z]*$' then 2 else 1 end;
end $$;

-- Whether a word says something about a password rather than is one.
create or replace function _memoir.is_about(p_word text)
returns boolean language sql immutable strict as $$
  select lower(p_word) = any (_memoir.word_list('english', 'password_stops'))
    or p_word ~* '^[a-z-]+(?:ed|ing|ly|able|ible|ous|less|ful|ive)$'
$$;

-- A passphrase of several words, or a password with a blank in quotes.
create or replace function _memoir.is_passphrase(p_value text, p_assigned boolean, p_strength integer)
returns boolean language sql immutable as $$
  select p_assigned and p_strength >= 2 and p_value !~ '\s\S+\s\S+\s|^[A-Z]?[a-z]+\s'
    or p_value ~ '^[a-z]{3,12}(?: [a-z0-9]{1,12}){2,7}$'
      and p_value !~ '(?:^| )(?:the|and|a|your|must|password|not|for|is|of|to|in|be|enter|please)(?: |$)'
$$;

create or replace function _memoir.sample_password()
returns text language sql immutable as $$
  select '^(?:(?:my|your|the|a|some|any|test|wrong|invalid|valid|new|old|good|bad|correct|strong|secure|super|very|secret|default|admin|user|db|root|plain|hashed|example|sample|fake|mock|dummy|another|different)[-_]?){0,4}'
    || '(?:pass(?:word|wd|phrase)?|p[a@]ssw[o0]rd|pwd|secret|token|test|admin|user|key|changeme|qwerty|letmein|hunter2|hash)?(?:[-_]?(?:key|hash|value|here|string))?[-_!@#$]*(?:1|12|123|1234|12345|123456|[0-9])?[!@#$]*$'
$$;

-- Whether a value is one: p_found has the dashes of an option before its name, the name, what linked_value() found
-- behind it; p_language is that of the name.
create or replace function _memoir.is_password(p_found text[], p_language text)
returns boolean language plpgsql immutable as $$
declare
  v_option boolean := p_found[1] is not null; v_link text := p_found[3]; v_value text := _memoir.bare_value(p_found[4]);
  v_quoted boolean := ltrim(p_found[4], '\') <> ltrim(p_found[4], '\"''`「『„“«');
  v_assigned boolean := translate(v_link, '=:：＝→>', '') <> v_link; v_linked boolean := btrim(v_link, E' \t\n*_') <> '';
  v_follows text := ltrim(coalesce(p_found[5],
    '')); v_ends boolean; v_length integer := length(v_value); v_strength integer;
begin
  -- A name and its value touch only where words do.
  if v_value is null or v_length < 4 or left(v_value, 1) in ('=', '~', ':', '>', '?') or strpos(v_link, E'\n') > 0
    and (v_value ~ '^[A-Za-z_]+=' or strpos(v_value, '(') > 0) or v_link = ''
    and octet_length(p_found[2]) = length(p_found[2]) then
    return false;
  end if;
  v_strength := _memoir.value_strength(v_value, v_quoted);
  -- In code the password of an example or a test says what it is.
  if v_strength = 0 or _memoir.is_about(rtrim(v_value, '.,:;!?')) or (v_quoted or strpos(v_link, '=') > 0)
    and v_value ~* _memoir.sample_password() then return false; end if;
  -- A sentence in quotes is a message to people.
  if v_quoted and strpos(v_value, ' ') > 0 then
    return _memoir.is_passphrase(v_value, v_assigned, v_strength) or v_assigned and lower(p_found[2]) = 'psk';
  end if;
  -- To pass is a verb.
  if lower(p_found[2]) = 'pass' and not v_linked and not v_option then return false; end if;
  if v_strength >= 2 then return v_linked or v_option or v_quoted or v_length >= 6; end if;
  v_ends := p_found[5] is not null or right(p_found[4], 1) in ('.', '!', '?');
  if translate(v_value, '0123456789', '') = '' then
    return v_option or v_quoted or v_linked and v_ends and (lower(p_found[2]) <> 'pass' or strpos(v_link, '=') > 0)
      or v_length >= 6 and v_ends and p_language in ('chinese', 'japanese', 'korean');
  end if;
  if lower(v_value) = lower(p_found[2]) or not v_quoted and not v_option and v_value ~* 'passw|pwd|_' then
    return false;
  end if;
  if lower(p_found[2]) = 'pass' and not v_assigned and not v_option then return false; end if;
  -- A plain word: where a value must stand, or the sentence ends with it.
  return case
    when v_option and translate(v_link, ' =', '') = '' or v_quoted and v_linked then true
    when v_assigned and (right(p_found[4], 1) in (')', ']', ';', ',') or left(v_follows, 1) in (')', ',', ';'))
      then false
    when left(v_link, 1) = '=' then true
    when v_assigned then v_ends and lower(p_found[2]) <> 'pass' and v_follows not in ('and', 'or', 'but')
      and strpos(v_link, E'\n') = 0
    else v_ends and p_language = 'english' and btrim(v_link) in ('is', 'to', 'was')
      and v_value ~ '^[A-Za-z]{5,}[.!]*$|^[A-Za-z]{4,}(?:[-_][A-Za-z]{4,})+$'
  end;
end $$;

-- The same of keys and tokens: these are random, unless they stand where a value of theirs must.
create or replace function _memoir.is_key(p_found text[])
returns boolean language plpgsql immutable as $$
declare
  v_before text := rtrim(split_part(lower(p_found[2]), '/', 1), ' _.-'); v_stem text := split_part(lower(p_found[2]),
    '/', 2);
  v_value text := _memoir.bare_value(p_found[4]); v_link text := p_found[3];
  v_quoted boolean := ltrim(p_found[4], '\') <> ltrim(p_found[4], '\"''`');
  v_assigned boolean := translate(v_link, '=:：＝→>', '') <> v_link or p_found[1] is not null;
  v_strength integer;
begin
  if v_value is null or length(v_value) < 8 or left(v_value, 1) in ('=', '~', ':', '>') or v_link = ''
    or strpos(v_value, ' ') > 0
    or v_before = any (_memoir.word_list('english', 'harmless_keys')) then return false; end if;
  v_strength := _memoir.value_strength(v_value, v_quoted);
  return case
    when v_strength = 0 or v_value ~* _memoir.sample_password()
      or v_value ~* '^(?:my|your|test|dev|dummy|fake)[-_]?.*[-_]?(?:secret|key|token)s?$' or left(v_value, 4) = 'ssh-'
      or left(v_value, 3) = 'pk_' or v_value ~ '^sha[0-9]+[-:]' then false
    when v_stem in ('code', 'salt', 'nonce', 'auth') then v_strength = 3 and length(v_value) >= 20 and v_assigned
      and v_value !~ '^[0-9a-f]+$' and lower(v_value) <> v_value
    when v_strength = 3 and v_stem <> 'secret' and not v_before = any (_memoir.word_list('english', 'machine_keys'))
      then
      v_value !~ '/.*[.]|^[a-z]+(?:[._:/-][a-z0-9]+)+$|^[A-Za-z]+-[A-Za-z]+-'
    when v_strength = 3 then true
    when v_stem not in ('key', 'token', 'secret') then v_strength = 2 and left(v_stem, 10) = 'connection' and v_assigned
    when v_strength = 2 and (v_stem = 'secret' or v_before = any (_memoir.word_list('english', 'machine_keys'))) then
      v_assigned or v_before <> '' and length(v_value) >= 10
    else v_strength = 1 and v_assigned and strpos(p_found[2], 'ecret') + strpos(p_found[2], 'SECRET') > 0
      and not _memoir.is_about(v_value) and (v_quoted or v_link = '=')
      and strpos(v_value, '_') = 0 and right(p_found[4], 1) not in (')', ']', ';', ',')
      and left(ltrim(coalesce(p_found[5], '')), 1) not in (')', ',', ';')
  end;
end $$;

-- What may link a name with its value: a suffix of the name, what closes around it, words that say whose it is; then a sign,
-- a word for "is" (p_says), or a blank before what no word is.
create or replace function _memoir.link_pattern(p_of text, p_says text, p_spaced boolean)
returns text language sql immutable as $$
  select '^(?:((?:[_-](?:base|prod|production|dev|development|stag(?:e|ing)|test|live|local|main|primary|secondary|old|new|current|next|backup'
    || '|value|string|plain|raw|default|v?[0-9]{1,2})(?![A-Za-z0-9]))??["''`»“”*_\\\])}>」』]{0,8}?'
    || case when p_spaced then '(?:[ \t]+\([^()\n]{1,60}\)|[ \t]+(?:' || p_of || ')(?:[ \t][^\n.:;!?="]{0,60}?)?)??'
      else '[ \t]{0,4}?(?:' || p_of || ')??' end || ')'
    || '([ \t]*(?:(?:[?:+]{0,3}=>?|->|[→＝])[ \t*_]*|[:：][ \t*_]*\n?[ \t]*)'
    || case when p_spaced then '|(?:[ \t]+|(?=[,.;’'']))(?:' || p_says
      || ')(?:[ \t]*[:：][ \t]*|[ \t]+(?:(?:now|still|just|currently|actually|simply|ahora|jetzt|nun|maintenant)[ \t]+)?(?:[:：][ \t]*)?)'
      || '|[ \t]+(?=\S*[0-9@#$%^&*!=+~"''`]|[a-z]+(?:-[a-z]+){3})'
      else '|[ \t]*(?:' || p_says || ')[ \t]*(?:[:：][ \t]*)?|[ \t]+(?=\S*[0-9@#$%^&*!=+~"''`])|' end || ')){1,1}'
$$;

-- The link behind a name, the value, and the end of the sentence if it ends there.
create or replace function _memoir.linked_value(p_rest text, p_link text)
returns text[] language plpgsql immutable as $$
declare
  v_link text[] := regexp_match(p_rest, p_link, 'i'); v_rest text; v_value text;
begin
  if v_link is null then return null; end if;
  v_rest := substr(p_rest, length(v_link[1]) + length(v_link[2]) + 1);
  v_value := substring(v_rest from '^(?:' || _memoir.value_pattern() || ')');
  if v_value is null then return null; end if;
  return array[v_link[2], v_value, substring(substr(v_rest, length(v_value) + 1)
    from '^(?:\s*(?:[.,;!?)\n]|\Z)|[ \t]+(?:and|but|so|und|y|et|e|en)(?=[ \t])|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])')];
end $$;

-- Values behind names of one kind. The pieces are cut at the stems of names first: a pattern for names and all that may
-- follow takes a hundred times as long. What is said twice is judged once; of more than five hundred different ones, those
-- beyond are secret if they are letters with digits behind a sign.
create or replace function _memoir.values_named(p_text text, p_stems text[], p_kind text, p_language text,
  p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  -- Of other languages the stem may stand within the name.
  v_back integer := case when p_language = 'english' then 0 else 10 end;
  v_names text := case v_back when 0 then '(?i)^()(' else '(?i)^(?:(.{0,10}?)(' end || case p_kind when 'key'
    then _memoir.any_word(p_language, 'key_names')
    else _memoir.any_word(p_language, 'password_names') end || case v_back when 0 then ')' else ')){1,1}' end;
  v_link text := _memoir.link_pattern(coalesce(nullif(_memoir.any_word(p_language, 'password_of'), ''),
    'for|of|to|on|at|in|from'),
    _memoir.any_word(p_language, 'password_says'), p_language not in ('chinese', 'japanese', 'korean', 'thai'));
  v_text text := p_text; v_stem text;
  v_before text; v_rest text; v_name text; v_found text[]; v_tries integer := 0;
begin
  for v_stem in select distinct unnest(array[t, upper(left(t, 1)) || substr(t, 2), upper(t)])
    from unnest(p_stems) t loop
    v_text := replace(v_text, v_stem, E'\x01' || v_stem);
  end loop;
  for v_before, v_rest in
    with cut as (
      select n, lag(ends) over w as before, begins, long, lead(begins) over w as second, lead(begins, 2) over w as third
      from (select n, left(part, 220) as begins, right(part, 16) as ends, length(part) as long
        from string_to_table(v_text, E'\x01') with ordinality c(part, n)) s
      window w as (order by n)
    ), named as (
      -- A value may hold a name. It stands in the same line, or in the next if that ends with the name.
      select case when v_back > 0 then '' else before end as before,
        case when v_back > 0 then right(before, v_back) else '' end || case when long >= 220 then begins
          else left(concat(begins, second, third), 220) end as rest
      from cut where n > 1 and long + length(concat(second, third)) >= case p_kind when 'key' then 12 else 6 end
    )
    select distinct before, case when strpos(rest, E'\n') > 16 then split_part(rest, E'\n', 1) else rest end from named
    where p_kind <> 'key' or strpos(rest || E'\n', E'\n') > 12 or rest ~ '^[^\n]+[:=][ \t]*\n'
  loop
    -- The keys of machines are long.
    continue when p_kind = 'key' and v_rest !~ '^[^\n]*?[=:>\s"''`][^\s"''`<>(){},;]{8}';
    v_tries := v_tries + 1;
    if v_tries > 500 then
      value := substring(v_rest from '^[^\s=:：]{2,16}[ \t]*[=:：][ \t]*["''`]?([^\s"''`,;(){}<>]{8,})');
      continue when value is null or length(value) < 16 and p_kind = 'key' or value !~ '[A-Za-z]'
        or translate(value, '0123456789', '') = value;
      kind := case p_kind when 'key' then 'token' else p_kind end;
      return next;
      exit when not p_all;
      continue;
    end if;
    v_found := regexp_match(v_rest, v_names);
    continue when v_found is null;
    v_name := v_found[2];
    v_found := _memoir.linked_value(substr(v_rest, length(v_found[1]) + length(v_name) + 1), v_link);
    continue when v_found is null;
    -- "pass" and what is shorter are names where no letter is before them, but that of a machine's user.
    continue when p_kind = 'password' and p_language = 'english' and length(v_name) <= 4 and v_before ~ '[A-Za-z]$'
      and not (lower(v_name) = 'pwd' or v_before ~ '[a-z]$' and ascii(v_name) < 96
        or lower(v_name) = 'pass' and v_before ~* '(?:db|user|admin|root|smtp|mail|ftp|ssh|sudo|login|store|key)$');
    v_found := array[case when strpos(v_before, '-') > 0 then substring(v_before
      from '(?:^|[^A-Za-z0-9-])(--?[A-Za-z-]*)$') end,
      case p_kind when 'key' then substring(v_before from '[A-Za-z]*[ _.-]?$') || '/' || v_name
        else v_name end] || v_found;
    continue when not (case p_kind when 'key' then _memoir.is_key(v_found)
      else _memoir.is_password(v_found, p_language) end);
    kind := case p_kind when 'key' then 'token' else p_kind end;
    value := _memoir.bare_value(v_found[4]);
    return next;
    exit when not p_all;
  end loop;
end $$;

-- The languages but English in which passwords have names. Functions, since calls of immutable ones become constants in
-- the plans of those that ask each text.
create or replace function _memoir.foreign_languages()
returns text[] language sql immutable as $$
  select '{german,spanish,french,portuguese,italian,dutch,swedish,danish,norwegian,finnish,polish,czech,hungarian,romanian,
    russian,ukrainian,turkish,greek,arabic,persian,hebrew,hindi,chinese,japanese,korean,vietnamese,indonesian,thai}'::text[]
$$;

-- Each with letters that every one of its names of passwords has. Written out, as what base_marks() returns is: to find them
-- takes a new connection half a second. A test says that none lacks.
create or replace function _memoir.foreign_marks()
returns text[] language sql immutable as $$
  select '{
    "arabic/الرقم السري",arabic/كلم,"arabic/كلمات المرور",chinese/口令,chinese/密码,chinese/密碼,chinese/密鑰,chinese/密钥,
    czech/hesl,danish/adgangskode,danish/kodeord,dutch/api-sleutel,dutch/wachtwoord,dutch/wachtzin,
    finnish/salalause,finnish/salasana,"french/ de passe","french/clé api","french/clé d",french/identifiants,
    french/mdp,"french/phrase secr",german/kennw,german/passwort,german/schlüssel,
    german/passwörter,german/zugangscode,german/zugangsdaten,greek/υνθηματικό,greek/ωδικ,hebrew/סיסמ,hindi/कूटशब्द,
    hindi/पासवर्ड,hungarian/jelsz,hungarian/jelszava,"indonesian/kata sandi",indonesian/sandi,"italian/chiave api",
    "italian/parola chiave","italian/parola d",japanese/apiキー,japanese/パスフレーズ,japanese/パスワード,japanese/合言葉,
    "korean/api 키",korean/비밀번호,korean/비번,korean/암호,korean/패스워드,norwegian/passfrase,norwegian/passord,
    "persian/رمز عبور","persian/کلمه عبور",persian/گذرواژه,polish/hasl,polish/hasł,"portuguese/chave ",
    portuguese/palavra,portuguese/senha,romanian/parol,russian/api-ключ,russian/арол,"russian/люч api",russian/одов,
    russian/пароль,spanish/clave,spanish/contrase,swedish/lösenfras,swedish/lösenord,thai/พาสเวิร์ด,thai/รหัสผ่าน,
    turkish/ifre,turkish/parola,ukrainian/арол,"vietnamese/mật khẩu","vietnamese/mật mã"
  }'::text[]
$$;

-- The languages whose names of passwords may be in a text, by what marks_in() found.
create or replace function _memoir.languages_of(p_marks text[])
returns text[] language plpgsql immutable as $$
begin
  if not p_marks && _memoir.marks_of('foreign') then return '{}'; end if;
  return array(select distinct split_part(m, '/', 1) from unnest(_memoir.foreign_marks()) m
    where split_part(m, '/', 2) = any (p_marks));
end $$;

-- Values of passwords, keys and tokens behind their names.
create or replace function _memoir.named_secrets(p_pieces text[], p_marks text[], p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_language text; v_stems text[]; v_text text;
begin
  if not p_marks && (_memoir.marks_of('passwords') || _memoir.marks_of('keys') || _memoir.marks_of('foreign'))
    then return; end if;
  v_text := replace(array_to_string(p_pieces, E'\n\n'), E'\x01', ' ');
  if p_marks && _memoir.marks_of('passwords') then
    v_stems := array(select m from unnest(_memoir.marks_of('passwords')) m where m = any (p_marks));
    return query select * from _memoir.values_named(v_text, v_stems, 'password', 'english', p_all);
  end if;
  if p_marks && _memoir.marks_of('keys') and ('secret' = any (p_marks)
      or v_text ~ '[A-Za-z+/=_-][0-9]|[0-9][A-Za-z+/=_-]|[A-Za-z+/_-]{20}') then
    v_stems := array(select m from unnest(_memoir.marks_of('keys')) m where m = any (p_marks));
    return query select * from _memoir.values_named(v_text, v_stems, 'key', 'english', p_all);
  end if;
  foreach v_language in array _memoir.languages_of(p_marks) loop
    v_stems := array(select split_part(m, '/', 2) from unnest(_memoir.foreign_marks()) m
      where split_part(m, '/', 1) = v_language
      and split_part(m, '/', 2) = any (p_marks));
    return query select * from _memoir.values_named(v_text, v_stems, 'password', v_language, p_all);
  end loop;
end $$;

-- Where a secret stands without such a name, or is told by what stands around it. marks: what the text must hold, in
-- small letters (a&b: both), before the pattern is tried; strength: what value_strength() the first group must have at least, none
-- being for what the pattern alone tells; 9: whatever it is, unless it stands for another value.
create or replace function _memoir.secret_places()
returns table (kind text, marks text[], strength integer, flags text, pattern text) language sql immutable as $$
  values
    ('private key', '{private key}'::text[], null::integer, 'g',
      '(---- ?-?BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-? ?----(?:(?:[^-]|-[^-])*-----END[^-]{0,40}-----|[A-Za-z0-9+/=\\\r\n]*))'),
    ('private key', '{putty-user-key,openvpn static key}', null, 'g',
      '(PuTTY-User-Key-File-[23]:[\s\S]*Private-MAC: [0-9a-f]+|PuTTY-User-Key-File-[23]:[^\n]*|-----BEGIN OpenVPN Static key V1-----[0-9a-f\s]*)'),
    ('private key', '{kty}', 3, 'g', '"d"\s*:\s*"([A-Za-z0-9_-]{40,})"'),
    ('authorization', '{authorization}', 9, 'gi',
      'authorization["''\\]*\s*[:=,]\s*["''\\]*(?:basic|bearer|token|digest|api-?key|negotiate|ssws|bot|key|oauth)\s+([A-Za-z0-9._~+/=:|-]{8,})'),
    ('authorization', '{authorization}', 3, 'gi',
      'authorization["''\\]*\s*[:=,]\s*["''\\]*([A-Za-z0-9._~+/=:|-]{16,})'),
    ('authorization', '{"bearer ","basic "}', 3, 'gi', '(?<![A-Za-z])(?:bearer|basic)\s+([a-z0-9._~+/=-]{20,})'),
    ('cookie', '{cookie}', 2, 'gi',
      'cookie["''\\]*\s*[:=][^\n]*?(?:sess|sid|auth|token|jwt|login|remember|clearance|identity|__secure|__host)[A-Za-z0-9_.-]*=["'']?([^\s;,"'']{8,})'),
    ('cookie', '{cookie}', 3, 'gi',
      'cookies?["''\\]*(?:\s*[:=]|\s+(?:value\s+)?is)[^\n]*?[= :]["'']?([^\s;,"''=]{16,})'),
    ('connection string', '{://&@}', 9, 'gi',
      '(?<![A-Za-z])[a-z][a-z0-9+.-]{1,20}://[^\s:/@"''<>]*:([^\s/"''<>]{3,})@[^\s/@"''<>]+'),
    ('connection string', '{://&@}', 3, 'gi', '://([A-Za-z0-9_-]{20,})(?::x-oauth-basic)?@[A-Za-z0-9]'),
    ('password', '{machine&login}', 9, 'gi', 'machine\s+\S+\s+login\s+\S+\s+password\s+(\S+)'),
    ('password', '{login&pass,user&pass,uid&pass,account&pass,user&secret}', 2, 'gi',
      '(?:login|username|user|uid|account)\s+["'']?[^\s"'':]+["'']?\s+(?:password|passwd|pass|secret)\s+(?:[0-9]\s+)?["'']?([^\s"'']{3,})'),
    ('password', '{:*:,:5432:,:5433:,:6432:,:3306:,:1433:}', 9, 'gn',
      '^(?:[A-Za-z*][A-Za-z0-9.-]*|\*):(?:[0-9]{4,5}|\*):[A-Za-z_*][A-Za-z0-9_-]*:[A-Za-z_*][A-Za-z0-9_.-]*:([^\s:]{4,})$'),
    ('password', '{:$,":{ss"}', null, 'gn',
      '^[A-Za-z0-9._@-]+:(\$(?:1|2[abxy]?|5|6|7|y|gy|apr1|argon2[id]*|sha1|scrypt)\$[^\s:]{8,}|\{SS?HA[0-9]*\}[A-Za-z0-9+/=]{16,})'),
    ('password', '{curl& -u,curl&--user,curl&--proxy-user,wget& -u,wget&--user,http& -a ,http&--auth,xh & -a }', 9,
      'gi',
      '(?<![a-z])(?:curl|wget|https?|xh)(?:[ \t](?:[^\n]|\\\n)*?)?[ \t](?:-u|--user|--proxy-user|-a|--auth)[ =]*["'']?[^\s:"''$<]*:([^\s"'']{2,})'),
    ('password', '{auth=(,"auth = (",auth(,"auth (","auth=  ("}', 9, 'gi',
      'auth\s*=?\s*\(\s*["''][^"''\n]+["'']\s*,\s*["'']([^"''\n]{3,})["'']'),
    ('password', '{mysql,mariadb,7z}', 9, 'g',
      '(?<![A-Za-z])(?:mysql|mariadb|7z)[a-z-]*[ \t](?:[^\n]*[ \t])?-p["'']?([^\s"''-][^\s"'']+)'),
    ('password', '{sshpass}', 9, 'g', 'sshpass[ \t]+-p[ \t]*["'']?([^\s"'']{2,})'),
    ('password', '{docker&login,podman&login,helm&login,"az &login","oc &login",nerdctl&login,skopeo&login,buildah&login,crane&login,mongo& -p,rdesktop}', 9, 'g',
      '(?<![A-Za-z])(?:(?:docker|podman|helm|az|oc|nerdctl|skopeo|buildah|crane)[ \t][^\n]{0,60}?login|mongo[a-z]*|rdesktop)[ \t][^\n]*?-p[ =]["'']?([^\s"''-][^\s"'']+)'),
    ('password', '{redis-cli,ldap,sqlcmd,bcp,zip,winrm,freerdp}', 9, 'g',
      '(?<![A-Za-z])(?:redis-cli[ \t][^\n]*?-a|ldap[a-z]+[ \t][^\n]*?-w|(?:sqlcmd|bcp|(?:un)?zip)[ \t][^\n]*?-P|evil-winrm[ \t][^\n]*?-p|xfreerdp[ \t][^\n]*?/p:)[ \t]*["'']?([^\s"''-][^\s"'']+)'),
    ('password', '{smb,rpcclient,cifs}', 9, 'g',
      '(?:smb[a-z]+|rpcclient|cifs)[^\n]*?-U[ =]?["'']?[^\s%"'']+%([^\s"'']{2,})'),
    ('password', '{sudo -s,chpasswd,--password-stdin,--with-token,passwd --stdin}', 9, 'g',
      '(?:echo|printf)[ \t]+(?:-n[ \t]+)?["'']?([^\s"''|]{3,})["'']?[ \t]*\|[^\n|]{0,40}(?:sudo (?:-[a-z]+ )?-S|chpasswd|--password-stdin|--with-token|passwd --stdin)'),
    ('password', '{pass:}', 9, 'g', '-pass(?:in|out)?[ \t]+["'']?pass:([^\s"'']{2,})'),
    ('password', '{sqlplus,lftp,expdp,impdp}', 9, 'g',
      '(?:sqlplus|lftp|expdp|impdp)[ \t][^\n]{0,60}?[A-Za-z0-9_]+[/,]([^\s/@"'']{3,})'),
    ('password', '{net user,add_user,change_password,htpasswd,wpa_passphrase}', 9, 'g',
      '(?:net user[ \t]+\S+|(?:add_user|change_password)[ \t]+\S+|htpasswd[ \t]+-[a-zA-Z]*b[a-zA-Z]*[ \t]+\S+[ \t]+\S+|wpa_passphrase[ \t]+\S+)[ \t]+["'']?([^\s"''/][^\s"'']{2,})'),
    ('password', '{wifi:}', 9, 'gi', 'WIFI:[^\n]*?P:([^;\n]{3,});'),
    ('password', '{</&pass,</&pwd,</&secret,</&token,</&key}', 9, 'gi',
      '<[\w:.-]*(?:password|passwd|pwd|secret|token|api[_-]?key|private[_-]?key|passphrase)(?:\s[^<>]{0,200})?>\s*([^<>\s]{4,})\s*</'),
    ('password', '{pass&value,secret&value,token&value,key&value}', 9, 'gi',
      '(?:name|key|id|property)["'']?\s*[=:]\s*["'']?[A-Za-z0-9_.:-]*(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[_-]?key|access[_-]?key)["'']?[\s,]{1,20}["'']?(?:value|val)["'']?\s*[=:]\s*["'']?([^\s"''<>,}]{4,})'),
    ('password', '{"password\",","password'',","passwd\",","passwd'',","secret\",","secret'',","key\",","key'',","token\",","token'',","pass\",","pass'',"}', 2, 'gi',
      '["''][A-Za-z0-9_.-]*(?:password|passwd|secret|api_?key|token|pass)["''],\s*["'']([^\s"'']{5,})["'']'),
    ('password', '{identified by,securestring,setpassword,withpassword,set_password,set-password}', 9, 'gi',
      '(?:identified by|convertto-securestring(?: -string)?|(?:set|with)[_-]?password\()\s*["'']([^\s"'']{3,})["'']'),
    ('password', '{mysqli_connect,"new mysqli","new pdo",getconnection,createconnection,.login(,ftp_login,imap_open,basicauth,basiccredentials,jwt.sign}', 2, 'gi',
      '(?:mysqli?_connect|new (?:mysqli|PDO)|getConnection|createConnection|\.login|ftp_login|imap_open|BasicAuth|BasicCredentials|jwt\.sign)\([^\n()]*?,\s*r?["'']([^\s"''/:]{4,})["'']\s*[,)]'),
    ('password', '{name=&pass,key=&pass}', 9, 'gi',
      '(?:name|key)="[^"\n]*(?:password|passwd|pwd|secret|token)"[^<>\n]*>\s*([^<>\s]{4,})\s*</'),
    ('password', '{creds,credential,login,"log in",logon,"sign in",zugangsdaten,identifiants,credenciales,credenziali}', 2, 'gi',
      '(?:creds|credentials?|log-?in|log in|logon|sign in|zugangsdaten|identifiants|credenciales|credenziali)(?![a-z])[^\n]{0,25}?[\s:(=]["''`]?[a-z][a-z0-9_.@+-]{1,40}["''`]?\s?(?:[/|,]\s?|:|(?:and|und|y|et|pw|-)\s)(?:(?:the\s+)?(?:pass(?:word|code|phrase)?|pw)(?:\s+is|:)?\s+)?["''`]?([^\s"''`/,=]{6,})'),
    ('password', '{",password",";password","	password",",\"password",",passwort",";passwort"}', null, 'gi',
      '(?:^|\n)[^\n]*(?:user|login|e-?mail)[^\n]{0,40}[,;\t]"?pass(?:word|wort)"?(?:[,;\t][^\n]*)?\n([^\n]+[,;\t][^\n]+)'),
    ('password', '{"is my&pass","is the&pass","was my&pass","was the&pass","as my&pass","as the&pass","s my&pass","is our&pass","is her&pass","is his&pass","as pass","as pw","is my&pw","ist mein&wort","ist das&wort","als &wachtwoord","is mijn&wachtwoord","es mi&contrase","es la&contrase","é minha&senha","é a&senha","est mon&passe","est le&passe","è la&password"}', 2, 'gi',
      '([^\s"''`“„]+)["''`”“]?,?\s+(?:(?:is|was|as|als|ist|como|es|comme|est|come|è|é)(?:\s+now)?|that[’'']s)\s+(?:(?:my|the|your|our|his|her|their|its|an?|mein|das|dein|unser|nuestra|mi|la|ma|mon|le|minha|il|mijn|het)\s+(?:[^\s.,;:]+\s+){0,2})?(?:password|passphrase|passcode|pw|passwort|kennwort|contraseña|senha|mot de passe|wachtwoord)(?![a-z]|[ -](?:hash|field|manager|policy|encod|for[a-z]))'),
    ('password', '{password from,passphrase from,passcode from,pass from,pw from}', 2, 'gi',
      '(?:pass(?:word|phrase|code)?|pw)\s+from\s+\S{3,60}\s+to\s+["''`]?([^\s"''`]{4,})'),
    ('token', '{"\"auth\"",_auth}', 9, 'g',
      '"?_?auth"?\s*[:=]\s*"?((?=[A-Za-z0-9+/=]*[a-z])(?=[A-Za-z0-9+/=]*[A-Z])[A-Za-z0-9+/]{12,}={0,2})'),
    ('token', '{kind: secret,"kind\":\"secret","kind\": \"secret"}', 9, 'gn',
      '^\s+"?(?!name|namespace|type|kind|uid|resource)[A-Za-z0-9_.-]+"?:\s*"?((?=[A-Za-z0-9+/=]*[a-z])(?=[A-Za-z0-9+/=]*[A-Z0-9])[A-Za-z0-9+/]{8,}={0,2})"?,?$'),
    ('token', '{recovery,backup,scratch,rescue,emergency,wiederherstellung,récupération,recuperación}', null, 'gi',
      '(?:recovery|backup|scratch|rescue|emergency|wiederherstellungs|(?:codes? de )?(?:récupération|recuperación))[ -]?(?:codes?|keys?|schlüssel)?[^\n:0-9]{0,40}[:\s=]\s*((?=[A-Za-z-]{0,12}[0-9])[A-Za-z0-9]{4,10}(?:-[A-Za-z0-9]{3,10}){1,7}(?:[\s,;]+(?=[A-Za-z-]{0,12}[0-9])[A-Za-z0-9]{3,10}(?:-[A-Za-z0-9]{3,10})*)*)'),
    ('token', '{licen,product,activation}', null, 'gi',
      '(?:product|licen[sc]e|activation|lizenz)[ -]?(?:key|code|schlüssel)[^\n]{0,30}?(?<![A-Za-z0-9-])((?=[A-Z-]{0,20}[0-9])[A-Z0-9]{4,6}(?:-[A-Z0-9]{4,6}){2,7})(?![A-Za-z0-9-])'),
    ('token', '{bitlocker,recovery}', null, 'g', '(?<![0-9-])([0-9]{6}(?:-[0-9]{6}){7})(?![0-9-])'),
    ('password', '{security question,security answer,secret question,secret answer,sicherheitsfrage}', 9, 'gi',
      '(?:(?:security|secret) (?:question|answer)|sicherheitsfrage)[^\n]{0,100}?(?:answer|antwort|response)["'')]?\s*(?:is|ist|was|:|=)\s*["'']?([^\s"''.,;]{3,})|(?:security|secret) answer["'')]?'
      || '[^\n]{0,40}?(?:\s+is|\s+was|:|=)\s*["'']?[^\s"''.,;]{3,}')
$$;

create or replace function _memoir.token_marks()
returns text language sql immutable as $$
  select '(?:(?<![A-Za-z0-9])(?:' || string_agg(distinct regexp_replace(m, '([^A-Za-z0-9_])', '\\\1', 'g'), '|')
      filter (where m !~ '^\*')
    || ')|' || string_agg(distinct regexp_replace(substr(m, 2), '([^A-Za-z0-9_])', '\\\1', 'g'),
      '|') filter (where m ~ '^\*')
    || ')[A-Za-z0-9_./+=:~%!$-]{8}'
  from _memoir.data_token_shapes() t, string_to_table(t.marks, ' ') m
$$;

-- Tokens by the shape their issuers give them; a run of the same letter or a word like "your" is a placeholder. They are
-- looked for in what has eighteen letters and signs or more without a blank; of a run of more than 4,000, as base64 has
-- them, its beginning is looked at.
create or replace function _memoir.secret_tokens(p_text text, p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_shape record; v_found text[]; v_marks constant text := _memoir.token_marks(); v_long boolean; v_runs text;
begin
  if p_text !~ '[A-Za-z0-9_.:/+=~!%$@|-]{18}' then return; end if;
  select string_agg(r, E'\n') into v_runs
  from (select distinct left(m[1], 4000) as r from regexp_matches(p_text, '([A-Za-z0-9_.:/+=~!%$@|-]{18,})', 'g') m) s
  where r ~ '[0-9]|[a-z][A-Z].*[a-z][A-Z]';
  if v_runs is null then return; end if;
  v_long := v_runs ~ '[A-Za-z0-9_.-]{50}';
  if not v_long and v_runs !~ v_marks then return; end if;
  for v_shape in select * from _memoir.data_token_shapes() t where case when t.marks is null then v_long
      else exists (select from string_to_table(t.marks, ' ') m where strpos(v_runs, ltrim(m, '*')) > 0) end loop
    for v_found in select distinct regexp_matches(v_runs, '(?<![A-Za-z0-9+])(' || v_shape.pattern || ')', 'g') loop
      continue when v_found[1] !~ '[0-9]|[a-z][A-Z].*[a-z][A-Z]'
        or v_found[1] ~* '(?:x{6}|0{12}|your|example-|[-_]here$|placeholder|[.]{3})';
      kind := v_shape.kind;
      value := v_found[1];
      return next;
      exit when not p_all;
    end loop;
  end loop;
end $$;

create or replace function _memoir.placed_secrets(p_pieces text[], p_marks text[], p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_place record; v_found text[]; v_lowers text[] := '{}'; v_likes text[];
begin
  if not p_marks && _memoir.marks_of('places') then return; end if;
  if cardinality(p_pieces) > 1 then v_lowers := array(select lower(p) from unnest(p_pieces) p); end if;
  for v_place in select * from _memoir.secret_places() p where p.marks && p_marks loop
    v_likes := array(select '%' || replace(replace(m, '_', '\_'), '&', '%') || '%' from unnest(v_place.marks) m
      where m = any (p_marks));
    for v_found in
      select distinct f
      from unnest(p_pieces, v_lowers) t(p, l), regexp_matches(p, v_place.pattern, v_place.flags) f
      where l is null or l like any (v_likes)
    loop
      value := case when v_place.strength is null then v_found[1] else _memoir.bare_value(v_found[1]) end;
      continue when value is null or v_place.strength is not null and (_memoir.value_strength(value, true)
        < case v_place.strength when 9 then 1 else v_place.strength end or v_place.strength = 9
          and _memoir.is_about(value)
        or v_place.kind = 'password' and value ~* _memoir.sample_password());
      kind := v_place.kind;
      return next;
      exit when not p_all;
    end loop;
  end loop;
end $$;

-- Whether what stands between the name of a number and the number links the two: nothing but signs, a colon at its end,
-- or a word for "is" there.
create or replace function _memoir.links_number(p_between text)
returns boolean language sql immutable as $$
  select lower(p_between) = upper(p_between) and length(p_between) <= 4 or p_between ~ '[:=：#][\s"''*「]*$'
    or lower(substring(p_between from '([^\s:"''*]+)[\s:"''*「]*$')) = any (_memoir.word_list(null, 'password_says'))
$$;

create or replace function _memoir.secret_codes(p_pieces text[], p_marks text[], p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_before text; v_number text; v_name text;
  v_names constant text := '^.*(?<![A-Za-z])(' || _memoir.any_word(null, 'pin_names', 'code_names')
    || ')(?![A-Za-z])(.*)$';
  v_codes constant text := '^(?:' || _memoir.any_word(null, 'code_names') || ')$';
begin
  if not p_marks && _memoir.marks_of('codes') then return; end if;
  -- Digits first, with what stands before them in the sentence; then their name, in that alone.
  for v_before, v_number in
    select distinct right(m[1], 90), m[2]
    from unnest(p_pieces) p, regexp_matches(p,
      '([^0-9\n.;!?]*(?:2[Ff][Aa][^0-9\n.;!?]+)?)(?<![0-9])((?:[A-Z]{1,3}-)?[0-9]{3,8}(?:[ -][0-9]{2,4})?)(?![0-9A-Za-z]|[-./][0-9])', 'g') m
    where lower(right(m[1], 90)) ~ 'p[iu][nk]|cod|tan|otp|cv[vcn]|[^ -~]|geheim|num|kod|zahl|crypt|segret|secret'
  loop
    v_name := (select m[1] from regexp_match(v_before, v_names, 'i') m where length(m[2]) <= 60
      and _memoir.links_number(m[2]));
    v_number := case when length(v_number) > 9 then split_part(v_number, ' ', 1) else v_number end;
    -- Three digits stand on cards only; six behind "PIN code" are a place in India.
    continue when v_name is null or length(v_number) = 3 and v_name
      !~* '^c|sicherheit|segur|sicurezza|beveilig|安全|セキュ|prüf|krypto'
      or length(v_number) = 6 and v_name ~* '^pin[ -]?code$'
        and v_before !~* '(?:card|bank|sim|phone|atm|unlock|account|my|new) pin|pin (?:code )?(?:for|of) (?:my|the)';
    kind := case when v_name ~* v_codes then 'one-time code' else 'PIN' end;
    value := v_number;
    return next;
    exit when not p_all;
  end loop;
  kind := 'one-time code';
  for value in
    select distinct m[1] from unnest(p_pieces) p, regexp_matches(p,
      '(?<![0-9A-Za-z.-])((?:[A-Z]-)?[0-9]{4,8})\s+(?:is|ist|es|est|è|é)\s+'
      || '(?:your|the|my|ihr|dein|mein|tu|su|votre|seu|il tuo)\s[^\n.0-9]*?(?:code|otp|tan|c[oó]digo|codice|pin)(?![a-z])', 'gi') m
    where p ~ '[0-9]{4}\s+(?:is|ist|es|est|è|é)\s'
  loop
    return next;
    exit when not p_all;
  end loop;
end $$;

create or replace function _memoir.seed_phrases(p_pieces text[], p_text text, p_marks text[])
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_found text[]; v_words text[]; v_named boolean; v_word text;
begin
  v_named := p_marks && _memoir.marks_of('seeds')
    and p_text ~* ('(?:seed|recovery|mnemonic|backup|secret|wallet|wiederherstellungs|semilla|recuperación|récupération)[ -]?(?:phrase|words?|wörter|phrasen|frase)'
          || '|mnemonic|bip-?39|metamask|phantom|ledger|trezor|助记词|助記詞|ニーモニック|シードフレーズ|시드|니모닉|сид[- ]?фраз|мнемоник|frase semilla|phrase (?:de récupération|secrète)');
  -- Twelve words alone on a line; beside a name, anywhere.
  if not v_named and p_text !~ '(?:^|\n)[^A-Za-z\n]{0,8}[a-z]{3,8}[ \t,]{1,3}[^A-Za-z\n]{0,5}[a-z]{3,8}[ \t,]'
    then return; end if;
  v_word := '(?:[0-9]{1,2}[.):]?[ \t]*)?[a-z]{3,8}';
  for v_found in select distinct array[btrim(l, E' \t\r"`“”「」.')] from string_to_table(p_text, E'\n') l
      where length(l) between 46 and 300 and btrim(l, E' \t\r"`“”「」.') ~ ('^' || v_word || '(?:[ \t,]{1,3}' || v_word
        || '){11,23}$')
    union select f from unnest(p_pieces) p, regexp_matches(p, '(?<![A-Za-z''’-])(' || v_word || '(?:[\s,]{1,3}'
      || v_word || '){11,})(?![A-Za-z''’-])', 'g') f where v_named
  loop
    v_words := regexp_split_to_array(btrim(regexp_replace(v_found[1], '[^a-z]+', ' ', 'g')), ' ');
    continue when cardinality(v_words) > 60
      or 6 * cardinality(array(select w from unnest(v_words) w where w
        ~ '[a-z](?:ing|ed|[^siu]s)$')) > cardinality(v_words)
      or not v_named and cardinality(v_words) not in (12, 15, 18, 21, 24) or v_words
        && string_to_array('the,and,for,are,was,but,his,her,had,has,not,from,have,been,were,which,their,would,could,our,its,them,please,with', ',');
    kind := 'seed phrase';
    value := v_found[1];
    return next;
    return;
  end loop;
end $$;

-- A long text in pieces of some four thousand bytes that end where a word does, each with the last words of the one
-- before it: what is looked for with costly patterns is near its name, and many pieces need none. Equal ones are one.
create or replace function _memoir.text_pieces(p_text text)
returns text[] language plpgsql immutable as $$
declare
  v_bytes bytea; v_length integer := octet_length(p_text); v_at integer := 1; v_end integer; v_piece text; v_pieces text[] := '{}'; v_kept text;
begin
  if v_length <= 6000 then return array[p_text]; end if;
  v_bytes := convert_to(p_text, 'UTF8');
  v_length := octet_length(v_bytes);
  loop
    v_end := least(v_at + 4000, v_length + 1);
    while v_end <= v_length and get_byte(v_bytes, v_end - 1) & 192 = 128 loop v_end := v_end - 1; end loop;
    v_piece := convert_from(substr(v_bytes, v_at, v_end - v_at), 'UTF8');
    v_kept := substring(right(v_piece, 600) from '^(.*[\s,;&])[^\s,;&]*$');
    if v_end <= v_length and v_kept is not null then
      v_piece := left(v_piece, length(v_piece) + length(v_kept) - 600);
    end if;
    v_pieces := v_pieces || v_piece;
    exit when v_end > v_length;
    v_at := v_at + octet_length(v_piece) - octet_length(coalesce(substring(right(v_piece, 300)
      from '[\s,;&](.*)$'), right(v_piece, 100)));
  end loop;
  return array(select distinct p from unnest(v_pieces) p);
end $$;

-- Words without which nothing is looked for. Functions, since calls of immutable ones become constants in the plans of those
-- that ask each text. a&b: both.
create or replace function _memoir.marks_of(p_stage text)
returns text[] language sql immutable as $$
  select case p_stage
    when 'passwords' then '{pass,pw,psw,psk}'
    when 'keys' then '{key,token,secret,jwt,cred,sid,sig,hmac,salt,auth,code,assertion,nonce,session,connection}'
    when 'seeds' then '{phrase,mnemonic,wallet,seed,recovery,backup,bip39,bip-39,metamask,phantom,ledger,trezor,wiederherst,semilla,助记词,助記詞,ニーモニック,シード,시드,니모닉,сид,мнемоник}'
    when 'places' then (select array_agg(distinct m) from _memoir.secret_places() p, unnest(p.marks) m)
    when 'foreign' then (select array_agg(distinct split_part(m, '/', 2)) from unnest(_memoir.foreign_marks()) m)
    when 'numbers' then _memoir.number_marks()
    when 'codes' then '{
    " kód",cod,crypt,cvc,cvn,cvv,"digo de segurança",geheimzahl,kod,"mã xác ",nummer,otp,pin,puk,segret,tan,
    "κωδικός επιβεβαίωσης",код,"од ",пин,"קוד אימות","קוד סודי","رقم التعريف الشخصي","رمز التحقق",پین,"کد تأیید",
    "کد تایید",ओटीपी,पिन,"सत्यापन कोड",รหัสยืนยัน,セキュリティコード,ワンタイムパスワード,动态码,取款密码,安全码,支付密码,暗証番号,校验码,確認コード,認証コード,驗證碼,
    验证码,"인증 코드",인증번호,핀번호,"확인 코드"
  }'::text[]
    end
$$;

-- Those of all stages that hold no other: of what needs no digits, and of what does.
create or replace function _memoir.base_marks(p_digits boolean)
returns text[] language sql immutable as $$
  select case when p_digits then '{
    " kód",aadhaar,aadhar,aba,bank,blz,bsn,burgerservice,card,carta,carte,cartão,checking,cod,crypt,cvc,cvn,cvv,
    "digo de segurança",geheimzahl,"government id","identity id",idnr,itin,karte,karty,kimlik,kod,licen,maestro,
    "my number",mynumber,"mã xác ","national id",nhs,nummer,otp,pasaporte,paspoort,passaport,passeport,passport,
    personalausweis,pesel,pin,puk,reisepass,"residence permit",routing,savings,segret,sin,social,ssn,steuer,tan,
    tarjeta,"tax file","tax id",tckn,tfn,visa,"κωδικός επιβεβαίωσης",карт,код,"од ",паспорт,пин,"קוד אימות",
    "קוד סודי","رقم التعريف الشخصي","رمز التحقق",پین,"کد تأیید","کد تایید",ओटीपी,पिन,"सत्यापन कोड",รหัสยืนยัน,カード,
    セキュリティコード,マイナンバー,ワンタイムパスワード,個人番号,动态码,卡,取款密码,安全码,护照,支付密码,旅券,暗証番号,校验码,確認コード,認証コード,護照,驗證碼,验证码,여권,"인증 코드",인증번호,카드,
    핀번호,"확인 코드"
  }'::text[]
  else '{
    " -a"," -p"," -u",7z,:$,:*:,://,:1433:,:3306:,:5432:,:5433:,:6432:,":{ss",</,@,account,activation,adgangskode,
    "als ","api 키",api-sleutel,api-ключ,apiキー,"as the",assertion,auth,"az ",backup,"basic ",bcp,"bearer ",bip-39,
    bip39,bitlocker,buildah,"chave ","chiave api",cifs,clave,"clé d",code,connection,contrase,cookie,crane,cred,
    curl,docker,emergency,"es la","es mi","est le","est mon",expdp,freerdp,hasl,hasł,helm,hesl,hmac,http,
    identifiants,"identified by",ifre,imap_open,impdp,"is her","is his","is mijn","is our","is the","ist das",
    "ist mein",jelsz,jwt,kennw,key,kodeord,kty,ldap,ledger,lftp,licen,"log in",login,logon,lösenfras,lösenord,
    machine,mariadb,mdp,metamask,mnemonic,mongo,mysql,"mật khẩu","mật mã",name=,nerdctl,"new pdo",nonce,"oc ",
    palavra,parol,pass,phantom,phrase,podman,product,psk,psw,pw,rdesktop,recovery,recuperación,redis-cli,rescue,
    rpcclient,récupération,"s my",salalause,salasana,salt,sandi,schlüssel,scratch,secret,securestring,
    "security answer","security question",seed,semilla,senha,session,sicherheitsfrage,sid,sig,skopeo,smb,sqlcmd,
    sqlplus,"sudo -s",token,trezor,uid,user,value,wachtwoord,wachtzin,wallet,wget,wiederherst,wifi:,winrm,wort,
    "xh ",zip,zugangsdaten,"è la","é a","é minha",υνθηματικό,ωδικ,арол,"люч api",мнемоник,одов,сид,סיסמ,
    "الرقم السري","رمز عبور",كلم,"کلمه عبور",گذرواژه,कूटशब्द,पासवर्ड,พาสเวิร์ด,รหัสผ่าน,シード,ニーモニック,パスフレーズ,パスワード,助記詞,
    助记词,口令,合言葉,密码,密碼,密鑰,密钥,니모닉,비밀번호,비번,시드,암호,패스워드
  }'::text[] end
$$;

-- Those that do hold another.
create or replace function _memoir.further_marks(p_digits boolean)
returns text[] language sql immutable as $$
  select array(select distinct w from unnest(case when p_digits then '{numbers,codes}'
    else '{passwords,keys,seeds,places,foreign}'::text[] end) stage,
    unnest(_memoir.marks_of(stage)) m, string_to_table(m, '&') w where w <> all (_memoir.base_marks(p_digits)))
$$;

-- Those in a text. Of a long one a pattern tells which two dozen are not there at all; of a short one the engine takes longer
-- to make a machine of the pattern.
create or replace function _memoir.base_marks_in(p_lower text, p_marks text[])
returns text[] language plpgsql immutable as $$
declare
  v_found text[] := '{}'; v_some text[];
begin
  if length(p_lower) < 20000 then return array(select m from unnest(p_marks) m where strpos(p_lower, m) > 0); end if;
  for v_some in select array_agg(m) from (select m, row_number() over (order by length(m), m) / 24 as n
    from unnest(p_marks) m) s group by n loop
    if p_lower ~ regexp_replace(array_to_string(v_some, '|'), '([^[:alnum:] _|])', '\\\1', 'g') then
      v_found := v_found || array(select m from unnest(v_some) m where strpos(p_lower, m) > 0);
    end if;
  end loop;
  return v_found;
end $$;

create or replace function _memoir.marks_in(p_lower text, p_digits boolean)
returns text[] language plpgsql immutable as $$
declare
  v_found text[] := _memoir.base_marks_in(p_lower, _memoir.base_marks(false)); v_more text[];
begin
  if v_found <> '{}' then
    v_found := v_found || array(
      select m from (select distinct m from unnest(v_found) f, unnest(_memoir.further_marks(false)) m
        where strpos(m, f) > 0) s
      where strpos(p_lower, m) > 0);
    v_found := v_found || array(
      select m from unnest(_memoir.marks_of('places')) m
      where strpos(m, '&') > 0 and split_part(m, '&', 1) = any (v_found) and split_part(m, '&', 2) = any (v_found)
        and p_lower like '%' || replace(replace(m, '_', '\_'), '&', '%') || '%');
  end if;
  if p_digits then
    v_more := _memoir.base_marks_in(p_lower, _memoir.base_marks(true));
    v_found := v_found || v_more || array(
      select m from (select distinct m from unnest(v_more) f, unnest(_memoir.further_marks(true)) m
        where strpos(m, f) > 0) s
      where strpos(p_lower, m) > 0);
  end if;
  return v_found;
end $$;

-- All that is found in a text; unless p_all, one of each kind is enough. Plans are kept: what they hold as constants takes longer to
-- make than to use.
create or replace function _memoir.secrets_in(p_text text, p_all boolean)
returns table (kind text, value text) language plpgsql immutable
set plan_cache_mode = force_generic_plan as $$
declare
  v_digits boolean := p_text ~ '[0-9][0-9A-Z .-]{0,2}[0-9]';
  v_marks text[] := _memoir.marks_in(lower(p_text), v_digits);
  v_pieces text[] := case when p_all then array[p_text] else _memoir.text_pieces(p_text) end;
begin
  return query select * from _memoir.secret_tokens(p_text, p_all);
  return query select * from _memoir.placed_secrets(v_pieces, v_marks, p_all);
  return query select * from _memoir.named_secrets(v_pieces, v_marks, p_all);
  if v_digits then
    return query select * from _memoir.secret_numbers(v_pieces, v_marks, p_all);
    return query select * from _memoir.secret_codes(v_pieces, v_marks, p_all);
  end if;
  return query select * from _memoir.seed_phrases(v_pieces, p_text, v_marks);
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
returns text[] language sql immutable as $$
  select array(select s.kind from _memoir.secrets_in(_memoir.undisguised(p_text), false) s group by s.kind
    order by s.kind)
$$;

-- The same text with what was found blotted out: for what has to go to a model before it is stored, like a query's
-- vector.
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
returns text[] language plpgsql stable as $$
begin
  return _memoir.detected(p_config, p_message.text, p_message.name,
    (select string_agg(_memoir.part_text(p), E'\n' order by o) filter (where p ->> 'type' not in ('text', 'refusal'))
      from jsonb_array_elements(p_message.parts) with ordinality t(p, o)),
    (select string_agg(c #>> '{function,arguments}', E'\n' order by o)
      from jsonb_array_elements(p_message.tool_calls) with ordinality t(c, o)),
    p_message.extra::text, nullif(p_metadata, '{}')::text);
end $$;
