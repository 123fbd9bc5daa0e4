-- Numbers that are secrets: cards, accounts, personal numbers, PINs and codes for one use. Shapes that also occur
-- innocently are believed only when their check digits agree, or beside their name.
-- Formats: ISO 13616 (IBAN), ISO/IEC 7812 (cards), the issuers' documentation.

-- Each kind with its pattern, the first captured group being what the check sees. marks: one of these must stand in the
-- text, in small letters, or in its outline, where every digit is a 9 and every letter an A: a backend keeps but 32
-- patterns compiled, so few are tried. deniable: whether what stands before it ("order no.") can say otherwise.
-- Letters of other scripts may stand next to a number, so boundaries are said by what a number can't go on with.
create or replace function _memoir.number_patterns()
returns table (kind text, marks text[], deniable boolean, flags text, pattern text) language sql immutable as $$
  values
    ('IBAN', '{AA99}'::text[], false, 'gi',
      '(?<![A-Za-z0-9])([a-z]{2}[0-9]{2}(?:[ -]?[a-z0-9]{4}){2,7}(?:[ -]?[a-z0-9]{1,3})?)(?![A-Za-z0-9])'),
    ('UK national insurance number', '{AA999999,AA 99 99,AA 999999,AA99 99 99}', false, 'g',
      '(?<![A-Za-z0-9])((?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-D])(?![A-Za-z0-9])'),
    ('ES id', '{9999999A,9999999-A}', true, 'g', '(?<![A-Za-z0-9-])([0-9XYZ][0-9]{7}-?[A-Z])(?![A-Za-z0-9-])'),
    ('IT id', '{AAAAAA99A99A999A}', false, 'gi',
      '(?<![a-z0-9])([a-z]{6}[0-9]{2}[abcdehlmprst][0-9]{2}[a-z][0-9]{3}[a-z])(?![a-z0-9])'),
    ('card number', '{9999 9999 99,9999-9999-99,9999.9999.99,9999  9999,9999999999999,9999 999999 9,9999-999999-9}',
      true, 'g',
      '(?<![0-9A-Za-z/_+-])([2-6][0-9]{3}(?:[ .-]{0,2}[0-9]{4}){2}[ .-]{0,2}[0-9]{4}(?:[ -]?[0-9]{3})?'
      || '|3[0-9]{3}[ .-]{0,2}[0-9]{6}[ .-]{0,2}[0-9]{4,5})(?![0-9A-Za-z/_-]|[ .,-][0-9])'),
    ('card number', '{card,visa,maestro,karte,tarjeta,carte,cartão,cartao,carta,karty,карт,卡,カード,카드}', true, 'g',
      '(?<![0-9A-Za-z/_+.-])([4-6][0-9](?:[ .-]?[0-9]){11,17})(?![0-9A-Za-z/_-]|[ .,-][0-9])'),
    ('US social security number', '{999-99-9999,999‐99‐9999,999‑99‑9999,999–99–9999}', true, 'g',
      '(?<![0-9A-Za-z/.+-])([0-9]{3}[-\u2010-\u2015][0-9]{2}[-\u2010-\u2015][0-9]{4})(?![0-9A-Za-z]|-[0-9])'),
    ('US social security number', '{ssn,itin,social}', false, 'gi',
      '(?<![a-z])(?:ssn|itin|social(?:[ -]?security)?(?:[ -]?(?:number|no\.?|num|#))?)(?![a-z])[^0-9\n]{0,30}([0-9]{3}[ .-]?[0-9]{2}[ .-]?[0-9]{4})(?![0-9])'),
    ('FR id', '{9999999999999,9 99 99 ,99A,9A ,9 999 999 99}', false, 'gi',
      '(?<![A-Za-z0-9])([12] ?[0-9]{2} ?(?:0[1-9]|1[0-2]) ?(?:[0-9]{2}|2[ab]) ?[0-9]{3} ?[0-9]{3} ?[0-9]{2})(?![A-Za-z0-9])'),
    ('BR id', '{999.999.999-99}', false, 'g', '(?<![0-9.])([0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2})(?![0-9])'),
    ('IN id', '{9999 9999 9999,9999-9999-9999}', true, 'g',
      '(?:^|[^0-9A-Za-z+/ -]|[^0-9+)] )([2-9][0-9]{3}[ -][0-9]{4}[ -][0-9]{4})(?![0-9A-Za-z]|[ -][0-9])'),
    ('CN id', '{99999999999999999}', false, 'gi',
      '(?<![a-z0-9])([1-9][0-9]{5}(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[0-9]{3}[0-9x])(?![a-z0-9])'),
    ('CH id', '{999.9999.9999.99}', false, 'g', '(?<![0-9.])(756\.[0-9]{4}\.[0-9]{4}\.[0-9]{2})(?![0-9])'),
    ('SE id', '{999999-9999,999999+9999}', true, 'g',
      '(?<![A-Za-z0-9/+-])((?:19|20)?[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[-+][0-9]{4})(?![A-Za-z0-9-])'),
    ('FI id', '{999999-999,999999A999,999999+999}', false, 'g',
      '(?<![A-Za-z0-9])((?:0[1-9]|[12][0-9]|3[01])(?:0[1-9]|1[0-2])[0-9]{2}[-+A][0-9]{3}[0-9A-FHJ-NPR-Y])(?![A-Za-z0-9])'),
    ('KR id', '{999999-9999999}', false, 'g',
      '(?<![A-Za-z0-9-])([0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])-[1-8][0-9]{6})(?![A-Za-z0-9-])'),
    ('MX id', '{AAAA999999AAAAAA}', false, 'g',
      '(?<![A-Z0-9])([A-Z]{4}[0-9]{6}[HMX][A-Z]{5}[A-Z0-9][0-9])(?![A-Z0-9])'),
    ('CL id', '{9.999.999-}', true, 'gi', '(?<![0-9.])([0-9]{1,2}\.[0-9]{3}\.[0-9]{3}-[0-9k])(?![0-9a-z])'),
    ('BE id', '{99.99.99-999.99}', false, 'g',
      '(?<![0-9.])([0-9]{2}\.[01][0-9]\.[0-3][0-9]-[0-9]{3}\.[0-9]{2})(?![0-9])'),
    ('RU id', '{999-999-999 99}', true, 'g', '(?<![0-9-])([0-9]{3}-[0-9]{3}-[0-9]{3} [0-9]{2})(?![0-9])'),
    ('SG id', '{A9999999A}', true, 'g', '(?<![A-Za-z0-9])([STFG][0-9]{7}[A-Z])(?![A-Za-z0-9])'),
    ('TW id', '{A999999999}', true, 'g', '(?<![A-Za-z0-9])([A-Z][12][0-9]{8})(?![A-Za-z0-9])'),
    -- Bare digits say nothing without their name.
    ('NL id', '{bsn,burgerservice}', false, 'gi', '(?:bsn|burgerservicenummer)[^0-9\n]{0,20}([0-9]{9})(?![0-9])'),
    ('DE id', '{steuer,idnr}', false, 'gi',
      '(?:steuer-?id(?:nr)?|steueridentifikationsnummer|idnr)[^0-9\n]{0,20}([1-9][0-9] ?[0-9]{3} ?[0-9]{3} ?[0-9]{3})(?![0-9])'),
    ('PL id', '{pesel}', false, 'gi', 'pesel[^0-9\n]{0,20}([0-9]{11})(?![0-9])'),
    ('CA id', '{sin ,sin:,social insurance}', false, 'gi',
      '(?<![a-z])(?:sin|social insurance (?:number|no))(?![a-z])[^0-9\n]{0,20}([0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{3})(?![0-9])'),
    ('TR id', '{kimlik,tckn}', false, 'gi', '(?:kimlik|tckn)[^0-9\n]{0,30}([1-9][0-9]{10})(?![0-9])'),
    ('AU id', '{tfn,tax file}', false, 'gi',
      '(?:tfn|tax file number)[^0-9\n]{0,20}([0-9]{3} ?[0-9]{3} ?[0-9]{2,3})(?![0-9])'),
    ('UK health number', '{nhs}', false, 'gi',
      '(?<![a-z])nhs[^0-9\n]{0,25}([0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{4})(?![0-9])'),
    ('JP id', '{マイナンバー,個人番号,my number,mynumber}', false, 'gi',
      '(?:マイナンバー|個人番号|my ?number)[^0-9\n]{0,15}([0-9]{4}[ -]?[0-9]{4}[ -]?[0-9]{4})(?![0-9])'),
    ('IN id', '{aadhaar,aadhar}', false, 'gi',
      'aadhaa?r[^0-9\n]{0,25}([2-9][0-9]{3}[ -]?[0-9]{4}[ -]?[0-9]{4})(?![0-9])'),
    ('personal number', '{passport,licen,residence permit,national id,tax id,government id,identity id,reisepass,personalausweis,pasaporte,passeport,passaport,paspoort,паспорт,护照,護照,旅券,여권}',
      false, 'gi',
      '(?:passport|driv(?:er|ing)[’''s]{0,3} licen[sc]e|(?<![a-z])residence permit|(?<![a-z])(?:national|tax|government|identity) id|reisepass|personalausweis|pasaporte|passeport|passaporto|passaporte'
      || '|paspoort|паспорт[а-я]?|护照|護照|旅券|여권)[ -]?(?:numbers?|no\.?|num\.?|nummer|nr\.?|#|id|número|numéro|numero|号码?|番号|번호|номер)?[ \t]*(?:is|:|=|：|ist|es|est|是|は|는|#|lautet)?[ \t]*'
      || '((?:[A-Z]{0,4}[0-9]|[0-9]{2} ?[0-9]{2} )[A-Z0-9 -]{4,14}[0-9A-Z])(?![A-Z0-9])'),
    ('bank account', '{routing,sort code,checking,savings,bank,blz}', false, 'gi',
      '(?:routing|sort code|checking|savings|bank|aba|blz|ach|wire)[^\n]{0,60}?(?:account|acct|a/c|konto|kto|cuenta|compte|conta)[^0-9\n]{0,25}([0-9][0-9 -]{5,18}[0-9])(?![0-9])'),
    ('bank account', '{routing,sort code,aba}', false, 'gi',
      '(?:account|acct|a/c)[^0-9\n]{0,25}([0-9][0-9 -]{5,18}[0-9])(?![0-9])[^\n]{0,40}(?:routing|sort code|(?<![a-z])aba(?![a-z]))')
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

-- The numbers of cards by the ranges of their issuers.
create or replace function _memoir.is_card(p_digits text)
returns boolean language sql immutable strict as $$
  select p_digits !~ '^(.)\1*$' and case
    when p_digits ~ '^4' then length(p_digits) in (13, 16, 19)
    when p_digits ~ '^(5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720)' then length(p_digits) = 16
    when p_digits ~ '^3[47]' then length(p_digits) = 15
    when p_digits ~ '^(6011|65|64[4-9]|62|60|508|35(2[89]|[3-8]))' then length(p_digits) between 16 and 19
    when p_digits ~ '^(30[0-5]|36|38|39)' then length(p_digits) between 14 and 19
    when p_digits ~ '^(50|5[6-9]|6)' then length(p_digits) between 12 and 19
    else false end and _memoir.luhn(p_digits)
$$;

-- Check digits that take more than a line.
create or replace function _memoir.check_digits_agree(p_kind text, p_found text, p_digits text)
returns boolean language plpgsql immutable strict as $$
declare
  v_n integer; v_text text;
begin
  case p_kind
    when 'FR id' then
      v_text := replace(replace(upper(replace(p_found, ' ', '')), '2A', '19'), '2B', '18');
      return length(v_text) = 15 and v_text ~ '^[0-9]+$'
        and 97 - left(v_text, 13)::bigint % 97 = right(v_text, 2)::bigint;
    when 'BR id' then
      return p_digits !~ '^(.)\1*$'
        and _memoir.weighted(left(p_digits, 9), 10, 9, 8, 7, 6, 5, 4, 3, 2) * 10 % 11 % 10
          = substr(p_digits, 10, 1)::integer
        and _memoir.weighted(left(p_digits, 10), 11, 10, 9, 8, 7, 6, 5, 4, 3, 2) * 10 % 11 % 10
          = substr(p_digits, 11, 1)::integer;
    when 'CN id' then
      return substr('10X98765432', _memoir.weighted(left(p_found, 17), 7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4,
        2) % 11 + 1, 1) = upper(right(p_found, 1));
    when 'DE id' then  -- ISO 7064 mod 11, 10
      v_n := 10;
      for i in 1 .. 10 loop
        v_n := coalesce(nullif((substr(p_digits, i, 1)::integer + v_n) % 10, 0), 10) * 2 % 11;
      end loop;
      return (11 - v_n) % 10 = right(p_digits, 1)::integer;
    when 'FI id' then
      return substr('0123456789ABCDEFHJKLMNPRSTUVWXY', (left(p_found, 6) || substr(p_found, 8, 3))::integer % 31 + 1, 1)
        = right(p_found, 1);
    when 'CL id' then
      v_text := lpad(left(regexp_replace(p_found, '[^0-9kK]', '', 'g'), -1), 8, '0');
      return (array['0', 'K', '9', '8', '7', '6', '5', '4', '3', '2', '1'])
        [_memoir.weighted(v_text, 3, 2, 7, 6, 5, 4, 3, 2) % 11 + 1] = upper(right(p_found, 1));
    when 'BE id' then
      return 97 - left(p_digits, 9)::bigint % 97 = right(p_digits, 2)::bigint
        or 97 - ('2' || left(p_digits, 9))::bigint % 97 = right(p_digits, 2)::bigint;
    when 'SG id' then
      v_n := (_memoir.weighted(p_digits, 2, 7, 6, 5, 4, 3, 2) + case when p_found ~ '^[TG]' then 4 else 0 end) % 11;
      return substr(case when p_found ~ '^[ST]' then 'JZIHGFEDCBA' else 'XWUTRQPNMLK' end, v_n + 1, 1)
        = right(p_found, 1);
    when 'TW id' then
      v_n := strpos('ABCDEFGHJKLMNPQRSTUVXYWZIO', left(p_found, 1)) + 9;
      return (v_n / 10 + v_n % 10 * 9 + _memoir.weighted(p_digits, 8, 7, 6, 5, 4, 3, 2, 1, 1)) % 10 = 0;
    when 'TR id' then
      return (_memoir.weighted(left(p_digits, 9), 7, -1) + 1000) % 10 = substr(p_digits, 10, 1)::integer
        and _memoir.weighted(left(p_digits, 10), 1) % 10 = right(p_digits, 1)::integer;
    when 'JP id' then
      v_n := _memoir.weighted(left(p_digits, 11), 6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2) % 11;
      return case when v_n <= 1 then 0 else 11 - v_n end = right(p_digits, 1)::integer;
    when 'UK health number' then
      return (11 - _memoir.weighted(left(p_digits, 9), 10, 9, 8, 7, 6, 5, 4, 3, 2) % 11) % 11
        = right(p_digits, 1)::integer;
  end case;
end $$;

-- Returns whether what a pattern found is the number it looks like.
create or replace function _memoir.is_number_of(p_kind text, p_found text)
returns boolean language plpgsql immutable strict as $$
declare
  v_digits text := regexp_replace(p_found, '[^0-9]', '', 'g');
begin
  case p_kind
    when 'card number' then return _memoir.is_card(v_digits);
    when 'US social security number' then
      -- 9xx is a taxpayer's number with 50 to 99 in the middle.
      return v_digits !~ '^(000|666)|^...00|0000$' and (v_digits !~ '^9' or v_digits ~ '^9..(5|6[0-5]|[78]|9[0-24-9])')
        and v_digits !~ '^(.)\1*$' and v_digits not in ('123456789', '987654321') or v_digits = '123456789'
        and p_found ~ '-';
    when 'IBAN' then return _memoir.is_iban(replace(p_found, '-', ''));
    when 'ES id' then
      return substr('TRWAGMYFPDXBNJZSQVHLCKE',
        (translate(upper(left(p_found, 1)), 'XYZ', '012') || substr(p_found, 2, 7))::integer % 23 + 1, 1)
        = upper(right(p_found, 1));
    when 'IT id' then return _memoir.is_codice_fiscale(p_found);
    when 'IN id' then return _memoir.verhoeff(v_digits);
    when 'CH id' then return _memoir.weighted(v_digits, 1, 3) % 10 = 0;
    when 'SE id' then return _memoir.luhn(right(v_digits, 10));
    when 'NL id' then return _memoir.weighted(v_digits, 9, 8, 7, 6, 5, 4, 3, 2, -1) % 11 = 0
      and v_digits <> '000000000';
    when 'PL id' then return _memoir.weighted(v_digits, 1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1) % 10 = 0;
    when 'CA id' then return _memoir.luhn(v_digits);
    when 'AU id' then return length(v_digits) = 8
      or _memoir.weighted(v_digits, 1, 4, 3, 7, 5, 8, 6, 9, 10) % 11 = 0;
    when 'RU id' then
      return _memoir.weighted(left(v_digits, 9), 9, 8, 7, 6, 5, 4, 3, 2, 1) % 101 % 100 = right(v_digits, 2)::integer;
    when 'personal number' then return length(v_digits) >= 4;
    when 'bank account' then return length(v_digits) between 6 and 17;
    when 'FR id', 'BR id', 'CN id', 'DE id', 'FI id', 'CL id', 'BE id', 'SG id', 'TW id', 'TR id', 'JP id',
        'UK health number' then
      return _memoir.check_digits_agree(p_kind, p_found, v_digits);
    else return true;
  end case;
end $$;

-- Returns whether what stands before a number says that it is of another kind: a phone, an order, a serial number, a
-- part of a longer one.
create or replace function _memoir.is_denied(p_before text)
returns boolean language sql immutable as $$
  select p_before ~ '[0-9][.,]$|[+][0-9() -]*$|(?:^|[^0-9\\])0[0-9]+ $'
    or p_before ~* ('(?:phone|mobile|tele?fon|tel|cell|call|fax|sms|whatsapp|handy|m[oó]vil|номер телефона|电话|手机|電話|전화'
    || '|order|invoice|tracking|parcel|shipment|shipping|ticket|booking|reservation|imei|serial|isbn|ean|upc|gtin|sku|part'
    || '|article|item|model|ref|reference|case|bestell|auftrags|rechnungs|sendungs|artikel|kunden|pedido|factura|commande'
    || '|facture|suivi|encomenda|ordine|fattura|zam[oó]wieni|заказ|трек|订单|単号|快递|注文|주문|송장|timestamp|version|commit|id)'
    || '(?:[-_ ]?(?:numbers?|nummer|no|nr|num|n[°º]|id|code|#|号码?|番号|번호|me(?: on| at)?|us(?: on| at)?|is|was|number is))*[ .:#=(]*$')
    and p_before !~* '(?:card|visa|mastercard|amex|iban|karte|tarjeta|carte|cart[aã]o|ssn|social|national|personal|identity|tax|dni|nif)[^.\n]{0,30}$'
$$;

-- The words without which those patterns are not tried that have no check digits.
create or replace function _memoir.number_marks()
returns text[] language sql immutable as $$
  select array_agg(distinct m) from _memoir.number_patterns() p, unnest(p.marks) m where m !~ '9'
$$;

-- Returns what of a text may be a number with check digits, its digits written 9 and its letters A.
create or replace function _memoir.number_outlines(p_text text)
returns text language sql immutable as $$
  select translate(upper(string_agg(distinct m[1], '|')), '012345678BCDEFGHIJKLMNOPQRSTUVWXYZ', '999999999'
    || repeat('A', 25))
  from regexp_matches(p_text, '(?<![A-Za-z0-9])((?:[A-Za-z]{2} )?[A-Za-z]{0,6}[0-9][A-Za-z0-9]{0,32}'
    || '(?:[ .+\u2010-\u2015-]{1,2}(?:[A-Za-z0-9]{0,3}[0-9][A-Za-z0-9]{0,18}|[A-Z]{4}))*(?: ?[A-Z])?)(?![A-Za-z0-9])',
      'g') m
  where length(m[1]) >= 8
$$;



-- Numbers in a text, each with its kind; unless p_all, one of each pattern is enough.
create or replace function _memoir.secret_numbers(p_pieces text[], p_marks text[], p_all boolean)
returns table (kind text, value text) language plpgsql immutable as $$
declare
  v_pattern record; v_piece text; v_found text[]; v_pieces text[]; v_lowers text[]; v_outlines text[]; v_likes text[] := '{}'; v_at integer;
  v_names text[] := array(select m from unnest(p_marks) m where m = any (_memoir.number_marks()));
  -- Nine digits in a row but for separators, or what has letters in it. A date is none of these.
  v_gate constant text := '(?<![A-Za-z0-9+/_=])(?:(?:[0-9][ .+\u2010-\u2015-]{0,2}){8}[0-9]|[0-9XYZ][0-9]{6,7}-?[A-Za-z]|[A-Za-z]{2}[0-9]{2}[ -]?[A-Za-z0-9]{4}[ -]?[0-9]'
    || '|[A-Z]{2} ?(?:[0-9]{2} ?){3}[A-D]|[A-Za-z]{6}[0-9]{2}[A-Za-z][0-9]{2}|[12] ?[0-9]{2} ?[0-9]{2} ?2[AaBb]|[A-Z][0-9]{7}|[A-Z]{4}[0-9]{6}[A-Z]'
    || '|[0-9]{6}[A+-][0-9]{3}|[0-9]{2}\.[0-9]{2}\.[0-9]{2}-[0-9]{3})';
  -- An id of this kind holds what looks like an IBAN once in five thousand.
  v_uuid constant text := '\m[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\M';
begin
  p_pieces := array(select case when p ~* v_uuid then regexp_replace(p, v_uuid, 'id', 'gi') else p end
    from unnest(p_pieces) with ordinality x(p, o) order by o);
  if v_names <> '{}' then
    v_lowers := array(select lower(p) from unnest(p_pieces) p);
    v_likes := array(select '%' || m || '%' from unnest(v_names) m);
  end if;
  select array_agg(p), array_agg(l), array_agg(case when fits then _memoir.number_outlines(p)
    else '' end) into v_pieces, v_lowers, v_outlines
  from (select p, coalesce(l, '') as l, p ~ v_gate as fits from unnest(p_pieces, v_lowers) t(p, l)) s
  where fits or l like any (v_likes);
  if v_pieces is null then return; end if;
  for v_pattern in select * from _memoir.number_patterns() p
    where p.marks && p_marks or exists (select from unnest(p.marks) m, unnest(v_outlines) o where strpos(o, m) > 0) loop
    for v_piece, v_found in
      select distinct p, f
      from unnest(v_pieces, v_lowers, v_outlines) t(p, l, o), regexp_matches(p, v_pattern.pattern, v_pattern.flags) f
      where exists (select from unnest(v_pattern.marks) m where strpos(o, m) > 0 or m = any (v_names)
        and strpos(l, m) > 0)
    loop
      continue when not _memoir.is_number_of(v_pattern.kind, v_found[1]);
      if v_pattern.deniable then
        v_at := strpos(v_piece, v_found[1]);
        continue when _memoir.is_denied(substr(v_piece, greatest(1, v_at - 40), least(40, v_at - 1)));
      end if;
      kind := v_pattern.kind;
      value := v_found[1];
      return next;
      exit when not p_all;
    end loop;
  end loop;
end $$;
