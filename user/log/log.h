/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * log.h - the request log (--log DIR): reqprobe.request/1 lines in files that are
 * rotated, compressed, kept up to limits, and uploaded to an object store (--s3).
 *
 * A file is written as .NAME.partial and becomes NAME when it is whole: each NAME
 * ends with a whole line. NAME is reqprobe-HOST-YYYYMMDDTHHMMSS.mmmZ-NNNNNN.jsonl,
 * with .gz or .zst behind it: the instant (UTC) at which it was begun, and its number
 * in this run. What a killed run left partial is cut to whole lines and finished by
 * the next one in that directory. One process at a time has a directory.
 *
 * Uploaded is what is whole. A file leaves the disk (--s3-keep: moves to uploaded/)
 * when the store has acknowledged it and it was verified; an upload that is cut off is
 * done again with the same key. So every record is in the store at least once, and, as
 * a key names one file, once.
 */
#ifndef REQPROBE_LOG_LOG_H
#define REQPROBE_LOG_LOG_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "log/s3.h"

enum rp_log_compress { RP_LOG_NONE, RP_LOG_GZIP, RP_LOG_ZSTD };

#define RP_LOG_FSYNC_NEVER (-1)
#define RP_LOG_FSYNC_RECORD 0

struct rp_log_options {
	const char *dir; /* NULL: no log */
	const char *s3;	 /* s3://BUCKET/PREFIX, or NULL */
	struct rp_s3_options s3_options;
	bool s3_keep;		       /* what was uploaded stays, in uploaded/ */
	int64_t s3_exit_ns;	       /* for uploads at the end; default 10 s */
	uint64_t rotate_bytes;	       /* on disk; default 64 MiB */
	int64_t rotate_ns;	       /* since its first record; default 1 h */
	uint64_t keep_bytes;	       /* all files together; default 10 GiB */
	uint64_t keep_files;	       /* 0: any number, the default */
	int64_t keep_ns;	       /* since its last record; 0: any age, the default */
	int64_t fsync_ns;	       /* or RP_LOG_FSYNC_*; default 5 s */
	uint64_t queue_bytes;	       /* 0: 16 MiB, or a quarter of --memory if that is less */
	enum rp_log_compress compress; /* default zstd */
	int level;		       /* 0: its default */
};
void rp_log_defaults(struct rp_log_options *o);
/* What it may take of --memory: the queue, compression, an upload. 0 without --log. */
uint64_t rp_log_memory(const struct rp_log_options *o, uint64_t memory);

extern const struct argp rp_log_argp;
extern const struct rp_output rp_log_output;

/* ---- name.c ---- */
#define RP_LOG_NAME_MAX 160 /* with the NUL; partial names are 9 longer */
/* Is it one of a file that is not whole yet? ".NAME.partial" -> NAME */
bool rp_log_name_partial(const char *partial, char out[RP_LOG_NAME_MAX]);

#endif
