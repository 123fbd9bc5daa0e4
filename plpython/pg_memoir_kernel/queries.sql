-- What the kernel reads, one statement each: its name and parameters. All take :user and, of the caller, :clearance,
-- :projects (null: all) and :unseen, numbers of items that the caller may not see. A table in braces is the user's own
-- leaf of it. {seen}: whether the caller may see an item, on a server without PL/Python, where a client runs this.

-- {facts} of items i, as items.py reads them: two or four numbers are one here, since calls of send functions cost most
string_agg(int8send((i.item_no::bigint << 32) | (coalesce(i.turn_index, -1)::bigint & 4294967295))
    || int8send((coalesce(i.previous_item, -1)::bigint << 32) | i.span_start)
    || int8send((i.span_length::bigint << 32) | i.token_count)
    || int8send((i.chunk::bigint << 48) | (i.word_count::bigint << 32)
      | (case i.role when 'user' then 131072 when 'assistant' then 196608 when 'tool' then 262144
        when 'system' then 65536 else 0 end
        + i.is_question::integer + i.after_question::integer * 2 + i.last_chunk::integer * 4
        + (i.speaker is not null)::integer * 8))
    || charsend(i.kind) || timestamptz_send(i.created_at) || timestamptz_send(i.recorded_at) || uuid_send(i.ref_id)
    || uuid_send(coalesce(i.session_id, '00000000-0000-0000-0000-000000000000')), ''::bytea) as facts,
  nullif(array_agg(i.project), array_fill('global'::text, array[count(*)::integer])) as projects,
  case when count(i.speaker) > 0 then array_agg(i.speaker) end as speakers

-- {findable} of items i: known at :as_of, not in the turns that the list shows, said within two times
i.sensitivity <= :clearance
  and (not i.dead or (:as_of is not null and i.kind = 'm'))  -- excluded turns stay excluded at any time
  and (:as_of is null or i.recorded_at <= :as_of)
  and (:kinds is null or i.kind = any (:kinds))
  and (i.kind <> 't' or i.turn_index < :hidden_from or i.session_id <> all (:hidden_sessions)
    or i.turn_index = any (:reduced))
  -- a session's own summary stands in its system message
  and (i.kind <> 's' or i.session_id <> all (:hidden_sessions))
  and (:projects is null or i.project = any (:projects))
  and (:said_after is null or i.created_at >= :said_after)
  and (:said_before is null or i.created_at < :said_before)
  and (i.kind <> 'm' or i.session_id is null or i.session_id = any (:local_sessions))

-- {seen} of items that parameters name
exists (select from {search_items} i where i.user_id = :user and i.item_no = p.item_no and i.session_id = p.session_id
  and i.turn_index = p.turn_index and i.span_start = p.span_start and i.span_length = p.span_length and not i.dead
  and i.sensitivity <= :clearance and (:projects is null or i.project = any (:projects)))

-- postings(terms text[], letter_rows integer)
-- The lists of some words: one for each word and segment. A word has a key of its own, or shares one where the words of
-- its letter share 1, 8 or 64 rows: :letter_rows says which of these numbers occur.
select a.term, p.first_item as first, array_send(case when :unseen = '{}' then l.postings
    else array(select u.p from unnest(l.postings) u(p) where p.first_item + (u.p >> 8) <> all (:unseen)) end)
    as postings,
  array_send(case when :unseen = '{}' then l.lengths
    else array(select u.n from unnest(l.postings, l.lengths) u(p, n) where p.first_item + (u.p >> 8) <> all (:unseen))
    end) as lengths
from (select t as term, k as key from unnest(:terms) t, unnest(array[t,
    case when :letter_rows & 1 > 0 then _memoir.shared_key(t, 1) end,
    case when :letter_rows & 8 > 0 then _memoir.shared_key(t, 8) end,
    case when :letter_rows & 64 > 0 then _memoir.shared_key(t, 64) end]) k where k is not null) a
join {search_postings} p on p.user_id = :user and p.key = a.key
cross join lateral (select case when p.words is not null then array_position(p.words, a.term) end as n) w
cross join lateral (select case when w.n is null then p.postings
    else p.postings[coalesce(p.ends[w.n - 1], 0) + 1 : p.ends[w.n]] end as postings,
  case when w.n is null then p.lengths
    else p.lengths[coalesce(p.ends[w.n - 1], 0) + 1 : p.ends[w.n]] end as lengths) l
where p.words is null or w.n is not null

-- tail_postings(terms text[], next_item integer)
-- The same of the unmerged tail. :next_item: the number that the next item gets.
select w.term, :next_item as first, array_send(w.postings) as postings, array_send(w.lengths) as lengths
from (select l.lexeme as term, array_agg((t.item_no - :next_item << 8) + p) as postings,
    array_agg(t.word_counts[(p >> 8) + 1]) as lengths
  -- A row less all of its other words: cheaper than to unnest it whole.
  from {search_tail} t, unnest(ts_delete(t.words, tsvector_to_array(ts_delete(t.words, :terms)))) l,
    unnest(l.positions) p
  where t.user_id = :user and t.words @@ (select string_agg(quote_literal(x), ' | ')::tsquery from unnest(:terms) x)
    and t.item_no + (p >> 8) <> all (:unseen)
  group by l.lexeme) w

-- hidden()
-- Items above a clearance.
select array_agg(i.item_no) as items, array_agg(i.word_count) as words from {search_items} i
where i.user_id = :user and i.sensitivity > :clearance and i.sensitivity <> 'normal'

-- echoes()
-- Memories that repeat a turn.
select array_agg(i.item_no) as items, array_agg(i.word_count) as words from {search_items} i
where i.user_id = :user and i.echo

-- all_distances(model smallint, vector halfvec)
-- Of all items the distance to a vector in millionths, in 32 bits, and the number in 32 bits below them.
select array_send(array_agg(((e.embedding <=> :vector) * 1000000)::bigint << 32
    | e.item_no)) as keys
from {embeddings} e where e.user_id = :user and e.model_id = :model
  and e.item_no <> all (:unseen)

-- distances(model smallint, vector halfvec, items integer[])
select array_send(array_agg(((e.embedding <=> :vector) * 1000000)::bigint << 32
    | e.item_no)) as keys
from {embeddings} e where e.user_id = :user and e.model_id = :model and e.item_no = any (:items)
  and e.item_no <> all (:unseen)

-- packed_signs(model smallint)
-- Segments of signs, of 256 numbers each: the numbers in four bytes, and a bit for each dimension in the same order.
select p.segment, p.items, p.signs from {packed_signs} p where p.user_id = :user and p.model_id = :model
  and :unseen = '{}'

-- signs(model smallint, first integer, last integer)
-- The same of items from a number to another, unpacked.
select string_agg(int4send(e.item_no), ''::bytea) as items,
  string_agg(substring(bit_send(binary_quantize(e.embedding)) from 5), ''::bytea) as signs
from {embeddings} e where e.user_id = :user and e.model_id = :model and e.item_no between :first and :last
  and e.item_no <> all (:unseen)

-- vectors(model smallint, items integer[])
select array_agg(e.item_no) as items, string_agg(substring(halfvec_send(e.embedding) from 5),
  ''::bytea) as vectors
from {embeddings} e where e.user_id = :user and e.model_id = :model and e.item_no = any (:items)
  and e.item_no <> all (:unseen)

-- items(items integer[], as_of timestamptz, kinds "char"[], hidden_from integer, hidden_sessions uuid[],
--   reduced integer[], said_after timestamptz, said_before timestamptz, local_sessions uuid[])
-- Items by number, some of many.
select {facts} from {search_items} i
where i.user_id = :user and i.item_no = any (:items) and {findable}

-- items_between(first integer, last integer, as_of timestamptz, kinds "char"[], hidden_from integer,
--   hidden_sessions uuid[], reduced integer[], said_after timestamptz, said_before timestamptz, local_sessions uuid[])
-- Items from a number to another.
select {facts} from {search_items} i
where i.user_id = :user and i.item_no between :first and :last and {findable}

-- said_within(starts timestamptz[], ends timestamptz[], most integer, as_of timestamptz, kinds "char"[],
--   hidden_from integer, hidden_sessions uuid[], reduced integer[], said_after timestamptz, said_before timestamptz,
--   local_sessions uuid[])
-- The newest turns of people and assistants that were said within ranges of time.
select {facts} from (select i.* from {search_items} i
  where i.user_id = :user and i.kind = 't' and i.role in ('user', 'assistant') and {findable}
    and exists (select from unnest(:starts, :ends) t(since, until) where i.created_at >= since and i.created_at < until)
  order by i.created_at desc, i.item_no desc limit :most) i

-- followers(items integer[])
-- What comes after each item within 128 numbers, where something else was indexed in between.
select array_agg(n.item_no) as items
from unnest(:items) e, lateral (select i.item_no from {search_items} i where i.user_id = :user and i.item_no > e + 1
  and i.item_no <= e + 128 and i.previous_item = e order by i.item_no limit 1) n

-- usage(beside uuid[], most integer)
-- How often the most used memory was; the most used ones beside some.
select max(s.access_count) as most, (array_agg(s.memory_id order by s.access_count desc, s.memory_id)
  filter (where s.memory_id <> all (:beside)))[1 : :most] as memories
from {memory_stats} s where s.user_id = :user and s.access_count > 0

-- joining(frequent uuid[], pinned uuid[], local_sessions uuid[], kinds "char"[])
-- Items of much-used (:frequent) and pinned (:pinned) memories and turns.
select {facts} from {search_items} i
where i.user_id = :user and i.ref_id = any (:frequent || :pinned) and not i.dead and i.sensitivity <= :clearance
  and (i.ref_id = any (:pinned) and (i.session_id is null or i.session_id = any (:local_sessions))
    or i.ref_id = any (:frequent) and i.chunk = 0 and not i.echo and i.session_id is null)
  and (:kinds is null or i.kind = any (:kinds)) and (:projects is null or i.project = any (:projects))

-- waiting(model smallint, next_item integer, hidden_from integer, hidden_sessions uuid[])
-- The newest turns that wait for their vectors while the user's others have them.
select {facts} from (select i.* from {search_items} i
  where i.user_id = :user and i.item_no > (select case when c.through_item > 0 then c.through_item end
      from {embedding_cursors} c where c.user_id = :user and c.model_id = :model)
    and i.item_no between :next_item - 1000 and :next_item - 1 and i.kind = 't' and not i.dead
    and i.role in ('user', 'assistant') and (i.turn_index < :hidden_from or i.session_id <> all (:hidden_sessions))
    and i.sensitivity <= :clearance and (:projects is null or i.project = any (:projects))
  order by i.item_no desc limit 12) i

-- changing(sessions uuid[], turns integer[], memories uuid[], as_of timestamptz, hidden_from integer,
--   hidden_sessions uuid[], kinds "char"[], known integer[])
-- The turns that change what turns (:sessions, :turns) or memories say, and what changes these, but for items :known.
with recursive changed as materialized (
  select distinct x.session_id, x.turn_index, x.by_session, x.by_turn from {recall_exclusions} x
  where x.user_id = :user and x.changed and x.lifted_at is null and x.by_session is not null
    and (:as_of is null or x.recorded_at <= :as_of)),
changing as (
  select x.by_session, x.by_turn, 1 as depth from changed x
  join unnest(:sessions, :turns) r(session_id, turn_index)
    on r.session_id = x.session_id and r.turn_index = x.turn_index
  union
  select d.by_session, d.by_turn, 1 from _memoir.memory_doubts(:user, :memories) d
  where :as_of is null or d.recorded_at <= :as_of
  union
  select x.by_session, x.by_turn, c.depth + 1 from changing c
  join changed x on x.session_id = c.by_session and x.turn_index = c.by_turn where c.depth < 4)
select {facts} from (
  select i.* from (select distinct c.by_session, c.by_turn from changing c) c
  join {search_items} i on i.user_id = :user and i.session_id = c.by_session and i.turn_index = c.by_turn
  where i.kind = 't' and not i.dead and not i.echo and i.sensitivity <= :clearance
    and (i.turn_index < :hidden_from or i.session_id <> all (:hidden_sessions))
    and (:kinds is null or i.kind = any (:kinds)) and (:projects is null or i.project = any (:projects))
    and i.item_no <> all (:known)
  order by i.item_no desc limit 12) i

-- changes(as_of timestamptz)
-- Which turn changed which, and whether that is in doubt.
select distinct x.session_id, x.turn_index, x.by_session, x.by_turn, x.is_doubt
from {recall_exclusions} x
where x.user_id = :user and x.changed and x.lifted_at is null and (:as_of is null or x.recorded_at <= :as_of)

-- marks(sessions uuid[], turns integer[], as_of timestamptz)
-- The spans of turns that later ones changed.
select distinct x.session_id, x.turn_index, x.span_start, x.span_length
from {recall_exclusions} x join unnest(:sessions, :turns) t(session_id, turn_index)
  on x.session_id = t.session_id and x.turn_index = t.turn_index
where x.user_id = :user and x.changed and not x.is_doubt and x.lifted_at is null
  and (:as_of is null or x.recorded_at <= :as_of)

-- related(memories uuid[], scores double precision[], as_of timestamptz)
-- A step along edges in either direction: the best that memories lead to, six tenths of their scores times the weights.
select array_agg(x.other) as memories, array_agg(x.score) as scores
from (select e.other, max(b.score * 0.6 * e.weight) as score
  from unnest(:memories, :scores) b(id, score) cross join lateral (
    select r.target_id as other, r.weight, r.recorded_at from {memory_relationships} r
    where r.user_id = :user and r.source_id = b.id and r.relation = any (_memoir.followed_relations())
    union all
    select r.source_id, r.weight, r.recorded_at from {memory_relationships} r
    where r.user_id = :user and r.target_id = b.id and r.relation = any (_memoir.followed_relations())) e
  where e.recorded_at <= coalesce(:as_of, 'infinity')
  group by e.other order by 2 desc, 1 limit 16) x

-- memories_as_items(memories uuid[], local_sessions uuid[], kinds "char"[])
-- The first item of each memory, for a clearance, local sessions, kinds and projects.
select {facts} from {search_items} i
where i.user_id = :user and i.ref_id = any (:memories) and i.kind = 'm' and i.chunk = 0 and not i.dead and not i.echo
  and i.sensitivity <= :clearance and (i.session_id is null or i.session_id = any (:local_sessions))
  and (:kinds is null or i.kind = any (:kinds)) and (:projects is null or i.project = any (:projects))

-- memory_facts(memories uuid[], now timestamptz, as_of timestamptz)
-- Memories that the caller may see. Times in seconds since 1970. age, unconfirmed: days since a memory was recorded,
-- and since it was last reinforced.
select m.memory_id, m.type, m.importance::text, m.tier, m.trust * m.confidence as trust,
  case when :as_of is null then m.state = 'active' and (m.expires_at is null or m.expires_at > :now)
    -- A forgotten or erased one never was active.
    else m.state not in ('forgotten', 'erased') and (m.expires_at <= :as_of) is not true and coalesce(
      (select t.state = 'active' from {memory_states} t where t.user_id = :user
        and t.memory_id = m.memory_id and t.recorded_at <= :as_of
       order by t.recorded_at desc, t.seq desc limit 1), false) end as is_active,
  date_part('epoch', m.valid_from) as valid_from, date_part('epoch', m.valid_to) as valid_to,
  date_part('epoch', :now - m.recorded_at) / 86400 as age,
  date_part('epoch', :now - coalesce(s.reinforced_at, m.recorded_at)) / 86400 as unconfirmed, s.access_count
from {memory_store} m
left join {memory_stats} s on s.user_id = :user and s.memory_id = m.memory_id
where m.user_id = :user and m.memory_id = any (:memories) and m.sensitivity <= :clearance
  and (:projects is null or m.project = any (:projects))

-- sources(memories uuid[])
-- Where the turns say what memories say.
select s.source_id, s.span_start, s.span_length from {memory_sources} s
where s.user_id = :user and s.item_kind = 'memory' and s.item_id = any (:memories) and s.source_kind = 'turn'

-- rescued(terms text[], unknown text[], hidden integer[])
-- The user's words most similar to words that occur nowhere (trigrams, same first letter, which keeps it to a slice of
-- the vocabulary; one pattern of a word's trigrams goes over the slice as one text).
with unknown as materialized (
  select t.term, left(t.term, 1) as low, chr(ascii(t.term) + 1) as high, length(t.term) as length,
    (select '[^ ]*(?:' || string_agg(regexp_replace(substr(t.term, n, 3), '(\W)', '\\\1', 'g'), '|')
      || ')[^ ]*' from generate_series(1, length(t.term) - 2) n) as holds_trigram
  from unnest(:unknown) t(term)
), vocabulary as materialized (
  select u.term, string_agg(array_to_string(coalesce(p.words, array[p.key]), ' '), ' ') as words
  from unknown u join {search_postings} p on p.user_id = :user and p.key >= u.low and p.key < u.high
  group by u.term
  union all
  select u.term, t.words
  from unknown u, (select string_agg(array_to_string(tsvector_to_array(t.words), ' '), ' ') as words
    from {search_tail} t where t.user_id = :user) t
), near as materialized (
  select distinct u.term, u.low, u.high, m[1] as word
  from vocabulary v join unknown u using (term), regexp_matches(v.words, u.holds_trigram, 'g') m
  where starts_with(m[1], u.low) and abs(length(m[1]) - u.length) <= 3 and similarity(m[1], u.term) >= 0.45
)
select array_agg(distinct r.word) as words from (select n.word, row_number() over (partition by n.term
    order by similarity(n.word, n.term) desc, n.word collate "C") as nth from near n
  where :hidden || :unseen = '{}'
    or exists (select from {search_postings} p, unnest(coalesce(p.words, array[p.key])) with ordinality w(word, place),
      unnest(p.postings[coalesce(p.ends[w.place - 1], 0) + 1 : coalesce(p.ends[w.place], cardinality(p.postings))]) x
      where p.user_id = :user and p.key >= n.low and p.key < n.high and w.word = n.word
        and p.first_item + (x >> 8) <> all (:hidden || :unseen))
    or exists (select from {search_tail} t, unnest(t.words) l, unnest(l.positions) x
      where t.user_id = :user and l.lexeme = n.word and t.item_no + (x >> 8) <> all (:hidden || :unseen))) r
where r.nth <= 2 and r.word <> all (:terms)

-- turn_texts(items integer[], sessions uuid[], turns integer[], times timestamptz[], starts integer[],
--   lengths integer[])
-- Texts of turns, by item, session, turn, time and span, for a clearance.
select p.item_no, t.body,
  case when t.name is not null then _memoir.speaker_label(t.role::text, t.name) end as label
from unnest(:items, :sessions, :turns, :starts, :lengths) p(item_no, session_id, turn_index, span_start, span_length)
join _memoir.turn_texts(:user, :items, :sessions, :turns, :times, :starts, :lengths, :clearance) t
  on t.item_no = p.item_no
where {seen}

-- memory_texts(items integer[], memories uuid[], starts integer[], lengths integer[])
select p.item_no, substr(m.content, p.span_start, p.span_length) as body
from unnest(:items, :memories, :starts, :lengths) p(item_no, memory_id, span_start, span_length)
join {memory_store} m on m.user_id = :user and m.memory_id = p.memory_id
where m.memory_id = any (:memories) and m.sensitivity <= :clearance and m.state not in ('forgotten', 'erased')
  and (:projects is null or m.project = any (:projects))

-- summary_texts(items integer[], sessions uuid[], refs uuid[], starts integer[], lengths integer[])
select p.item_no, substr(coalesce(c.summary_text, s.summary_text), p.span_start, p.span_length) as body
from unnest(:items, :sessions, :refs, :starts, :lengths) p(item_no, session_id, ref_id, span_start, span_length)
left join {compactions} c on c.user_id = :user and c.session_id = p.session_id and c.compaction_id = p.ref_id
left join {sessions} s on s.user_id = :user and s.session_id = p.ref_id
where :projects is null or exists (select from {sessions} o where o.user_id = :user and o.session_id = p.session_id
  and o.project = any (:projects))

-- session_names(sessions uuid[])
select s.session_id, _memoir.one_line(s.external_id) as name from {sessions} s
where s.user_id = :user and s.session_id = any (:sessions) and (:projects is null or s.project = any (:projects))

-- renditions(memories uuid[])
select r.memory_id, r.fidelity, r.content, r.token_count from {memory_renditions} r
join {memory_store} m on m.user_id = :user and m.memory_id = r.memory_id and m.sensitivity <= :clearance
  and (:projects is null or m.project = any (:projects))
where r.user_id = :user and r.memory_id = any (:memories) and r.fidelity between 1 and 3

-- neutralised(text text)
select _memoir.neutralise(:text) as text

-- counted(text text, tokenizer text)
select _memoir.tokens_of(:text, :tokenizer) as tokens

-- names_in(config text, query text)
-- The words of names and identifiers in a question.
select _memoir.query_terms(:config::regconfig, (select string_agg(m[1], ' ')
  from regexp_matches(:query, '(\S*[[:upper:][:digit:]_/]\S*)', 'g') m)) as words
