/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * report.h - the verb report: many records in, percentiles and totals out. collect.c
 * reads and groups, figure.c computes, show.c and json.c write.
 */
#ifndef REQPROBE_REPORT_REPORT_H
#define REQPROBE_REPORT_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "log/s3.h"
#include "metrics/sweep.h"
#include "metrics/table.h"
#include "report/reader.h"
#include "report/stats.h"
#include "report/store.h"
#include "sink/sink.h"

/* What requests may be grouped by. */
#define RP_BYS(X)                  \
	X(MODEL, "model")          \
	X(ENGINE, "engine")        \
	X(VERSION, "version")      \
	X(HOST, "host")            \
	X(OPERATION, "operation")  \
	X(END, "end")              \
	X(STATUS, "status")        \
	X(STREAM, "stream")        \
	X(FINISH, "finish_reason") \
	X(ERROR, "error")
enum rp_by {
#define X(id, name) RP_BY_##id,
	RP_BYS(X)
#undef X
		RP_BY_COUNT
};
extern const char *const rp_by_names[RP_BY_COUNT];

#define RP_REPORT_READING 4096 /* groups while reading: hosts are not all known yet */
#define RP_REPORT_GROUPS 256   /* told apart in the end at most; the smallest beyond are one */

struct rp_report_options {
	const char **paths;
	size_t n;
	enum rp_by by[RP_BY_COUNT];
	unsigned n_by;
	int64_t since, until; /* ns since 1970, RP_NONE: no bound. until is not in it */
	bool judged;
	struct rp_slos slos;
	const char *aiperf; /* directory, or NULL */
	bool json, all;
	uint64_t memory;
	struct rp_s3_options s3;
};

/* Why a metric has no value, beside the reasons of a record. */
enum rp_no_value {
	RP_NO_FAILED = RP_WHY_COUNT, /* "failed": AIPerf has it of answered requests only */
	RP_NO_VALUE_COUNT
};
const char *rp_no_value_name(unsigned why);
/* Of a request that has none. why: as rp_line_scan() has it. */
unsigned rp_no_value(enum rp_metric m, const struct rp_facts *f, const uint8_t *why);

/* Names that occur, with counts; beyond the limit "other". */
#define RP_NAMES_MAX 32
struct rp_name {
	char name[32];
	uint64_t count;
};
struct rp_names {
	unsigned n, cap;
	uint64_t other;
	struct rp_name *of;
};

/* One group's figures. */
struct rp_figures {
	struct rp_stats_of stats[RP_METRIC_COUNT];	      /* base units */
	uint32_t missing[RP_METRIC_COUNT][RP_NO_VALUE_COUNT]; /* requests without a value */
	struct rp_sweep_stats series[RP_SWEEP_COUNT];
};

struct rp_group {
	char *value[RP_BY_COUNT]; /* of each key of --by; NULL: unknown */
	bool other;		  /* of all those beyond the limit */
	uint64_t requests;
	uint64_t ends[RP_END_COUNT];
	uint64_t chunked; /* requests with gaps between chunks: inter_chunk_latency */
	struct rp_names status, finish;
	int64_t first, last; /* starts, ns of CLOCK_REALTIME, RP_NONE unknown */
	struct rp_metrics_sum sum;
	struct rp_figures *fig;
	/* private to collect.c and figure.c */
	uint64_t hash;
	uint32_t segment, canon; /* of the input, for the host; the group it is part of */
	uint32_t ref;		 /* what rows and gaps call it: rp_group_at() */
	uint32_t next;		 /* of the open ones, or of the places that are free */
	bool host_open;		 /* the host is not known yet */
	struct rp_bins *bins;	 /* RP_METRIC_COUNT of them, beyond what can be exact */
	struct rp_bins gap_bins;
};

/* Gaps between chunks, exact while they are few: in the order they were read. */
struct rp_gaps {
	bool exact;
	int64_t *ns;
	size_t n, cap;
	struct rp_gap_run {
		uint32_t ref, n; /* so many of this group */
	} * runs;
	size_t n_runs, cap_runs;
};

struct rp_report {
	const struct rp_report_options *o;
	struct rp_store *store; /* NULL: no longer exact */
	struct rp_group *groups;
	size_t n;
	struct rp_group total; /* after rp_report_figures() */
	bool exact, series_known;
	struct rp_gaps gaps;
	uint64_t records, duplicates, unchecked, outside, torn, foreign;
	/* What --memory leaves beside the program itself, and how many groups that is room
	 * for: while reading, in the end. */
	uint64_t room;
	size_t groups_max;
	unsigned groups_shown;
	/* private */
	uint32_t other;	 /* the group of all others, RP_REPORT_NO_GROUP: none yet */
	uint32_t *index; /* hash table of groups */
	size_t index_cap;
	uint64_t *seen; /* keys of records */
	size_t n_seen, cap_seen;
	uint64_t seed;
	char host[256];	  /* of the segment, "" unknown */
	uint32_t segment; /* its number, from 1 */
	uint32_t open;	  /* groups of it whose host is not known: a list */
	uint32_t unused;  /* places of groups that became part of another: a list */
	uint32_t *place;  /* of each ref: where its group is */
	size_t n_refs, cap_refs;
	size_t n_binned; /* groups with histograms */
	/* bytes: of groups, of their histograms, of the reader */
	uint64_t group_bytes, bins_bytes, reader_bytes;
};
#define RP_REPORT_NO_GROUP UINT32_MAX

/* ---- collect.c ---- */
/*
 * o->memory bounds what is kept of the logs, whatever is in them. As it fills up, first
 * gaps between chunks, then all figures become histograms; the smallest groups become one
 * with all others when histograms don't fit either; records that can't be remembered to
 * look others up in are counted (unchecked).
 */
int rp_report_init(struct rp_report *r, const struct rp_report_options *o);
/* All lines; each taken record is told to `each` as well, if not NULL. -ENOMEM, -EINTR, or
 * what each returned. */
int rp_report_read(struct rp_report *r, struct rp_reader *in,
		   int (*each)(void *ctx, const struct rp_facts *f), void *ctx);
void rp_report_free(struct rp_report *r);
/* For figure.c. What is in a group is in another one, too; its histograms move. -ENOMEM. */
int rp_group_add(struct rp_report *r, struct rp_group *to, struct rp_group *from);
/* A group becomes part of another, its canon. -ENOMEM. */
int rp_group_merge(struct rp_report *r, struct rp_group *to, struct rp_group *from);
/* The group, as it is now, of a row or a run of gaps. */
uint32_t rp_group_at(const struct rp_report *r, uint32_t ref);
/* The group of all others. NULL: no memory. */
struct rp_group *rp_group_other(struct rp_report *r);

/* ---- figure.c ---- */
/* Statistics of all groups and of the total; the store is spent. -ENOMEM. */
int rp_report_figures(struct rp_report *r);

/* ---- show.c, json.c ---- */
void rp_report_show(FILE *f, const struct rp_report *r, const struct rp_reader_stats *in,
		    unsigned width);
/* -ENOMEM, or what writing failed with. */
int rp_report_put(FILE *f, const struct rp_report *r, const struct rp_reader_stats *in);

/* ---- aiperf.c: profile_export.jsonl and profile_export_aiperf.json ---- */
struct rp_aiperf;
/* Makes the directory if need be. -errno and one line in err. */
int rp_aiperf_open(const char *dir, const struct rp_slos *slos, struct rp_aiperf **out, char *err,
		   size_t errlen);
int rp_aiperf_record(void *aiperf, const struct rp_facts *f); /* struct rp_aiperf */
/* The summary; both files take their names. */
int rp_aiperf_finish(struct rp_aiperf *a, const struct rp_group *total, bool exact, char *err,
		     size_t errlen);
uint64_t rp_aiperf_left_out(const struct rp_aiperf *a); /* start, or how it ended, unknown */
void rp_aiperf_close(struct rp_aiperf *a);

int rp_report(int argc, char **argv);

#endif
