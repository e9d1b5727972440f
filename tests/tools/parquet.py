# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads what compact wrote, with the Python of scripts/pytools outputs.

parquet.py compare duckdb|pandas|clickhouse FILE WANT.json   each value against the records
parquet.py same FILE FILE      rows in one and not in the other
parquet.py meta FILE           what the file itself says
parquet.py count GLOB
parquet.py partitions DIR      rows of each day and model"""
import json, math, sys

what, args = sys.argv[1], sys.argv[2:]


def flat(r):
    """A record as a row, written down once more: compact's docs in Python."""
    row = {"start_unix_ns": None, "error": r["error"] is not None}
    for k, v in r.items():
        if k in ("schema", "later"):
            continue
        if k == "missing":
            row[k] = v
        elif k == "error":
            for x in ("type", "code", "where", "context_overflow"):
                row["error_" + x] = (v or {}).get(x)
        elif isinstance(v, dict):
            row.update({f"{k}_{n}": x for n, x in v.items() if n != "later"})
        elif k != "start":
            row[k] = v
    if r["start"]:
        import calendar, time
        sec, frac = r["start"][:-1].split(".")
        row["start_unix_ns"] = calendar.timegm(time.strptime(sec, "%Y-%m-%dT%H:%M:%S")) * 10**9 + int(frac)
    return row


def rows_of(reader, path):
    """Columns and rows, with start as ns since 1970."""
    if reader == "duckdb":
        import duckdb
        c = duckdb.sql(f"SELECT * REPLACE (epoch_ns(start) AS start) FROM '{path}'")
        return c.columns, c.fetchall()
    if reader == "pandas":
        import pandas
        d = pandas.read_parquet(path)
        d["start"] = [None if pandas.isna(x) else x.value for x in d["start"]]
        out = []
        for x in d.itertuples(index=False):
            out.append(tuple(None if isinstance(v, float) and math.isnan(v) or v is pandas.NA or v is pandas.NaT else v for v in x))
        return list(d.columns), out
    import chdb
    text = chdb.query(f"SELECT * REPLACE (toUnixTimestamp64Nano(start) AS start) FROM file('{path}', Parquet) "
                      "SETTINGS output_format_json_quote_64bit_integers=0", "JSONCompactEachRowWithNames").bytes().decode()
    lines = [json.loads(x) for x in text.splitlines()]
    return lines[0], [tuple(x) for x in lines[1:]]


def plain(v):
    if v is None or isinstance(v, (str, bool)):
        return v
    if hasattr(v, "tolist"):
        v = v.tolist()
    if isinstance(v, dict):
        if set(v) == {"key", "value"}:   # a map, to some
            return dict(zip(v["key"], v["value"]))
        return v
    if isinstance(v, (list, tuple)):
        if v and isinstance(v[0], tuple):
            return dict(v)
        return [plain(x) for x in v]
    return v


def alike(got, want):
    got = plain(got)
    if isinstance(want, float) or isinstance(got, float):
        return got is not None and want is not None and float(got) == float(want)
    if want == {} or want == []:
        return got in ({}, [], None) or got == want
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(alike(a, b) for a, b in zip(got, want))
    return got == want


def compare(reader, path, want):
    with open(want) as f:
        want = [flat(r) for r in json.load(f)]
    names, rows = rows_of(reader, path)
    key = lambda r: (r["start_unix_ns"] or 0, r["id"] or "", str(r["request_ids"]), r["bytes_response"], r["client_port"] or 0)
    rows = [dict(zip(names, r)) for r in rows]
    starts = [r["start"] for r in rows if r["start"] is not None]
    order = starts == sorted(starts)
    for r in rows:
        r["request_ids"] = plain(r["request_ids"])
    rows.sort(key=key)
    want.sort(key=key)
    differences, values = [], 0
    for r, w in zip(rows, want):
        w["start"] = w["start_unix_ns"]
        unknown = set(w) - set(names)
        if unknown:
            differences.append(f"no column {sorted(unknown)}")
        for n in names:
            x = w.get(n)
            values += x is not None
            # a list that a reader can't have as null is an empty one
            if not alike(r[n], x) and not (x is None and reader == "clickhouse" and r[n] == []):
                differences.append(f"{w['id']} {n}: {r[n]!r}, expected {x!r}"[:200])
    print(json.dumps({"rows": len(rows), "values": values, "differences": differences[:5], "sorted": order}))


if what == "compare":
    compare(*args)
elif what == "same":
    import duckdb
    q = "SELECT count(*) FROM (SELECT * FROM '{}' EXCEPT SELECT * FROM '{}')"
    print(json.dumps({"differences": sum(duckdb.sql(q.format(*x)).fetchall()[0][0] for x in (args, args[::-1]))}))
elif what == "meta":
    import pyarrow.parquet as pq
    m = pq.ParquetFile(args[0]).metadata
    codecs = {m.row_group(i).column(c).compression for i in range(m.num_row_groups) for c in range(m.num_columns)}
    print(json.dumps({"codecs": sorted(codecs), "groups": m.num_row_groups}))
elif what == "count":
    import duckdb
    print(duckdb.sql(f"SELECT count(*) FROM '{args[0]}'").fetchall()[0][0])
elif what == "partitions":
    import duckdb
    q = f"SELECT coalesce(strftime(start, '%Y-%m-%d'), '') || ' ' || model, count(*) FROM read_parquet('{args[0]}/*/*/*.parquet', hive_partitioning=false) GROUP BY 1"
    print(json.dumps(dict(duckdb.sql(q).fetchall())))
