"""A database's memoir schema as comparable data: what is there, without what may differ (oids, times, physical order).

describe() and contents() return plain dicts, so that a failing comparison shows the differing keys; differences() lists them.
"""

from collections.abc import Iterator
from textwrap import TextWrapper
from typing import Any

import psycopg
from psycopg import sql


def _ours(catalog: str, oid: str) -> str:
    """Members of extensions are left out: they are not ours."""
    own = f"e.classid = '{catalog}'::regclass and e.objid = {oid} and e.deptype = 'e'"
    return f"not exists (select from pg_depend e where {own})"


def _acl(acl: str, kind: str, owner: str) -> str:
    given = f"""aclexplode(coalesce({acl}, acldefault({kind}::"char", {owner}))) a left join pg_roles r on r.oid = a.grantee"""
    one = "format('%s=%s%s', coalesce(r.rolname, 'PUBLIC'), a.privilege_type, case when a.is_grantable then '*' end)"
    return f"(select array_agg({one} order by r.rolname, a.privilege_type) from {given})"


_IN_OURS = "in ('memoir'::regnamespace, '_memoir'::regnamespace)"
# Every query returns (key, value ...): the key names the object, the values are what must be equal.
_QUERIES = {
    "schema": f"""
        select nspname, pg_get_userbyid(nspowner), obj_description(oid, 'pg_namespace'), {_acl("nspacl", "'n'", "nspowner")}
        from pg_namespace where nspname in ('memoir', '_memoir', 'memoir_extensions')""",
    "relation": f"""
        select c.relname, c.relkind, c.relpersistence, pg_get_userbyid(c.relowner), c.reloptions, c.relrowsecurity, c.relforcerowsecurity,
          pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid), (select inhparent::regclass::text from pg_inherits where inhrelid = c.oid),
          obj_description(c.oid, 'pg_class'), case when c.relkind in ('r', 'p', 'v', 'm', 'S')
            then {_acl("c.relacl", "case c.relkind when 'S' then 's' else 'r' end", "c.relowner")} end
        from pg_class c where c.relnamespace {_IN_OURS} and c.relkind not in ('i', 'I', 'c', 't')
          and {_ours("pg_class", "c.oid")}""",
    "column": f"""
        select c.relname || '.' || a.attname, row_number() over (partition by c.oid order by a.attnum), format_type(a.atttypid, a.atttypmod),
          a.attnotnull, a.attidentity, a.attgenerated, a.attstorage, a.attcompression, a.attcollation::regcollation::text, a.attacl,
          pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)
        from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace {_IN_OURS} and c.relkind in ('r', 'p', 'v', 'm', 'c') and {_ours("pg_class", "c.oid")}""",
    "constraint": """
        -- Without parentheses: a dump's text parses to fewer of them than "between" made.
        select conrelid::regclass || ' ' || conname, translate(pg_get_constraintdef(oid), '()', ''), convalidated, obj_description(oid, 'pg_constraint')
        from pg_constraint where connamespace = '_memoir'::regnamespace and conrelid <> 0
          and contype <> 'n'  -- PostgreSQL 18 has these too, and a restore names them in another way
        """,
    "index": f"""
        select i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisready, i.indisclustered, c.reloptions,
          (select inhparent::regclass::text from pg_inherits where inhrelid = i.indexrelid)
        from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace {_IN_OURS}""",
    "trigger": f"""
        select t.tgrelid::regclass || ' ' || t.tgname, pg_get_triggerdef(t.oid), t.tgenabled,
          (select p.tgrelid::regclass || ' ' || p.tgname from pg_trigger p where p.oid = t.tgparentid)
        from pg_trigger t join pg_class c on c.oid = t.tgrelid where c.relnamespace {_IN_OURS} and not t.tgisinternal""",
    "routine": f"""
        select p.oid::regprocedure::text, p.prokind, case when p.prokind <> 'a' then pg_get_functiondef(p.oid) end,
          pg_get_userbyid(p.proowner), obj_description(p.oid, 'pg_proc'), {_acl("p.proacl", "'f'", "p.proowner")}
        from pg_proc p where p.pronamespace {_IN_OURS} and {_ours("pg_proc", "p.oid")}""",
    "type": f"""
        select t.typname, t.typtype, pg_get_userbyid(t.typowner), (select array_agg(enumlabel order by enumsortorder) from pg_enum where enumtypid = t.oid),
          obj_description(t.oid, 'pg_type'), {_acl("t.typacl", "'T'", "t.typowner")}
        from pg_type t left join pg_class c on c.oid = t.typrelid
        where t.typnamespace {_IN_OURS} and t.typcategory <> 'A' and coalesce(c.relkind, 'c') = 'c' and {_ours("pg_type", "t.oid")}""",
    "policy": "select tablename || ' ' || policyname, permissive, roles, cmd, qual, with_check from pg_policies where schemaname in ('memoir', '_memoir')",
    "rule": "select tablename || ' ' || rulename, definition from pg_rules where schemaname in ('memoir', '_memoir')",
    "default acl": "select defaclnamespace::regnamespace || ' ' || defaclobjtype::text, pg_get_userbyid(defaclrole), defaclacl::text from pg_default_acl",
    "extension": "select extname, extversion, extnamespace::regnamespace::text from pg_extension",
    "database setting": "select 'search_path', c from pg_db_role_setting join pg_database d on d.oid = setdatabase, unnest(setconfig) c"
    " where datname = current_database() and c like 'search_path=%'",
}

# Objects that can live outside a schema, or in another one than ours.
_OUTSIDE = """
    select 'relation ' || oid::regclass from pg_class where relnamespace not in ('memoir'::regnamespace, '_memoir'::regnamespace, 'memoir_extensions'::regnamespace, 'pg_catalog'::regnamespace,
      'information_schema'::regnamespace, 'pg_toast'::regnamespace) and relpersistence <> 't'
    union all select 'routine ' || oid::regprocedure from pg_proc where pronamespace not in ('memoir'::regnamespace, '_memoir'::regnamespace, 'memoir_extensions'::regnamespace, 'pg_catalog'::regnamespace, 'information_schema'::regnamespace)
    union all select 'type ' || oid::regtype from pg_type where typnamespace not in ('memoir'::regnamespace, '_memoir'::regnamespace, 'memoir_extensions'::regnamespace, 'pg_catalog'::regnamespace,
      'information_schema'::regnamespace, 'pg_toast'::regnamespace)
    union all select 'operator ' || oid::regoperator from pg_operator where oprnamespace not in ('memoir_extensions'::regnamespace, 'pg_catalog'::regnamespace)
    union all select 'schema ' || nspname from pg_namespace where nspname !~ '^pg_' and nspname not in ('memoir', '_memoir', 'memoir_extensions', 'information_schema', 'public')
    union all select 'event trigger ' || evtname from pg_event_trigger
    union all select 'publication ' || pubname from pg_publication
    union all select 'cast ' || castsource::regtype || ' ' || casttarget::regtype from pg_cast c where c.oid >= 16384
      and not exists (select from pg_depend e where e.classid = 'pg_cast'::regclass and e.objid = c.oid and e.deptype = 'e')
    union all select 'language ' || lanname from pg_language where oid >= 16384 and lanname not in ('plpgsql', 'plpython3u')
    union all select 'foreign server ' || srvname from pg_foreign_server
    union all select 'large object ' || oid from pg_largeobject_metadata"""


PRIVILEGES = """
    with roles(role, short) as (
      values ('memoir_reader', 'reader'), ('memoir_app', 'app'), ('memoir_tenant', 'tenant'), ('memoir_admin', 'admin'), ('memoir_jobs', 'jobs'),
             ('public', 'PUBLIC')),
    ours(catalog, oid) as (select classid, objid from pg_depend where deptype = 'e'),
    rights(kind, name, is_leaf, short, privilege) as (
      select 'schema', n.nspname, false, short, case when has_schema_privilege(role, n.oid, p) then p end
      from pg_namespace n, roles, unnest('{usage,create}'::text[]) p where n.nspname in ('memoir', '_memoir', 'memoir_extensions')
      union all
      select case c.relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end, coalesce(nullif(c.relnamespace::regnamespace || '.', 'memoir.'), '') || c.relname, c.relispartition, short,
        case when case when c.relkind = 'S' then p in ('select', 'update', 'usage') and has_sequence_privilege(role, c.oid, case when p in ('select', 'update', 'usage') then p else 'usage' end)
                       when p in ('select', 'insert', 'update', 'references') then has_any_column_privilege(role, c.oid, p)
                       else p <> 'usage' and has_table_privilege(role, c.oid, case when p = 'usage' then 'select' else p end) end then p end
      from pg_class c, roles, unnest('{select,insert,update,delete,truncate,references,trigger,usage}'::text[]) p
      where c.relnamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and c.relkind in ('r', 'p', 'v', 'm', 'S') and ('pg_class'::regclass, c.oid) not in (select * from ours)
      union all
      select 'type', coalesce(nullif(t.typnamespace::regnamespace || '.', 'memoir.'), '') || t.typname, false, short, case when has_type_privilege(role, t.oid, 'usage') then 'usage' end
      from pg_type t left join pg_class c on c.oid = t.typrelid, roles
      where t.typnamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and t.typcategory <> 'A' and coalesce(c.relkind, 'c') = 'c' and ('pg_type'::regclass, t.oid) not in (select * from ours)
      union all
      select 'routine', coalesce(nullif(p.pronamespace::regnamespace || '.', 'memoir.'), '') || p.proname, false, short, case when has_function_privilege(role, p.oid, 'execute') then 'execute' end
      from pg_proc p, roles where p.pronamespace in ('memoir'::regnamespace, '_memoir'::regnamespace) and ('pg_proc'::regclass, p.oid) not in (select * from ours))
    select kind, name, is_leaf, coalesce(array_agg(short || case when privilege not in ('execute', 'usage') then ':' || privilege else '' end
      order by short, privilege) filter (where privilege is not null), '{}')
    from rights group by kind, name, is_leaf order by kind, name collate "C" """
"""Kind, name, whether it is a leaf, and the rights of each role, of all that is in our schemas."""


def privileges(connection: psycopg.Connection) -> str:
    """Returns the objects by kind and by the rights of each role, as text. The owner alone may touch all others."""
    named: dict[str, list[str]] = {}
    for kind, name, _, rights in connection.execute(PRIVILEGES):
        if rights:
            named.setdefault(f"{kind}: {' '.join(rights)}", []).append(name)
    head = """# Who may do what in our schemas; what is not listed, the owner alone. Reviewed: after a wanted change,
# PG_MEMOIR_UPDATE=1 make test ARGS="-k matrix" and read the difference."""
    wrap = TextWrapper(118, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False).fill
    return "\n\n".join([head, *(f"{key}\n{wrap(' '.join(names))}" for key, names in sorted(named.items()))]) + "\n"


def describe(connection: psycopg.Connection) -> dict[str, Any]:
    """{"kind name": everything about the object}, for all that is ours in a database."""
    # Names as they are written elsewhere depend on the search_path.
    with connection.transaction():
        connection.execute("set local search_path = pg_catalog")
        queries = _QUERIES.items()
        return {f"{kind} {key}": tuple(v) for kind, query in queries for key, *v in connection.execute(query)}


def columns(connection: psycopg.Connection) -> dict[str, list[str]]:
    """{table: its columns} of every table, partitioned ones as a whole."""
    query = f"""select relname, array_agg(attname::text order by attnum)
        from pg_class join pg_attribute on attrelid = pg_class.oid and attnum > 0 and not attisdropped
        where relnamespace {_IN_OURS} and relkind in ('r', 'p') and not relispartition group by relname order by relname"""
    return dict(connection.execute(query).fetchall())


def contents(
    connection: psycopg.Connection, of: dict[str, list[str]] | None = None
) -> dict[str, tuple[int, str | None]]:
    """{table: (rows, hash of all rows)} of every table, or of these columns of these tables."""
    found = {}
    for name, names in (of or columns(connection)).items():
        values = sql.SQL("row({})::text").format(sql.SQL(", ").join(map(sql.Identifier, names)))
        rows = sql.SQL('select count(*), md5(string_agg({0}, chr(10) order by {0} collate "C")) from {1}')
        found[name] = connection.execute(rows.format(values, sql.Identifier("_memoir", name))).fetchone()
    return found


def outside(connection: psycopg.Connection) -> set[str]:
    """Names of all objects outside schema memoir that a fresh database would not have."""
    return {name for (name,) in connection.execute(_OUTSIDE)}


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Readable differences, at most 40: an assert shows them."""

    def lines() -> Iterator[str]:
        for key in sorted(one.keys() | other.keys()):
            if key not in other:
                yield f"only in the first: {key}"
            elif key not in one:
                yield f"only in the second: {key}"
            elif one[key] != other[key]:
                yield f"{key}:\n  {one[key]}\n  {other[key]}"

    return list(lines())[:40]
