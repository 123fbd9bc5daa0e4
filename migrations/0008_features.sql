-- What a user ever used (base/features.sql). Of those who are there already nobody knows: they may have used everything.
alter table _memoir.user_counters add column features text[] not null default '{}';
update _memoir.user_counters set features = '{sensitive,echoes,pins,ceilings,working,changes}';
