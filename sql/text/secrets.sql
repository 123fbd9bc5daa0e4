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

-- A value with its quotes and what follows it in a sentence taken off.
create or replace function _memoir.bare_value(p_value text)
returns text language sql immutable strict as $$
  select case when p_value ~ '^\\*["''`「『„“«]' then regexp_replace(p_value, '^\\*["''`「『„“«]|\\*["''`」』“”»]$', '', 'g')
    else regexp_replace(p_value, '[*_]{2}$|[\\.,:;)\]}*]+$', '') end
$$;

-- What is no value by its looks: a placeholder, an expression, a path, an address, a date, a version, an amount, the
-- name of an algorithm. One pattern, since a backend keeps but 32 compiled and this is asked for each candidate.
create or replace function _memoir.no_value()
returns text language sql immutable as $$
  select '^[<\[{(%!]|^\$[a-z_{(]|^@[a-z_]+$|^:[a-z_]+$|^[*•●.x_?-]+$|[*•●]{3}|x{4}|\.{3}|…|0{8}'
    || '|\$[{(]|[$][a-z_]{3}|\{\{|<%|%\(|%s|[a-z]\[["'']|\(\)'
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
  if not p_quoted and p_value ~ ('^[A-Za-z_][A-Za-z0-9_.:>$-]*\(|^[A-Za-z_$][A-Za-z_]*(?:(?:\.|->|::)[A-Za-z_][A-Za-z0-9_]*)+[;,]?$'
    || '|^(?:self|this|os|process|env|config|req|request|params|args|opts)[.\[]') then return 0; end if;
  v_digits := translate(v_plain, '0123456789', '') <> v_plain;
  v_letters := lower(v_plain) <> upper(v_plain);
  if length(v_plain) >= 16 and v_letters and v_plain ~ '^[A-Za-z0-9_+/=.~:%-]+$' and (case when v_digits
      then v_plain !~ '^[a-z]+(?:[._/-][a-z]+)*(?:[._-]?v?[0-9]{1,4})?$|^[A-Za-z]+(?:[_/.-][A-Za-z]+)+[0-9]{0,4}$'
      else length(v_plain) >= 20 and v_plain ~ '(?:[a-z]+[A-Z]+){5}' end) then
    return 3;
  end if;
  return case when v_digits and v_letters or v_plain ~ ('[[:alnum:]][]@#$%^&*+=~!|?\\[{}]+[[:alnum:]]|[0-9][@#$%^&*!?_-]|^[@#$%^&*!?]+[[:alnum:]]{4}'
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

-- Whether a value is one: p_found has the dashes of an option before its name, the name, what linked_value() found
-- behind it; p_language is that of the name.
create or replace function _memoir.is_password(p_found text[], p_language text)
returns boolean language plpgsql immutable as $$
declare
  v_option boolean := p_found[1] is not null; v_link text := p_found[3]; v_value text := _memoir.bare_value(p_found[4]);
  v_quoted boolean := ltrim(p_found[4], '\') <> ltrim(p_found[4], '\"''`「『„“«');
  v_assigned boolean := translate(v_link, '=:：＝→>', '') <> v_link; v_linked boolean := btrim(v_link, E' \t\n*_') <> '';
  v_follows text := ltrim(coalesce(p_found[5], '')); v_ends boolean; v_length integer := length(v_value); v_strength integer;
begin
  -- A name and its value touch only where words do.
  if v_value is null or v_length < 4 or left(v_value, 1) in ('=', '~', ':', '>') or v_link = '' and octet_length(p_found[2]) = length(p_found[2]) then
    return false;
  end if;
  v_strength := _memoir.value_strength(v_value, v_quoted);
  if v_strength = 0 or _memoir.is_about(v_value) then return false; end if;
  -- A sentence in quotes is a message to people.
  if v_quoted and strpos(v_value, ' ') > 0 then return _memoir.is_passphrase(v_value, v_assigned, v_strength); end if;
  if v_strength >= 2 then return v_linked or v_option or v_quoted or v_length >= 6; end if;
  v_ends := p_found[5] is not null or right(p_found[4], 1) in ('.', '!', '?');
  if translate(v_value, '0123456789', '') = '' then
    return v_option or v_quoted or v_linked and v_ends and (lower(p_found[2]) <> 'pass' or strpos(v_link, '=') > 0);
  end if;
  if lower(v_value) = lower(p_found[2]) or not v_quoted and not v_option and v_value ~* 'passw|pwd|_' then
    return false;
  end if;
  if lower(p_found[2]) = 'pass' and not v_assigned and not v_option then return false; end if;
  -- A plain word: where a value must stand, or the sentence ends with it.
  return case
    when v_option or v_quoted then true
    when v_assigned and (right(p_found[4], 1) in (')', ']', ';', ',') or left(v_follows, 1) in (')', ',', ';')) then false
    when left(v_link, 1) = '=' then true
    when v_assigned then v_ends and lower(p_found[2]) <> 'pass' and v_follows not in ('and', 'or', 'but')
      and strpos(v_link, E'\n') = 0
    else v_ends and p_language = 'english' and btrim(v_link) in ('is', 'to', 'was') and v_value ~ '^[A-Za-z]{5,}[.!]*$'
  end;
end $$;

-- The same of keys and tokens: these are random, unless they stand where a value of theirs must.
create or replace function _memoir.is_key(p_found text[])
returns boolean language plpgsql immutable as $$
declare
  v_name text := lower(p_found[2]); v_value text := _memoir.bare_value(p_found[4]); v_link text := p_found[3];
  v_quoted boolean := ltrim(p_found[4], '\') <> ltrim(p_found[4], '\"''`');
  v_assigned boolean := translate(v_link, '=:：＝→>', '') <> v_link or p_found[1] is not null;
  v_strength integer;
begin
  if v_value is null or length(v_value) < 8 or left(v_value, 1) in ('=', '~', ':', '>') or v_link = '' or strpos(v_value, ' ') > 0 then return false; end if;
  v_strength := _memoir.value_strength(v_value, v_quoted);
  return case
    when v_strength = 0 or exists (select from unnest(_memoir.word_list('english', 'harmless_keys')) w where starts_with(v_name, w))
      or left(v_value, 4) = 'ssh-' or left(v_value, 3) = 'pk_' or v_value ~ '^sha[0-9]+[-:]' then false
    when v_name in ('code', 'salt', 'nonce', 'auth') then v_strength = 3 and length(v_value) >= 20 and v_assigned
      and v_value !~ '^[0-9a-f]+$' and lower(v_value) <> v_value
    when v_name = 'secret' then v_strength >= 2 and v_assigned or v_strength = 3
    when v_name in ('token', 'key', 'jwt', 'credential', 'credentials', 'creds', 'sid', 'sig', 'signature', 'hmac',
        'assertion', 'sessionid', 'session_id', 'session id', 'session-id', 'sessid') then
      v_strength = 3 and v_value !~ '/.*[.]|^[a-z]+(?:[._:/-][a-z0-9]+)+$|^[A-Za-z]+-[A-Za-z]+-'
    when v_strength = 3 then true
    when v_strength = 2 then v_assigned or length(v_value) >= 10
    else v_assigned and strpos(v_name, 'secret') > 0 and not _memoir.is_about(v_value) and (v_quoted or v_link = '=')
      and strpos(v_value, '_') = 0 and right(p_found[4], 1) not in (')', ']', ';', ',')
      and left(ltrim(coalesce(p_found[5], '')), 1) not in (')', ',', ';')
  end;
end $$;

-- What follows a name: what links it with its value (": ", " is ", "=", or a blank before what no word is), the value, and
-- the end of the sentence if it ends there. Words that say whose it is may stand in between. p_spaced: the script has
-- blanks between words; p_no_verb: the language does without one for "is".
create or replace function _memoir.linked_value(p_rest text, p_of text, p_says text, p_spaced boolean,
  p_no_verb boolean)
returns text[] language plpgsql immutable as $$
declare
  v_rest text := ltrim(p_rest, '"''`»“”*_\])}>」』'); v_link text; v_value text; v_found text[];
begin
  v_link := substring(v_rest from '^[ \t]*(?:[?:+]{0,3}=>?[ \t]*|->[ \t]*|[→＝][ \t]*|[:：][ \t*_]*\n?[ \t]*)');
  if v_link is null then
    v_found := regexp_match(v_rest, case when p_spaced
      then '^(?:((?:[ \t]+?\([^()\n]+\)|[ \t]+?(?:' || p_of || ')(?:[ \t][^\n.:;!?="]*?)??)??)([ \t]*(?:=|[:：])[ \t]*|[ \t]+(?:' || p_says
        || ')(?:[ \t]*[:：][ \t]*|[ \t]+(?:(?:now|still|just|currently|actually|simply|ahora|jetzt|nun|maintenant)[ \t]+)?(?:[:：][ \t]*)?)'
        || case when p_no_verb then '|[ \t]+(?=[^\s]*[0-9])' else '' end || ')){1,1}'
      else '^([ \t]*)((?:' || p_says || ')[ \t]*(?:[:：][ \t]*)?)' end, 'i');
    v_link := coalesce(v_found[2], substring(v_rest from '^[ \t]+(?=[^\s]*[0-9@#$%^&*!=+~"''`])'),
      case when not p_spaced then '' end);
    if v_link is null then return null; end if;
    v_rest := substr(v_rest, coalesce(length(v_found[1]), 0) + 1);
  end if;
  v_rest := substr(v_rest, length(v_link) + 1);
  v_value := substring(v_rest from '^(?:' || _memoir.value_pattern() || ')');
  if v_value is null then return null; end if;
  return array[v_link, v_value, substring(substr(v_rest, length(v_value) + 1)
    from '^(?:\s*(?:[.,;!?)\n]|\Z)|[ \t]+(?:and|but|so|und|y|et|e|en)(?=[ \t]))')];
end $$;

-- Values behind names of one kind. The text is cut before its names first: a pattern for names and all that may follow
-- takes a hundred times as long. Nobody writes more than some thousand names into one text.
create or replace function _memoir.values_named(p_text text, p_names text, p_kind text, p_language text, p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_parts text[] := string_to_array(regexp_replace(translate(p_text, E'\x01\x02', '  '), '(' || p_names || ')', E'\x01\\1\x02', 'gi'), E'\x01');
  v_of text := coalesce(nullif(case when p_kind = 'password' then _memoir.any_word(p_language, 'password_of') end, ''),
    'for|of|to|on|at|in|from');
  v_says text := case when p_kind = 'password' then _memoir.any_word(p_language, 'password_says')
    else 'is|are|was|to|will be' end;
  v_spaced boolean := p_language not in ('chinese', 'japanese', 'korean', 'thai');
  v_name text; v_rest text; v_option text; v_linked text[]; v_found text[];
begin
  kind := p_kind;
  for i in 2 .. least(cardinality(v_parts), 5000) loop
    v_name := split_part(v_parts[i], E'\x02', 1);
    v_rest := left(substr(v_parts[i], length(v_name) + 2), 400);
    -- A value may hold a name.
    for n in i + 1 .. least(i + 3, cardinality(v_parts)) loop
      exit when length(v_rest) >= 400;
      v_rest := v_rest || replace(left(v_parts[n], 400), E'\x02', '');
    end loop;
    v_linked := _memoir.linked_value(v_rest, v_of, v_says, v_spaced,
      p_language in ('russian', 'ukrainian', 'turkish', 'arabic', 'hebrew'));
    continue when v_linked is null;
    v_option := right(v_parts[i - 1], 40);
    v_option := case when strpos(v_option, '-') > 0 then substring(v_option from '(?:^|[^A-Za-z0-9-])(--?[A-Za-z-]*)$') end;
    v_found := array[v_option, v_name] || v_linked;
    continue when not (case p_kind when 'password' then _memoir.is_password(v_found, p_language)
      else _memoir.is_key(v_found) end);
    value := _memoir.bare_value(v_found[4]);
    return next;
    exit when not p_all;
  end loop;
end $$;

-- The languages but English in which passwords have names, and these as one pattern. Functions, since calls of immutable
-- ones become constants in the plans of those that ask each text.
create or replace function _memoir.foreign_languages()
returns text[] language sql immutable as $$
  select '{german,spanish,french,portuguese,italian,dutch,swedish,danish,norwegian,finnish,polish,czech,hungarian,romanian,
    russian,ukrainian,turkish,greek,arabic,persian,hebrew,hindi,chinese,japanese,korean,vietnamese,indonesian,thai}'::text[]
$$;

create or replace function _memoir.foreign_password_names()
returns text language sql immutable as $$
  select string_agg(n, '|')
  from unnest(_memoir.foreign_languages()) l, unnest(_memoir.word_list(l, 'password_names')) n
$$;

-- Values of passwords, keys and tokens behind their names. What is asked of every text has no lookbehind: that would make
-- it slow.
create or replace function _memoir.named_secrets(p_text text, p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_language text;
  v_names constant text := _memoir.foreign_password_names();
begin
  if p_text ~* 'pass|pwd|psw|pw|psk' then
    return query select * from _memoir.values_named(p_text, _memoir.any_word('english', 'password_names'), 'password',
      'english', p_all);
  end if;
  -- With a harmless word before it a name begins with that: is_key() sees it.
  if p_text ~* ('key|token|secret|jwt|cred|sid[^a-z]|sig[^a-z]|signature|hmac|salt|auth|code|assertion|nonce|session.?id'
      || '|connection.?string') and (translate(p_text, '0123456789', '') <> p_text or strpos(lower(p_text), 'secret') > 0) then
    return query select * from _memoir.values_named(p_text, '(?:' || _memoir.any_word('english', 'harmless_keys')
      || ')[ _.-]?(?:key|token)|' || _memoir.any_word('english', 'key_names'), 'token', 'english', p_all);
  end if;
  if p_text ~* v_names then
    foreach v_language in array _memoir.foreign_languages() loop
      continue when p_text !~* _memoir.any_word(v_language, 'password_names');
      return query select * from _memoir.values_named(p_text, _memoir.any_word(v_language, 'password_names'), 'password',
        v_language, p_all);
    end loop;
  end if;
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
    ('authorization', '{authorization}', 3, 'gi', 'authorization["''\\]*\s*[:=,]\s*["''\\]*([A-Za-z0-9._~+/=:|-]{16,})'),
    ('authorization', '{bearer,basic}', 3, 'gi', '(?<![A-Za-z])(?:bearer|basic)\s+([a-z0-9._~+/=-]{20,})'),
    ('cookie', '{cookie}', 2, 'gi',
      'cookie["''\\]*\s*[:=][^\n]*?(?:sess|sid|auth|token|jwt|login|remember|clearance|identity|__secure|__host)[A-Za-z0-9_.-]*=["'']?([^\s;,"'']{8,})'),
    ('cookie', '{cookie}', 3, 'gi', 'cookies?["''\\]*(?:\s*[:=]|\s+(?:value\s+)?is)[^\n]*?[= :]["'']?([^\s;,"''=]{16,})'),
    ('connection string', '{://}', 9, 'gi',
      '(?<![A-Za-z])[a-z][a-z0-9+.-]{1,20}://[^\s:/@"''<>]*:([^\s/"''<>]{3,})@[^\s/@"''<>]+'),
    ('connection string', '{://}', 3, 'gi', '://([A-Za-z0-9_-]{20,})(?::x-oauth-basic)?@[A-Za-z0-9]'),
    ('password', '{login&pass,user&pass,uid&pass,account&pass,user&secret}', 9, 'gi',
      '(?:login|username|user|uid|account)\s+["'']?[^\s"'':]+["'']?\s+(?:password|passwd|pass|secret)\s+(?:[0-9]\s+)?["'']?([^\s"'']{3,})'),
    ('password', '{:}', 9, 'gn', '^(?:[A-Za-z*][A-Za-z0-9.-]*|\*):(?:[0-9]{4,5}|\*):[A-Za-z_*][A-Za-z0-9_-]*:[A-Za-z_*][A-Za-z0-9_.-]*:([^\s:]{4,})$'),
    ('password', '{:$,":{ss"}', null, 'gn',
      '^[A-Za-z0-9._@-]+:(\$(?:1|2[abxy]?|5|6|7|y|gy|apr1|argon2[id]*|sha1|scrypt)\$[^\s:]{8,}|\{SS?HA[0-9]*\}[A-Za-z0-9+/=]{16,})'),
    ('password', '{curl,wget,http}', 9, 'gi',
      '(?<![a-z])(?:curl|wget|https?|xh)(?:[ \t](?:[^\n]|\\\n)*?)?[ \t](?:-u|--user|--proxy-user|-a|--auth)[ =]*["'']?[^\s:"''$<]*:([^\s"'']{2,})'),
    ('password', '{auth}', 9, 'gi', 'auth\s*=?\s*\(\s*["''][^"''\n]+["'']\s*,\s*["'']([^"''\n]{3,})["'']'),
    ('password', '{mysql,mariadb,7z}', 9, 'g', '(?<![A-Za-z])(?:mysql|mariadb|7z)[a-z-]*[ \t](?:[^\n]*[ \t])?-p["'']?([^\s"''-][^\s"'']+)'),
    ('password', '{sshpass}', 9, 'g', 'sshpass[ \t]+-p[ \t]*["'']?([^\s"'']{2,})'),
    ('password', '{login,mongo,rdesktop}', 9, 'g',
      '(?<![A-Za-z])(?:(?:docker|podman|helm|az|oc|nerdctl|skopeo|buildah|crane)[ \t][^\n]{0,60}?login|mongo[a-z]*|rdesktop)[ \t][^\n]*?-p[ =]["'']?([^\s"''-][^\s"'']+)'),
    ('password', '{redis-cli,ldap,sqlcmd,bcp,zip,winrm,freerdp}', 9, 'g',
      '(?<![A-Za-z])(?:redis-cli[ \t][^\n]*?-a|ldap[a-z]+[ \t][^\n]*?-w|(?:sqlcmd|bcp|(?:un)?zip)[ \t][^\n]*?-P|evil-winrm[ \t][^\n]*?-p|xfreerdp[ \t][^\n]*?/p:)[ \t]*["'']?([^\s"''-][^\s"'']+)'),
    ('password', '{smb,rpcclient,cifs}', 9, 'g', '(?:smb[a-z]+|rpcclient|cifs)[^\n]*?-U[ =]?["'']?[^\s%"'']+%([^\s"'']{2,})'),
    ('password', '{sudo -s,chpasswd,--password-stdin,--with-token,passwd --stdin}', 9, 'g',
      '(?:echo|printf)[ \t]+(?:-n[ \t]+)?["'']?([^\s"''|]{3,})["'']?[ \t]*\|[^\n|]{0,40}(?:sudo (?:-[a-z]+ )?-S|chpasswd|--password-stdin|--with-token|passwd --stdin)'),
    ('password', '{pass:}', 9, 'g', '-pass(?:in|out)?[ \t]+["'']?pass:([^\s"'']{2,})'),
    ('password', '{sqlplus,lftp,expdp,impdp}', 9, 'g', '(?:sqlplus|lftp|expdp|impdp)[ \t][^\n]{0,60}?[A-Za-z0-9_]+[/,]([^\s/@"'']{3,})'),
    ('password', '{net user,add_user,change_password,htpasswd,wpa_passphrase}', 9, 'g',
      '(?:net user[ \t]+\S+|(?:add_user|change_password)[ \t]+\S+|htpasswd[ \t]+-[a-zA-Z]*b[a-zA-Z]*[ \t]+\S+[ \t]+\S+|wpa_passphrase[ \t]+\S+)[ \t]+["'']?([^\s"''/][^\s"'']{2,})'),
    ('password', '{wifi:}', 9, 'gi', 'WIFI:[^\n]*?P:([^;\n]{3,});'),
    ('password', '{</&pass,</&pwd,</&secret,</&token,</&key}', 9, 'gi',
      '<[\w:.-]*(?:password|passwd|pwd|secret|token|api[_-]?key|private[_-]?key|passphrase)(?:\s[^<>]{0,200})?>\s*([^<>\s]{4,})\s*</'),
    ('password', '{value&pass,value&secret,value&token,value&key}', 9, 'gi',
      '(?:name|key|id|property)["'']?\s*[=:]\s*["'']?[A-Za-z0-9_.:-]*(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[_-]?key|access[_-]?key)["'']?[\s,]{1,20}["'']?(?:value|val)["'']?\s*[=:]\s*["'']?([^\s"''<>,}]{4,})'),
    ('password', '{"'',&pass","\",&pass","'',&secret","\",&secret","'',&token","\",&token","'',&key","\",&key"}', 2, 'gi',
      '["''][A-Za-z0-9_.-]*(?:password|passwd|secret|api_?key|token|pass)["''],\s*["'']([^\s"'']{5,})["'']'),
    ('password', '{identified by,securestring,setpassword,withpassword,set_password,set-password}', 9, 'gi',
      '(?:identified by|convertto-securestring(?: -string)?|(?:set|with)[_-]?password\()\s*["'']([^\s"'']{3,})["'']'),
    ('password', '{creds,credential,login,log in,logon,sign in,zugangsdaten,identifiants,credenciales,credenziali}', 2, 'gi',
      '(?:creds|credentials?|log-?in|log in|logon|sign in|zugangsdaten|identifiants|credenciales|credenziali)(?![a-z])[^\n]{0,25}?[\s:(=]["''`]?[a-z][a-z0-9_.@+-]{1,40}["''`]?\s?(?:[/|,]\s?|:|(?:and|und|y|et|pw|-)\s)["''`]?([^\s"''`/,=]{6,})'),
    ('password', '{",password",";password","	password",",\"password",",passwort",";passwort"}', null, 'gi', '(?:^|\n)[^\n]*(?:user|login|e-?mail)[^\n]{0,40}[,;\t]"?pass(?:word|wort)"?(?:[,;\t][^\n]*)?\n([^\n]+[,;\t][^\n]+)'),
    ('password', '{" as &pass"," is &my pass"," is &the pass"," is &password"," as &pw"," als &wort"," als &wachtwoord"," como &contrase"," como &senha"," comme &passe"," come &password"," ist &wort"," es &contrase"," est &passe"}', 2, 'gi',
      '(?<!\S)["''`“„]?([^\s"''`]{5,60})["''`”“]?\s+(?:is|was|as|als|ist|como|es|comme|est|come|è|é|is now)\s+(?:(?:my|the|your|our|his|her|their|a|an|new|old|current|wifi|wi-fi|router|email|laptop|mein|das|dein|unser|neue?s?|nuestra|mi|la|ma|mon|le|minha|a|il|mijn|het)\s+){1,4}(?:password|passphrase|passcode|pw|passwort|kennwort|contraseña|senha|mot de passe|wachtwoord)(?![a-z]|[ -](?:hash|field|manager|policy|encod|for[a-z]))'),
    ('password', '{"from &pass","from &pw"}', 2, 'gi', '(?:pass(?:word|phrase|code)?|pw)\s+from\s+\S{3,60}\s+to\s+["''`]?([^\s"''`]{4,})'),
    ('token', '{"\"auth\"",_auth}', 9, 'g', '"?_?auth"?\s*[:=]\s*"?((?=[A-Za-z0-9+/=]*[a-z])(?=[A-Za-z0-9+/=]*[A-Z])[A-Za-z0-9+/]{12,}={0,2})'),
    ('token', '{kind: secret,"kind\":\"secret","kind\": \"secret"}', 9, 'gn',
      '^\s+"?(?!name|namespace|type|kind|uid|resource)[A-Za-z0-9_.-]+"?:\s*"?((?=[A-Za-z0-9+/=]*[a-z])(?=[A-Za-z0-9+/=]*[A-Z0-9])[A-Za-z0-9+/]{8,}={0,2})"?,?$'),
    ('token', '{recovery,backup,scratch,rescue,emergency,wiederherstellung,récupération,recuperación}', null, 'gi',
      '(?:recovery|backup|scratch|rescue|emergency|wiederherstellungs|(?:codes? de )?(?:récupération|recuperación))[ -]?(?:codes?|keys?|schlüssel)?[^\n:0-9]{0,40}[:\s=]\s*((?=[A-Za-z-]{0,12}[0-9])[A-Za-z0-9]{4,10}(?:-[A-Za-z0-9]{3,10}){1,7}(?:[\s,;]+(?=[A-Za-z-]{0,12}[0-9])[A-Za-z0-9]{3,10}(?:-[A-Za-z0-9]{3,10})*)*)'),
    ('token', '{licen,product,activation}', null, 'gi',
      '(?:product|licen[sc]e|activation|lizenz)[ -]?(?:key|code|schlüssel)[^\n]{0,30}?(?<![A-Za-z0-9-])((?=[A-Z-]{0,20}[0-9])[A-Z0-9]{4,6}(?:-[A-Z0-9]{4,6}){2,7})(?![A-Za-z0-9-])'),
    ('token', '{bitlocker,recovery,key}', null, 'g', '(?<![0-9-])([0-9]{6}(?:-[0-9]{6}){7})(?![0-9-])'),
    ('password', '{security question,security answer,secret question,secret answer,sicherheitsfrage}', 9, 'gi',
      '(?:(?:security|secret) (?:question|answer)|sicherheitsfrage)[^\n]{0,100}?(?:answer|antwort|response)["'')]?\s*(?:is|ist|was|:|=)\s*["'']?([^\s"''.,;]{3,})|(?:security|secret) answer["'')]?'
      || '[^\n]{0,40}?(?:\s+is|\s+was|:|=)\s*["'']?[^\s"''.,;]{3,}')
$$;

-- The marks of all of them as one pattern, and of tokens.
create or replace function _memoir.secret_marks()
returns text language sql immutable as $$
  select string_agg(distinct regexp_replace(split_part(m, '&', 1), '([^A-Za-z0-9 _])', '\\\1', 'g'), '|')
  from _memoir.secret_places() p, unnest(p.marks) m
$$;

create or replace function _memoir.token_marks()
returns text language sql immutable as $$
  select '(?:(?<![A-Za-z0-9])(?:' || string_agg(distinct regexp_replace(m, '([^A-Za-z0-9_])', '\\\1', 'g'), '|')
      filter (where m !~ '^\*')
    || ')|' || string_agg(distinct regexp_replace(substr(m, 2), '([^A-Za-z0-9_])', '\\\1', 'g'), '|') filter (where m ~ '^\*')
    || ')[A-Za-z0-9_./+=:~%!$-]{8}'
  from _memoir.data_token_shapes() t, string_to_table(t.marks, ' ') m
$$;

-- Tokens by the shape their issuers give them; a run of the same letter or a word like "your" is a placeholder.
create or replace function _memoir.secret_tokens(p_text text, p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_shape record; v_found text[]; v_marks constant text := _memoir.token_marks(); v_long boolean; v_tries integer;
begin
  v_long := p_text ~ '[A-Za-z0-9_.-]{50}';
  if not v_long and p_text !~ v_marks then return; end if;
  for v_shape in select * from _memoir.data_token_shapes() t where case when t.marks is null then v_long
      else exists (select from string_to_table(t.marks, ' ') m where strpos(p_text, ltrim(m, '*')) > 0) end loop
    v_tries := 0;
    for v_found in select regexp_matches(p_text, '(?<![A-Za-z0-9+])(' || v_shape.pattern || ')', 'g') loop
      v_tries := v_tries + 1;
      exit when v_tries > 10000;
      continue when v_found[1] !~ '[0-9]|[a-z][A-Z].*[a-z][A-Z]' or v_found[1] ~* '(?:x{6}|0{12}|your|example-|[-_]here$|placeholder|[.]{3})';
      kind := v_shape.kind;
      value := v_found[1];
      return next;
      exit when not p_all;
    end loop;
  end loop;
end $$;

create or replace function _memoir.placed_secrets(p_text text, p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_place record; v_found text[]; v_marks constant text := _memoir.secret_marks(); v_lower text; v_tries integer;
begin
  if p_text !~* v_marks then return; end if;
  v_lower := lower(p_text);
  for v_place in select * from _memoir.secret_places() p
    where exists (select from unnest(p.marks) m where strpos(v_lower, split_part(m, '&', 1)) > 0
      and (strpos(m, '&') = 0 or strpos(v_lower, split_part(m, '&', 2)) > 0)) loop
    v_tries := 0;
    for v_found in select regexp_matches(p_text, v_place.pattern, v_place.flags) loop
      v_tries := v_tries + 1;
      exit when v_tries > 10000;
      value := case when v_place.strength is null then v_found[1] else _memoir.bare_value(v_found[1]) end;
      continue when value is null or v_place.strength is not null and (_memoir.value_strength(value, true)
        < case v_place.strength when 9 then 1 else v_place.strength end or v_place.strength = 9 and _memoir.is_about(value));
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

-- PINs, and codes for one use: digits beside what they are called, in any language.
create or replace function _memoir.secret_codes(p_text text, p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_found text[]; v_tries integer := 0;
  v_pins constant text := _memoir.any_word(null, 'pin_names');
  v_codes constant text := _memoir.any_word(null, 'code_names');
  v_before constant text := '(?<![A-Za-z])(';
  v_between constant text := ')(?![A-Za-z])([^0-9\n.;!?]*)';
  v_ends constant text := '(?![0-9A-Za-z]|[-./][0-9])';
begin
  if p_text !~ '[0-9]{3}' then return; end if;
  -- The bare names first: the whole patterns take a while to compile.
  for v_found in select regexp_matches(p_text, v_before || v_pins || v_between || '([0-9]{3,8})' || v_ends, 'gi')
    where p_text ~* v_pins loop
    v_tries := v_tries + 1;
    exit when v_tries > 10000;
    -- Three digits stand on cards only; six behind "PIN code" are a place in India.
    continue when length(v_found[2]) > 60 or not _memoir.links_number(v_found[2]) or length(v_found[3]) = 3
        and v_found[1] !~* '^c|sicherheit|segur|sicurezza|beveilig|安全|セキュ|prüf|krypto'
      or length(v_found[3]) = 6 and v_found[1] ~* '^pin[ -]?code$'
        and p_text !~* '(?:card|bank|sim|phone|atm|unlock|account|my|new) pin|pin (?:code )?(?:for|of) (?:my|the)';
    kind := 'PIN';
    value := v_found[3];
    return next;
    exit when not p_all;
  end loop;
  kind := 'one-time code';
  for v_found in
    select regexp_matches(p_text, v_before || v_codes || v_between || '([0-9]{3,4}[ -]?[0-9]{1,4}|[A-Z]{1,3}-[0-9]{4,8})' || v_ends, 'gi')
    where p_text ~* v_codes
    union all
    select array['', ':', m[1]] from regexp_matches(p_text, '(?<![0-9A-Za-z.-])((?:[A-Z]-)?[0-9]{4,8})\s+(?:is|ist|es|est|è|é)\s+'
      || '(?:your|the|my|ihr|dein|mein|tu|su|votre|seu|il tuo)\s[^\n.0-9]*?(?:code|otp|tan|c[oó]digo|codice|pin)(?![a-z])', 'gi') m
    where p_text ~* 'code|otp|tan|c[oó]digo|codice|pin' loop
    v_tries := v_tries + 1;
    exit when v_tries > 20000;
    continue when length(v_found[2]) > 60 or not _memoir.links_number(v_found[2]);
    value := v_found[3];
    return next;
    exit when not p_all;
  end loop;
end $$;

-- The words of a wallet (BIP-39): twelve to twenty-four plain ones, none of which joins others to a sentence. Where
-- nothing says what they are, a line of exactly as many as such a phrase has.
create or replace function _memoir.seed_phrases(p_text text)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_found text[]; v_words text[]; v_named boolean; v_inflected integer; v_phrase text; v_lines text; v_tries integer := 0;
begin
  if p_text !~ '(?:[a-z]{3,8}[\s,0-9.):]{1,6}){11}[a-z]{3,8}' then return; end if;
  v_named := p_text ~* ('(?:seed|recovery|mnemonic|backup|secret|wallet|wiederherstellungs|semilla|recuperación|récupération)[ -]?(?:phrase|words?|wörter|phrasen|frase)'
    || '|mnemonic|bip-?39|metamask|phantom|ledger|trezor|助记词|助記詞|ニーモニック|シードフレーズ|시드|니모닉|сид[- ]?фраз|мнемоник|frase semilla|phrase (?:de récupération|secrète)');
  v_phrase := '((?:[0-9]{1,2}[.):]?[ \t]*)?[a-z]{3,8}(?:[ \t,]{1,3}(?:\n[ \t]*)?(?:[0-9]{1,2}[.):]?[ \t]*)?[a-z]{3,8}){11,})';
  v_lines := '((?:[0-9]{1,2}[.):]?[ \t]*)?[a-z]{3,8}(?:\s{1,3}(?:[0-9]{1,2}[.):]?[ \t]*)?[a-z]{3,8}){11,})';
  for v_found in select regexp_matches(p_text, '(?:^|[\n"`“「][ \t]*)' || v_lines || '[ \t]*(?=["`”」.]?[ \t]*(?:\n|$))', 'g')
    union all select regexp_matches(p_text, '(?<![A-Za-z''’-])' || v_phrase || '(?![A-Za-z''’-])', 'g') where v_named
    union all select regexp_matches(p_text, '(?<![A-Za-z''’-])' || v_lines || '(?![A-Za-z''’-])', 'g') where v_named loop
    v_tries := v_tries + 1;
    exit when v_tries > 1000;
    v_words := regexp_split_to_array(btrim(regexp_replace(v_found[1], '[^a-z]+', ' ', 'g')), ' ');
    v_inflected := cardinality(array(select w from unnest(v_words) w where w ~ '[a-z](?:ing|ed|[^siu]s)$'));
    continue when cardinality(v_words) > 60 or v_inflected * 6 > cardinality(v_words)
      or not v_named and cardinality(v_words) not in (12, 15, 18, 21, 24) or v_words
        && string_to_array('the,and,for,are,was,but,his,her,had,has,not,from,have,been,were,which,their,would,could,our,its,them,please,with', ',');
    kind := 'seed phrase';
    value := v_found[1];
    return next;
    return;
  end loop;
end $$;

-- All that is found in a text; unless p_all, one of each kind is enough.
create or replace function _memoir.secrets_in(p_text text, p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
begin
  return query select * from _memoir.secret_tokens(p_text, p_all);
  return query select * from _memoir.placed_secrets(p_text, p_all);
  return query select * from _memoir.named_secrets(p_text, p_all);
  return query select * from _memoir.secret_numbers(p_text, p_all);
  return query select * from _memoir.secret_codes(p_text, p_all);
  return query select * from _memoir.seed_phrases(p_text);
end $$;

-- The kinds of secrets in a text: none for nearly every text, which a few plain patterns tell; a backend keeps but 32
-- compiled.
create or replace function _memoir.secret_kinds(p_text text)
returns text[] language plpgsql immutable as $$
declare
  -- Full-width digits and invisible marks disguise nothing.
  v_text text := case when octet_length(p_text) = length(p_text) then p_text
    else regexp_replace(normalize(p_text, nfkc), '[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]', '', 'g') end;
begin
  if v_text is null then return '{}'; end if;
  return array(select s.kind from _memoir.secrets_in(v_text, false) s group by s.kind order by s.kind);
end $$;

-- The same text with what was found blotted out: for what has to go to a model before it is stored, like a query's
-- vector.
create or replace function _memoir.redacted(p_text text)
returns text language plpgsql immutable as $$
declare
  v_text text := p_text; v_values text[]; v_value text;
begin
  if _memoir.secret_kinds(p_text) = '{}' then return p_text; end if;
  v_values := array(select s.value from _memoir.secrets_in(p_text, true) s group by s.value order by length(s.value) desc);
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
    (select string_agg(c #>> '{function,arguments}', E'\n' order by o)
      from jsonb_array_elements(p_message.tool_calls) with ordinality t(c, o)),
    p_message.extra::text, nullif(p_metadata, '{}')::text);
end $$;
