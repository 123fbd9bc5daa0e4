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

-- A name, words that say whose it is, what links it with its value (": ", " is ", "="), the value, and the end of the
-- sentence if it ends there. Four groups and before them the dashes of an option. The quantifier {1,1} has the whole
-- match as long as it gets, though what is between name and link is as short as possible.
create or replace function _memoir.named_value(p_names text, p_of text, p_says text)
returns text language sql immutable as $$
  select '(?:((?<![A-Za-z0-9-])--?[A-Za-z-]*)?(' || p_names || ')["''`»“”*_\\\])}>」』]{0,4}'
    || '(?:(?:[ \t]+?\([^()\n]{1,40}\)|[ \t]+?(?:' || p_of || ')(?![a-z])[^\n.:;!?="]{0,50}?)??)'
    || '([ \t]*(?:(?<![A-Za-z])(?:' || p_says || ')(?:(?![A-Za-z])|(?<=[^ -~]))(?:[ \t]+(?:now|still|just|currently|actually|simply|ahora|jetzt|nun|maintenant))?'
    || '[ \t]*(?:[:：][ \t]*)?|(?::=|=>|->|→|[=＝](?![=~])|[:：](?![:=]))[ \t*_]*\n?[ \t]*|[ \t]+(?=[^\s]*[0-9@#$%^&*!=+~"''`])|(?<![ -~])))'
    || '(' || _memoir.value_pattern() || ')(\s*(?:[.,;!?)\n]|\Z)|[ \t]+(?:and|but|so|und|y|et|e|en)(?![a-z]))?){1,1}'
$$;

-- A value with its quotes and what follows it in a sentence taken off.
create or replace function _memoir.bare_value(p_value text)
returns text language sql immutable strict as $$
  select case when p_value ~ '^\\*["''`「『„“«]' then regexp_replace(p_value, '^\\*["''`「『„“«]|\\*["''`」』“”»]$', '', 'g')
    else regexp_replace(p_value, '[*_]{2}$|[\\.,:;)\]}*]+$', '') end
$$;

-- What a value may be by its looks alone: 0 none (a placeholder, an expression, a path, a date, a name of an algorithm),
-- 1 a word or a plain number, 2 mixed as passwords are, 3 random.
create or replace function _memoir.value_strength(p_value text, p_quoted boolean)
returns integer language plpgsql immutable strict as $$
declare
  v_plain text := regexp_replace(p_value, '[.,:;!?]+$', '');
begin
  case
    when v_plain = '' or p_value ~ '^[<\[{(%]|^\$[A-Za-z_{(]|^@[a-z_]+$|^:[a-z_]+$|^[*•●.x_?-]+$|[*•●]{3}|x{4}|X{4}|\.{3}|…|0{8}'
      or p_value ~ '\$[{(]|[$][A-Z_]{3}|\{\{|<%|%\(|%s|[A-Za-z]\[["'']|\(\)' then return 0;
    when v_plain ~* ('^(?:' || _memoir.any_word('english', 'placeholders') || ')$')
      or v_plain ~* '(?:^|[-_. ])(?:your|example|placeholder|change|changeme|replace|insert|redacted|dummy|withheld|goes)(?:[-_. ]|$)'
    then return 0;
    -- Paths, addresses, references to stores of secrets, dates, versions, times, amounts.
    when p_value ~* '^(?:[~.]*/[^ ]*/|/[a-z]+|\./|[a-z]:\\|[a-z]+://|(?:op|arn|vault|file|env|ssm|secretsmanager|projects|sops|enc|ref|keyring|pass)[:/!\[]|!)'
      or v_plain ~* '\.(?:txt|pem|key|json|ya?ml|env|py|js|ts|tsx|md|html?|php|rb|go|java|pdf|png|jpe?g|cfg|conf|ini|crt|cer|pub|sh|sql|com|org|net|kdbx?|gpg|csv)$'
      or v_plain ~ '^[0-9]{1,4}[-/.:][0-9]{1,2}(?:[-/.:T][0-9:.TZ+-]*)?$|^v?[0-9]+(?:\.[0-9]+)+$|^[0-9]{1,3}$|^[0-9]+(?:[.,][0-9]+)+$'
      or v_plain ~* '^[0-9.,]+-?(?:px|m?s|[kmgt]i?b|[kmgt]|days?|chars?|characters?|digits?|bits?|bytes?|st|nd|rd|th|x|%|h|hours?|min|mins|minutes?|years?|times|eur|usd|€|am|pm|ft|cm|mm|km|w|v)$'
    then return 0;
    when v_plain ~* '^(?:sha[-_]?[0-9]+|md[45]|utf-?(?:8|16)|base-?(?:16|32|58|64)|o?auth-?[12](?:\.[01])?|argon2(?:id|i|d)?|pbkdf2\S*|rsa-?[0-9]*|aes-?[0-9]\S*|ed25519|x509|x25519|hmac\S*|[rhep]s(?:256|384|512)|[2u]fa?2?|fido2?|web[1-4]|python[23]|ipv[46]|k8s|s3|ec2|win(?:dows)?[0-9]+|wpa[23]?|http/?[123]|bcrypt2?|scrypt|pkcs#?[0-9]+|[0-9]+-?(?:factor|step)|step[0-9]+|v[0-9]+|p[0-9]|q[1-4])$'
    then return 0;
    -- Code: calls, attributes, names.
    when not p_quoted and (p_value ~ '^[A-Za-z_][A-Za-z0-9_.:>$-]*\(' or v_plain ~ '^[A-Za-z_$][A-Za-z_]*(?:(?:\.|->|::)[A-Za-z_][A-Za-z0-9_]*)+$'
      or v_plain ~ '^(?:self|this|os|process|env|config|req|request|params|args|opts)[.\[]') then return 0;
    when v_plain ~ '^[A-Za-z0-9_+/=.~:%-]{16,}$' and v_plain ~ '[0-9]' and v_plain ~ '[A-Za-z]'
      and v_plain !~ '^[a-z]+(?:[._/-][a-z]+)*(?:[._-]?v?[0-9]{1,4})?$' and v_plain !~ '^[A-Za-z]+(?:[ _/.-][A-Za-z]+)+[0-9]{0,4}$'
      or v_plain ~ '^[A-Za-z+/_-]{20,}={0,2}$' and v_plain ~ '(?:[a-z]+[A-Z]+){5}' then return 3;
    when v_plain ~ '[0-9]' and v_plain ~* '[[:alpha:]]' or v_plain ~ '[[:alnum:]][]@#$%^&*+=~!|?\\[{}]+[[:alnum:]]'
      or v_plain ~ '^[a-z]+(?:[-_.][a-z]+){3,}$' or v_plain ~ '[0-9][@#$%^&*!?_-]' or v_plain ~ '^[@#$%^&*!?]+[[:alnum:]]{4}'
      or v_plain ~ '[a-z][A-Z]' and v_plain ~ '^[A-Za-z]{8,}$' and p_quoted then return 2;
    else return 1;
  end case;
end $$;

-- Whether a word says something about a password rather than is one.
create or replace function _memoir.is_about(p_word text)
returns boolean language sql immutable strict as $$
  select lower(p_word) ~ ('^(?:' || _memoir.any_word('english', 'password_stops') || ')$')
    or p_word ~* '^[a-z-]+(?:ed|ing|ly|able|ible|ous|less|ful|ive)$'
$$;

-- Whether the value of a named_value() is one: p_found has its groups, p_language that of its name.
create or replace function _memoir.is_password(p_found text[], p_language text)
returns boolean language plpgsql immutable as $$
declare
  v_option boolean := p_found[1] is not null; v_link text := p_found[3]; v_value text := _memoir.bare_value(p_found[4]);
  v_quoted boolean := p_found[4] ~ '^\\*["''`「『„“«]'; v_assigned boolean := v_link ~ '[=:：＝→>]';
  v_ends boolean := p_found[5] is not null or p_found[4] ~ '[.!?]$'; v_length integer := length(v_value);
  v_strength integer;
begin
  -- A name and its value touch only where words do.
  if v_value is null or v_length < 4 or v_link = '' and p_found[2] ~ '^[ -~]+$' then return false; end if;
  v_strength := _memoir.value_strength(v_value, v_quoted);
  if v_strength = 0 or _memoir.is_about(v_value) then return false; end if;
  -- A sentence in quotes is a message to people.
  if v_quoted and v_value ~ '\s' then
    return v_assigned and v_strength >= 2 and v_value !~ '\s\S+\s\S+\s' and v_value !~ '^[A-Z]?[a-z]+\s'
      or v_value ~ '^[a-z]{3,12}(?: [a-z]{3,12}){3,7}$' and v_value !~ '(?:^| )(?:the|and|your|must|password|not|for|is)(?: |$)';
  end if;
  if v_strength >= 2 then return v_link ~ '\S' or v_option or v_quoted or v_length >= 6; end if;
  if v_value ~ '^[0-9]+$' then
    return v_option or v_quoted or v_link ~ '\S' and v_ends and (p_found[2] !~* '^pass$' or v_link ~ '=');
  end if;
  if lower(v_value) = lower(p_found[2]) or not v_quoted and v_value ~* 'passw|pwd|_' and not v_option then return false; end if;
  -- A plain word: where a value must stand, or the sentence ends with it.
  return case
    when v_option or v_quoted then v_value ~ '^[^\s-]'
    when v_link ~ '^[=]' then p_found[4] !~ '[)\];,]$' and coalesce(p_found[5], '') !~ '^\s*[),;]'
    when v_assigned then v_ends and p_found[2] !~* '^pass$' and coalesce(p_found[5], '') !~ '^\s*[),;]|and|or|but'
      and p_found[4] !~ '[)\];,]$' and v_link !~ '\n'
    else v_ends and p_language = 'english' and v_link ~* '\m(?:is|to|was)\M' and v_value ~ '^[A-Za-z]{5,}[.!]*$'
  end;
end $$;

-- The same of keys and tokens: these are random, unless they stand where a value of theirs must.
create or replace function _memoir.is_key(p_found text[])
returns boolean language plpgsql immutable as $$
declare
  v_name text := lower(p_found[2]); v_value text := _memoir.bare_value(p_found[4]);
  v_quoted boolean := p_found[4] ~ '^\\*["''`]'; v_assigned boolean := p_found[3] ~ '[=:：＝→>]' or p_found[1] is not null;
  v_vague boolean := v_name ~ '^(?:token|key|jwt|bearer|credentials?|creds|sid|sig|signature|hmac|salt|auth|code|assertion|nonce|secret|sess.*)$';
  v_strength integer;
begin
  if v_value is null or length(v_value) < 8 or p_found[3] = '' or v_value ~ '\s' then return false; end if;
  v_strength := _memoir.value_strength(v_value, v_quoted);
  return case
    when v_strength = 0 or v_value ~ '^(?:ssh-|pk_|sha[0-9]+[-:])' then false
    when v_name in ('code', 'salt', 'nonce', 'auth') then v_strength = 3 and length(v_value) >= 20 and v_assigned
      and v_value !~ '^[0-9a-f]+$' and v_value ~ '[A-Z]'
    when v_name = 'secret' then v_strength >= 2 and v_assigned or v_strength = 3
    when v_vague then v_strength = 3 and v_value !~ '/.*[.]|^[a-z]+(?:[._:/-][a-z0-9]+)+$|^[A-Za-z]+-[A-Za-z]+-'
    when v_strength = 3 then true
    when v_strength = 2 then v_assigned or length(v_value) >= 10
    else v_assigned and v_name ~ 'secret' and not _memoir.is_about(v_value) and (v_quoted or p_found[3] = '=')
      and v_value !~ '_|[)\];,]$' and coalesce(p_found[5], '') !~ '^\s*[),;]'
  end;
end $$;

-- Values of passwords, keys and tokens behind their names.
create or replace function _memoir.named_secrets(p_text text, p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_found text[]; v_language text; v_tries integer;
  v_languages constant text[] := '{english,german,spanish,french,portuguese,italian,dutch,swedish,danish,norwegian,finnish,polish,czech,'
    'hungarian,romanian,russian,ukrainian,turkish,greek,arabic,persian,hebrew,hindi,chinese,japanese,korean,vietnamese,indonesian,thai}';
  v_names constant text := _memoir.any_word(null, 'password_names');
  v_english constant text := _memoir.any_word('english', 'password_names');
  v_keys constant text := '(?<!(?:' || _memoir.any_word('english', 'harmless_keys') || ')[ _.-]?)(?:' || _memoir.any_word('english', 'key_names') || ')';
  v_key_names constant text := _memoir.any_word('english', 'key_names');
begin
  kind := 'password';
  if p_text ~* v_names then
    foreach v_language in array v_languages loop
      continue when p_text !~* _memoir.any_word(v_language, 'password_names');
      v_tries := 0;
      for v_found in select regexp_matches(p_text, _memoir.named_value(_memoir.any_word(v_language, 'password_names'),
          coalesce(nullif(_memoir.any_word(v_language, 'password_of'), ''), 'for'), _memoir.any_word(v_language, 'password_says')), 'gi') loop
        v_tries := v_tries + 1;
        exit when v_tries > 10000;
        continue when not _memoir.is_password(v_found, v_language);
        value := _memoir.bare_value(v_found[4]);
        return next;
        exit when not p_all;
      end loop;
    end loop;
  end if;
  if p_text ~* v_key_names then
    kind := 'token';
    v_tries := 0;
    for v_found in select regexp_matches(p_text, _memoir.named_value(v_keys, 'for|of|to|on|at|in|from', 'is|are|was|to|will be'), 'gi') loop
      v_tries := v_tries + 1;
      exit when v_tries > 10000;
      continue when not _memoir.is_key(v_found);
      value := _memoir.bare_value(v_found[4]);
      return next;
      exit when not p_all;
    end loop;
  end if;
end $$;

-- Where a secret stands without such a name, or is told by what stands around it. marks: what the text must hold, in
-- small letters, before the pattern is tried; strength: what value_strength() the first group must have at least, none
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
      'cookie["''\\]*\s*[:=][^\n]{0,200}?(?:sess|sid|auth|token|jwt|login|remember|clearance|identity|__secure|__host)[A-Za-z0-9_.-]*=["'']?([^\s;,"'']{8,})'),
    ('cookie', '{cookie}', 3, 'gi', 'cookies?["''\\]*(?:\s*[:=]|\s+(?:value\s+)?is)[^\n]{0,200}?[= :]["'']?([^\s;,"''=]{16,})'),
    ('connection string', '{://}', 9, 'gi',
      '(?<![A-Za-z])[a-z][a-z0-9+.-]{1,20}://[^\s:/@"''<>]*:([^\s/"''<>]{3,})@[^\s/@"''<>]+'),
    ('connection string', '{://}', 3, 'gi', '://([A-Za-z0-9_-]{20,})(?::x-oauth-basic)?@[A-Za-z0-9]'),
    ('password', '{pass,secret}', 9, 'gi',
      '(?:login|username|user|uid|account)\s+["'']?[^\s"'':]+["'']?\s+(?:password|passwd|pass|secret)\s+(?:[0-9]\s+)?["'']?([^\s"'']{3,})'),
    ('password', '{:}', 9, 'gn', '^(?:[A-Za-z*][A-Za-z0-9.-]*|\*):(?:[0-9]{4,5}|\*):[A-Za-z_*][A-Za-z0-9_-]*:[A-Za-z_*][A-Za-z0-9_.-]*:([^\s:]{4,})$'),
    ('password', '{:$,":{ss"}', null, 'gn',
      '^[A-Za-z0-9._@-]+:(\$(?:1|2[abxy]?|5|6|7|y|gy|apr1|argon2[id]*|sha1|scrypt)\$[^\s:]{8,}|\{SS?HA[0-9]*\}[A-Za-z0-9+/=]{16,})'),
    ('password', '{curl,wget,http}', 9, 'gi',
      '(?<![a-z])(?:curl|wget|https?|xh)[ \t][^\n]{0,200}?[ \t](?:-u|--user|--proxy-user|-a|--auth)[ =]?["'']?[^\s:"''$<]*:([^\s"'']{2,})'),
    ('password', '{mysql,mariadb,7z}', 9, 'g', '(?<![A-Za-z])(?:mysql|mariadb|7z)[a-z-]*[ \t](?:[^\n]{0,200}[ \t])?-p["'']?([^\s"''-][^\s"'']+)'),
    ('password', '{sshpass}', 9, 'g', 'sshpass[ \t]+-p[ \t]*["'']?([^\s"'']{2,})'),
    ('password', '{login,mongo,rdesktop}', 9, 'g',
      '(?<![A-Za-z])(?:(?:docker|podman|helm|az|oc|nerdctl|skopeo|buildah|crane)[ \t][^\n]{0,60}?login|mongo[a-z]*|rdesktop)[ \t][^\n]{0,200}?-p[ =]["'']?([^\s"''-][^\s"'']+)'),
    ('password', '{redis-cli,ldap,sqlcmd,bcp,zip,winrm,freerdp}', 9, 'g',
      '(?<![A-Za-z])(?:redis-cli[ \t][^\n]{0,200}?-a|ldap[a-z]+[ \t][^\n]{0,200}?-w|(?:sqlcmd|bcp|(?:un)?zip)[ \t][^\n]{0,200}?-P|evil-winrm[ \t][^\n]{0,200}?-p|xfreerdp[ \t][^\n]{0,200}?/p:)[ \t]*["'']?([^\s"''-][^\s"'']+)'),
    ('password', '{smb,rpcclient,cifs}', 9, 'g', '(?:smb[a-z]+|rpcclient|cifs)[^\n]{0,200}?-U[ =]?["'']?[^\s%"'']+%([^\s"'']{2,})'),
    ('password', '{sudo -s,chpasswd,--password-stdin,--with-token,passwd --stdin}', 9, 'g',
      '(?:echo|printf)[ \t]+(?:-n[ \t]+)?["'']?([^\s"''|]{3,})["'']?[ \t]*\|[^\n|]{0,40}(?:sudo (?:-[a-z]+ )?-S|chpasswd|--password-stdin|--with-token|passwd --stdin)'),
    ('password', '{pass:}', 9, 'g', '-pass(?:in|out)?[ \t]+["'']?pass:([^\s"'']{2,})'),
    ('password', '{sqlplus,lftp,expdp,impdp}', 9, 'g', '(?:sqlplus|lftp|expdp|impdp)[ \t][^\n]{0,60}?[A-Za-z0-9_]+[/,]([^\s/@"'']{3,})'),
    ('password', '{net user,add_user,change_password,htpasswd,wpa_passphrase}', 9, 'g',
      '(?:net user[ \t]+\S+|(?:add_user|change_password)[ \t]+\S+|htpasswd[ \t]+-[a-zA-Z]*b[a-zA-Z]*[ \t]+\S+[ \t]+\S+|wpa_passphrase[ \t]+\S+)[ \t]+["'']?([^\s"''/][^\s"'']{2,})'),
    ('password', '{wifi:}', 9, 'gi', 'WIFI:[^\n]{0,200}?P:([^;\n]{3,});'),
    ('password', '{</}', 9, 'gi',
      '<[\w:.-]*(?:password|passwd|pwd|secret|token|api[_-]?key|private[_-]?key|passphrase)(?:\s[^<>]{0,200})?>\s*([^<>\s]{4,})\s*</'),
    ('password', '{value}', 9, 'gi',
      '(?:name|key|id|property)["'']?\s*[=:]\s*["'']?[A-Za-z0-9_.:-]*(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[_-]?key|access[_-]?key)["'']?[\s,]{1,20}["'']?(?:value|val)["'']?\s*[=:]\s*["'']?([^\s"''<>,}]{4,})'),
    ('password', '{pass,secret,token,key}', 2, 'gi',
      '["''][A-Za-z0-9_.-]*(?:password|passwd|secret|api_?key|token|pass)["''],\s*["'']([^\s"'']{5,})["'']'),
    ('password', '{identified by,securestring,setpassword,withpassword,set_password,set-password}', 9, 'gi',
      '(?:identified by|convertto-securestring(?: -string)?|(?:set|with)[_-]?password\()\s*["'']([^\s"'']{3,})["'']'),
    ('password', '{creds,credential,login,log in,logon,sign in,zugangsdaten,identifiants,credenciales,credenziali}', 2, 'gi',
      '(?:creds|credentials?|log-?in|log in|logon|sign in|zugangsdaten|identifiants|credenciales|credenziali)(?![a-z])[^\n]{0,25}?[\s:(=]["''`]?[a-z][a-z0-9_.@+-]{1,40}["''`]?\s?(?:[/:|,]|and|und|y|et|pw|\s-\s)\s?["''`]?([^\s"''`/,]{6,})'),
    ('password', '{password,passwort,kennwort}', null, 'gi', '(?:^|\n)[^\n]*(?:user|login|e-?mail)[^\n]{0,40}[,;\t]"?pass(?:word|wort)"?(?:[,;\t][^\n]*)?\n([^\n]+[,;\t][^\n]+)'),
    ('password', '{pass,pw,kennwort,contrase,senha,wachtwoord}', 2, 'gi',
      '(?<!\S)["''`“„]?([^\s"''`]{5,60})["''`”“]?\s+(?:is|was|as|als|ist|como|es|comme|est|come|è|é|is now)\s+(?:(?:my|the|your|our|his|her|their|a|an|new|old|current|wifi|wi-fi|router|email|laptop|mein|das|dein|unser|neue?s?|nuestra|mi|la|ma|mon|le|minha|a|il|mijn|het)\s+){1,4}(?:password|passphrase|passcode|pw|passwort|kennwort|contraseña|senha|mot de passe|wachtwoord)(?![a-z]|[ -](?:hash|field|manager|policy|encod|for[a-z]))'),
    ('password', '{pass,pw}', 2, 'gi', '(?:pass(?:word|phrase|code)?|pw)\s+from\s+\S{3,60}\s+to\s+["''`]?([^\s"''`]{4,})'),
    ('token', '{"\"auth\"",_auth}', 9, 'g', '"?_?auth"?\s*[:=]\s*"?((?=[A-Za-z0-9+/=]*[a-z])(?=[A-Za-z0-9+/=]*[A-Z])[A-Za-z0-9+/]{12,}={0,2})'),
    ('token', '{kind: secret,"kind\":\"secret","kind\": \"secret"}', 9, 'gn',
      '^\s+"?(?!name|namespace|type|kind|uid|resource)[A-Za-z0-9_.-]+"?:\s*"?((?=[A-Za-z0-9+/=]*[a-z])(?=[A-Za-z0-9+/=]*[A-Z0-9])[A-Za-z0-9+/]{8,}={0,2})"?,?$'),
    ('token', '{recovery,backup,scratch,rescue,emergency,wiederherstellung,récupération,recuperación}', null, 'gi',
      '(?:recovery|backup|scratch|rescue|emergency|wiederherstellungs|(?:codes? de )?(?:récupération|recuperación))[ -]?(?:codes?|keys?|schlüssel)?[^\n:0-9]{0,40}[:\s=]\s*((?=[A-Za-z-]{0,12}[0-9])[A-Za-z0-9]{4,10}(?:-[A-Za-z0-9]{3,10}){1,7}(?:[\s,;]+(?=[A-Za-z-]{0,12}[0-9])[A-Za-z0-9]{3,10}(?:-[A-Za-z0-9]{3,10})*)*)'),
    ('token', '{licen,product,activation}', null, 'gi',
      '(?:product|licen[sc]e|activation|lizenz)[ -]?(?:key|code|schlüssel)[^\n]{0,30}?(?<![A-Za-z0-9-])((?=[A-Z-]{0,20}[0-9])[A-Z0-9]{4,6}(?:-[A-Z0-9]{4,6}){2,7})(?![A-Za-z0-9-])'),
    ('password', '{security question,security answer,secret question,secret answer,sicherheitsfrage}', 9, 'gi',
      '(?:(?:security|secret) (?:question|answer)|sicherheitsfrage)[^\n]{0,100}?(?:answer|antwort|response)["'')]?\s*(?:is|ist|was|:|=)\s*["'']?([^\s"''.,;]{3,})|(?:security|secret) answer["'')]?'
      || '[^\n]{0,40}?(?:\s+is|\s+was|:|=)\s*["'']?[^\s"''.,;]{3,}'),
    ('private key', '{}', 3, 'g', '(?<![A-Za-z0-9])([5KL][1-9A-HJ-NP-Za-km-z]{50,51})(?![A-Za-z0-9])')
$$;

-- The marks of all of them as one pattern, and of tokens.
create or replace function _memoir.secret_marks()
returns text language sql immutable as $$
  select string_agg(distinct regexp_replace(m, '([^A-Za-z0-9 _])', '\\\1', 'g'), '|')
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
    for v_found in select regexp_matches(p_text, '(?<![A-Za-z0-9])(' || v_shape.pattern || ')', 'g') loop
      v_tries := v_tries + 1;
      exit when v_tries > 10000;
      continue when v_found[1] !~ '[0-9]' or v_found[1] ~* '(?:x{6}|0{12}|your|example-|[-_]here$|placeholder|[.]{3})';
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
    where p.marks = '{}' or exists (select from unnest(p.marks) m where strpos(v_lower, m) > 0) loop
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

-- PINs, and codes for one use: digits beside what they are called, in any language.
create or replace function _memoir.secret_codes(p_text text, p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_found text[]; v_tries integer := 0;
  v_pins constant text := '(?<![A-Za-z])(?:' || _memoir.any_word(null, 'pin_names') || ')(?![A-Za-z])';
  v_codes constant text := '(?<![A-Za-z])(?:' || _memoir.any_word(null, 'code_names') || ')(?![A-Za-z])';
  v_link constant text := '(?:\s*\([^()\n]{1,30}\)|\s+(?:' || _memoir.any_word(null, 'password_of') || ')(?![a-z])[^0-9\n.:;!?]{0,40})?'
    || '["''*]{0,3}\s*(?:' || _memoir.any_word(null, 'password_says') || ')?\s*[:=：#]?\s*["''*「]{0,3}';
begin
  if p_text !~ '[0-9]{3}' then return; end if;
  if p_text ~* v_pins then
    for v_found in select regexp_matches(p_text, '(' || v_pins || ')' || v_link || '([0-9]{3,8})(?![0-9A-Za-z]|[-./][0-9])', 'gi') loop
      v_tries := v_tries + 1;
      exit when v_tries > 10000;
      -- Three digits stand on cards only; six behind "PIN code" are a place in India.
      continue when length(v_found[2]) = 3 and v_found[1] !~* '^c|sicherheit|segur|sicurezza|beveilig|安全|セキュ|prüf|krypto'
        or length(v_found[2]) = 6 and v_found[1] ~* '^pin[ -]?code$'
          and p_text !~* '(?:card|bank|sim|phone|atm|unlock|account|my|new) pin|pin (?:code )?(?:for|of) (?:my|the)';
      kind := 'PIN';
      value := v_found[2];
      return next;
      exit when not p_all;
    end loop;
  end if;
  if p_text ~* v_codes then
    for v_found in select regexp_matches(p_text, v_codes || v_link || '([0-9]{3,4}[ -]?[0-9]{1,4}|[A-Z]{1,3}-[0-9]{4,8})(?![0-9A-Za-z]|[-./][0-9])', 'gi')
      union all select regexp_matches(p_text, '(?<![0-9A-Za-z.-])((?:[A-Z]-)?[0-9]{4,8})\s+(?:is|ist|es|est|è|é)\s+(?:your|the|my|ihr|dein|mein|tu|su|votre|seu|il tuo)[^\n.]{0,40}?'
        || '(?:code|otp|tan|c[oó]digo|codice|pin)(?![a-z])', 'gi') loop
      v_tries := v_tries + 1;
      exit when v_tries > 10000;
      kind := 'one-time code';
      value := v_found[1];
      return next;
      exit when not p_all;
    end loop;
  end if;
end $$;

-- The words of a wallet (BIP-39): twelve to twenty-four plain ones, none of which joins others to a sentence. Where
-- nothing says what they are, a line of exactly as many as such a phrase has.
create or replace function _memoir.seed_phrases(p_text text)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_found text[]; v_words text[]; v_named boolean; v_tries integer := 0;
begin
  if p_text !~ '(?:[a-z]{3,8}[\s,0-9.):]{1,6}){11}[a-z]{3,8}' then return; end if;
  v_named := p_text ~* ('(?:seed|recovery|mnemonic|backup|secret|wallet|wiederherstellungs|semilla|recuperación|récupération)[ -]?(?:phrase|words?|wörter|phrasen|frase)'
    || '|mnemonic|bip-?39|metamask|phantom|ledger|trezor|助记词|助記詞|ニーモニック|シードフレーズ|시드|니모닉|сид[- ]?фраз|мнемоник|frase semilla|phrase (?:de récupération|secrète)');
  for v_found in select regexp_matches(p_text, '(?:^|[\n"''`:(“「]|[:：] |\A)[ \t]*((?:[0-9]{1,2}[.):]?[ \t]*)?[a-z]{3,8}'
      || '(?:[ \t]*(?:,|\n)?[ \t]*(?:[ \t]|,|\n)(?:[0-9]{1,2}[.):]?[ \t]*)?[a-z]{3,8}){11,})(?![A-Za-z''’-])', 'g')
    union all select regexp_matches(p_text, '(?<![A-Za-z''’-])((?:[0-9]{1,2}[.):]?[ \t]*)?[a-z]{3,8}(?:[\s,]{1,3}(?:[0-9]{1,2}[.):]?[ \t]*)?[a-z]{3,8}){11,})(?![A-Za-z''’-])', 'g') loop
    v_tries := v_tries + 1;
    exit when v_tries > 1000;
    v_words := regexp_split_to_array(btrim(regexp_replace(v_found[1], '[^a-z]+', ' ', 'g')), ' ');
    continue when not v_named and cardinality(v_words) not in (12, 15, 18, 21, 24) or cardinality(v_words) > 60
      or ' ' || array_to_string(v_words, ' ') || ' ' ~ (' (?:the|and|for|are|was|but|his|her|had|has|not|from|have|been|were|which|their|would|could|should|our|may|per|via|its|them|please|with) '
        || '|[a-z](?:ing|ed|[^siu]s) ') and (not v_named or ' ' || array_to_string(v_words, ' ') || ' '
        ~ ' (?:the|and|for|are|was|his|her|had|has|not|from|have|been|were|which|their|would|could|our|please) ');
    kind := 'seed phrase';
    value := v_found[1];
    return next;
    return;
  end loop;
end $$;

-- All that is found in a text; unless p_all, one of each kind is enough.
create or replace function _memoir.secrets_in(p_text text, p_all boolean)
returns table (kind text, value text) language sql immutable as $$
  select * from _memoir.secret_tokens(p_text, p_all)
  union all select * from _memoir.placed_secrets(p_text, p_all)
  union all select * from _memoir.named_secrets(p_text, p_all)
  union all select * from _memoir.secret_numbers(p_text, p_all)
  union all select * from _memoir.secret_codes(p_text, p_all)
  union all select * from _memoir.seed_phrases(p_text)
$$;

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
    (select string_agg(_memoir.part_text(p), E'\n' order by o) filter (where p ->> 'type' not in ('text', 'refusal'))
      from jsonb_array_elements(p_message.parts) with ordinality t(p, o)),
    (select string_agg(c #>> '{function,arguments}', E'\n' order by o)
      from jsonb_array_elements(p_message.tool_calls) with ordinality t(c, o)),
    p_message.extra::text, nullif(p_metadata, '{}')::text);
end $$;
