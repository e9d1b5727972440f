// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* options.c - --log and its kin, --s3. */
#include <stdlib.h>
#include <string.h>

#include "log/log.h"
#include "options.h"

#define NS 1000000000LL

enum {
	OPT_LOG = 256,
	OPT_ROTATE_SIZE,
	OPT_ROTATE_TIME,
	OPT_KEEP_SIZE,
	OPT_KEEP_FILES,
	OPT_KEEP_AGE,
	OPT_FSYNC,
	OPT_COMPRESS,
	OPT_QUEUE,
	OPT_S3,
	OPT_S3_KEEP,
	OPT_S3_EXIT
};

static const struct argp_option options[] = {
	{ 0, 0, 0, 0, "Request log:", 10 },
	{ "log", OPT_LOG, "DIR", 0, "The records in files in DIR, rotated and compressed", 10 },
	{ "log-rotate-size", OPT_ROTATE_SIZE, "SIZE", 0,
	  "Begin a new file when this one has SIZE on disk (default 64M, at most 4G)", 10 },
	{ "log-rotate-time", OPT_ROTATE_TIME, "TIME", 0, "Or when this one is so old (default 1h)",
	  10 },
	{ "log-keep-size", OPT_KEEP_SIZE, "SIZE", 0,
	  "Remove the oldest when all have more than SIZE (default 10G)", 10 },
	{ "log-keep-files", OPT_KEEP_FILES, "N", 0, "Remove the oldest when there are more than N",
	  10 },
	{ "log-keep-age", OPT_KEEP_AGE, "TIME", 0, "Remove those that ended so long ago", 10 },
	{ "log-fsync", OPT_FSYNC, "never|TIME|record", 0,
	  "How often to force them to the disk (default 5s)", 10 },
	{ "log-compress", OPT_COMPRESS, "none|gzip|zstd[=LEVEL]", 0,
	  "How to compress them (default zstd)", 10 },
	{ "log-queue", OPT_QUEUE, "SIZE", 0,
	  "What may wait for a slow disk, part of --memory (default 16M)", 10 },
	{ "s3", OPT_S3, "s3://BUCKET/PREFIX", 0, "Upload the log's files, and remove them then",
	  10 },
	{ "s3-keep", OPT_S3_KEEP, 0, 0, "Keep what was uploaded: it moves to DIR/uploaded", 10 },
	{ "s3-exit-time", OPT_S3_EXIT, "TIME", 0,
	  "Longest time for uploads at the end (default 10s)", 10 },
	{ 0 },
};

static void parse_compress(struct rp_log_options *o, const char *arg)
{
	static const char *const names[] = { "none", "gzip", "zstd" };
	size_t n = strcspn(arg, "=");
	uint64_t level = 0;
	const char *l = arg[n] ? arg + n + 1 : NULL;

	for (int i = 0; i < 3; i++) {
		if (strlen(names[i]) != n || strncmp(arg, names[i], n) != 0)
			continue;
		if (l && (i == RP_LOG_NONE || !rp_parse_size(l, "", 1, 9, &level)))
			break;
		o->compress = (enum rp_log_compress)i;
		o->level = (int)level;
		return;
	}
	rp_refuse("--log-compress %s: none, gzip or zstd, the last two with =1 to =9 if you like",
		  arg);
}

#define DAY (86400 * NS)

static error_t parse(int key, char *arg, struct argp_state *st)
{
	struct rp_log_options *o = &((struct rp_options *)st->input)->log;

	switch (key) {
	case ARGP_KEY_INIT:
		st->child_inputs[0] = &o->s3_options;
		return 0;
	case OPT_LOG:
		if (!*arg)
			rp_refuse("--log wants a directory");
		o->dir = arg;
		return 0;
	case OPT_ROTATE_SIZE:
		if (!rp_parse_size(arg, "KMGT", 64 << 10, 4ULL << 30, &o->rotate_bytes))
			rp_refuse("--log-rotate-size %s: a size from 64K to 4G", arg);
		return 0;
	case OPT_ROTATE_TIME:
		if (!rp_parse_time(arg, NS, 366 * DAY, &o->rotate_ns))
			rp_refuse("--log-rotate-time %s: a time from 1s to 366d", arg);
		return 0;
	case OPT_KEEP_SIZE:
		if (!rp_parse_size(arg, "KMGT", 1 << 20, 1ULL << 60, &o->keep_bytes))
			rp_refuse("--log-keep-size %s: a size of 1M or more", arg);
		return 0;
	case OPT_KEEP_FILES:
		if (!rp_parse_size(arg, "", 1, 100000, &o->keep_files))
			rp_refuse("--log-keep-files %s: a number from 1 to 100000", arg);
		return 0;
	case OPT_KEEP_AGE:
		if (!rp_parse_time(arg, NS, RP_TIME_MAX_NS, &o->keep_ns))
			rp_refuse("--log-keep-age %s: a time of 1s or more, as in 12h, 30d", arg);
		return 0;
	case OPT_FSYNC:
		if (!strcmp(arg, "never"))
			o->fsync_ns = RP_LOG_FSYNC_NEVER;
		else if (!strcmp(arg, "record"))
			o->fsync_ns = RP_LOG_FSYNC_RECORD;
		else if (!rp_parse_time(arg, NS / 100, RP_TIME_MAX_NS, &o->fsync_ns))
			rp_refuse("--log-fsync %s: never, record, or a time of 10ms or more", arg);
		return 0;
	case OPT_COMPRESS:
		parse_compress(o, arg);
		return 0;
	case OPT_QUEUE:
		if (!rp_parse_size(arg, "KMGT", 1 << 20, 1ULL << 32, &o->queue_bytes))
			rp_refuse("--log-queue %s: a size from 1M to 4G", arg);
		return 0;
	case OPT_S3:
		if (!rp_s3_is_url(arg))
			rp_refuse(
				"--s3 %s: s3://BUCKET or s3://BUCKET/PREFIX, a bucket's name has 3 to 63 of a-z 0-9 . -",
				arg);
		o->s3 = arg;
		return 0;
	case OPT_S3_KEEP:
		o->s3_keep = true;
		return 0;
	case OPT_S3_EXIT:
		if (!rp_parse_time(arg, 0, RP_TIME_MAX_NS, &o->s3_exit_ns))
			rp_refuse("--s3-exit-time %s: a time, as in 30s", arg);
		return 0;
	case ARGP_KEY_END:
		if (o->s3 && !o->dir)
			rp_refuse("--s3 uploads the files of the request log: --log DIR says where "
				  "they wait");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child children[] = { { &rp_s3_argp, 0, "The store of --s3:", 10 }, { 0 } };

const struct argp rp_log_argp = { options, parse, NULL, NULL, children, NULL, NULL };
