/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* options.h - what the user typed. */
#ifndef REQPROBE_OPTIONS_H
#define REQPROBE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "log/log.h"
#include "metrics/goodput.h"
#include "otlp/args.h"
#include "sink/lrm.h"

#define RP_MAX_PIDS 64
#define RP_MAX_PORTS 64

/* Exit statuses, as in the man page. */
enum rp_exit {
	RP_EXIT_OK = 0,
	RP_EXIT_FAILED = 1,
	RP_EXIT_USAGE = 2,
	RP_EXIT_DENIED = 3,    /* not permitted, or the kernel lacks what is needed */
	RP_EXIT_NO_ENGINE = 4, /* no such process, or no engine in it */
};

enum rp_verb { RP_VERB_WATCH, RP_VERB_DOCTOR, RP_VERB_REPLAY, RP_VERB_PCAP };

struct rp_options {
	enum rp_verb verb;
	uint32_t pids[RP_MAX_PIDS];
	unsigned n_pids;
	const char *engine;  /* NULL: recognise */
	const char *jsonl;   /* NULL: stdout when it is no terminal */
	const char *metrics; /* ADDR:PORT, or "off" */
	const char *record;
	const char *steps; /* file of reqprobe.step/1 lines, or NULL */
	bool record_raw;
	const char *file;  /* replay, pcap */
	const char *iface; /* pcap, or NULL */
	uint16_t ports[RP_MAX_PORTS];
	unsigned n_ports;
	int64_t duration_ns;	  /* 0: until stopped */
	int64_t account_every_ns; /* 0: as usual */
	bool help, itl, quiet, wait, no_hooks, require_uprobes, no_tp_btf, no_uprobe_multi, sockets,
		hide_events, zmtp;
	struct rp_log_options log;
	bool anonymous;
	const char *anonymous_key; /* file, or NULL */
	int verbose;
	uint64_t memory, ring, payload;
	uint64_t kv_cache_tokens; /* of each engine process; 0 not told */
	uint32_t max_requests, max_connections;
	uint32_t compat; /* of enum rp_compat: whose names /metrics has too */
	struct rp_lrm_options lrm;
	struct rp_goodput_options goodput;
	struct rp_otlp_options otlp;
};

/*
 * "64M": decimal digits, and one of `units` after them or none, in either case: units
 * "KMG" makes K 1024, M that squared and so on. False, and *out untouched, when s is no
 * such number, or below min or above max (however large).
 */
bool rp_parse_size(const char *s, const char *units, uint64_t min, uint64_t max, uint64_t *out);

#define RP_TIME_MAX_NS 3153600000000000000LL /* a hundred years */

/*
 * "1.5m": decimal digits, with a fraction or without, and us, ms, s (default), m, h or d.
 * False, and *ns untouched, when s is no such time, or below min_ns or above max_ns (however
 * large).
 */
bool rp_parse_time(const char *s, int64_t min_ns, int64_t max_ns, int64_t *ns);

/* Wrong usage: one line on stderr, and the end with RP_EXIT_USAGE. */
void rp_refuse(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Fills *o; on wrong usage says so in one line and exits with RP_EXIT_USAGE. */
void rp_options_parse(int argc, char **argv, struct rp_options *o);

#endif
