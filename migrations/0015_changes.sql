-- The package reads clauses and requests; changes are certain or likely.
drop type _memoir.found_change, _memoir.change_candidate, _memoir.forget_request, _memoir.said_clause, _memoir.said_values;
-- What a clause of a turn changes: which clause, which earlier one, the values that are over, whether that is certain or
-- likely, the judge's chance, what remains of the earlier one.
create type _memoir.found_change as (
  span_start integer, span_length integer, said text, unit _memoir.said_unit, olds text[], grade text, chance real,
  remainder text);
-- What a turn changes: whether a judge was asked, and which memories without a turn it ends.
create type _memoir.turn_changes as (
  text_no integer, is_judged boolean, changes _memoir.found_change[], ended uuid[]);
