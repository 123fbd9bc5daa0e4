-- Vectors of the shipped model stand for texts in 15 languages now.
update _memoir.embedding_models set languages = '{en,de,fr,es,it,pt,nl,pl,tr,ru,zh,ja,ko,ar,th}'
where name = 'all-MiniLM-L6-v2' and provider = 'embedder' and languages = '{en}';

-- Stop words of other languages are no words of a question.
drop function if exists _memoir.question_words(text, regconfig, bigint);
alter type _memoir.question drop attribute common;
