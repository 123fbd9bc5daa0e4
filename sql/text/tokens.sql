-- Tokens of a text. Exact counts come from PL/Python where it is installed; without it, and for models whose tokenizer
-- isn't public, an estimate calibrated to stay at or above o200k_base and cl100k_base. How: docs/explain/tokens.md.

create or replace function memoir.count_tokens(p_text text, p_model text default null)
returns integer language plpgsql stable security definer set search_path from current as $$
begin
  if p_model is not null then perform _memoir.check_name('model', p_model, 200); end if;
  return (_memoir.count_tokens(array[p_text], _memoir.tokenizer_used((_memoir.model(coalesce(p_model,
      (select config ->> 'default_model' from _memoir.settings_merged)))).tokenizer)))[1];
end $$;
comment on function memoir.count_tokens(text, text) is
  'Tokens of a text for a chat model (default: the default model), exact or by the documented estimate, as for a model
that nobody registered. Raises PM014.';

-- Weights in hundredths of a token, calibrated with bench/tokens.py. Every term is a count of characters or of (cut)
-- runs of a class, for which count(a || b) <= count(a) + count(b), save the discounts, counts of letter groups that
-- can't overlap themselves, for which >= holds. So parts never sum to less than the whole, whatever the weights.
create or replace function _memoir.estimate_tokens(p_text text)
returns integer language plpgsql immutable parallel safe as $$
declare
  v_text text collate "C" := p_text;
  v_words text; v_letters integer; v_gaps integer; v_other text; v_length integer; v_cost bigint; v_class text[];
begin
  if coalesce(p_text, '') = '' then return 0; end if;
  v_length := length(v_text);
  v_cost := 200 + 170 * regexp_count(v_text, '[0-9]{1,3}')::bigint
    + 60 * (v_length - length(regexp_replace(v_text, '[!-/:-@\[-`{-~\u0001-\u0008\u000e-\u001f\u007f]+', '',
      'g')))::bigint
    + 120 * regexp_count(v_text, '[\t-\r]{1,16}')::bigint
    + 8 * (v_length - length(replace(v_text, ' ', '')))::bigint;

  -- Latin words: dear by the letter, because most languages split them often, but letter groups that English is full of
  -- earn a discount, down to floors that English prose stays above.
  v_words := regexp_replace(v_text, '[^A-Za-z]+', ' ', 'g');
  v_letters := length(replace(v_words, ' ', ''));
  v_gaps := length(v_words) - v_letters;
  v_length := length(v_words);
  v_cost := v_cost + greatest(80 * v_gaps::bigint + 5 * v_letters::bigint,
    25 * v_gaps::bigint + 16 * v_letters::bigint,
    34 * v_gaps::bigint + 28 * v_letters::bigint
      + 92 * (v_length - length(regexp_replace(v_words, '[JKQXYZjkqxyz]+', '', 'g')))::bigint
      - 966 * v_length::bigint  -- each group's weight; 55 for th is 110 for each of two letters
      + 55::bigint * length(replace(v_words, 'th', '')) + 42::bigint * length(replace(v_words, 'on', ''))
      + 160::bigint * length(replace(v_words, 'ly', '')) + 30::bigint * length(replace(v_words, 're', ''))
      + 30::bigint * length(replace(v_words, 'in', '')) + 25::bigint * length(replace(v_words, 'er', ''))
      + 27::bigint * length(replace(v_words, 'co', '')) + 32::bigint * length(replace(v_words, 'ed', ''))
      + 43::bigint * length(replace(v_words, 'and', '')) + 66::bigint * length(replace(v_words, 'you', ''))
      + 51::bigint * length(replace(v_words, 'ate', '')) + 115::bigint * length(replace(v_words, 'ity', ''))
      + 40::bigint * length(replace(v_words, 'ion', '')) + 51::bigint * length(replace(v_words, 'for', ''))
      + 43::bigint * length(replace(v_words, 'ent', '')) + 106::bigint * length(replace(v_words, 'ple', ''))
      + 50::bigint * length(replace(v_words, 'our', '')));

  -- Other scripts: per run and per character, in classes of about equal cost; the rest counts one token a byte.
  if octet_length(v_text) > length(v_text) then
    v_other := regexp_replace(v_text, '[\u0001-\u007f]+', ' ', 'g');
    v_length := length(v_other);
    v_other := replace(v_other, ' ', '');
    v_cost := v_cost + 120 * (v_length - length(v_other))::bigint;
    -- Russian; accented Latin, combining marks, Greek, Arabic, Devanagari, Thai, punctuation, kana, Hangul, full width;
    -- Hebrew, Bengali, Tamil, Han; other two-byte characters, Gurmukhi, Gujarati, Telugu to Lao, Tibetan, Burmese,
    -- Georgian, Khmer.
    foreach v_class slice 1 in array '{{57,\\u0410-\\u044f},
        {100,\\u00a0-\\u024f\\u0300-\\u036f\\u0370-\\u03ff\\u0621-\\u064a\\u0900-\\u097f\\u0e00-\\u0e7f},
        {100,\\u1e00-\\u1eff\\u2000-\\u206f\\u3000-\\u30ff\\uac00-\\ud7af\\uff00-\\uffef},
        {150,\\u0590-\\u05ff\\u0980-\\u09ff\\u0b80-\\u0bff\\u4e00-\\u9fff},
        {205,\\u0080-\\u07ff\\u0a00-\\u0aff\\u0c00-\\u10ff\\u1780-\\u17ff}}'::text[] loop
      v_length := length(v_other);
      v_other := regexp_replace(v_other, '[' || v_class[2] || ']+', '', 'g');
      v_cost := v_cost + v_class[1]::bigint * (v_length - length(v_other));
    end loop;
    v_cost := v_cost + 100 * octet_length(v_other)::bigint;
  end if;
  return least((v_cost + 99) / 100, 2147483647)::integer;
end $$;
-- Apart from the inner one, which would pay for the pinned path at every text.
create or replace function memoir.estimate_tokens(p_text text)
returns integer language plpgsql immutable parallel safe security definer set search_path from current as $$
begin
  return _memoir.estimate_tokens(p_text);
end $$;
comment on function memoir.estimate_tokens(text) is
  'Tokens of a text, estimated from its characters alone: meant to be at or above the exact count of o200k_base and
cl100k_base in practically all texts people write, about a fifth above it in English prose. 0 for null and empty text.
The sum over parts is never below the estimate of the whole. See docs/explain/tokens.md.';

create or replace function memoir.max_tokens(p_text text)
returns integer language sql immutable parallel safe
return coalesce(octet_length(p_text), 0);
comment on function memoir.max_tokens(text) is
  'An upper bound of the tokens of a text in any byte-level tokenizer: its bytes in UTF-8, since every token covers at
least one. 0 for null.';

-- Which tokenizer count_tokens() really uses: the one asked for, or 'estimate' without PL/Python or its tables.
create or replace function _memoir.tokenizer_used(p_tokenizer text)
returns text language plpgsql stable as $$
begin
  if p_tokenizer <> 'estimate' and to_regprocedure('_memoir.py_tokenizer_available(text)') is not null
    and to_regprocedure('_memoir.py_count_tokens(text[],text,text)') is not null then
    if _memoir.py_tokenizer_available(p_tokenizer) then return p_tokenizer; end if;
  end if;
  return 'estimate';
end $$;

-- One count per text, in order; null counts 0. p_tokenizer: of tokenizer_used(), asked once per API call.
create or replace function _memoir.count_tokens(p_texts text[], p_tokenizer text)
returns integer[] language plpgsql stable as $$
declare
  v_text text; v_length integer; v_costs bigint[]; v_counts integer[] := '{}'; v_size constant integer := 4000;
begin
  if coalesce(cardinality(p_texts), 0) = 0 then return '{}'; end if;
  if p_tokenizer <> 'estimate' then
    return _memoir.py_count_tokens(p_texts, p_tokenizer,
      (select config ->> 'embedder_socket' from _memoir.settings_merged));
  end if;
  foreach v_text in array p_texts loop
    v_length := coalesce(length(v_text), 0);
    if v_length <= 64 * v_size then v_counts := v_counts || _memoir.estimate_tokens(v_text); continue; end if;
    -- Of a large text a sample: sixteen stretches and the dearest of them among them, so that it stays above the whole
    -- where stretches are of one kind.
    v_costs := array(select _memoir.estimate_tokens(substr(v_text, 1 + ((v_length - v_size)::bigint * n / 15)::integer,
      v_size)) from generate_series(0, 15) n);
    v_counts := v_counts || (select least((sum(c) + max(c))::bigint * v_length / (17 * v_size::bigint) + 1, 2147483647)
      from unnest(v_costs) c)::integer;
  end loop;
  return v_counts;
end $$;

-- Width and height in pixels from the first bytes of an image (PNG, GIF, WebP, JPEG); null where they can't be told.
create or replace function _memoir.image_size(p_data bytea)
returns integer[] language plpgsql immutable parallel safe as $$
declare
  v_length integer := octet_length(p_data); v_at integer := 2; v_marker integer; v_size integer[];
begin
  if v_length >= 24 and substr(p_data, 1, 8) = '\x89504e470d0a1a0a' then
    v_size := array[_memoir.number_at(p_data, 16, 4, false), _memoir.number_at(p_data, 20, 4, false)];
  elsif v_length >= 10 and substr(p_data, 1, 4) = '\x47494638' then
    v_size := array[_memoir.number_at(p_data, 6, 2, true), _memoir.number_at(p_data, 8, 2, true)];
  elsif v_length >= 30 and substr(p_data, 1, 4) = '\x52494646' and substr(p_data, 9, 7) = '\x57454250565038' then
    v_size := case substr(p_data, 16, 1)
      when '\x20' then array[_memoir.number_at(p_data, 26, 2, true) & 16383,
        _memoir.number_at(p_data, 28, 2, true) & 16383]
      when '\x4c' then array[(_memoir.number_at(p_data, 21, 2, true) & 16383) + 1,
        ((_memoir.number_at(p_data, 22, 3, true) >> 6) & 16383) + 1]
      when '\x58' then array[_memoir.number_at(p_data, 24, 3, true) + 1,
        _memoir.number_at(p_data, 27, 3, true) + 1] end;
  elsif v_length >= 4 and substr(p_data, 1, 2) = '\xffd8' then
    -- Segments of a JPEG: marker, length, content; the size is in the start-of-frame segment.
    for v_step in 1..500 loop
      while v_at < v_length and get_byte(p_data, v_at) = 255 loop v_at := v_at + 1; end loop;
      exit when v_at + 8 >= v_length;
      v_marker := get_byte(p_data, v_at);
      if v_marker between 192 and 207 and v_marker not in (196, 200, 204) then
        v_size := array[_memoir.number_at(p_data, v_at + 6, 2, false), _memoir.number_at(p_data, v_at + 4, 2, false)];
        exit;
      end if;
      exit when v_marker in (217, 218) or _memoir.number_at(p_data, v_at + 1, 2, false) < 2;
      v_at := v_at + 1 + _memoir.number_at(p_data, v_at + 1, 2, false);
    end loop;
  end if;
  return case when v_size[1] between 1 and 100000 and v_size[2] between 1 and 100000 then v_size end;
end $$;

-- p_count bytes at offset p_at (from 0) as a number, last first where little-endian. More than 31 bits give null.
create or replace function _memoir.number_at(p_data bytea, p_at integer, p_count integer, p_is_little boolean)
returns integer language sql immutable parallel safe as $$
  select case when n < 2147483648 then n::integer end
  from (select sum(get_byte(p_data, p_at + i)::bigint << (8 * case when p_is_little then i
      else p_count - 1 - i end)) as n
    from generate_series(0, p_count - 1) i) s
$$;

-- Returns the bytes of a base64 text, up to the first character that is none of it.
create or replace function _memoir.from_base64(p_text text)
returns bytea language plpgsql immutable parallel safe as $$
declare
  v_data text := rtrim(translate(p_text, E' \t\r\n', ''), '=');
begin
  if v_data ~ '[^A-Za-z0-9+/]' then v_data := substring(v_data from '^[A-Za-z0-9+/]*'); end if;
  return decode(substr(v_data, 1, length(v_data) / 4 * 4), 'base64');
end $$;

-- Tokens of an image part by the model's published rule, at the most it can cost where the size can't be told.
--   tiles:F        scaled into 2048 × 2048, then to a short edge of 768; 85 and 170 for each tile of 512 × 512, times F
--   patches:F      patches of 32 × 32, at most 1,536, times F
--   flat:MAX       whatever its size
--   area:EDGE:MAX  scaled to a long edge of EDGE; one token per 750 pixels, or per padded patch of 28 × 28; at most MAX
create or replace function _memoir.image_tokens(p_part jsonb, p_images text)
returns integer language plpgsql immutable parallel safe as $$
declare
  v_rule text := split_part(p_images, ':', 1); v_factor numeric := split_part(p_images, ':', 2)::numeric;
  v_size integer[]; v_long float8; v_short float8; v_scale float8; v_most integer; v_data text;
  v_url text := coalesce(p_part #>> '{image_url,url}', case when jsonb_typeof(p_part -> 'image_url') = 'string'
    then p_part ->> 'image_url' end);
begin
  if v_rule = 'flat' then return v_factor; end if;
  if v_rule = 'tiles' and p_part #>> '{image_url,detail}' = 'low' then return ceil(85 * v_factor); end if;
  -- The base64 data in either provider's shape, none of a link. 128 kB hold the header of any usual file.
  if v_url ~* '^data:image/[a-z0-9.+-]+;base64,' then
    v_data := substr(v_url, strpos(v_url, ',') + 1, 131072);
  elsif p_part #>> '{source,type}' = 'base64' then
    v_data := substr(p_part #>> '{source,data}', 1, 131072);
  end if;
  v_size := _memoir.image_size(_memoir.from_base64(v_data));
  v_long := greatest(v_size[1], v_size[2]);
  v_short := least(v_size[1], v_size[2]);
  if v_rule = 'area' then
    v_most := split_part(p_images, ':', 3)::integer;
    if v_size is null then return v_most; end if;
    v_scale := least(1, v_factor / v_long);
    return least(v_most, greatest(ceil(v_long * v_scale * v_short * v_scale / 750),
                                  ceil(v_long * v_scale / 28) * ceil(v_short * v_scale / 28)))::integer;
  elsif v_rule = 'patches' then
    if v_size is null then return ceil(1536 * v_factor); end if;
    return ceil(least(1536, ceil(v_long / 32) * ceil(v_short / 32))::numeric * v_factor);
  end if;
  if v_size is null then return ceil(1445 * v_factor); end if;
  v_scale := least(1, 2048 / v_long);
  v_scale := v_scale * least(1, 768 / (v_short * v_scale));
  return ceil((85 + 170 * (greatest(1, ceil(v_long * v_scale / 512 - 1e-9)) * greatest(1,
    ceil(v_short * v_scale / 512 - 1e-9))))::numeric * v_factor);
end $$;

create or replace function _memoir.tokens_of(p_text text, p_tokenizer text)
returns integer language sql stable as $$ select (_memoir.count_tokens(array[p_text], p_tokenizer))[1] $$;

-- Returns the sum of a few numbers. A statement for it would take longer to plan than to add them.
create or replace function _memoir.sum_of(p_numbers integer[])
returns integer language plpgsql immutable as $$
declare
  v_sum integer := 0; v_one integer;
begin
  foreach v_one in array coalesce(p_numbers, '{}') loop v_sum := v_sum + coalesce(v_one, 0); end loop;
  return v_sum;
end $$;

-- Returns as many lines of an answer as fit, the best first. The best is cut to what there is room for.
create or replace function _memoir.fit_lines(p_lines text[], p_tokens integer)
returns table (o integer, line text, tokens integer) language plpgsql stable as $$
declare
  v_left integer := p_tokens; v_low integer; v_high integer; v_middle integer;
begin
  for i in 1 .. coalesce(cardinality(p_lines), 0) loop
    line := p_lines[i];
    tokens := memoir.count_tokens(line) + 1;
    if o is null and tokens > v_left then
      v_low := 0;
      v_high := least(length(line), 8 * (v_left - 1));
      while v_high - v_low > 4 loop
        v_middle := (v_low + v_high) / 2;
        if memoir.count_tokens(left(line, v_middle) || '…') < v_left then v_low := v_middle;
          else v_high := v_middle; end if;
      end loop;
      line := left(line, v_low) || '…';
      tokens := memoir.count_tokens(line) + 1;
    end if;
    continue when tokens > v_left;
    v_left := v_left - tokens;
    o := i;
    return next;
  end loop;
end $$;
