/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * reader.h - the lines of many request logs, one after the other: files, plain or
 * compressed with gzip or zstd (told by their first bytes, not by their names),
 * directories of them, standard input. What can't be read of one file costs that
 * file's rest, is said in one line, and the others go on.
 */
#ifndef REQPROBE_REPORT_READER_H
#define REQPROBE_REPORT_READER_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "metrics/facts.h"
#include "report/scan.h"

#define RP_READER_FILES (1u << 20) /* files at most, those in directories counted */
#define RP_READER_DEPTH 16	   /* directories inside each other */

struct rp_reader_stats {
	uint64_t files, bytes; /* bytes as they lie on disk */
	uint64_t lines;	       /* with anything in them */
	uint64_t too_long;     /* longer than RP_LINE_MAX: passed over */
	uint64_t unread;       /* files that could not be opened, or read to their end */
	uint64_t unfinished;   /* files of a running --log in directories: left out */
	uint64_t too_deep;     /* directories more than RP_READER_DEPTH below: left out */
};

struct rp_reader;

/* Is a file of this name, or path, one of the logs in a directory? */
bool rp_reader_is_log(const char *name);

/* Where a file that is not on this machine comes from: an open descriptor, or -errno
 * and a line in err. */
typedef int (*rp_reader_fetch)(void *ctx, const char *name, char *err, size_t errlen);

struct rp_reader_options {
	rp_reader_fetch fetch; /* for names with "://" in them, or NULL */
	void *ctx;
	/* Bytes: names take an eighth of it, the window of a zstd file a quarter, 8 MiB in
	 * any case. 0: as many names as RP_READER_FILES, windows of 128 MiB. */
	uint64_t memory;
	const volatile sig_atomic_t *stop; /* true: -EINTR, from whatever is under way; or NULL */
};
/* Of names, for a directory. */
uint64_t rp_reader_names_max(uint64_t memory);

/*
 * paths: FILE, DIRECTORY (its *.jsonl, *.jsonl.gz, *.jsonl.zst, and those in directories
 * below, in the order of their names; hidden ones and *.tmp are left out; a directory that
 * is reached again by a link counts once) or "-". A path that does not exist is an error
 * here, before anything is read: -errno and one line in err. paths must live as long; o
 * may be NULL.
 */
int rp_reader_open(const char *const *paths, size_t n, const struct rp_reader_options *o,
		   struct rp_reader **out, char *err, size_t errlen);
/*
 * 1: a line of *n bytes without its newline, p[n] is '\n', good until the next call;
 * empty ones are left out. 0: that was all. -ENOMEM; -EINTR: a signal came while it
 * waited, or *stop is true. What can't be read is said by rp_say().
 */
int rp_reader_next(struct rp_reader *r, const char **p, size_t *n);
/* Bytes of names, and of the decoder. */
size_t rp_reader_bytes(const struct rp_reader *r);
const char *rp_reader_file(const struct rp_reader *r); /* of that line */
size_t rp_reader_index(const struct rp_reader *r);     /* its number, from 0 */
size_t rp_reader_files(const struct rp_reader *r);     /* how many there are */
const struct rp_reader_stats *rp_reader_stats(const struct rp_reader *r);
void rp_reader_close(struct rp_reader *r);

/* ---- a line as facts ---- */

#define RP_READER_TEXTS 9
/* Room for the strings and gaps of one line's facts, used again and again. Zero at
 * first; rp_facts_room's rule for gaps. */
struct rp_reader_room {
	char text[RP_READER_TEXTS][256];
	struct rp_facts_room gaps;
};
/*
 * What rp_facts_of() made of the record that the line was written from. l as filled by
 * rp_line_scan(). -EBADMSG: an enumeration with a value of no schema's; -ENOMEM.
 */
int rp_facts_of_line(const struct rp_line *l, struct rp_facts *f, struct rp_reader_room *room);

/* The host of a reqprobe.summary/1 line; false: the line is none. host "" when null. */
bool rp_line_summary(const char *p, size_t n, char *host, size_t size);

/* A number that is the same for the same record, however often it was stored, and for
 * no two others: of its instants, ids, peers and sizes. seed: any. */
uint64_t rp_line_key(const struct rp_line *l, uint64_t seed);

#endif
