-- What makes a sentence worth remembering, by language: extraction_rules and the list extraction_stops in
-- plpython/pg_memoir_language/data/<language>.toml. Another language is another file.

-- The rules of a language in their order; a language without any has none.
create or replace function _memoir.extraction_rules(p_language text)
returns table (rule text, roles text[], pattern text, not_if text, at_least integer, type text, provenance text,
  category text, importance text, utility real, slot text, value text) language sql immutable as $$
  select rule, string_to_array(roles, ' '), pattern, not_if, at_least::integer, type, provenance, category,
    importance, utility::real, slot, value
  from _memoir.data_extraction_rules() where language = p_language order by nth
$$;

-- Patterns of sentences that say nothing of their speaker that lasts, whatever rule would fit them.
create or replace function _memoir.extraction_stops(p_language text)
returns setof text language sql immutable as $$
  select unnest(_memoir.word_list(p_language, 'extraction_stops'))
$$;
