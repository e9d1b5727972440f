/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * compact.h - many request logs into Parquet. The reader of this program takes the
 * logs apart and hands flat rows to DuckDB, which dedupes, sorts and writes them.
 */
#ifndef REQPROBE_REPORT_COMPACT_H
#define REQPROBE_REPORT_COMPACT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "report/scan.h"
#include "sink/sink.h"

/* ---- flat.c: the columns ---- */

#define RP_COLUMN_NAME 64
/* Columns beside a leaf each: start, start_unix_ns, error, missing. */
enum { RP_COL_START = RP_LEAF_COUNT, RP_COL_START_NS, RP_COL_ERROR, RP_COL_MISSING, RP_COL_COUNT };

struct rp_column {
	char name[RP_COLUMN_NAME];   /* group_name, or name */
	char source[RP_COLUMN_NAME]; /* member of the record: group.name */
	const char *type;	     /* of SQL */
	const char *unit;	     /* "" none */
};
/* The i-th column of the file, in its order; false: there are no more. */
bool rp_column(unsigned i, struct rp_column *c);
/* One row, as JSON on a line of its own: what is not null, n (its number) and its key. */
void rp_flat_row(struct rp_buf *b, const struct rp_line *l, uint64_t n);

struct rp_flat_out {
	const char *input, *path;	       /* where DuckDB reads rows, and writes to */
	const char *stage;		       /* directory for what does not fit into memory */
	const char *partition;		       /* "day,model", or NULL */
	const char *compression;	       /* "zstd", "snappy" */
	uint64_t memory, row_group, file_size; /* bytes, rows, bytes; file_size 0: one file */
	uint64_t longest;		       /* bytes of the longest row */
	unsigned threads;
};
/* The SQL that does it; its one result are two numbers: rows written, duplicates. */
void rp_flat_sql(struct rp_buf *b, const struct rp_flat_out *o);
/* May it stand in --partition? NULL, or what is wrong with it. */
const char *rp_flat_partition_wrong(const char *keys);
/* Can each KEY=VALUE of the record be the name of a directory, as DuckDB writes it? */
bool rp_flat_partition_fits(const char *keys, const struct rp_line *l);

/* ---- duckdb.c: the engine ---- */

struct rp_duckdb {
	char path[4096]; /* the command line tool, or a Python that has the module */
	bool python;
	char version[64];
	/* while it runs */
	pid_t pid;
	int out, err; /* what it says */
};
/* given: a path, or NULL: REQPROBE_DUCKDB, duckdb in PATH, python3 in PATH with the
 * module. -ENOENT and one line in err that says how to get it. */
int rp_duckdb_find(const char *given, struct rp_duckdb *d, char *err, size_t errlen);
int rp_duckdb_start(struct rp_duckdb *d, const char *sql, char *err, size_t errlen);
/* Waits for it. 0 and the two numbers; -EIO and its complaint in one line; -EINTR when a
 * signal came and *stop says so. */
int rp_duckdb_finish(struct rp_duckdb *d, const volatile sig_atomic_t *stop, uint64_t result[2],
		     char *err, size_t errlen);
/* Gives it up, if it runs. */
void rp_duckdb_stop(struct rp_duckdb *d);

int rp_compact(int argc, char **argv);

#endif
