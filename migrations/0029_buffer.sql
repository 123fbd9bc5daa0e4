-- It is emptied within minutes, so to compress what compiles leave in it costs more than it saves.
alter table _memoir.compile_buffer alter column candidates set storage external;
