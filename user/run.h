/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * run.h - from events to sinks: what watching live and replaying have in
 * common. Everything written follows from the events alone.
 */
#ifndef REQPROBE_RUN_H
#define REQPROBE_RUN_H

#include <pthread.h>

#include "lib/outlet.h"
#include "options.h"
#include "record/anon.h"
#include "sink/output.h"
#include "sink/sink.h"
#include "source/recording.h"

struct rp_run {
	const struct rp_options *o;
	struct rp_timeline *tl;
	struct rp_jsonl *jsonl;
	bool jsonl_file;	/* a named file: it gets the summary line */
	struct rp_jsonl *steps; /* --steps */
	struct rp_term *term;
	FILE *term_file; /* term writes there, and that into term_out */
	struct rp_outlet term_out;
	struct rp_prom *prom;
	struct rp_rec *rec;
	pthread_mutex_t lock; /* timeline and prom, against scrapes */
	struct rp_summary_info info;
	struct rp_anon anon; /* --anonymous */
	char engine[32], version[64], host[64];
	void *outputs[RP_MAX_OUTPUTS]; /* states, by index in rp_outputs; NULL: not asked for */
	bool rec_failed, jsonl_failed, steps_failed, output_failed;
	bool reader_gone; /* of stdout: a pipe never has another */
	bool stopped;	  /* STOP was seen: a recording is whole */
	uint8_t *copy;	  /* an event on its way into a recording */
	size_t copy_size;
	uint64_t last_tick, rec_flushed;
};

/* Bytes of --memory for pages that clients of /metrics take slowly: a sixteenth. */
size_t rp_run_held_pages(const struct rp_options *o);
/* Opens the sinks that the options name. On failure says why in one line on
 * stderr and returns an exit status; 0 else. */
int rp_run_open(struct rp_run *r, const struct rp_options *o);
/* An rp_event_fn over struct rp_run. Takes the lock. TICKs are thinned to one
 * per 100 ms, for live and replay alike. */
int rp_run_event(void *run, const struct rp_event_hdr *ev);
/* After each drain. */
void rp_run_flush(struct rp_run *r);
/* SIGHUP */
void rp_run_reopen(struct rp_run *r);
/* The outputs' own families. Hold the lock. */
void rp_run_metrics(void *run, struct rp_expo *e);
/* Close what is in flight, write summaries. */
void rp_run_finish(struct rp_run *r);
void rp_run_close(struct rp_run *r);

/* Was something lost that an output should have had? Then the exit status says so. */
bool rp_run_lost(const struct rp_run *r);

/* ---- say.c: lines for people. Any thread. ---- */
/* One line on stderr, "reqprobe: ..." */
void rp_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/*
 * From here on rp_say() never waits for who reads stderr: what has no room waits in
 * memory, up to 32 KiB; further lines are dropped and counted, and a line says how many.
 * To be called while the process may still do all it will ever be allowed to.
 */
void rp_say_never_wait(void);
void rp_say_flush(void); /* what waits, as far as it goes */
uint64_t rp_say_dropped(void);
/* The same, for half a second at most; from here on rp_say() waits again. */
void rp_say_end(void);
/* In a signal handler: a whole line with its prefix, if it goes at once. */
void rp_say_at_once(const char *line);

/* ---- stop.c ---- */
/*
 * The first SIGINT or SIGTERM makes rp_stopping() true; a second one, a tenth of a second
 * later or more, ends the process at once with RP_EXIT_FAILED. with_hup: SIGHUP makes
 * rp_hup_taken() true, once.
 */
void rp_stop_on_signals(bool with_hup);
bool rp_stopping(void);
bool rp_hup_taken(void);

int rp_watch(const struct rp_options *o);
int rp_replay(const struct rp_options *o);
int rp_pcap(const struct rp_options *o);

#endif
