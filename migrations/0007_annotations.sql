-- What an application says of a turn after it was written (feedback, flags), beside the turn: the keys that were set, null
-- where they were taken away.
alter table _memoir.turn_marks add column annotations jsonb;
alter table _memoir.turn_marks drop constraint turn_marks_mark_check;
alter table _memoir.turn_marks add constraint turn_marks_mark_check
  check (mark in ('normal', 'private', 'secret', 'erased', 'retracted', 'annotated'));
alter table _memoir.turn_marks add constraint turn_marks_annotations_check
  check ((annotations is not null) = (mark = 'annotated'));
