-- Tombstones: what a person rejected stays rejected. A tombstone is a keyed hash of what was said, and of a slot with
-- its value; the key dies with the user, so it says nothing afterwards.
-- A text is reduced first, so that no disguise gets past: compatibility forms, case, white space, punctuation,
-- invisible characters and letters that merely look alike count as the same. That folds together a few texts that
-- differ ("burn", "bum"): the price. Beside the words stands the claim they make (text/claims.sql), so that no other
-- wording gets past either.

-- Letters of other scripts that look like a Latin letter or a digit become it, as the Unicode skeleton has it (UTS #39,
-- single characters; a test compares with its data). Expects lower case.
create or replace function _memoir.look_alikes(p_text text)
returns text language sql immutable strict parallel safe as $$
  select translate(p_text, string_agg(look_alikes, '' order by nth), string_agg(repeat(letter, length(look_alikes)), ''
    order by nth)) from _memoir.data_look_alikes()
$$;

-- Returns what is left of a text to make a tombstone's key of: letters, digits and symbols in their plainest form,
-- without spaces. Digits count by their value; marks inside numbers ("5.50", "-5") stay.
create or replace function _memoir.tombstone_text(p_text text)
returns text language plpgsql immutable strict parallel safe as $$
declare
  v_text text := p_text; v_key text;
begin
  if v_text ~ '[A-Za-z]' and octet_length(v_text) <> length(v_text) then
    -- Capitals whose small letters look like something else: among Latin letters only, a Greek word keeps its own case.
    v_text := translate(normalize(translate(v_text, 'ϲϹ', 'cC'), nfkc), 'ΝΥϒ', 'NYY');
  end if;
  v_text := _memoir.normalise(v_text);
  if octet_length(v_text) <> length(v_text) then
    v_text := replace(replace(v_text, 'ß', 'ss'), U&'i\0307', 'i');
    v_text := translate(v_text,
      '٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹߀߁߂߃߄߅߆߇߈߉०१२३४५६७८९০১২৩৪৫৬৭৮৯੦੧੨੩੪੫੬੭੮੯૦૧૨૩૪૫૬૭૮૯୦୧୨୩୪୫୬୭୮୯௦௧௨௩௪௫௬௭௮௯'
      || '౦౧౨౩౪౫౬౭౮౯೦೧೨೩೪೫೬೭೮೯൦൧൨൩൪൫൬൭൮൯๐๑๒๓๔๕๖๗๘๙໐໑໒໓໔໕໖໗໘໙༠༡༢༣༤༥༦༧༨༩၀၁၂၃၄၅၆၇၈၉០១២៣៤៥៦៧៨៩' || '‐‑‒–—−⁃➖',
      repeat('0123456789', 17) || '--------');
    v_text := regexp_replace(v_text, '[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]', '', 'g');
    v_text := _memoir.look_alikes(v_text);
  end if;
  v_key := regexp_replace(v_text,
    '(?<![0-9])[.,:/-](?![0-9])|(?<=[0-9])[.,:/-](?![0-9])|(?<![0-9])[,:/](?=[0-9])|(?<=[[:alpha:]])-(?=[0-9])', '',
    'g');
  v_key := regexp_replace(v_key, '[\s;!?''"`()\[\]{}_\\~^*¡¿«»‘-‟†-…‰-‽、-〃〈-】・،؛؟۔।॥]+', '', 'g');
  v_key := replace(translate(v_key, 'i1|0', 'lllo'), 'rn', 'm');
  return case when v_key = '' then v_text else v_key end;
end $$;

-- Keyed hashes of texts, in order; null for null.
create or replace function _memoir.tombstone_keys(p_user_id uuid, p_texts text[])
returns bytea[] language plpgsql stable as $$
declare
  v_secret bytea;
begin
  select secret into v_secret from _memoir.user_keys where user_id = p_user_id;
  return array(select hmac(convert_to(t, 'UTF8'), v_secret, 'sha256') from unnest(p_texts) with ordinality x(t, o)
    order by o);
end $$;

-- Returns the tombstone that keeps a value away, a row of nulls where none does. All doors that bring memories in or
-- back ask this: remember, import, promotion, restoring. A slot's value defaults to the content, as in remember. A
-- forgotten value stays away from every project, one that was corrected in a project from that project.
create or replace function _memoir.tombstone_of(p_user_id uuid, p_content text, p_slot text default null,
  p_slot_value text default null, p_project text default null)
returns _memoir.tombstones language plpgsql stable as $$
declare
  v_keys bytea[]; v_stone _memoir.tombstones; v_slot text; v_texts text[];
  v_project text := case when p_project <> 'global' then p_project || chr(30) else '' end;
begin
  if not exists (select from _memoir.tombstones t where t.user_id = p_user_id and t.lifted_at is null) then return null;
  end if;
  v_slot := _memoir.tombstone_text(p_slot) || chr(31) || _memoir.tombstone_text(coalesce(p_slot_value, p_content));
  v_texts := array(select t.text from _memoir.tombstone_texts(array[p_content], _memoir.known_names(p_user_id)) t);
  v_keys := _memoir.tombstone_keys(p_user_id, array[v_slot, v_project || v_slot] || v_texts
    || array(select v_project || t from unnest(v_texts) t));
  select * into v_stone from _memoir.tombstones t
  where t.user_id = p_user_id and t.lifted_at is null
    and (t.key_hash = any (v_keys[3:]) and t.kind = 'value' or t.key_hash = any (v_keys[1:2])
    and t.kind = 'slot_value')
  order by t.recorded_at desc, t.kind limit 1;
  return v_stone;
end $$;

-- Returns what the tombstones of contents are keyed by: their text, and their claims, also where letters that look
-- alike are one.
create or replace function _memoir.tombstone_texts(p_contents text[], p_names text[])
returns table (n bigint, text text) language plpgsql stable as $$
declare
  v_of bigint[]; v_pieces text[];
begin
  select array_agg(c.o), array_agg(piece) into v_of, v_pieces
  from unnest(p_contents) with ordinality c(content, o)
  cross join lateral (select unnest(_memoir.claim_pieces(c.content))
    union select unnest(_memoir.claim_pieces(_memoir.look_alikes(translate(lower(left(c.content, 20000)), 'іıι',
      'iii'))))
      where octet_length(c.content) <> length(c.content)) p(piece);
  return query select c.o, _memoir.tombstone_text(c.content) from unnest(p_contents) with ordinality c(content, o)
    union select p.n, p.claim from unnest(v_of, _memoir.claims_of(v_pieces, p_names)) p(n, claim)
      where p.claim is not null;
end $$;

-- Returns what the user is called: a claim about one of these is about the user.
create or replace function _memoir.known_names(p_user_id uuid)
returns text[] language plpgsql stable as $$
begin
  return array(select u.external_id from _memoir.users u where u.user_id = p_user_id
    union select m.slot_value from _memoir.memory_store m where m.user_id = p_user_id and m.slot = 'name'
      and m.state = 'active' and m.slot_value is not null);
end $$;

-- Leaves tombstones for what memories say and, with p_slots, for their values in their slots; not for what memories of
-- p_except say. p_wide: for all projects.
create or replace function _memoir.set_tombstones(p_user_id uuid, p_ids uuid[], p_slots boolean, p_wide boolean,
  p_memory uuid, p_reason text, p_actor _memoir.actor, p_by text, p_at timestamptz, p_except uuid[] default '{}')
returns integer language plpgsql as $$
declare
  v_texts text[]; v_kinds text[]; v_count integer; v_names text[] := _memoir.known_names(p_user_id);
begin
  with said as (select distinct m.memory_id = any (p_except) as is_right, k.kind,
      case when p_wide or m.project = 'global' then k.text else m.project || chr(30) || k.text end as text
    from _memoir.memory_store m, lateral (values (_memoir.tombstone_text(m.content), 'value'),
          (_memoir.tombstone_text(m.slot) || chr(31) || _memoir.tombstone_text(m.slot_value), 'slot_value')
        union all select c, 'claim' from unnest(_memoir.claims_of(array[m.content, case when p_slots
          then m.slot || ' ' || m.slot_value end], v_names)) c) k(text, kind)
    where m.user_id = p_user_id and m.memory_id = any (p_ids || p_except) and k.text is not null)
  select array_agg(s.text), array_agg(s.kind) into v_texts, v_kinds from said s
  where not s.is_right and (p_slots or s.kind <> 'slot_value')
    and not exists (select from said r where r.is_right and r.kind = s.kind and r.text = s.text);
  insert into _memoir.tombstones (user_id, key_hash, kind, memory_id, reason, actor, set_by, recorded_at)
  select p_user_id, k.key_hash, case k.kind when 'claim' then 'value'
    else k.kind end, p_memory, p_reason, p_actor, p_by, p_at
  from unnest(_memoir.tombstone_keys(p_user_id, v_texts), v_kinds) k(key_hash, kind)
  on conflict (user_id, key_hash, kind) do update set lifted_at = null, lifted_by = null,
    recorded_at = excluded.recorded_at,
    -- A second forget that gives no reason keeps that of the first.
    reason = case when excluded.reason = 'forgotten' and tombstones.lifted_at is null then tombstones.reason
      else excluded.reason end, actor = excluded.actor, set_by = excluded.set_by, memory_id = excluded.memory_id;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

create or replace function memoir.list_tombstones(p_user text, p_lifted boolean default false)
returns table (memory_id uuid, kinds text[], reason text, actor text, set_by text, recorded_at timestamptz,
  lifted_at timestamptz, lifted_by text, type text, project text, slot text, content text)
language plpgsql stable security definer set search_path from current as $$
declare
  v_caller _memoir.caller := _memoir.authorise(p_user, 'read');
begin
  return query
  select t.memory_id, array_agg(distinct t.kind order by t.kind), t.reason, t.actor::text, t.set_by, t.recorded_at,
    t.lifted_at, t.lifted_by, m.type, m.project, m.slot,
    case when m.state not in ('forgotten', 'erased') then m.content end
  from _memoir.tombstones t left join _memoir.memory_store m on m.user_id = v_caller.user_id
    and m.memory_id = t.memory_id
  where t.user_id = v_caller.user_id and (p_lifted or t.lifted_at is null)
    and (m.memory_id is null or m.sensitivity <= v_caller.clearance
    and (v_caller.projects is null or m.project = any (v_caller.projects)))
  group by t.memory_id, t.reason, t.actor, t.set_by, t.recorded_at, t.lifted_at, t.lifted_by, m.type, m.project, m.slot,
    m.state, m.content
  order by t.recorded_at desc, t.memory_id;
end $$;
comment on function memoir.list_tombstones(text, boolean) is
  'Lists what may not come back, newest first: the memory that was rejected, why, by whom, whether its text (value) or
its slot''s value too; with p_lifted those that were lifted as well. A forgotten text is not shown. Raises PM001.';
