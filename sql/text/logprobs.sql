-- The highest mean entropy of twenty tokens in a row (L-RAG, arXiv:2601.06551), and what the model had said by
-- then, its last 400 characters; null for fewer. PM010 where p_logprobs is none: {"content": [tokens]}, or tokens.
create or replace function _memoir.doubt(p_where text, p_logprobs jsonb, out entropy float8, out said text)
language plpgsql stable as $$
declare
  v_tokens jsonb := case jsonb_typeof(p_logprobs) when 'object' then p_logprobs -> 'content' else p_logprobs end;
  v_last integer;
begin
  if coalesce(jsonb_typeof(v_tokens), 'null') = 'null' and coalesce(jsonb_typeof(p_logprobs), 'null')
    in ('null', 'object') then return; end if;
  if jsonb_typeof(v_tokens) <> 'array' or exists (select from jsonb_array_elements(v_tokens) t
    where jsonb_typeof(t -> 'token') is distinct from 'string' or jsonb_typeof(t -> 'logprob') is distinct from 'number'
      or coalesce(jsonb_typeof(t -> 'top_logprobs'), 'null') not in ('null', 'array')
      or exists (select from jsonb_array_elements(case jsonb_typeof(t -> 'top_logprobs') when 'array'
        then t -> 'top_logprobs' end) a where jsonb_typeof(a -> 'logprob') is distinct from 'number')) then
    perform _memoir.fail('PM010', format('%s must hold tokens, each with "token" and "logprob", not %s', p_where,
      _memoir.shown(p_logprobs::text)), 'as the choices of a chat completion have them');
  end if;
  -- At least so much, in nats: of what a token's alternatives leave open no single one is likelier than the last of
  -- them. Where only the chosen token is there, its surprisal, which is the entropy on the average.
  select x.mean, x.o into entropy, v_last
  from (select avg(a.entropy) over w as mean, count(*) over w as n, o
    from jsonb_array_elements(v_tokens) with ordinality e(t, o)
    cross join lateral (select case when count(*) < 2 then -greatest(-50, least(0, (t ->> 'logprob')::float8))
        else sum(-exp(l) * l) + greatest(0, 1 - sum(exp(l)))
          * greatest(-min(l), -ln(greatest(1e-9, 1 - sum(exp(l))))) end as entropy
      from (select greatest(-50, least(0, (s ->> 'logprob')::float8)) as l
        from jsonb_array_elements(case jsonb_typeof(t -> 'top_logprobs') when 'array' then t -> 'top_logprobs' end) s)
          ls) a
    window w as (order by o rows 19 preceding)) x
  where x.n = 20 order by x.mean desc, x.o limit 1;
  said := right((select string_agg(t ->> 'token', '' order by o)
    from jsonb_array_elements(v_tokens) with ordinality e(t, o) where o <= v_last), 400);
end $$;
