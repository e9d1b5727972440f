/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* internal.h - the parts of the request log: names, one file, the directory. */
#ifndef REQPROBE_LOG_INTERNAL_H
#define REQPROBE_LOG_INTERNAL_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log/log.h"
#include "sink/sink.h"

/* ---- name.c ---- */
#define RP_LOG_HOST_MAX 64
#define RP_LOG_LOCK ".reqprobe.lock"
#define RP_LOG_UPLOADED "uploaded"

struct rp_log_name {
	char date[9]; /* "20261130" */
	int64_t ms;   /* as 20261130035900123: only for order */
	uint64_t seq;
	enum rp_log_compress compress;
};
/* wall: ns of CLOCK_REALTIME. Characters of host that have no place in a name become _. */
void rp_log_name(char out[RP_LOG_NAME_MAX], const char *host, int64_t wall, uint64_t seq,
		 enum rp_log_compress c);
/* Is it the name of a whole file of ours? n may be NULL. */
bool rp_log_name_parse(const char *name, struct rp_log_name *n);
/* PREFIX + "2026/11/30/" + NAME. False: not one of our names, or too long. */
bool rp_log_key(const char *prefix, const char *name, char *out, size_t size);

/* ---- file.c: a file while it is written ---- */
struct rp_log_file {
	int dir, fd; /* fd -1: none is open */
	char name[RP_LOG_NAME_MAX], partial[RP_LOG_NAME_MAX + 12];
	enum rp_log_compress compress;
	void *stream;	     /* z_stream or ZSTD_CCtx */
	struct rp_buf out;   /* to be written */
	size_t done;	     /* of out */
	uint64_t bytes, raw; /* on disk; before compression */
	uint64_t records;
	uint64_t unsafe; /* records that a kill would take: in out, or in the stream */
	bool dirty;	 /* the stream holds some */
	bool unsynced;	 /* the kernel holds some */
	bool ended;	 /* its last bytes are in out, or written */
};
/* Makes .NAME.partial, or .NAME.recovered. -errno. */
int rp_log_file_open(struct rp_log_file *f, int dir, const char *name, bool recovered,
		     enum rp_log_compress c, int level);
/* Whole lines. -ENOMEM: not taken. Writes nothing yet. */
int rp_log_file_put(struct rp_log_file *f, const char *p, size_t n, uint64_t records);
/* From here on all that was put can be read back from what is written. */
int rp_log_file_flush(struct rp_log_file *f);
/* Nothing more will be put. */
int rp_log_file_end(struct rp_log_file *f);
/* Hands out to the kernel. -errno: tried again with the next call, nothing is lost. */
int rp_log_file_write(struct rp_log_file *f);
int rp_log_file_sync(struct rp_log_file *f);
/* After end and write: what is left to do is in c, and f is free. */
struct rp_log_closed {
	struct rp_log_closed *next;
	int dir, fd;
	char name[RP_LOG_NAME_MAX], partial[RP_LOG_NAME_MAX + 12];
	uint64_t records;
};
void rp_log_file_close(struct rp_log_file *f, struct rp_log_closed *c);
/* It gets its name, and fd is closed. sync: first to the disk, and the name, too. -errno:
 * tried again with the next call. */
int rp_log_publish(struct rp_log_closed *c, bool sync);
/* Leaves it partial, for the next start to finish. */
void rp_log_file_abandon(struct rp_log_file *f);

/* ---- recover.c ---- */
/*
 * What a killed run left: .NAME.partial is cut to its whole lines and becomes NAME, or
 * goes when it has none. Memory: one line of at most RP_LOG_LINE_MAX (a longer one is no
 * line of ours, and dropped). *lines: what it holds now. -errno: it stays as it was.
 */
#define RP_LOG_LINE_MAX (16u << 20)
int rp_log_recover(int dir, const char *name, uint64_t *lines);

/* ---- dir.c ---- */
struct rp_log_entry {
	char name[RP_LOG_NAME_MAX];
	uint64_t size;
	int64_t modified; /* ns of CLOCK_REALTIME */
	int64_t ms;
	uint64_t seq;
	bool uploaded; /* it is in uploaded/ */
	bool busy;     /* being uploaded: not to be removed */
};
#define RP_LOG_ENTRIES_MAX 100000 /* files of a directory that are looked at */
/* The whole files of dir, oldest first; behind them, if up >= 0, those of up. Freed by the
 * caller. -errno. */
int rp_log_scan(int dir, int up, struct rp_log_entry **e, size_t *n);
/* The partial ones: "NAME\0NAME\0\0", freed by the caller; *n how many. */
int rp_log_scan_partial(int dir, char **names, size_t *n);

enum rp_log_why { RP_LOG_STAYS, RP_LOG_FILES, RP_LOG_AGE, RP_LOG_SIZE, RP_LOG_WHY_COUNT };
extern const char *const rp_log_why_names[RP_LOG_WHY_COUNT]; /* "files", "age", "size" */
/*
 * What the limits ask to be removed: why[i] for e[i], n entries in the order of
 * rp_log_scan(). What was uploaded goes before what was not; then the oldest. open_bytes:
 * of the file being written, which counts and stays.
 */
void rp_log_pick(const struct rp_log_entry *e, size_t n, const struct rp_log_options *o,
		 uint64_t open_bytes, int64_t now, enum rp_log_why *why);

/* ---- the threads ---- */
struct rp_log_block {
	struct rp_log_block *next;
	char *p;
	size_t n, cap;
	uint64_t records;
};

struct rp_log_s3_stats {
	uint64_t uploads, bytes, errors[RP_S3_CLASS_COUNT], dropped;
	uint64_t waiting, waiting_bytes; /* files, when last looked */
	int64_t last;			 /* ns of CLOCK_REALTIME, 0: none yet */
};

struct rp_log {
	struct rp_log_options o;
	char dir_name[PATH_MAX], host[RP_LOG_HOST_MAX];
	bool quiet;
	bool patient; /* a replay waits for room in the queue */
	int dir, up, lock;
	struct rp_s3 *s3;
	char *partial; /* names to recover, as of rp_log_scan_partial() */

	/* the thread that drains the ring, and scrapes, under the timeline's lock */
	struct rp_buf pending;
	uint64_t pending_records, turned_away;
	bool full_said;

	/*
	 * m: never held over anything that may block. fs: between the syncer and the
	 * keeper, over what they do to whole files.
	 */
	pthread_mutex_t m, fs;
	pthread_cond_t wake, room, changed, work, sync;
	struct rp_log_block *first, **last, *spare;
	uint64_t queued; /* bytes in blocks, up to when the writer is done with them */
	bool ready, stop, reopen, writer_done, syncer_done, keeper_done;
	struct rp_log_closed *closed, **last_closed;
	unsigned n_closed;
	int sync_fd; /* to be forced to the disk by the syncer, -1: none */
	uint64_t open_bytes;
	int ready_error;
	uint64_t stop_by;   /* ns of CLOCK_MONOTONIC */
	uint64_t published; /* files; the keeper looks when it grows */
	/* statistics, by the writer and the syncer */
	uint64_t records, lost, raw, bytes, files, removed[RP_LOG_WHY_COUNT], errors;
	/* by the keeper */
	uint64_t recovered, recovered_lines;
	struct rp_log_s3_stats s3_stats;

	/* fs */
	char uploading[RP_LOG_NAME_MAX];

	/* the writer's own */
	pthread_t writer, syncer, keeper;
	struct rp_log_file f;
	struct rp_log_block *current;
	bool closing;
	uint64_t seq, put;		  /* files begun; records put into all of them */
	uint64_t opened, flushed, synced; /* ns of CLOCK_MONOTONIC */
	uint64_t looked;		  /* at the directory */
	uint64_t files_raw, files_bytes;  /* of files before this one */
	int said;			  /* errno that was told, 0: all is well */
	int tries;
	uint64_t lost_told;
	_Atomic bool drop_said; /* of files that were not uploaded */
};

/* Threads: no capabilities, no new ones, no haste. */
void rp_log_thread(const char *name);
void *rp_log_keeper(void *log); /* upload.c: recovers, then uploads */

#endif
