/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sink.h - where records go. A sink computes no metric of its own; it renders
 * what record.h and timeline.h hold. Errors are negative errno and one line.
 */
#ifndef REQPROBE_SINK_H
#define REQPROBE_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "record/record.h"
#include "source/live.h"
#include "timeline/timeline.h"

#define RP_VERSION "0.1.0"

/* ---- a growing buffer that the sinks write text into (in jsonl.c) ---- */
struct rp_buf {
	char *p;
	size_t n, cap;
	bool oom; /* sticky: something is missing from p */
};
bool rp_buf_grow(struct rp_buf *b, size_t more); /* room for `more` bytes, or false and oom */
static inline void rp_buf_put(struct rp_buf *b, const char *s, size_t n)
{
	if (b->cap - b->n < n && !rp_buf_grow(b, n))
		return;
	memcpy(b->p + b->n, s, n);
	b->n += n;
}
static inline void rp_buf_str(struct rp_buf *b, const char *s)
{
	rp_buf_put(b, s, strlen(s));
}
void rp_buf_u64(struct rp_buf *b, uint64_t v);
void rp_buf_double(struct rp_buf *b,
		   double d); /* shortest of %.15g, %.16g, %.17g that reads back as d */
/* ns as `unit` (1000000 = milliseconds, 1000000000 = seconds, 1000), exact and
 * shortest decimal: 32138 -> "0.032138", 12000000 -> "12". */
void rp_buf_fixed(struct rp_buf *b, int64_t v, uint32_t unit);
/* Length of the well-formed UTF-8 sequence at s (NUL-terminated), or minus the
 * length of the ill-formed part there that one U+FFFD stands for. Never 0. */
int rp_utf8_len(const unsigned char *s);

extern const char *const rp_class_names[RP_CLASS_COUNT]; /* "data", "conn", "hook", "proc" */
extern const char *const rp_map_names[RP_MAP_COUNT]; /* "conns", "threads", "procs", "listeners" */

/* ---- jsonl.c ---- */
struct rp_jsonl;
/* path "-" is stdout. Appends; O_CLOEXEC, 0640. -errno and a line in err.
 * SIGXFSZ is set to be ignored: a file size limit must be an error like a full
 * disk, not the end of the daemon. SIGPIPE is the caller's. */
int rp_jsonl_open(const char *path, struct rp_jsonl **out, char *err, size_t errlen);
/* From here on nothing waits for who reads it: what a pipe, a terminal or a socket does not
 * take now is kept, up to 2 MiB, further records are lost and counted (-EAGAIN). */
void rp_jsonl_never_wait(struct rp_jsonl *j);
/* No more will come: who reads gets what is left, as long as he takes some of it within 10 s.
 * -EAGAIN: he did not, the rest is lost and counted. */
int rp_jsonl_end(struct rp_jsonl *j);
/* One line, written whole, at the next flush (or when 256 KiB have gathered). A
 * short write (disk full) is cut back to the last whole line where the file
 * allows it; the records that did not fit are counted and given up, and the next
 * ones are tried again: what was written stays valid. Where nothing can be cut
 * back (a pipe), the rest of the torn line goes out first. For who reads slowly up
 * to 2 MiB wait, and stay; further records are lost and counted until some of that
 * is read: -EAGAIN. -errno when records were lost; saying so is the caller's. */
int rp_jsonl_record(struct rp_jsonl *j, const struct rp_record *r);
/* The closing reqprobe.summary/1 object; flushes. -errno. */
struct rp_summary_info {
	const char *engine, *engine_version, *host; /* NULL or "" = unknown */
	uint32_t pid;
	int64_t wall_offset;		    /* ns, CLOCK_REALTIME - CLOCK_MONOTONIC */
	int64_t started_wall, stopped_wall; /* ns of CLOCK_REALTIME */
	const struct rp_engine *table;	    /* hook names; may be NULL: then no hook list */
};
int rp_jsonl_summary(struct rp_jsonl *j, const struct rp_stats *s, const struct rp_summary_info *i);
int rp_jsonl_flush(struct rp_jsonl *j);
/* SIGHUP: open the path again. */
int rp_jsonl_reopen(struct rp_jsonl *j, char *err, size_t errlen);
uint64_t rp_jsonl_failed(const struct rp_jsonl *j); /* records not written */
void rp_jsonl_close(struct rp_jsonl *j);
/* The line itself, without '\n', malloc'd (tests, replay). NULL: no memory. */
char *rp_record_json(const struct rp_record *r, size_t *len);
char *rp_summary_json(const struct rp_stats *s, const struct rp_summary_info *i, uint64_t failed,
		      size_t *len);

/* ---- steps.c: one reqprobe.step/1 line for each step of a scheduler ---- */
/* Opened, flushed, reopened and closed as a struct rp_jsonl: same promises. */
int rp_jsonl_step(struct rp_jsonl *j, const struct rp_step_info *s);
/* The line itself, without '\n', malloc'd. NULL: no memory. */
char *rp_step_json(const struct rp_step_info *s, size_t *len);

/* ---- terminal.c ---- */
struct rp_term;
struct rp_term_row {
	const char *key, *what, *how;
}; /* "sees", "queue, prefill, decode", "..." */
struct rp_term_engine {
	const char *name, *version, *address; /* any may be NULL */
	uint32_t pid;
	unsigned more_pids;
};
struct rp_term_header {
	const struct rp_term_engine *engines; /* a line each */
	size_t n_engines;
	const struct rp_term_row *rows;
	size_t n_rows;
	const char *metrics_url; /* NULL when off */
};
/* fd: what is behind out. color: -1 decide by isatty and NO_COLOR. Width from the terminal (TIOCGWINSZ), at most 80 when unknown. */
struct rp_term *rp_term_new(FILE *out, int fd, int color);
void rp_term_header(struct rp_term *t, const struct rp_term_header *h);
void rp_term_record(struct rp_term *t,
		    const struct rp_record *r); /* one line, column heads repeated every screenful */
/* Feeds the summary's row itl: gaps between tokens as the engine made them. Where no engine
 * was seen to, the row is icl: gaps between events, of which nobody knows the tokens. */
void rp_term_gap(struct rp_term *t, const struct rp_gap_info *g);
void rp_term_summary(struct rp_term *t, const struct rp_stats *s);
void rp_term_free(struct rp_term *t);

/* ---- prometheus.c ---- */
/*
 * Takes no lock. rp_prom_render() runs in the scraping thread while the others
 * run in main's: main holds one mutex of its own around every call of both
 * sides, and around whatever changes the rp_stats that is rendered.
 */
struct rp_prom;
struct rp_expo;
struct rp_httpd_stats;
enum rp_expo_format {
	RP_EXPO_TEXT, /* 0.0.4 */
	RP_EXPO_TEXT_1,
	RP_EXPO_OPENMETRICS, /* 1.0.0 */
	RP_EXPO_PROTOBUF,
	RP_EXPO_FORMATS
};
/* What is not in rp_stats; filled by the caller at each scrape. */
struct rp_prom_process {
	double cpu_seconds; /* of the daemon */
	uint64_t resident_bytes;
	const struct rp_prog_stat *progs;
	size_t n_progs;
	const char *engine;
	const struct rp_engine *table; /* hook names for hook hits; may be NULL */
	uint64_t jsonl_failed;
	uint64_t ring_backlog_bytes;
	enum rp_expo_format format;
	double start_seconds;		   /* of the daemon, since the epoch; 0 = unknown */
	uint64_t open_fds, max_fds;	   /* 0 = unknown */
	const struct rp_httpd_stats *http; /* NULL = none */
	uint64_t lines_dropped;		   /* of those for people: stderr, terminal */
	/* families of others, after ours; may be NULL */
	void (*more)(void *ctx, struct rp_expo *e);
	void *ctx;
};
struct rp_prom_opts {
	uint32_t max_models; /* label values of `model`; further ones become "other"; default 32 */
};
struct rp_prom *rp_prom_new(const struct rp_prom_opts *o);
void rp_prom_record(struct rp_prom *p, const struct rp_record *r);
void rp_prom_gap(struct rp_prom *p, const struct rp_gap_info *g);
void rp_prom_handshake(struct rp_prom *p, int64_t rtt_us);
void rp_prom_step(struct rp_prom *p, const struct rp_step_info *s);
/* In the format asked for, malloc'd. */
char *rp_prom_render(struct rp_prom *p, const struct rp_stats *s, const struct rp_prom_process *x,
		     size_t *len);
void rp_prom_free(struct rp_prom *p);

/* ---- http.c: /metrics and /healthz by libmicrohttpd, in two threads of its own ---- */
struct rp_httpd;
/* malloc'd, in the format that the scraper likes best; NULL: 503. Called in a thread of
 * the server's: take main's mutex inside, and never hold it around rp_httpd_stop(),
 * which joins that thread. */
typedef char *(*rp_httpd_metrics_fn)(void *ctx, enum rp_expo_format format, size_t *len);
#define RP_HTTPD_HELD_MAX (4u << 20)
struct rp_httpd_opts { /* 0: the default */
	/* Bytes of pages that were made and are not yet taken, all clients together (those
	 * who wait at once share one). Beyond it the oldest page goes, and who reads it is
	 * cut off; the newest stays whatever its size. RP_HTTPD_HELD_MAX. */
	size_t held_max;
	unsigned send_ms; /* for a client to take a page; 30000. Without progress: 10 s */
};
/* Clients that were cut off, by what they had too much of. */
enum rp_httpd_cut { RP_HTTPD_SLOW, RP_HTTPD_MEMORY, RP_HTTPD_CONNECTIONS, RP_HTTPD_CUT_COUNT };
extern const char *const rp_httpd_cut_names[RP_HTTPD_CUT_COUNT]; /* "slow", ... */
struct rp_httpd_stats {
	uint64_t cut[RP_HTTPD_CUT_COUNT];
	uint64_t held_bytes; /* now */
};
/* May it stand as addr of rp_httpd_start()? */
bool rp_httpd_address(const char *addr);
/* addr "127.0.0.1:9479", "[::1]:0", ":9479" = loopback. port 0 = any free one.
 * -EADDRINUSE etc. with one line in err. Of more than 128 connections those that asked
 * nothing for 0.2 s, or take a page for 1 s, are cut off, and of more than 160 those that
 * have not asked yet, but for 32; never who waits for a page. Beyond 192 they are accepted
 * in turn, as pages, which end their connections then, go out. The server's thread has no
 * capabilities, from its start; that which calls fn has CAP_BPF at most. */
int rp_httpd_start(const char *addr, const struct rp_httpd_opts *o, rp_httpd_metrics_fn fn,
		   void *ctx, struct rp_httpd **out, char *err, size_t errlen);
void rp_httpd_stats(struct rp_httpd *h, struct rp_httpd_stats *out); /* any thread */
const char *rp_httpd_url(const struct rp_httpd *h); /* http://127.0.0.1:9479/metrics */
void rp_httpd_stop(struct rp_httpd *h);

#endif
