-- Zones of a window are settings.
drop function if exists _memoir.zone_of(bigint, bigint);
