# Turns the data files of sql/data into SQL, for scripts/build_sql.sh; sql/data/README.md tells their formats. A run for
# each of:
#
#   -v table=settings sql/data/settings.csv         a table: function _memoir.data_<table>(), every column a text
#   -v table=extraction_rules sql/data/*/extraction_rules.rules            the same of stanzas, with their language
#   -v table=statement_rules sql/data/*/statement_rules.rules
#   -v lists=1 sql/data/*/*.words sql/data/*/*.patterns        functions _memoir.word_list and any_word(language, use)
#
# What has not the shape that is asked for ends the build, with file and line. The same files give the same bytes.

BEGIN {
  word = "^[a-z][a-z0-9_]*$"
  any = "."
  number = "^-?[0-9]+[.]?[0-9]*$"
  yes_no = "^(yes|no)$"
  # Columns of each table, and what each must look like; "?" before it: it may be empty. The first so many are the key.
  shape("settings", 1, "key " word, "kind ^(number|integer|boolean|text|time|weights|tools)$", "default_value ?" any,
    "min_value ?" number, "max_value ?" number, "allowed ?" any, "overridable " yes_no, "description " any)
  shape("jobs", 1, "job " word, "schedule " any, "batch_least " number, "batch " number, "in_python " yes_no,
    "description " any)
  shape("grants", 1, "function ^(_memoir[.])?[a-z][a-z0-9_]*$", "roles ^((reader|app|tenant|admin|jobs)( |$))+$")
  shape("chat_models", 1, "model " any, "provider ^(openai|anthropic)$", "context_window " number, "max_output " number,
    "tokenizer " any, "message_overhead " number, "images ^(tiles|patches|area|flat):", "prompt_microcents_per_1k " number,
    "completion_microcents_per_1k " number, "cache_read_rate " number, "cache_write_rate " number, "cache_write_1h_rate " number)
  shape("embedding_models", 1, "name " any, "provider ^(embedder|openai|in_process|none)$", "dimension " number,
    "languages " any)
  shape("languages", 1, "number " number, "name " word, "iso ^[a-z][a-z]$", "script " word, "config ?" word,
    "letters ?" any, "stem ?" any)
  shape("ranking", 2, "part ^(all|named|unnamed|memory|long|unread|strength|fit|memory_fit|bonus)$", "signal " word, "weight " number)
  shape("tools", 2, "tool " word, "condition ?^[a-zA-Z_]+=.", "does ^(read|write|edit|patch|run|search|list|fetch|plan)$", "key ?" any,
    "lines ?" any, "texts ?" any)
  shape("commands", 1, "pattern " any, "words " any, "does ^(read|write|edit|patch|routine|search|fetch)$", "key ?^[1-9]$",
    "first ?^[+]?[1-9]$", "last ?^[+]?[0-9]+$")
  shape("change_trees", 7, "a " number, "x " number, "b " number, "y " number, "c " number, "z " number, "leaves " any)
  shape("doubt_trees", 7, "a " number, "x " number, "b " number, "y " number, "c " number, "z " number, "leaves " any)
  shape("token_shapes", 1, "issuer " any, "kind ^(access|model|private) key$|^web token$", "marks ?" any, "pattern " any)
  shape("extraction_rules", 2, "language " word, "rule " any, "roles ^((user|named|agent)( |$))+$", "pattern " any,
    "not_if ?" any, "at_least ^[0-4]$", "type " word, "provenance " word, "category " word, "importance " word,
    "utility " number, "slot ?" any, "value ?" any)
  shape("statement_rules", 2, "language " word, "rule " any, "needs ?" any, "pattern " any, "not_if ?" any, "whole ?^yes$",
    "exact ?^yes$", "type " word, "category " word, "importance " word, "slot ?" any, "value ?" any, "standing " yes_no)
  if (table != "" && !(table in columns)) stop_at("there is no data table " table)
  stanzas = table == "extraction_rules" || table == "statement_rules"
}

function shape(name, unique, a, b, c, d, e, f, g, h, i, j, k, l, m,   all, n, at) {
  n = 0
  all[1] = a; all[2] = b; all[3] = c; all[4] = d; all[5] = e; all[6] = f; all[7] = g; all[8] = h; all[9] = i; all[10] = j
  all[11] = k; all[12] = l; all[13] = m
  while (n < 13 && all[n + 1] != "") {
    n++
    at = index(all[n], " ")
    column[name, n] = substr(all[n], 1, at - 1)
    check[name, n] = substr(all[n], at + 1)
  }
  columns[name] = n
  keys[name] = unique
}

function stop_at(what) {
  failed = 1
  printf "build_sql: %s%s%s\n", FILENAME != "" ? FILENAME ":" : "", FILENAME != "" ? FNR ": " : "", what > "/dev/stderr"
  exit 1
}

# text with by in the place of each what; gsub would read backslashes in its own way.
function replaced(text, what, by,   out, at) {
  out = ""
  while ((at = index(text, what)) > 0) {
    out = out substr(text, 1, at - 1) by
    text = substr(text, at + length(what))
  }
  return out text
}

function quoted(text) { return "'" replaced(text, "'", "''") "'" }

function in_array(text) {
  return "\"" replaced(replaced(replaced(text, "\\", "\\\\"), "\"", "\\\""), "'", "''") "\""
}

# The fields of a line of CSV (RFC 4180, one record a line) into field[1 .. n].
function split_csv(line,   n, at, c, text) {
  n = 0
  do {
    n++
    text = ""
    if (substr(line, 1, 1) == "\"") {
      line = substr(line, 2)
      while (1) {
        at = index(line, "\"")
        if (at == 0) stop_at("a quote that is not closed")
        text = text substr(line, 1, at - 1)
        line = substr(line, at + 1)
        if (substr(line, 1, 1) != "\"") break
        text = text "\""
        line = substr(line, 2)
      }
      c = substr(line, 1, 1)
      if (c != "" && c != ",") stop_at("text after a closing quote")
    } else {
      at = index(line, ",")
      if (at == 0) at = length(line) + 1
      text = substr(line, 1, at - 1)
      line = substr(line, at)
    }
    field[n] = text
    c = substr(line, 1, 1)
    line = substr(line, 2)
  } while (c == ",")
  return n
}

# One row of a table, in field[]: checked and printed.
function add_row(   n, wanted, key, text) {
  key = ""
  for (n = 1; n <= columns[table]; n++) {
    wanted = check[table, n]
    if (substr(wanted, 1, 1) == "?") wanted = field[n] == "" ? ".*" : substr(wanted, 2)
    if (field[n] !~ wanted) stop_at(column[table, n] " can't be \"" field[n] "\"")
    if (n <= keys[table]) key = key "/" field[n]
  }
  if (key in seen) stop_at("twice: " substr(key, 2))
  seen[key] = 1
  if (table == "settings") check_setting()
  if (table == "jobs" && field[3] + 0 > field[4] + 0) stop_at("batch_least is more than batch")
  text = ""
  for (n = 1; n <= columns[table]; n++)
    text = text (n > 1 ? ", " : "") (field[n] == "" && substr(check[table, n], 1, 1) == "?" ? "null" : quoted(field[n]))
  rows[++count] = text
}

# A default is of its kind, within its range, and among what is allowed.
function check_setting(   kind, value, n, parts, found) {
  kind = field[2]
  value = field[3]
  if ((field[4] == "") != (field[5] == "")) stop_at("a range has two ends")
  if (field[4] != "" && field[4] + 0 > field[5] + 0) stop_at("the range ends before it begins")
  if ((kind == "number" || kind == "integer" || kind == "weights") == (field[4] == ""))
    stop_at("kind " kind " and the range don't fit")
  if (kind == "number" && value !~ number || kind == "integer" && value !~ /^-?[0-9]+$/ ||
      kind == "boolean" && value !~ /^(true|false)$/ ||
      kind == "time" && value != "" || (kind == "weights" || kind == "tools") && value !~ /^[{].*[}]$/)
    stop_at("default \"" value "\" is no " kind)
  if ((kind == "number" || kind == "integer") && (value + 0 < field[4] + 0 || value + 0 > field[5] + 0))
    stop_at("default " value " is out of range")
  if (field[6] != "") {
    found = 0
    n = split(field[6], parts, " ")
    for (; n > 0; n--) if (parts[n] == value || parts[n] == "-" && value == "") found = 1
    if (kind != "text" || !found) stop_at("default \"" value "\" is not among the allowed")
  }
}

# The language of a file is the folder it lies in; the use its name.
function folder_of_file(   n, parts) {
  n = split(FILENAME, parts, "/")
  language = parts[n - 1]
  use = parts[n]
  sub(/[.][a-z]+$/, "", use)
  if (language !~ word || use !~ word) stop_at("folder and file must be named with a-z, 0-9 and _")
}

# A value with the pieces that its file named before: {{name}}.
function pieced(text,   name) {
  for (name in piece) text = replaced(text, "{{" name "}}", piece[name])
  if (text ~ /[{][{]/) stop_at("no piece of that name: " text)
  return text
}

function end_stanza(   n) {
  if (!open) return
  for (n = 1; n <= columns[table]; n++) if (!(column[table, n] in given)) given[column[table, n]] = ""
  for (n = 1; n <= columns[table]; n++) field[n] = pieced(given[column[table, n]])
  add_row()
  open = 0
}

FNR == 1 && (stanzas || lists) { end_stanza(); folder_of_file(); last = ""; split("", piece) }
/\r$/ { stop_at("lines end with a line feed alone") }
/[ \t]$/ { stop_at("a blank at the end of the line: write [ ]") }
/^#/ {
  if (table == "ranking" && match($0, /^# (version|source): /)) {
    head = $2
    sub(/:$/, "", head)
    field[1] = head; field[2] = ""; field[3] = ""
    about[head] = substr($0, RLENGTH + 1)
  }
  next
}
/^[ \t]*$/ { if (stanzas) end_stanza(); last = ""; next }

# Tables: the first line names the columns.
!stanzas && !lists && !named {
  n = split_csv($0)
  for (i = 1; i <= n || i <= columns[table]; i++)
    if (i > n || i > columns[table] || field[i] != column[table, i])
      stop_at("column " i " must be " column[table, i] ", not " field[i])
  named = 1
  next
}
!stanzas && !lists {
  n = split_csv($0)
  if (n != columns[table]) stop_at(n " fields, not " columns[table])
  add_row()
  next
}

# Stanzas: [rule], then name: value. A line that is indented by four spaces continues the one above.
stanzas && /^\[.*\]$/ {
  end_stanza()
  split("", given)
  given["language"] = language
  given["rule"] = substr($0, 2, length($0) - 2)
  open = 1
  next
}
# Before the first rule: let name: a piece of a pattern, which later lines hold as {{name}}.
stanzas && !open && /^let [a-z_]+: / {
  at = index($0, ": ")
  name = substr($0, 5, at - 5)
  if (name in piece) stop_at("twice: " name)
  piece[name] = pieced(substr($0, at + 2))
  last = ""
  next
}
stanzas && /^    / {
  if (last == "") stop_at("nothing to continue")
  given[last] = given[last] substr($0, 5)
  next
}
stanzas {
  at = index($0, ": ")
  last = substr($0, 1, at - 1)
  if (!open || at == 0) stop_at("a rule is [its name], then lines of name: value")
  found = 0
  for (i = 3; i <= columns[table]; i++) if (column[table, i] == last) found = 1
  if (!found || last in given) stop_at("no column, or twice: " last)
  given[last] = substr($0, at + 2)
  next
}

# Lists: words apart by spaces; phrases, one a line; or patterns, one a line, which four spaces continue.
lists && FILENAME ~ /[.]words$/ {
  for (i = 1; i <= NF; i++) add_entry($i)
  next
}
lists && FILENAME ~ /[.]phrases$/ {
  if (/[][\\(){}?*+|.^$]/) stop_at("a phrase is no pattern")
  add_entry($0)
  next
}
lists && /^    / {
  if (last == "") stop_at("nothing to continue")
  entry[entries] = entry[entries] substr($0, 5)
  next
}
lists { last = $0; add_entry($0); next }

function add_entry(text) {
  if (FILENAME != list_file) {
    list_file = FILENAME
    if ((language, use) in list_of) stop_at("twice: " language " " use)
    list_of[language, use] = ++list_count
    list_language[list_count] = language
    list_use[list_count] = use
    first[list_count] = entries + 1
  }
  if ((list_count, text) in listed) stop_at("twice: " text)
  listed[list_count, text] = 1
  entry[++entries] = text
  final[list_count] = entries
}

END {
  if (failed) exit 1
  if (stanzas) end_stanza()
  if (lists) print_lists()
  else print_table()
}

function print_table(   n) {
  if (count == 0) stop_at("no rows")
  if (table == "ranking") {
    if (about["version"] !~ /^[0-9]+$/ || about["source"] == "")
      stop_at("ranking.csv must say # version: n and # source: ...")
    print "create or replace function _memoir.data_ranking_head(out version integer, out source text)"
    print "language sql immutable as $data$ select " about["version"] ", " quoted(about["source"]) " $data$;"
    print ""
  }
  print "create or replace function _memoir.data_" table "()"
  printf "returns table (nth integer"
  for (n = 1; n <= columns[table]; n++) printf ", %s text", column[table, n]
  print ") language sql immutable as $data$\n  values"
  for (n = 1; n <= count; n++) print "    (" n ", " rows[n] ")" (n < count ? "," : "")
  print "$data$;"
}

# A function and not a table: these are read for every question and every sentence, by immutable functions, and fold into
# their plans.
function print_lists(   n, i) {
  print "-- The words or patterns of one use in one language, as sql/data has them; of all languages where p_language is null."
  print "create or replace function _memoir.word_list(p_language text, p_use text)"
  print "returns text[] language plpgsql immutable parallel safe as $data$"
  print "begin"
  print "  case p_language"
  for (n = 1; n <= list_count; n++) if (!(list_language[n] in seen)) {
    seen[list_language[n]] = 1
    print "  when '" list_language[n] "' then case p_use"
    for (i = n; i <= list_count; i++) if (list_language[i] == list_language[n]) {
      print "    when '" list_use[i] "' then return '{"
      print_entries(i)
      print "    }'::text[];"
    }
    print "    else null; end case;"
  }
  # In all languages, in the order of files; in a language that has none: none.
  print "  else if p_language is null then case p_use"
  for (n = 1; n <= list_count; n++) if (!(list_use[n] in done)) {
    done[list_use[n]] = 1
    printf "    when '%s' then return ", list_use[n]
    for (i = n; i <= list_count; i++)
      if (list_use[i] == list_use[n])
        printf "%s_memoir.word_list('%s', '%s')", (i > n ? " || " : ""), list_language[i], list_use[i]
    print ";"
  }
  print "    else raise exception 'no word list %', p_use; end case; end if;"
  print "  end case;"
  print "  perform _memoir.word_list(null, p_use);"
  print "  return '{}';"
  print "end $data$;"
  print ""
  print "-- The same of some uses as one pattern: any of them."
  print "create or replace function _memoir.any_word(p_language text, variadic p_uses text[])"
  print "returns text language plpgsql immutable parallel safe as $data$"
  print "declare"
  print "  v_words text[] := '{}'; v_use text;"
  print "begin"
  print "  foreach v_use in array p_uses loop v_words := v_words || _memoir.word_list(p_language, v_use); end loop;"
  print "  return array_to_string(v_words, '|');"
  print "end $data$;"
}

function print_entries(n,   i, text, piece) {
  text = "      "
  for (i = first[n]; i <= final[n]; i++) {
    piece = in_array(entry[i]) (i < final[n] ? "," : "")
    if (length(text) > 6 && length(text) + length(piece) > 120) { print text; text = "      " }
    text = text piece
  }
  print text
}
