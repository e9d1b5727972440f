// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* flat.c - the columns of compact's Parquet files, a row of them, and DuckDB's SQL. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "report/compact.h"
#include "report/reader.h"
#include "sink/put.h"

static const char *const types[] = {
	[RP_LEAF_S] = "VARCHAR",   [RP_LEAF_I] = "BIGINT",     [RP_LEAF_D] = "DOUBLE",
	[RP_LEAF_B] = "BOOLEAN",   [RP_LEAF_AS] = "VARCHAR[]", [RP_LEAF_AI] = "BIGINT[]",
	[RP_LEAF_AD] = "DOUBLE[]",
};

/* By the end of the name, as everywhere in a record. */
static const char *unit_of(unsigned leaf)
{
	static const struct {
		const char *end, *unit;
	} units[] = { { "_ms", "ms" },	      { "_s", "s" },	   { "_mb", "MB" },
		      { "_bytes", "bytes" },  { "_seconds", "s" }, { "per_second", "1/s" },
		      { "_tokens", "tokens" } };
	const char *name = rp_leaf_name(leaf), *group = rp_leaf_group(leaf);
	size_t n = strlen(name);

	/* tokens_per_second ends in two of them: the longest is the last that fits */
	if (n > 10 && !strcmp(name + n - 10, "per_second"))
		return "tokens/s";
	if (rp_leaf_type(leaf) == RP_LEAF_S || rp_leaf_type(leaf) == RP_LEAF_B)
		return "";
	if (!strcmp(group, "bytes"))
		return "bytes";
	if (!strcmp(group, "tokens"))
		return "tokens";
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		size_t k = strlen(units[i].end);

		if (n > k && !strcmp(name + n - k, units[i].end))
			return units[i].unit;
	}
	return "";
}

static void leaf_column(unsigned leaf, struct rp_column *c)
{
	const char *group = rp_leaf_group(leaf), *name = rp_leaf_name(leaf);

	snprintf(c->name, sizeof(c->name), "%s%s%s", group, *group ? "_" : "", name);
	snprintf(c->source, sizeof(c->source), "%s%s%s", group, *group ? "." : "", name);
	c->type = types[rp_leaf_type(leaf)];
	c->unit = unit_of(leaf);
}

static void own_column(unsigned which, struct rp_column *c)
{
	static const struct rp_column own[] = {
		[RP_COL_START - RP_LEAF_COUNT] = { "start", "start", "TIMESTAMP_NS", "UTC" },
		[RP_COL_START_NS - RP_LEAF_COUNT] = { "start_unix_ns", "start", "BIGINT", "ns" },
		[RP_COL_ERROR - RP_LEAF_COUNT] = { "error", "error", "BOOLEAN", "" },
		[RP_COL_MISSING -
			RP_LEAF_COUNT] = { "missing", "missing", "MAP(VARCHAR, VARCHAR)", "" },
	};

	*c = own[which - RP_LEAF_COUNT];
}

/* The file's order: when, what it is, how it ended, figures by groups, why not. */
static unsigned order(unsigned char *list)
{
	unsigned n = 0;

	list[n++] = RP_COL_START;
	list[n++] = RP_COL_START_NS;
	for (unsigned i = RP_LEAF_ID; i < RP_LEAF_COUNT; i++) {
		if (i == RP_LEAF_START || (i >= RP_LEAF_FLAGS && i <= RP_LEAF_ITL_SOURCE))
			continue;
		if (i == RP_LEAF_ERROR_TYPE)
			list[n++] = RP_COL_ERROR;
		list[n++] = (unsigned char)i;
	}
	list[n++] = RP_COL_MISSING;
	for (unsigned i = RP_LEAF_FLAGS; i <= RP_LEAF_ITL_SOURCE; i++)
		list[n++] = (unsigned char)i;
	return n;
}
_Static_assert(RP_COL_COUNT < 256, "a column is a byte here");

bool rp_column(unsigned i, struct rp_column *c)
{
	static unsigned char list[RP_COL_COUNT];
	static unsigned n;

	if (!n)
		n = order(list);
	if (i >= n)
		return false;
	if (list[i] < RP_LEAF_COUNT)
		leaf_column(list[i], c);
	else
		own_column(list[i], c);
	return true;
}

static void key(struct rp_buf *b, const char *name)
{
	LIT(b, ",\"");
	rp_buf_str(b, name);
	LIT(b, "\":");
}

/* Keys of DuckDB are BIGINT. */
static void key_part(struct rp_buf *b, uint64_t v)
{
	rp_put_i64(b, (int64_t)v);
}

void rp_flat_row(struct rp_buf *b, const struct rp_line *l, uint64_t n)
{
	static char name[RP_LEAF_COUNT][RP_COLUMN_NAME + 4];
	static size_t len[RP_LEAF_COUNT];
	int64_t start;

	if (!len[0])
		for (unsigned i = 0; i < RP_LEAF_COUNT; i++) {
			struct rp_column c;

			leaf_column(i, &c);
			len[i] = (size_t)snprintf(name[i], sizeof(name[i]), ",\"%s\":", c.name);
		}
	LIT(b, "{\"n\":");
	rp_buf_u64(b, n);
	LIT(b, ",\"k0\":");
	key_part(b, rp_line_key(l, 0x243f6a8885a308d3ULL));
	LIT(b, ",\"k1\":");
	key_part(b, rp_line_key(l, 0x13198a2e03707344ULL));
	if (rp_slice_time(&l->v[RP_LEAF_START], &start)) {
		key(b, "start_unix_ns");
		rp_put_i64(b, start);
	}
	LIT(b, ",\"error\":");
	rp_put_bool(b, l->has_error);
	for (unsigned i = RP_LEAF_ID; i < RP_LEAF_COUNT; i++) {
		if (!l->v[i].p || i == RP_LEAF_START)
			continue;
		rp_buf_put(b, name[i], len[i]);
		rp_buf_put(b, l->v[i].p, l->v[i].n);
	}
	if (l->missing.p) {
		key(b, "missing");
		rp_buf_put(b, l->missing.p, l->missing.n);
	}
	LIT(b, "}\n");
}

/* ---- SQL ---- */

static void quoted(struct rp_buf *b, const char *s)
{
	LIT(b, "'");
	for (; *s; s++) {
		if (*s == '\'')
			LIT(b, "'");
		rp_buf_put(b, s, 1);
	}
	LIT(b, "'");
}

static const struct {
	const char *name, *sql;
	enum rp_leaf leaf; /* where there is no sql */
} keys[] = {
	{ "day", "strftime(make_timestamp_ns(start_unix_ns), '%Y-%m-%d')", 0 },
	{ "hour", "strftime(make_timestamp_ns(start_unix_ns), '%H')", 0 },
	{ "model", "", RP_LEAF_MODEL },
	{ "operation", "", RP_LEAF_OPERATION },
	{ "engine_name", "", RP_LEAF_ENGINE_NAME },
	{ "server_address", "", RP_LEAF_SERVER_ADDRESS },
};
#define N_KEYS (sizeof(keys) / sizeof(*keys))

static size_t find_key(const char *p, size_t n)
{
	for (size_t i = 0; i < N_KEYS; i++)
		if (strlen(keys[i].name) == n && !memcmp(keys[i].name, p, n))
			return i;
	return N_KEYS;
}

const char *rp_flat_partition_wrong(const char *list)
{
	unsigned seen = 0;

	for (const char *p = list;; p++) {
		size_t n = strcspn(p, ","), k = find_key(p, n);

		if (k == N_KEYS)
			return "it takes day, hour, model, operation, engine_name, server_address, with commas between";
		if (seen & 1u << k)
			return "a key can't come twice";
		seen |= 1u << k;
		p += n;
		if (!*p)
			return NULL;
	}
}

bool rp_flat_partition_fits(const char *list, const struct rp_line *l)
{
	for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',') {
		size_t k = find_key(p, strcspn(p, ",")), n;
		/* room for more than can fit: what is cut is too long in any case */
		char text[NAME_MAX + 2];

		if (k == N_KEYS || *keys[k].sql)
			continue;
		rp_slice_text(&l->v[keys[k].leaf], text, sizeof(text));
		n = strlen(keys[k].name) + 1;
		/* %XX for all but these */
		for (const char *c = text; *c; c++)
			n += (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
					     (*c >= '0' && *c <= '9') || strchr("_-.~", *c) ?
				     1 :
				     3;
		if (n > NAME_MAX)
			return false;
	}
	return true;
}

/* The columns as they are read: what is computed is left out. */
static void input_columns(struct rp_buf *b)
{
	struct rp_column c;

	LIT(b, "{'n': 'UBIGINT', 'k0': 'BIGINT', 'k1': 'BIGINT'");
	for (unsigned i = 0; rp_column(i, &c); i++) {
		if (!strcmp(c.name, "start"))
			continue;
		LIT(b, ", ");
		quoted(b, c.name);
		LIT(b, ": ");
		quoted(b, c.type);
	}
	LIT(b, "}");
}

static void output_columns(struct rp_buf *b, const char *partition)
{
	struct rp_column c;

	for (unsigned i = 0; rp_column(i, &c); i++) {
		if (i)
			LIT(b, ", ");
		if (!strcmp(c.name, "start"))
			LIT(b, "make_timestamp_ns(start_unix_ns) AS start");
		else {
			LIT(b, "\"");
			rp_buf_str(b, c.name);
			LIT(b, "\"");
		}
	}
	for (const char *p = partition; p && *p; p += strcspn(p, ","), p += *p == ',') {
		size_t k = find_key(p, strcspn(p, ","));

		if (k < N_KEYS && *keys[k].sql) {
			LIT(b, ", ");
			rp_buf_str(b, keys[k].sql);
			LIT(b, " AS ");
			rp_buf_str(b, keys[k].name);
		}
	}
}

void rp_flat_sql(struct rp_buf *b, const struct rp_flat_out *o)
{
	bool many = o->partition || o->file_size;

	LIT(b,
	    "SET enable_progress_bar=false; SET preserve_insertion_order=false; SET memory_limit='");
	rp_buf_u64(b, o->memory);
	LIT(b, "B'; SET threads=");
	rp_buf_u64(b, o->threads);
	LIT(b, "; SET temp_directory=");
	quoted(b, o->stage);
	LIT(b, "; ATTACH '");
	for (const char *p = o->stage; *p; p++) {
		if (*p == '\'')
			LIT(b, "'");
		rp_buf_put(b, p, 1);
	}
	/* On disk, so that memory stays bounded; by columns, so that looking for
	 * duplicates reads nothing but the keys. */
	LIT(b, "/rows.db' AS stage; CREATE TABLE stage.r AS SELECT * FROM read_json(");
	quoted(b, o->input);
	LIT(b, ", format='newline_delimited', compression='uncompressed', maximum_object_size=");
	/* its buffers are twice as large, for each thread */
	rp_buf_u64(b, o->longest > 1 << 20 ? o->longest : 1 << 20);
	LIT(b, ", columns=");
	input_columns(b);
	LIT(b, "); CREATE TABLE stage.d AS SELECT k0, k1, min(n) AS n FROM stage.r GROUP BY k0, k1 "
	       "HAVING count(*) > 1; COPY (SELECT ");
	output_columns(b, o->partition);
	LIT(b, " FROM stage.r AS r WHERE NOT EXISTS (SELECT 1 FROM stage.d AS d WHERE d.k0 = r.k0 "
	       "AND d.k1 = r.k1 AND d.n < r.n) ORDER BY start_unix_ns NULLS LAST, engine_pid, "
	       "client_port, n) TO ");
	quoted(b, o->path);
	LIT(b, " (FORMAT parquet, COMPRESSION ");
	rp_buf_str(b, o->compression);
	LIT(b, ", ROW_GROUP_SIZE ");
	rp_buf_u64(b, o->row_group);
	if (o->partition) {
		LIT(b, ", PARTITION_BY (");
		rp_buf_str(b, o->partition);
		LIT(b, "), WRITE_PARTITION_COLUMNS true");
	}
	if (o->file_size) {
		LIT(b, ", FILE_SIZE_BYTES ");
		rp_buf_u64(b, o->file_size);
	}
	if (many)
		LIT(b, ", FILENAME_PATTERN 'part-{i}'");
	LIT(b,
	    "); SELECT count(*) - (SELECT coalesce(sum(c - 1), 0) FROM (SELECT count(*) AS c FROM "
	    "stage.r GROUP BY k0, k1 HAVING count(*) > 1))::BIGINT AS kept, (SELECT "
	    "coalesce(sum(c - 1), 0) FROM (SELECT count(*) AS c FROM stage.r GROUP BY k0, k1 HAVING "
	    "count(*) > 1))::BIGINT AS duplicates FROM stage.r;");
}
