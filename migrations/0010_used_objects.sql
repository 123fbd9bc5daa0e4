-- A recall showed the object and the answer used it: it is raised at the next moment.
alter table _memoir.session_objects add column is_used boolean not null default false;
-- Turns of the hidden sessions that are shown shorter than they are: what else they say may be found.
alter type _memoir.search_scope add attribute reduced integer[];
alter type _memoir.compile_state add attribute reduced integer[];
