-- further_neighbours has the ends of items in variables.
drop type if exists _memoir.item_ends;
-- What a recall shows whatever the query includes the session's working notes, null on a standby.
alter type _memoir.pins add attribute working text[];
