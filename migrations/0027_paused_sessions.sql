alter type _memoir.session_status add value if not exists 'paused' after 'active';
