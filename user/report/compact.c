// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* compact.c - the verb compact: logs in, Parquet out, all of it or nothing. */
#include "report/compact.h"

#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "given.h"
#include "options.h"
#include "report/reader.h"
#include "report/source.h"
#include "run.h"

#define BATCH (256u << 10)

struct options {
	const char **paths;
	size_t n;
	const char *out, *duckdb, *partition, *compression;
	uint64_t memory, row_group, file_size;
	unsigned threads;
	bool quiet, columns, replace;
	struct rp_s3_options s3;
};

enum {
	OPT_PARTITION = 256,
	OPT_FILE_SIZE,
	OPT_ROW_GROUP,
	OPT_COMPRESSION,
	OPT_MEMORY,
	OPT_THREADS,
	OPT_DUCKDB,
	OPT_COLUMNS,
	OPT_REPLACE,
};

static const char doc[] =
	"Turns request logs (reqprobe.request/1 lines: plain, gzip, zstd) into Parquet, sorted by "
	"time, each record once. A PATH is a file, a directory, - for standard input, or "
	"s3://BUCKET/PREFIX.\v"
	"Uses DuckDB (1.0 or later): its command line tool or its Python module. The columns are "
	"described in docs/parquet.md. What is not whole, or no record, is left out and counted. "
	"The output appears whole or not at all. Exit status: 0 done, 1 not, 2 wrong usage. See "
	"reqprobe(8).";

static const struct argp_option options[] = {
	{ "output", 'o', "OUT", 0,
	  "The file to make or replace; with --partition or --file-size a directory", 0 },
	{ "partition", OPT_PARTITION, "KEYS", 0,
	  "A directory for each value of day, hour, model, operation, engine_name, server_address (KEY=VALUE/...)",
	  0 },
	{ "file-size", OPT_FILE_SIZE, "SIZE", 0, "Begin a new file when one is as big, about", 0 },
	{ "row-group", OPT_ROW_GROUP, "ROWS", 0, "Rows of a row group (default 122880)", 0 },
	{ "compression", OPT_COMPRESSION, "NAME", 0, "zstd (default) or snappy", 0 },
	{ "replace", OPT_REPLACE, 0, 0, "The output directory may exist: it is replaced", 0 },
	{ "memory", OPT_MEMORY, "SIZE", 0,
	  "Memory of DuckDB; the rest goes to disk beside OUT (default 1G)", 0 },
	{ "threads", OPT_THREADS, "N", 0, "Threads of DuckDB (default 2)", 0 },
	{ "duckdb", OPT_DUCKDB, "PATH", 0,
	  "DuckDB's tool, or a Python with its module (default: REQPROBE_DUCKDB, duckdb, python3)",
	  0 },
	{ "columns", OPT_COLUMNS, 0, 0, "Print the columns, and do nothing", 0 },
	{ "quiet", 'q', 0, 0, "Say nothing when all went well", 0 },
	{ "help", 'h', 0, 0, "Say this", -1 },
	{ 0 },
};

static const struct argp argp;

static error_t parse(int key, char *arg, struct argp_state *st)
{
	struct options *o = st->input;
	const char *wrong;
	uint64_t n;

	switch (key) {
	case ARGP_KEY_INIT:
		st->child_inputs[0] = &o->s3;
		return 0;
	case 'o':
		o->out = arg;
		return 0;
	case OPT_PARTITION:
		wrong = rp_flat_partition_wrong(arg);
		if (wrong)
			rp_refuse("--partition %s: %s", arg, wrong);
		o->partition = arg;
		return 0;
	case OPT_FILE_SIZE:
		if (!rp_parse_size(arg, "KMG", 1 << 20, 1ULL << 60, &o->file_size))
			rp_refuse("--file-size %s: a size of 1M or more", arg);
		return 0;
	case OPT_ROW_GROUP:
		if (!rp_parse_size(arg, "KMG", 2048, 1 << 24, &o->row_group))
			rp_refuse("--row-group %s: a number from 2048 to 16777216", arg);
		return 0;
	case OPT_COMPRESSION:
		if (strcmp(arg, "zstd") != 0 && strcmp(arg, "snappy") != 0)
			rp_refuse("--compression %s is neither zstd nor snappy", arg);
		o->compression = arg;
		return 0;
	case OPT_MEMORY:
		if (!rp_parse_size(arg, "KMG", 384 << 20, 1ULL << 60, &o->memory))
			rp_refuse("--memory %s: a size of 384M or more", arg);
		return 0;
	case OPT_THREADS:
		if (!rp_parse_size(arg, "KMG", 1, 256, &n))
			rp_refuse("--threads %s: a number from 1 to 256", arg);
		o->threads = (unsigned)n;
		return 0;
	case OPT_DUCKDB:
		o->duckdb = arg;
		return 0;
	case OPT_COLUMNS:
		o->columns = true;
		return 0;
	case OPT_REPLACE:
		o->replace = true;
		return 0;
	case 'q':
		o->quiet = true;
		return 0;
	case 'h':
		rp_help(&argp, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC,
			"reqprobe compact");
		exit(RP_EXIT_OK);
	case ARGP_KEY_ARG:
		o->paths[o->n++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (o->columns)
			return 0;
		if (!o->n)
			rp_refuse("compact: which logs? reqprobe compact PATH... -o OUT.parquet");
		if (!o->out)
			rp_refuse("compact: where to? reqprobe compact PATH... -o OUT.parquet");
		if (o->partition && o->file_size)
			rp_refuse("--partition and --file-size exclude each other");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child children[] = { { &rp_s3_argp, 0, "A store:", 1 }, { 0 } };
static const struct argp argp = { options, parse, "PATH... -o OUT", doc, children, NULL, NULL };

/* ---- files that must not stay behind ---- */

/* A directory with all that is in it. */
static void remove_tree(const char *path, unsigned depth)
{
	DIR *d = opendir(path);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char *p = NULL;
		struct stat st;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (asprintf(&p, "%s/%s", path, e->d_name) < 0)
			break;
		if (lstat(p, &st) == 0 && S_ISDIR(st.st_mode) && depth < 16)
			remove_tree(p, depth + 1);
		else
			unlink(p);
		free(p);
	}
	if (d)
		closedir(d);
	rmdir(path);
}

static int sync_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = 0;

	if (fd < 0 || fsync(fd) < 0)
		err = -errno;
	if (fd >= 0)
		close(fd);
	return err;
}

static int sync_tree(const char *path, unsigned depth)
{
	struct stat st;
	DIR *d;
	struct dirent *e;
	int err = 0;

	if (stat(path, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode) && depth < 16) {
		d = opendir(path);
		if (!d)
			return -errno;
		while (!err && (e = readdir(d))) {
			char *p = NULL;

			if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
				continue;
			if (asprintf(&p, "%s/%s", path, e->d_name) < 0)
				err = -ENOMEM;
			else
				err = sync_tree(p, depth + 1);
			free(p);
		}
		closedir(d);
	}
	return err ? err : sync_file(path);
}

/* What was made takes the name, in one step. */
static int put_in_place(const char *made, const char *out, bool dir)
{
	char *parent = NULL, *slash;
	struct stat st;
	int err = sync_tree(made, 0);

	if (err)
		return err;
	if (dir && stat(out, &st) == 0) {
		/* a directory that is not empty can't be renamed over */
		if (renameat2(AT_FDCWD, made, AT_FDCWD, out, RENAME_EXCHANGE) < 0)
			return -errno;
		remove_tree(made, 0);
	} else if (rename(made, out) < 0) {
		return -errno;
	}
	parent = strdup(out);
	slash = parent ? strrchr(parent, '/') : NULL;
	if (slash)
		slash[slash == parent] = 0;
	if (parent)
		sync_file(slash ? parent : ".");
	free(parent);
	return 0;
}

/* ---- the work ---- */

struct counts {
	uint64_t records, torn, foreign, unplaced;
	uint64_t longest; /* bytes of a row */
};

static int put(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t w = write(fd, p, n);

		if (w < 0)
			return -errno;
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

/*
 * All rows into a file first: of a pipe DuckDB keeps in memory whatever it has read.
 */
static int pump(struct rp_reader *r, const char *partition, int fd, struct counts *c)
{
	struct rp_buf b = { 0 };
	struct rp_line l;
	const char *p;
	char host[8];
	size_t n, before;
	int e = 0;

	while (!rp_stopped && !e && (e = rp_reader_next(r, &p, &n)) > 0) {
		e = rp_line_scan(p, n, &l);
		if (e) {
			if (e == -EBADMSG)
				c->torn++;
			else if (!rp_line_summary(p, n, host, sizeof(host)))
				c->foreign++;
			e = 0;
			continue;
		}
		if (partition && !rp_flat_partition_fits(partition, &l)) {
			c->unplaced++;
			continue;
		}
		before = b.n;
		rp_flat_row(&b, &l, c->records++);
		if (b.n - before > c->longest)
			c->longest = b.n - before;
		if (b.oom)
			e = -ENOMEM;
		else if (b.n >= BATCH) {
			e = put(fd, b.p, b.n);
			b.n = 0;
		}
	}
	if (!e && !rp_stopped && b.n)
		e = put(fd, b.p, b.n);
	free(b.p);
	return rp_stopped ? -EINTR : e;
}

static void tell(const struct options *o, const struct rp_reader *r, const struct counts *c,
		 const uint64_t *result)
{
	const struct rp_reader_stats *st = rp_reader_stats(r);
	unsigned long long out = c->torn + c->foreign + st->too_long;

	if (out)
		rp_say("%llu lines were left out: %llu torn or broken, %llu that are no reqprobe.request/1, %llu longer than %u MiB",
		       out, (unsigned long long)c->torn, (unsigned long long)c->foreign,
		       (unsigned long long)st->too_long, RP_LINE_MAX >> 20);
	if (c->unplaced)
		rp_say("%llu records were left out: their --partition %s would be a directory with a name of more than %d bytes",
		       (unsigned long long)c->unplaced, o->partition, NAME_MAX);
	if (!o->quiet)
		rp_say("%s: %llu records of %llu files, %llu that came more than once left out",
		       o->out, (unsigned long long)result[0], (unsigned long long)st->files,
		       (unsigned long long)result[1]);
}

static int make_dir(const char *path)
{
	return mkdir(path, 0700) < 0 ? -errno : 0;
}

static int compact(const struct options *o)
{
	struct rp_duckdb db = { .out = -1, .err = -1 };
	struct rp_flat_out f = {
		.partition = o->partition,
		.compression = o->compression,
		.memory = o->memory,
		.row_group = o->row_group,
		.file_size = o->file_size,
		/* several threads write a file each, of any rows */
		.threads = o->partition || o->file_size ? 1 : o->threads,
	};
	bool dir = o->partition || o->file_size, staged = false;
	char *stage = NULL, *made = NULL, *rows = NULL, err[1024] = "";
	int fd = -1;
	struct rp_source *src = NULL;
	struct counts c = { 0 };
	uint64_t result[2] = { 0 };
	struct rp_buf sql = { 0 };
	struct stat st;
	int e;

	e = rp_duckdb_find(o->duckdb, &db, err, sizeof(err));
	if (e)
		goto cleanup;
	if (stat(o->out, &st) == 0 && S_ISDIR(st.st_mode) != dir) {
		e = -EEXIST;
		snprintf(err, sizeof(err), "%s is %s", o->out,
			 dir ? "no directory, as --partition and --file-size make one" :
			       "a directory; a file is to be made");
		goto cleanup;
	}
	if (dir && !o->replace && stat(o->out, &st) == 0 && rmdir(o->out) < 0) {
		e = -EEXIST;
		snprintf(err, sizeof(err), "%s exists and is not empty; --replace replaces it",
			 o->out);
		goto cleanup;
	}
	e = rp_source_open(&o->s3, o->paths, o->n, 0, &src, err, sizeof(err));
	if (e)
		goto cleanup;
	e = -ENOMEM;
	if (asprintf(&stage, "%s.tmp-%d", o->out, (int)getpid()) < 0) {
		stage = NULL;
		goto cleanup;
	}
	if (asprintf(&made, "%s/out%s", stage, dir ? "" : ".parquet") < 0) {
		made = NULL;
		goto cleanup;
	}
	if (asprintf(&rows, "%s/rows.jsonl", stage) < 0) {
		rows = NULL;
		goto cleanup;
	}
	f.stage = stage;
	f.path = made;
	f.input = rows;
	e = make_dir(stage);
	if (e) {
		snprintf(err, sizeof(err), "can't make %s: %s", stage, strerror(-e));
		goto cleanup;
	}
	staged = true;
	fd = open(rows, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	e = fd < 0 ? -errno : pump(rp_source_reader(src), o->partition, fd, &c);
	if (e && e != -EINTR)
		snprintf(err, sizeof(err), "can't write %s: %s", rows, strerror(-e));
	if (!e && !c.records) {
		e = -ENODATA;
		snprintf(err, sizeof(err), "no record in %llu lines of %zu files: %s is not made",
			 (unsigned long long)rp_reader_stats(rp_source_reader(src))->lines,
			 rp_reader_files(rp_source_reader(src)), o->out);
	}
	if (!e) {
		f.longest = c.longest;
		rp_flat_sql(&sql, &f);
		rp_buf_put(&sql, "", 1);
		e = sql.oom ? -ENOMEM : rp_duckdb_start(&db, sql.p, err, sizeof(err));
	}
	if (!e)
		e = rp_duckdb_finish(&db, &rp_stopped, result, err, sizeof(err));
	if (!e) {
		e = put_in_place(made, o->out, dir);
		if (e)
			snprintf(err, sizeof(err), "can't put %s in place: %s", o->out,
				 strerror(-e));
	}
	if (!e)
		tell(o, rp_source_reader(src), &c, result);
cleanup:
	rp_duckdb_stop(&db);
	if (e && e != -EINTR)
		rp_say("%s", *err ? err : strerror(-e));
	else if (e)
		rp_say("stopped: %s is not made", o->out);
	if (fd >= 0)
		close(fd);
	if (staged)
		remove_tree(stage, 0);
	rp_source_close(src);
	free(stage);
	free(made);
	free(rows);
	free(sql.p);
	return e ? RP_EXIT_FAILED : RP_EXIT_OK;
}

static int print_columns(void)
{
	struct rp_column c;

	for (unsigned i = 0; rp_column(i, &c); i++)
		printf("| `%s` | %s | %s | `%s` |\n", c.name, c.type, c.unit, c.source);
	return fflush(stdout) ? RP_EXIT_FAILED : RP_EXIT_OK;
}

int rp_compact(int argc, char **argv)
{
	struct options o = {
		.compression = "zstd",
		.memory = 1 << 30,
		.row_group = 122880,
		.threads = 2,
	};
	int unknown, next = argc, status;

	o.paths = calloc((size_t)argc + 1, sizeof(*o.paths));
	if (!o.paths)
		rp_refuse("no memory");
	argp_err_exit_status = RP_EXIT_USAGE;
	/* its own complaints take two lines */
	unknown = rp_given(&argp, argc, argv, NULL);
	if (argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, &next, &o))
		rp_refuse(
			"compact: '%s' is not understood, or lacks its value; see reqprobe compact --help",
			argv[unknown		      ? unknown :
			     next > 0 && next <= argc ? next - 1 :
							argc - 1]);
	signal(SIGPIPE, SIG_IGN);
	rp_source_on_signals();
	status = o.columns ? print_columns() : compact(&o);
	free(o.paths);
	return status;
}
