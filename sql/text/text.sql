create or replace function _memoir.check_size(p_field text, p_value text, p_limit integer)
returns void language plpgsql immutable as $$
begin
  if octet_length(p_value) > p_limit then
    perform _memoir.fail('PM012', format('%s is %s bytes, more than text_bytes_max = %s', p_field,
      octet_length(p_value), p_limit), 'store the document elsewhere and persist a reference, or raise the setting');
  end if;
end $$;

-- Returns whether a text holds anything but white space, of any script.
create or replace function _memoir.is_blank(p_text text)
returns boolean language sql immutable as $$
  select coalesce(p_text, '') !~ '[^\s\u001c-\u001f\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]'
$$;

create or replace function _memoir.check_text(p_field text, p_value text)
returns void language plpgsql immutable as $$
begin
  if _memoir.is_blank(p_value) then
    perform _memoir.fail('PM014', format('%s must not be empty, it is %s', p_field, _memoir.shown(p_value)));
  end if;
end $$;

-- Cuts a text for search into pieces of about p_chunk_tokens (estimated), preferably after a sentence or line, else at
-- white space. Spans are 1-based characters and cover it all, without gap or overlap; tokens is estimated.
create or replace function _memoir.chunks(p_text text, p_chunk_tokens integer)
returns table (span_start integer, span_length integer, piece text, tokens integer) language plpgsql immutable as $$
declare
  v_length integer := length(p_text);
  v_window text; v_window_start integer := 1; v_window_size integer; v_block text; v_block_length integer;
  v_block_start integer := 1; v_pos integer; v_size integer; v_ratio float8; v_tail text; v_cut integer;
  v_block_size integer := greatest(2048, p_chunk_tokens * 16);
begin
  -- Short texts are the rule: one piece, counted as it is.
  if v_length <= p_chunk_tokens * 10 then
    tokens := _memoir.estimate_tokens(p_text);
    if tokens <= p_chunk_tokens + p_chunk_tokens / 4 then
      span_start := 1; span_length := v_length; piece := p_text;
      return next;
      return;
    end if;
  end if;
  -- substr() of a multi-byte text counts from its start every time, so a long one is read through a window, in blocks.
  v_window_size := greatest(65536, sqrt(v_length::float8 * v_block_size)::integer);
  v_window := left(p_text, v_window_size);
  while v_block_start <= v_length loop
    if v_block_start + v_block_size > v_window_start + v_window_size and v_window_start + v_window_size <= v_length then
      v_window_start := v_block_start;
      v_window := substr(p_text, v_window_start, v_window_size);
    end if;
    v_block := substr(v_window, v_block_start - v_window_start + 1, v_block_size);
    v_block_length := length(v_block);
    v_ratio := _memoir.estimate_tokens(v_block)::float8 / v_block_length;  -- what a character costs hereabouts
    v_size := greatest(64, least(v_block_size / 2, p_chunk_tokens / v_ratio))::integer;
    v_pos := 1;
    while v_pos <= v_block_length loop
      piece := substr(v_block, v_pos, v_size);
      span_length := length(piece);
      if span_length = v_size then
        -- Read backwards, all white space and all ends of sentences made alike; scripts without spaces need none.
        v_tail := translate(reverse(right(piece, v_size / 2)), E'\t\r\u00a0\u3000!?।؟۔！？．｡', '    .....。。。。');
        v_cut := coalesce(least(nullif(strpos(v_tail, ' .'), 0), nullif(strpos(v_tail, '。'),
          0), nullif(strpos(v_tail, E'\n'), 0)), nullif(strpos(v_tail, ' '), 0), 1) - 1;
        if v_cut > 0 then span_length := span_length - v_cut; piece := left(piece, span_length); end if;
      elsif v_block_start + v_block_length <= v_length then
        exit;  -- the rest of this block begins the next one
      end if;
      span_start := v_block_start + v_pos - 1;
      tokens := case when v_length <= 32768 then _memoir.estimate_tokens(piece)
        else ceil(span_length * v_ratio)::integer end;
      return next;
      v_pos := v_pos + span_length;
    end loop;
    v_block_start := v_block_start + v_pos - 1;
  end loop;
end $$;

-- A text as its words are read: composed, decomposed and full-width forms of a word are one, and invisible marks are no
-- part of a word, whatever the C library of the server thinks.
create or replace function _memoir.readable(p_text text)
returns text language sql immutable as $$
  select case when octet_length(p_text) = length(p_text) then p_text
    else regexp_replace(normalize(p_text, nfkc), '[\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]', '',
      'g') end
$$;

-- Words of a text as lexemes with positions. Scripts written without spaces add character pairs, so that a part of a
-- sentence finds the sentence, and Han its single characters, which can be words. Where only spaces are lacking (not
-- in Korean), a whole run is no word.
create or replace function _memoir.words(p_config regconfig, p_text text)
returns tsvector language plpgsql stable strict as $$
declare
  v_text text := _memoir.readable(p_text); v_words tsvector := to_tsvector(p_config, v_text); v_pairs text;
  v_runs text[];
begin
  if v_text ~ '[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaf'
    'f\U00020000-\U0003ffff]' then
    v_runs := array(select r[1] from regexp_matches(v_text,
      '[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020'
        '000-\U0003ffff]+',
      'g') r);
    -- By their characters: substr() would count from the start of the run every time.
    select string_agg(c || coalesce(next, ''), ' ' order by nth, i) filter (where next is not null or i = 1)
      into v_pairs
    from (select r.nth, u.i, u.c, lead(u.c) over (partition by r.nth order by u.i) as next
      from unnest(v_runs) with ordinality r(run, nth),
        unnest(string_to_array(r.run, null)) with ordinality u(c, i)) pairs;
    v_words := ts_delete(v_words, array(select r from unnest(v_runs) r where r !~ '[\uac00-\ud7af]'))
      || to_tsvector('simple', v_pairs);
    select string_agg(han[1], ' ') into v_pairs
    from regexp_matches(v_text, '[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]', 'g') han;
    v_words := v_words || to_tsvector('simple', coalesce(v_pairs, ''));
  end if;
  -- The parser skips emoji. Skin tones and joined ones are not told apart.
  if v_text ~ '[\u2600-\u27bf\U0001f1e6-\U0001faff]' then
    v_words := v_words || array_to_tsvector(array(select distinct e[1] from regexp_matches(v_text,
      '[\U0001f1e6-\U0001f1ff]{2}|[\u2600-\u27bf\U0001f200-\U0001f3fa\U0001f400-\U0001faff]', 'g') e));
  end if;
  return v_words;
end $$;

-- Words of several items as one tsvector, as search_tail has them; parallel arrays: word, offset of the item from 0 on,
-- how often. Null: no words.
create or replace function _memoir.packed_words(p_words text[], p_offsets integer[], p_counts integer[])
returns tsvector language plpgsql immutable set plan_cache_mode = force_generic_plan as $$
begin
  return (select string_agg(w.word, ' ') from (
    select '''' || replace(replace(u.word, '\', '\\'), '''', '''''') || ''':'
      || string_agg((u.item_offset << 8 | u.count)::text, ',') as word
    from unnest(p_words, p_offsets, p_counts) u(word, item_offset, count) group by u.word) w)::tsvector;
end $$;

-- The last characters of a text, as right() has them, which counts those of all of it.
create or replace function _memoir.tail(p_text text, p_count integer)
returns text language plpgsql immutable as $$
declare
  v_bytes bytea; v_from integer := octet_length(p_text) - 4 * p_count;
begin
  if coalesce(v_from, 0) < 4 * p_count then return right(p_text, p_count); end if;
  v_bytes := substr(convert_to(p_text, 'UTF8'), v_from);
  v_from := 1;
  while get_byte(v_bytes, v_from - 1) & 192 = 128 loop v_from := v_from + 1; end loop;
  return right(convert_from(substr(v_bytes, v_from), 'UTF8'), p_count);
end $$;

create or replace function _memoir.is_question(p_text text)
returns boolean language plpgsql immutable as $$
declare
  v_end text := p_text;
begin
  -- Of a long text all is looked through only where its end is blank.
  if octet_length(p_text) > 2000 then
    v_end := _memoir.tail(p_text, 200);
    if v_end !~ '\S' then v_end := p_text; end if;
  end if;
  return coalesce(v_end ~ '[?？؟]\s*$', false);
end $$;

-- Returns what duplicates and tombstones compare: compatibility forms folded, case, white space, invisible and control
-- characters ignored.
create or replace function _memoir.normalise(p_text text)
returns text language sql immutable strict as $$
  select btrim(regexp_replace(regexp_replace(lower(normalize(p_text, nfkc)),
      '[\u0001-\u0008\u000e-\u001f\u007f-\u0084\u0086-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u20'
        '0b-\u200f\u202a-\u202e\u2060-\u206f\u2800\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]', '', 'g'),
    '[\s\u0085\u2028\u2029]+', ' ', 'g'), ' ')
$$;

create or replace function _memoir.query_terms(p_config regconfig, p_query text)
returns text[] language sql stable as $$
  select coalesce(tsvector_to_array(_memoir.words(p_config, left(p_query, 20000))), '{}')
$$;

-- Returns those of some words that any conversation has, because they tell little of its subject.
create or replace function _memoir.common_terms(p_config regconfig, p_terms text[])
returns text[] language plpgsql stable set plan_cache_mode = force_generic_plan as $$
begin
  if p_config <> 'pg_catalog.english'::regconfig then return '{}'; end if;
  return array(select t from unnest(p_terms) t where t = any (_memoir.list_common_stems()));
end $$;

-- How a day reads in a header: unambiguous in every country.
create or replace function _memoir.day(p_at timestamptz)
returns text language sql stable as $$ select to_char(p_at at time zone 'UTC', 'FMDD Mon YYYY') $$;

-- A short text argument: null, or 1 to p_limit characters that are not all invisible.
create or replace function _memoir.check_short(p_field text, p_value text, p_limit integer)
returns void language plpgsql immutable as $$
begin
  perform _memoir.refuse_value(p_value is not null and (length(p_value) > p_limit or _memoir.normalise(p_value) = ''),
    p_field, p_value, format('a text of 1 to %s characters', p_limit));
end $$;

-- A text with spans (1-based, end excluded) blanked out: positions stay, and no sentence goes over what is gone.
create or replace function _memoir.without_spans(p_text text, p_spans int4range[])
returns text language plpgsql immutable as $$
declare
  v_span int4range; v_at integer := 1; v_out text := '';
begin
  for v_span in select s from unnest(p_spans) s where not isempty(s) order by lower(s) loop
    continue when lower(v_span) < v_at;
    v_out := v_out || substr(p_text, v_at, lower(v_span) - v_at) || repeat(E'\n', upper(v_span) - lower(v_span));
    v_at := upper(v_span);
  end loop;
  return v_out || substr(p_text, v_at);
end $$;
