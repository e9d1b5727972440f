/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * expo.h - writes Prometheus families, in whichever format the scraper asked for:
 * text 0.0.4, OpenMetrics 1.0, or delimited io.prometheus.client.MetricFamily
 * messages, with native histograms where one is at hand.
 * A family is begun once, its samples follow; families never interleave. Numbers
 * are given exactly. Takes no lock, allocates only what the buffer needs; a full
 * memory shows as oom of the buffer.
 */
#ifndef REQPROBE_SINK_EXPO_H
#define REQPROBE_SINK_EXPO_H

#include <stddef.h>
#include <stdint.h>

#include "lib/exphist.h"
#include "sink/sink.h"

enum rp_expo_type {
	RP_EXPO_COUNTER,
	RP_EXPO_GAUGE,
	RP_EXPO_HISTOGRAM,
	RP_EXPO_SUMMARY, /* without quantiles */
};

struct rp_label {
	const char *key, *value; /* value: any bytes, escaped when written */
};

struct rp_expo {
	struct rp_buf *b;
	const char *name; /* of the family that was begun */
	enum rp_expo_format format;
	/* private */
	enum rp_expo_type type;
	bool begun;
	size_t mark; /* of the open MetricFamily */
};

/* name as in text format 0.0.4: a counter's with its _total. It must live until
 * the next family. help: one line. */
void rp_expo_family(struct rp_expo *e, const char *name, enum rp_expo_type type, const char *help);
/* One sample of the family; at most 16 labels, written in the order given. */
void rp_expo_u64(struct rp_expo *e, const struct rp_label *l, size_t n, uint64_t v);
void rp_expo_double(struct rp_expo *e, const struct rp_label *l, size_t n, double v);
/* A number in digits of the caller's, that strtod() reads. */
void rp_expo_text(struct rp_expo *e, const struct rp_label *l, size_t n, const char *text);
/* Seconds, from nanoseconds. */
void rp_expo_seconds(struct rp_expo *e, const struct rp_label *l, size_t n, unsigned __int128 ns);
void rp_expo_summary(struct rp_expo *e, const struct rp_label *l, size_t n, uint64_t count,
		     double sum);
/* Once, after the last family. */
void rp_expo_end(struct rp_expo *e);

/* The Content-Type of each, as the specifications have it. */
extern const char *const rp_expo_content_type[RP_EXPO_FORMATS];
/*
 * The format that an Accept header (may be NULL) likes best: by q, then by order of
 * the header; what is not known is passed over. Text 0.0.4 when nothing fits.
 */
enum rp_expo_format rp_expo_negotiate(const char *accept);
/* Does an Accept-Encoding header (may be NULL) ask for gzip, at least as much as for what
 * is not encoded? */
bool rp_expo_takes_gzip(const char *accept_encoding);

/* ---- histograms ---- */

/* A bound, inclusive. le: its text where 0.0.4 has had another than the canonical
 * one ("1" for "1.0"); NULL: canonical. */
struct rp_bound {
	const char *le;
	int64_t at; /* ns, or a count */
};
struct rp_scale {
	const struct rp_bound *b;
	size_t n;
	bool counts; /* the unit is 1, not the nanosecond */
	bool native; /* has an exponential histogram beside its bounds */
};
#define RP_MAX_BOUNDS 28 /* and one bucket more for +Inf */

/* Label set of an exemplar: at most 128 characters, "request_id" is ten of them. */
#define RP_EXEMPLAR_ID_MAX 118
struct rp_exemplar {
	int64_t value; /* ns, or a count */
	int64_t wall;  /* ns of CLOCK_REALTIME */
	char id[RP_EXEMPLAR_ID_MAX + 1];
};

/*
 * Limits of all histograms of an owner, and what hit them. What has no room is not
 * kept: an exemplar less, or a histogram with its bounds alone.
 */
struct rp_hist_room {
	uint32_t exemplars, native; /* in use */
	uint32_t max_exemplars, max_native;
	uint64_t no_exemplar, no_native;
};

/* Starts as zeros. */
struct rp_hist {
	uint64_t bucket[RP_MAX_BOUNDS]; /* not cumulative; the last used one is +Inf */
	uint64_t count;
	unsigned __int128 sum; /* 64 bits of nanoseconds are spent in a busy half year */
	struct rp_exphist *exp;
	struct rp_exemplar **ex; /* RP_MAX_BOUNDS: the last of each bucket, or NULL */
	bool exp_refused;
};

/* Who asked for a value: the request's id, for an exemplar. */
struct rp_exemplar_of {
	const char *id; /* "" or too long: none */
	int64_t wall;	/* ns of CLOCK_REALTIME */
};
/* v below 0 is ignored. of: NULL = no exemplar. */
void rp_hist_add(struct rp_hist *h, const struct rp_scale *s, struct rp_hist_room *room, int64_t v,
		 uint64_t times, const struct rp_exemplar_of *of);
/* The id to give for a record: the client's X-Request-Id, else that of the response. */
struct rp_exemplar_of rp_exemplar_of(const struct rp_record *r);
/* What it holds, not itself; zeros again. */
void rp_hist_free(struct rp_hist *h, struct rp_hist_room *room);
void rp_expo_hist(struct rp_expo *e, const struct rp_label *l, size_t n, const struct rp_scale *s,
		  const struct rp_hist *h);

#endif
