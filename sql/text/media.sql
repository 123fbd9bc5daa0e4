-- Parts of a message that are no text: images, videos, audio, files, and what a model thought. What they cost at most
-- (docs/explain/tokens.md), and their shape in the format that did not send them.

-- The document of a part in either provider's shape: what kind of thing it is, and its base64, if that came along.
create or replace function _memoir.document_of(p_part jsonb, out media_type text, out data text)
language plpgsql immutable parallel safe as $$
declare
  v_uri text := p_part #>> '{file,file_data}';
begin
  if p_part ->> 'type' = 'document' and p_part #>> '{source,type}' = 'base64' then
    media_type := p_part #>> '{source,media_type}';
    data := p_part #>> '{source,data}';
  elsif left(v_uri, 200) ~ '^data:[^;,]{1,100};base64,' then
    media_type := substring(left(v_uri, 200) from '^data:([^;,]{1,100});');
    data := substr(v_uri, strpos(left(v_uri, 200), ',') + 1);
  elsif v_uri is not null then
    media_type := 'application/pdf';
    data := v_uri;
  end if;
end $$;

-- The seconds of an MP4 (ISO/IEC 14496-12, 8.2.2). A second of other video has 16,000 bytes (128 kbit/s) or more.
create or replace function _memoir.video_seconds(p_data bytea)
returns float8 language sql immutable parallel safe as $$
  select coalesce(nullif(_memoir.number_at(p_data, a + 16 + 12 * v, 4, false), 0)::float8
    / nullif(_memoir.number_at(p_data, a + 12 + 8 * v, 4, false), 0), octet_length(p_data) / 16000.0)
  from (select position('mvhd'::bytea in p_data) + 3 as a) h
  left join lateral (select get_byte(p_data, a) as v where a > 3 and octet_length(p_data) > a + 32) x on true
$$;

-- Tokens of a part beyond its texts (token_texts), the most it can cost where its size can't be told.
create or replace function _memoir.media_tokens(p_part jsonb, p_images text)
returns integer language plpgsql immutable parallel safe as $$
declare
  v_document record; v_bytes bytea; v_rate integer; v_seconds float8; v_pages integer;
  v_unknown constant integer := 20000;   -- a document or a recording of which nothing but a name is here
  v_second constant integer := 300;      -- of video: a picture of 258 tokens, sound at 32, a time stamp
  v_page constant integer := 3000;       -- text of a page; its picture is counted as an image of unknown size
begin
  case p_part ->> 'type'
  when 'image_url' then return _memoir.image_tokens(p_part, p_images);
  when 'input_audio' then
    v_bytes := _memoir.from_base64(p_part #>> '{input_audio,data}');
    -- 32 tokens a second. WAV says how many bytes that are; what is compressed has 4,000 (32 kbit/s) or more.
    v_rate := case when substr(v_bytes, 1, 4) = 'RIFF' and octet_length(v_bytes) >= 32
      then nullif(_memoir.number_at(v_bytes, 28, 3, true), 0) end;
    v_seconds := octet_length(v_bytes)::float8 / coalesce(v_rate, 4000);
    return least(ceil(32 * v_seconds), 1000000000);
  when 'video_url' then
    if p_part #>> '{video_url,url}' !~ '^data:' then return v_unknown; end if;
    return least(ceil(v_second * _memoir.video_seconds(_memoir.from_base64(split_part(p_part #>> '{video_url,url}',
      ',', 2)))), 1000000000);
  when 'file', 'document' then
    if p_part #>> '{source,type}' = 'text' then return 0; end if;
    v_document := _memoir.document_of(p_part);
    if v_document.data is null then return v_unknown; end if;
    if v_document.media_type like 'text/%' then return octet_length(v_document.data) / 4 * 3; end if;
    -- Pages are objects of a PDF; where these are packed, nothing is seen of them.
    v_pages := regexp_count(encode(_memoir.from_base64(v_document.data), 'escape'), '/Type[ \r\n]{0,4}/Page[^A-Za-z]');
    return case when v_pages = 0 then greatest(v_unknown, octet_length(v_document.data) / 16)
      else least(v_pages::bigint * (v_page + _memoir.image_tokens('{}', p_images)), 1000000000) end;
  when 'redacted_thinking' then return octet_length(p_part ->> 'data') / 4 * 3;
  else return 0;
  end case;
end $$;

create or replace function _memoir.part_text(p_part jsonb)
returns text language sql immutable as $$
  select case p_part ->> 'type'
    when 'text' then p_part ->> 'text'
    when 'refusal' then p_part ->> 'refusal'
    when 'thinking' then p_part ->> 'thinking'
    when 'file' then p_part #>> '{file,filename}'
    when 'document' then nullif(concat_ws(E'\n', p_part ->> 'title', p_part ->> 'context',
      case when p_part #>> '{source,type}' = 'text' then p_part #>> '{source,data}' else p_part #>> '{source,url}' end),
      '')
    end
$$;

-- Returns what stands for a part that a format has no place for.
create or replace function _memoir.named_part(p_what text, p_name text)
returns jsonb language sql immutable as $$
  select jsonb_build_object('type', 'text', 'text', format('[%s: %s]', p_what, coalesce(p_name, 'not shown')))
$$;

-- A part as a block of Anthropic's, or null: thoughts that are not signed.
create or replace function _memoir.anthropic_media(p_part jsonb)
returns jsonb language plpgsql immutable as $$
declare
  v_document record;
begin
  case p_part ->> 'type'
  when 'thinking' then
    return case when p_part ->> 'signature' <> '' then jsonb_build_object('type', 'thinking',
      'thinking', p_part -> 'thinking', 'signature', p_part -> 'signature') end;
  when 'redacted_thinking' then return jsonb_build_object('type', 'redacted_thinking', 'data', p_part -> 'data');
  when 'document' then return p_part;
  when 'file' then
    v_document := _memoir.document_of(p_part);
    if v_document.media_type = 'application/pdf' or v_document.media_type like 'text/%' then
      return jsonb_strip_nulls(jsonb_build_object('type', 'document', 'title', p_part #> '{file,filename}', 'source',
        case when v_document.media_type like 'text/%' then jsonb_build_object('type', 'text', 'media_type',
          'text/plain', 'data', _memoir.plain_text(_memoir.from_base64(v_document.data)))
        else jsonb_build_object('type', 'base64', 'media_type', 'application/pdf', 'data', v_document.data) end));
    end if;
    return _memoir.named_part('file', coalesce(p_part #>> '{file,filename}', p_part #>> '{file,file_id}'));
  when 'input_audio' then return _memoir.named_part('audio', p_part #>> '{input_audio,format}');
  when 'video_url' then return _memoir.named_part('video', substring(p_part #>> '{video_url,url}' from '^https?:.*'));
  else return null;
  end case;
end $$;

-- Bytes as UTF-8, or as what is left of it.
create or replace function _memoir.plain_text(p_bytes bytea)
returns text language plpgsql immutable as $$
begin
  return convert_from(p_bytes, 'UTF8');
exception when others then return encode(p_bytes, 'escape');
end $$;

-- A part as OpenAI takes it, or null: what a model thought.
create or replace function _memoir.openai_media(p_part jsonb)
returns jsonb language plpgsql immutable as $$
declare
  v_document record;
begin
  if p_part ->> 'type' in ('thinking', 'redacted_thinking') then return null; end if;
  if p_part ->> 'type' <> 'document' then return p_part; end if;
  v_document := _memoir.document_of(p_part);
  if v_document.data is not null then
    return jsonb_build_object('type', 'file', 'file', jsonb_build_object('filename',
      coalesce(p_part ->> 'title', 'document'), 'file_data',
      format('data:%s;base64,%s', v_document.media_type, v_document.data)));
  elsif p_part #>> '{source,type}' = 'text' then
    return jsonb_build_object('type', 'text', 'text', _memoir.part_text(p_part));
  end if;
  return _memoir.named_part('document', coalesce(p_part #>> '{source,url}', p_part ->> 'title'));
end $$;
