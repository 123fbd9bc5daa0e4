-- Where a secret may stand and which marks a text with one must hold, so that most texts are not looked through at all.

-- The languages but English in which passwords have names. Functions, since calls of immutable ones become constants in
-- the plans of those that ask each text.
create or replace function _memoir.foreign_languages()
returns text[] language sql immutable as $$
  select '{german,spanish,french,portuguese,italian,dutch,swedish,danish,norwegian,finnish,polish,czech,hungarian,romanian,
    russian,ukrainian,turkish,greek,arabic,persian,hebrew,hindi,chinese,japanese,korean,vietnamese,indonesian,thai}'::text[]
$$;

-- Each with letters that every one of its names of passwords has. Written out, as what base_marks() returns is: to
-- find them takes a new connection half a second. A test says that none lacks.
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

-- Where a secret stands without such a name, or is told by what stands around it. marks: what the text must hold, in
-- small letters (a&b: both), before the pattern is tried; strength: what value_strength() the first group must have at
-- least, none being for what the pattern alone tells; 9: whatever it is, unless it stands for another value.
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

-- Words without which nothing is looked for. Functions, since calls of immutable ones become constants in the plans of
-- those that ask each text. a&b: both.
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

-- Those in a text. Of a long one a pattern tells which two dozen are not there at all; of a short one the engine takes
-- longer to make a machine of the pattern.
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
