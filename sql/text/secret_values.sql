-- Tells values of secrets from names and samples, by their alphabet and strength.

-- Returns what a value may be written as: in quotes, or up to a blank or what ends a field.
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

-- Returns what is no value by its looks: a placeholder, an expression, a path, an address, a date, a version, an
-- amount, the name of an algorithm. One pattern, since a backend keeps but 32 compiled and this is asked for
-- each candidate.
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

-- Returns what a value may be by its looks alone: 0 none, 1 a word or a plain number, 2 mixed as passwords are,
-- 3 random.
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

-- Returns whether a word says something about a password rather than is one.
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

-- Returns whether a value is one: p_found has the dashes of an option before its name, the name, what linked_value()
-- found behind it; p_language is that of the name.
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
