-- further_neighbours has the ends of items in variables.
drop type if exists _memoir.item_ends;
