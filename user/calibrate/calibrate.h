/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * calibrate.h - the verb calibrate: takes the network out of AIPerf's figures as
 * AIPerf does, and takes each client TTFT apart with the help of our records.
 * The parts: options.c (what the user typed, which files), lines.c (JSON lines in,
 * files out), stats.c (numpy's arithmetic), adjust.c (AIPerf's adjustment), join.c
 * (client with server), report.c (JSON and the table), main.c.
 *
 * Facts about AIPerf are those of 0.13.0.
 */
#ifndef REQPROBE_CALIBRATE_H
#define REQPROBE_CALIBRATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sink/put.h"

/* Ceilings. Of a record that is adjusted, three doubles are kept (percentiles are
 * exact), of one that is joined 150 to 200 bytes and its ids: 80 MB and 1 GB at most. */
#define RP_CAL_MAX_RECORDS 2000000u
#define RP_CAL_MAX_LINE (16u << 20)

/* argv[0] is the verb; returns an exit status. */
int rp_calibrate(int argc, char **argv);

/* ---- options.c ---- */
struct rp_cal_options {
	char *records, *latency; /* malloc'd; latency may be NULL */
	const char *join, *out;	 /* may be NULL */
	double mean_ms;		 /* NAN: from the latency file */
	bool json;
};
/* 0, or an exit status: what was wrong has been said. */
int rp_cal_parse(int argc, char **argv, struct rp_cal_options *o);
void rp_cal_options_free(struct rp_cal_options *o);

/* ---- lines.c ---- */
struct rp_lines {
	FILE *f;
	const char *path;
	char *buf;
	size_t cap;
	uint64_t n, broken, first_broken; /* lines; not JSON objects, or too long */
	int error;
};
int rp_lines_open(struct rp_lines *l, const char *path); /* -errno; says why */
/* The next line that is a JSON object, to be given back with json_decref(). NULL at
 * the end, and when l->error is set. */
json_t *rp_lines_next(struct rp_lines *l);
/* Says once what was wrong. -errno of a failed read. */
int rp_lines_close(struct rp_lines *l);

/* A file of ours: written beside its place and put there when it is whole. */
struct rp_out {
	FILE *f;
	char *path, *tmp; /* tmp is NULL for what is no regular file */
	struct rp_buf b;
	int error;
};
int rp_out_open(struct rp_out *o, const char *path); /* -errno; says why */
int rp_out_flush(struct rp_out *o);		     /* what is in b; -errno, said at the close */
int rp_out_close(struct rp_out *o, int err);	     /* err: give it up. -errno; says why */

/* ---- stats.c ---- */
#define RP_CAL_PERCENTILES 9
extern const unsigned rp_cal_percentiles[RP_CAL_PERCENTILES];
struct rp_cal_stats {
	size_t n;
	double sum, avg, min, max, std, p[RP_CAL_PERCENTILES];
};
double rp_cal_sum(const double *v, size_t n); /* numpy's order of additions */
/* What numpy gives for v in this order. Sorts v. */
void rp_cal_stats(double *v, size_t n, struct rp_cal_stats *s);
/* AIPerf's metric_result_from_array(): v in nanoseconds, the result in ms. Sorts v. */
void rp_cal_stats_raw(double *v, size_t n, struct rp_cal_stats *s);

/* ---- adjust.c ---- */
enum rp_cal_tag { RP_CAL_LATENCY, RP_CAL_TTFT, RP_CAL_TTFO, RP_CAL_TAGS };
extern const char *const rp_cal_tags[RP_CAL_TAGS];

struct rp_cal_rtt {
	bool known;
	double ns;
	uint64_t samples, failed; /* 0: a mean that the user gave */
	double min_ns, max_ns;
};

struct rp_adjust {
	struct rp_cal_rtt rtt;
	double *v[RP_CAL_TAGS]; /* ns, in the order of the file, where there is one */
	size_t n[RP_CAL_TAGS], cap[RP_CAL_TAGS];
	uint64_t clamped[RP_CAL_TAGS]; /* below the RTT: 0 */
	uint64_t records, warmup, failed, without, broken;
	uint64_t inexact;  /* values that are no whole nanoseconds */
	uint64_t bad_unit; /* values in another unit than ms: not taken */
	struct rp_cal_stats raw[RP_CAL_TAGS], adj[RP_CAL_TAGS];
};
/* The mean over all successful samples of all targets. -ENODATA without one. */
int rp_adjust_latency(struct rp_adjust *a, const char *path);
/* One line of the records; a line of network_adjusted.jsonl into out, if it is not
 * NULL. -ENOMEM, -EFBIG. */
int rp_adjust_record(struct rp_adjust *a, const json_t *rec, struct rp_buf *out);
int rp_adjust_finish(struct rp_adjust *a); /* fills raw and adj; the values are spent */
void rp_adjust_free(struct rp_adjust *a);
/* Milliseconds as AIPerf writes them, back to its integer nanoseconds. */
double rp_cal_ns(double ms, bool *exact);
/* metrics.TAG.value in ns; false when there is none. */
bool rp_cal_value(const json_t *rec, const char *tag, double *ns, bool *exact, bool *bad_unit);
/* What the record's phase and end say: does it enter AIPerf's summary? */
bool rp_cal_is_warmup(const json_t *rec);
bool rp_cal_is_failed(const json_t *rec);

/* ---- join.c ---- */
/* Parts of a client TTFT, in the order in which they happen. */
enum rp_part {
	RP_PART_CLIENT,	  /* until the request leaves the client */
	RP_PART_NETWORK,  /* one round trip */
	RP_PART_RECEIVE,  /* first to last byte of the request */
	RP_PART_FRONTEND, /* of the server, before the engine and after it */
	RP_PART_QUEUE,
	RP_PART_PREFILL,
	RP_PART_SERVER, /* instead of the three before, where the engine was not seen */
	RP_PART_REST,	/* unexplained */
	RP_PARTS
};
extern const char *const rp_part_names[RP_PARTS];

enum rp_join_why {
	RP_JOIN_OK,
	RP_JOIN_NO_ID,
	RP_JOIN_WARMUP,
	RP_JOIN_FAILED,	   /* the client's request failed or was cancelled */
	RP_JOIN_NO_TTFT,   /* no first token on this side */
	RP_JOIN_NO_PEER,   /* the other side has no record of this id */
	RP_JOIN_PEER_TTFT, /* it has, but with no first token */
	RP_JOIN_DUPLICATE, /* more on this side than on the other */
	RP_JOIN_WHYS
};
extern const char *const rp_join_why_names[RP_JOIN_WHYS];

struct rp_join_side; /* one record of one side */
struct rp_join {
	struct rp_join_side *side[2]; /* client, server */
	size_t n[2], cap[2];
	uint64_t why[2][RP_JOIN_WHYS];
	uint64_t joined, duplicates, no_rtt, other_lines, broken;
	/* of the joined ones */
	struct rp_cal_stats ttft, part[RP_PARTS], explained; /* ms; explained: 0 to 1 */
	double sum_abs_rest;				     /* ms */
	uint64_t well;					     /* at least 95 % explained */
	struct {
		size_t n;
		double ttft_ms, share; /* mean of the band; the part's share in it */
		enum rp_part biggest;
	} at[2]; /* around p50, from p98 on */
};
#define RP_JOIN_WELL 0.95
int rp_join_client(struct rp_join *j, const json_t *rec); /* -ENOMEM, -EFBIG */
int rp_join_server(struct rp_join *j, const json_t *rec);
/* Joins; one line for each joined pair into out (may be NULL). The mean RTT stands
 * in where a server record has none of its own. */
int rp_join_run(struct rp_join *j, const struct rp_cal_rtt *rtt, struct rp_out *out);
void rp_join_free(struct rp_join *j);

/* ---- report.c ---- */
/* network_adjusted.json: indented, its metrics as in profile_export_aiperf.json. */
void rp_cal_put_adjusted(struct rp_buf *b, const struct rp_adjust *a);
void rp_cal_put_join(struct rp_buf *b, const struct rp_join *j); /* join.json */
/* One line with both; either may be NULL. */
void rp_cal_put_all(struct rp_buf *b, const struct rp_adjust *a, const struct rp_join *j);
/* A double as AIPerf's JSON has it: 20.0, not 20. */
void rp_cal_put_real(struct rp_buf *b, double d);
void rp_cal_table(FILE *f, const struct rp_cal_options *o, const struct rp_adjust *a,
		  const struct rp_join *j);

#endif
