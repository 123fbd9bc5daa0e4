-- It takes the session, for the provider's count of its prompts.
drop function if exists _memoir.prefix_counts(_memoir.past, _memoir.session_windows, integer, integer);
