/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * rtt.h - the verb rtt: round trips of fresh TCP connections, as an ordinary
 * client sees them. The parts: target.c (what the user typed), probe.c (a thread
 * for each target), series.c (statistics of fixed size), export.c (lines of JSON),
 * show.c (lines for people), passive.c (--from-live), options.c, main.c.
 */
#ifndef REQPROBE_RTT_H
#define REQPROBE_RTT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

#include "sink/put.h"

#define RP_RTT_MAX_TARGETS 64
/* Connections of one target that are under way, or that it has not closed yet:
 * no more of its accept queue is ever taken by us. */
#define RP_RTT_MAX_OPEN 16
#define RP_RTT_MIN_INTERVAL_NS 10000000LL /* 100 a second: 6000 in TIME_WAIT at most */

/* ---- series.c ---- */
#define RP_SERIES_SUB_BITS 7
#define RP_SERIES_MAX_BITS 42 /* 73 minutes of nanoseconds; what is larger counts as that */
#define RP_SERIES_BUCKETS \
	((RP_SERIES_MAX_BITS - RP_SERIES_SUB_BITS + 1) * (1 << RP_SERIES_SUB_BITS))

/* Count, extremes, mean and deviation are exact, percentiles at most 0.4 % off
 * (exact below 128 units). Size fixed. */
struct rp_series {
	uint32_t unit; /* ns per step of the histogram: the resolution of what is added */
	uint64_t n;
	int64_t min, max;
	double mean, m2; /* Welford's */
	uint64_t bucket[RP_SERIES_BUCKETS];
};
void rp_series_add(struct rp_series *s, int64_t ns);
/* Nearest rank, in ns. 0 when empty. */
int64_t rp_series_at(const struct rp_series *s, unsigned permille);
double rp_series_std(const struct rp_series *s); /* of the population, as AIPerf's */

/* ---- results ---- */
enum rp_rtt_why {
	RP_RTT_OK,
	RP_RTT_REFUSED,
	RP_RTT_TIMEOUT,
	RP_RTT_UNREACHABLE,
	RP_RTT_RESET,
	RP_RTT_RESOLVE, /* the name has no address */
	RP_RTT_OTHER,
	RP_RTT_WHYS
};
extern const char *const rp_rtt_why_names[RP_RTT_WHYS];
enum rp_rtt_why rp_rtt_why(int err, bool resolve);

enum rp_rtt_figure { RP_RTT_KERNEL, RP_RTT_CONNECT, RP_RTT_PASSIVE };
extern const char *const rp_rtt_probe_types[]; /* by source, as AIPerf's lines have it */

struct rp_rtt_target {
	char url[512];	/* as AIPerf would show it: no credentials, no query */
	char host[256]; /* no brackets, lower case */
	uint16_t port;
	char name[272]; /* host:port, [v6]:port */
	/* where it leads; fixed once known. Set before the thread starts, or by it. */
	struct sockaddr_storage addr;
	socklen_t addr_len; /* 0: not resolved yet */
	char address[INET6_ADDRSTRLEN + 20];
	unsigned addresses; /* getaddrinfo() gave so many */
	/* statistics: of the thread that takes the results */
	uint64_t probes, failures[RP_RTT_WHYS];
	uint64_t retransmitted; /* the SYN went out again: no figure of the kernel */
	struct rp_series *connect, *kernel;
	/* the thread's */
	uint64_t missed_late, missed_open, abandoned;
};

struct rp_rtt_result {
	struct rp_rtt_target *t;
	int64_t wall;	 /* CLOCK_REALTIME, ns, at issue */
	int64_t connect; /* ns; -1: none */
	int64_t kernel;	 /* ns; -1: none */
	bool resolve;	 /* err is getaddrinfo's */
	bool at_once;	 /* connect() itself gave the error */
	int err;	 /* 0: connected. errno, ETIMEDOUT with own_timeout, or EAI_* */
	bool own_timeout;
	unsigned retransmits;
};

/* ---- target.c ---- */
/* HOST[:PORT], [V6][:PORT], V6, or a URL. false: why in err, one line. */
bool rp_rtt_target_parse(const char *s, int family, struct rp_rtt_target *t, char *err,
			 size_t errlen);
/* getaddrinfo(); the first address, as AIPerf. 0 or EAI_*, errno in *sys for EAI_SYSTEM. */
int rp_rtt_resolve(struct rp_rtt_target *t, int family, int *sys);

/* ---- options.c ---- */
struct rp_rtt_options {
	struct rp_rtt_target *targets;
	unsigned n;
	int family;			     /* AF_UNSPEC, AF_INET, AF_INET6 */
	int64_t interval, timeout, duration; /* ns; duration 0: none */
	uint64_t count;			     /* 0: no end */
	enum rp_rtt_figure source;
	const char *out, *from_live;
	bool json, quiet;
	bool both; /* for tests: lines carry both figures */
};
void rp_rtt_options_parse(int argc, char **argv, struct rp_rtt_options *o);

/* ---- probe.c ---- */
struct rp_prober;
/* Starts a thread for each target. Results wait in a queue of bounded size; wake
 * (an eventfd) gets 1 for each. -errno. */
int rp_prober_start(const struct rp_rtt_options *o, int wake, struct rp_prober **out);
bool rp_prober_next(struct rp_prober *p, struct rp_rtt_result *r); /* false: none now */
bool rp_prober_done(struct rp_prober *p); /* all threads have ended, the queue is empty */
void rp_prober_stop(struct rp_prober *p); /* what is under way is given up */
bool rp_prober_realtime(const struct rp_prober *p);
void rp_prober_free(struct rp_prober *p); /* stops, joins */

/* ---- export.c ---- */
struct rp_rtt_line {
	const struct rp_rtt_result *r;
	enum rp_rtt_figure source;
	bool both;
};
/* rp_put_fn over struct rp_rtt_line: AIPerf's NetworkLatencySample */
void rp_rtt_put_line(struct rp_buf *b, const void *what);
struct rp_rtt_summary {
	const struct rp_rtt_options *o;
	const struct rp_rtt_target *targets;
	unsigned n;
	int64_t started, stopped; /* CLOCK_REALTIME, ns */
	bool realtime;
};
void rp_rtt_put_summary(struct rp_buf *b, const void *what); /* reqprobe.rtt/1 */

/* ---- show.c ---- */
void rp_rtt_show_header(FILE *f, const struct rp_rtt_options *o);
void rp_rtt_show_result(FILE *f, const struct rp_rtt_options *o, const struct rp_rtt_result *r);
void rp_rtt_show_summary(FILE *f, const struct rp_rtt_summary *s);
/* In words, of a failed one. */
const char *rp_rtt_error(const struct rp_rtt_result *r);

/* ---- passive.c ---- */
/* Handshakes of reqprobe.request/1 lines, each once. Calls fn for each. */
struct rp_rtt_passive {
	uint64_t lines, bad, records, handshakes, none, repeated, unsure;
};
struct rp_rtt_seen {
	char address[INET6_ADDRSTRLEN]; /* the server's */
	uint16_t port;
	int64_t wall, rtt; /* ns */
};
typedef int (*rp_rtt_seen_fn)(void *ctx, const struct rp_rtt_seen *s);
/* -errno of fn or of reading. */
int rp_rtt_passive(FILE *f, rp_rtt_seen_fn fn, void *ctx, struct rp_rtt_passive *st);

int rp_rtt(int argc, char **argv);

#endif
