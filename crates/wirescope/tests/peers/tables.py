"""Holds an export, as DuckDB or pandas reads it, against the database, as SQLite reads it.

usage: tables.py duckdb|pandas parquet|csv|jsonl EXPORT DATABASE...

All tables, columns, types and rows have to be the same. Standard output: the number of rows of each table, as JSON.
Several databases are the files of one folder: a loss that stands in two of them counts in the one of its end.
"""

import collections
import datetime
import glob
import json
import os
import re
import sqlite3
import sys

TABLES = {"intervals": "ts_ns", "traffic": "ts_ns", "flows": "start_ns", "losses": "from_ns", "runs": "begin_ns"}
MOMENTS = {"ts_ns", "start_ns", "end_ns", "from_ns", "to_ns", "begin_ns"}
SECOND_NS = 1_000_000_000
UTC = datetime.timezone.utc


def end_of(path):
    """The end of the time that a file of a folder has, ns; of any other file none."""
    found = re.fullmatch(r"wirescope-(\d+)-(\d+)-(\d+)(?:T(\d+))?\.sqlite", os.path.basename(path))
    if not found:
        return None
    year, month, day = (int(part) for part in found.groups()[:3])
    begin = datetime.datetime(year, month, day, int(found[4] or 0), tzinfo=UTC)
    length = datetime.timedelta(hours=1) if found[4] else datetime.timedelta(days=1)
    return int((begin + length).timestamp()) * SECOND_NS


def of_sqlite(paths, table):
    """Names of the columns, those of them that are texts, those that may be null; and all rows."""
    rows = []
    for path in paths:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        facts = connection.execute(f"SELECT name, type, \"notnull\" OR pk > 0 FROM pragma_table_info('{table}')")
        facts = facts.fetchall()
        end_ns = end_of(path)
        own = f"WHERE to_ns < {end_ns}" if table == "losses" and end_ns else ""
        rows += connection.execute(f"SELECT * FROM {table} {own}").fetchall()
    names = [name for name, _, _ in facts]
    texts = {name for name, kind, _ in facts if kind == "TEXT"}
    nullable = {name for name, _, is_required in facts if not is_required}
    return names, texts, nullable, rows


def expect(is_so, words):
    if not is_so:
        sys.exit(words)


def partition_of(time_ns):
    """Where the rows of a time lie."""
    moment = datetime.datetime.fromtimestamp(time_ns // SECOND_NS, UTC)
    return moment.strftime("%Y-%m-%d"), moment.strftime("%H")


def by_duckdb(form, files, names, texts, nullable, time):
    import duckdb

    connection = duckdb.connect()
    kinds = {name: "VARCHAR" if name in texts else "BIGINT" for name in names}
    if form == "parquet":
        source = f"read_parquet({files}, hive_partitioning = true)"
        found = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        found = {row[0]: row[1] for row in found}
        kinds |= {name: "TIMESTAMPTZ_NS" for name in MOMENTS & set(names)}
        expect({name: found.get(name) for name in names} == kinds, f"columns are {found}, not {kinds}")
        expect(set(found) - set(names) == {"date", "hour"}, f"columns are {found}")
        # The folders say what the rows do, also without a look at those.
        where = connection.execute(f"SELECT CAST(date AS VARCHAR), hour, epoch_ns({time}) FROM {source}").fetchall()
        for date, hour, time_ns in where:
            expect((date, f"{int(hour):02}") == partition_of(time_ns), f"{time_ns} lies in {date} {hour}")
        columns = [f"epoch_ns({name})" if name in MOMENTS else name for name in names]
    elif form == "csv":
        # Nothing is NULL, "" is a text.
        source = f"read_csv({files}, header = true, types = {kinds}, allow_quoted_nulls = false)"
        columns = names
    else:
        source = f"read_json({files}, format = 'newline_delimited', columns = {kinds})"
        columns = names
    return connection.execute(f"SELECT {', '.join(columns)} FROM {source}").fetchall()


def by_pandas(form, files, names, texts, nullable, time):
    import pandas
    import pyarrow

    rows = []
    for file in files:
        if form == "parquet":
            frame = pandas.read_parquet(file, dtype_backend="pyarrow", partitioning=None)
            plain = pandas.read_parquet(file, partitioning=None)
        elif form == "csv":
            # Of columns that may lack a value what is empty is none.
            kinds = {name: "string" if name in texts else "Int64" for name in names}
            empty = {name: [""] for name in nullable}
            frame = pandas.read_csv(file, dtype=kinds, keep_default_na=False, na_values=empty)
        else:
            frame = pandas.read_json(file, lines=True, engine="pyarrow", dtype_backend="pyarrow")
        expect(list(frame.columns) == names, f"{file}: columns are {list(frame.columns)}")
        values = []
        for name in names:
            array = pyarrow.array(frame[name])
            array = array if isinstance(array, pyarrow.Array) else pyarrow.chunked_array(array)
            if form == "parquet":
                moment = pyarrow.timestamp("ns", tz="UTC")
                kind = pyarrow.string() if name in texts else moment if name in MOMENTS else pyarrow.int64()
                kinds = {kind, pyarrow.large_string()} if name in texts else {kind}
                expect(array.type in kinds, f"{file}: {name} is {array.type}")
                is_moment = str(plain[name].dtype) == "datetime64[ns, UTC]"
                expect(is_moment == (name in MOMENTS), f"{file}: {name} is {plain[name].dtype}")
                array = array.cast(pyarrow.int64()) if name in MOMENTS else array
            values.append(array.to_pylist())
        rows += zip(*values)
    return rows


def main():
    reader, form, export, *databases = sys.argv[1:]
    read = {"duckdb": by_duckdb, "pandas": by_pandas}[reader]
    counts = {}
    for table, time in TABLES.items():
        names, texts, nullable, expected = of_sqlite(databases, table)
        files = sorted(glob.glob(f"{glob.escape(export)}/{table}/date=*/hour=*/*.{form}"))
        found = read(form, files, names, texts, nullable, time) if files else []
        expected = collections.Counter(expected)
        found = collections.Counter(tuple(row) for row in found)
        lacking, further = list((expected - found).elements()), list((found - expected).elements())
        words = f"{table} of {form} as {reader} reads it: {len(lacking)} rows are lacking, {len(further)} are further ones"
        expect(not lacking and not further, f"{words}\n{lacking[:3]}\n{further[:3]}")
        counts[table] = sum(found.values())
    print(json.dumps(counts))


main()
