// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "otlp/otlp.h"

#define TICK_NS 100000000ULL
#define TERM_WAITING (64u << 10) /* bytes for a terminal that takes them slowly */
#define TERM_END_MS 1500

/* Said once: records or steps can't be written. */
static void written(const char *what, const char *file, int e, bool *said)
{
	if (!e || *said)
		return;
	*said = true;
	rp_say("can't write %s: %s; %s are lost until it can, whole lines only", file,
	       e == -EAGAIN ? "who reads it is too slow" : strerror(-e), what);
}

/* At the end: how many. */
static void not_written(const char *what, const char *file, const struct rp_jsonl *j)
{
	unsigned long long n = rp_jsonl_failed(j);

	if (n)
		rp_say("%llu %s were not written: %s", n, what, file);
}

static const char *jsonl_name(const struct rp_run *r)
{
	return r->jsonl_file ? r->o->jsonl : "to stdout";
}

static void records_written(struct rp_run *r, int e)
{
	if (e == -EPIPE && !r->jsonl_file) {
		if (!r->reader_gone)
			rp_say("nobody reads stdout any more: stopping");
		r->reader_gone = r->jsonl_failed = true;
		return;
	}
	written("records", jsonl_name(r), e, &r->jsonl_failed);
}

static void on_record(void *ctx, const struct rp_record *rec)
{
	struct rp_run *r = ctx;

	if (r->jsonl)
		records_written(r, rp_jsonl_record(r->jsonl, rec));
	if (r->term)
		rp_term_record(r->term, rec);
	if (r->prom)
		rp_prom_record(r->prom, rec);
}

static void on_gap(void *ctx, const struct rp_gap_info *g)
{
	struct rp_run *r = ctx;

	if (r->term)
		rp_term_gap(r->term, g);
	if (r->prom)
		rp_prom_gap(r->prom, g);
}

static void on_handshake(void *ctx, int64_t rtt_us)
{
	struct rp_run *r = ctx;

	if (r->prom)
		rp_prom_handshake(r->prom, rtt_us);
}

static void on_step(void *ctx, const struct rp_step_info *i)
{
	struct rp_run *r = ctx;

	if (r->steps)
		written("steps", r->o->steps, rp_jsonl_step(r->steps, i), &r->steps_failed);
	if (r->prom)
		rp_prom_step(r->prom, i);
}

static void on_notice(void *ctx, const char *line)
{
	struct rp_run *r = ctx;

	if (!r->o->quiet && r->o->verb == RP_VERB_WATCH)
		rp_say("%s", line);
}

size_t rp_run_held_pages(const struct rp_options *o)
{
	return o->verb == RP_VERB_WATCH && strcmp(o->metrics, "off") ? o->memory / 16 : 0;
}

static int open_outputs(struct rp_run *r)
{
	char err[512];
	int e;

	for (size_t i = 0; rp_outputs[i]; i++) {
		e = rp_outputs[i]->open(r->o, &r->info, r->tl, &r->outputs[i], err, sizeof(err));
		if (e) {
			rp_say("%s", err);
			return RP_EXIT_FAILED;
		}
	}
	return 0;
}

static ssize_t put_terminal(void *out, const char *p, size_t n)
{
	rp_outlet_put(out, p, n); /* what is dropped is counted there */
	return (ssize_t)n;
}

/* The terminal may be stopped (Ctrl-S), or at the end of a slow line. */
static bool open_terminal(struct rp_run *r)
{
	const cookie_io_functions_t fn = { .write = put_terminal };

	if (rp_outlet_open(&r->term_out, STDOUT_FILENO, TERM_WAITING))
		return false;
	r->term_file = fopencookie(&r->term_out, "w", fn);
	if (!r->term_file || setvbuf(r->term_file, NULL, _IOFBF, TERM_WAITING))
		return false;
	r->term = rp_term_new(r->term_file, STDOUT_FILENO, -1);
	return r->term != NULL;
}

int rp_run_open(struct rp_run *r, const struct rp_options *o)
{
	struct rp_timeline_opts to;
	struct rp_observer obs = {
		.ctx = r,
		.record = on_record,
		.gap = on_gap,
		.handshake = on_handshake,
		.step = on_step,
		.notice = on_notice,
	};
	pthread_mutexattr_t ma;
	bool tty = isatty(STDOUT_FILENO), live = o->verb == RP_VERB_WATCH || o->iface;
	const char *jsonl = o->jsonl;
	char err[512];

	*r = (struct rp_run){ .o = o };
	/* a scrape that gets no CPU must not hold up who reads the ring */
	pthread_mutexattr_init(&ma);
	pthread_mutexattr_setprotocol(&ma, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&r->lock, &ma);
	pthread_mutexattr_destroy(&ma);
	rp_timeline_defaults(&to);
	to.itl = o->itl;
	to.hide_events = o->hide_events;
	to.kv_tokens = (int64_t)o->kv_cache_tokens;
	to.max_requests = o->max_requests;
	to.max_tasks = o->max_requests;
	to.max_conns = o->max_connections;
	if (o->anonymous) {
		if (rp_anon_init(&r->anon, o->anonymous_key, err, sizeof(err))) {
			rp_say("%s", err);
			return RP_EXIT_FAILED;
		}
		to.anon = &r->anon;
	}
	/* what is left beside the ring and the program itself */
	to.memory_max = o->memory - o->ring - (8u << 20) - rp_log_memory(&o->log, o->memory) -
			rp_lrm_reserve(o) - rp_otlp_memory(o) - rp_run_held_pages(o);
	r->tl = rp_timeline_new(&to);
	if (!r->tl || rp_timeline_observe(r->tl, &obs)) {
		rp_say("no memory");
		return RP_EXIT_FAILED;
	}
	/* --log has the records: once is enough, where nobody reads them as they come */
	if (!jsonl && !(o->log.dir && o->verb == RP_VERB_WATCH) &&
	    (!tty || o->verb == RP_VERB_REPLAY))
		jsonl = "-";
	if (jsonl) {
		if (rp_jsonl_open(jsonl, &r->jsonl, err, sizeof(err))) {
			rp_say("%s", err);
			return RP_EXIT_FAILED;
		}
		r->jsonl_file = strcmp(jsonl, "-") != 0;
		if (live)
			rp_jsonl_never_wait(r->jsonl);
	}
	if (o->steps && rp_jsonl_open(o->steps, &r->steps, err, sizeof(err))) {
		rp_say("%s", err);
		return RP_EXIT_FAILED;
	}
	if (r->steps && live)
		rp_jsonl_never_wait(r->steps);
	if (o->record) {
		if (rp_rec_open(o->record, o->record_raw, &r->rec, err, sizeof(err))) {
			rp_say("%s", err);
			return RP_EXIT_FAILED;
		}
		r->copy_size = RP_REC_EVENT_MAX;
		r->copy = malloc(r->copy_size);
		if (!r->copy) {
			rp_say("no memory");
			return RP_EXIT_FAILED;
		}
	}
	if (o->verb == RP_VERB_WATCH && tty && (!jsonl || r->jsonl_file) && !o->quiet &&
	    !open_terminal(r)) {
		rp_say("no memory");
		return RP_EXIT_FAILED;
	}
	return open_outputs(r);
}

#define EACH_OUTPUT(r, i, fn)                  \
	for (size_t i = 0; rp_outputs[i]; i++) \
		if ((r)->outputs[i] && rp_outputs[i]->fn)

void rp_run_metrics(void *run, struct rp_expo *e)
{
	struct rp_run *r = run;

	EACH_OUTPUT(r, i, metrics) rp_outputs[i]->metrics(r->outputs[i], e);
}

void rp_run_reopen(struct rp_run *r)
{
	char err[512];

	if (r->jsonl && r->jsonl_file && rp_jsonl_reopen(r->jsonl, err, sizeof(err)))
		rp_say("%s", err);
	if (r->steps && rp_jsonl_reopen(r->steps, err, sizeof(err)))
		rp_say("%s", err);
	EACH_OUTPUT(r, i, reopen) rp_outputs[i]->reopen(r->outputs[i]);
}

static void take_info(struct rp_run *r, const struct rp_event_hdr *ev)
{
	if (ev->type == RP_EV_SESSION && !r->info.engine) {
		const struct rp_ev_session *s = (const void *)ev;

		snprintf(r->engine, sizeof(r->engine), "%.*s", (int)sizeof(s->engine), s->engine);
		snprintf(r->version, sizeof(r->version), "%.*s", (int)sizeof(s->version),
			 s->version);
		snprintf(r->host, sizeof(r->host), "%.*s", (int)sizeof(s->host), s->host);
		r->info.engine = r->engine;
		r->info.table = rp_engine_by_name(r->engine);
		r->info.engine_version = r->version;
		r->info.host = r->host;
		r->info.pid = ev->pid;
		r->info.started_wall = (int64_t)ev->ts + r->info.wall_offset;
	} else if (ev->type == RP_EV_CLOCK) {
		r->info.wall_offset = ((const struct rp_ev_clock *)(const void *)ev)->offset;
	}
	r->stopped |= ev->type == RP_EV_STOP;
	if (ev->type == RP_EV_STOP || ev->type == RP_EV_TICK)
		r->info.stopped_wall = (int64_t)ev->ts + r->info.wall_offset;
}

static void rec_result(struct rp_run *r, int e)
{
	if (!e || r->rec_failed)
		return;
	r->rec_failed = true;
	rp_say("can't write the recording %s: %s; it ends here, whole events only", r->o->record,
	       strerror(-e));
}

int rp_run_event(void *run, const struct rp_event_hdr *ev)
{
	struct rp_run *r = run;
	uint8_t *keep = NULL;
	size_t fixed;

	if (ev->type == RP_EV_TICK) {
		if (ev->ts - r->last_tick < TICK_NS)
			return 0;
		r->last_tick = ev->ts;
	}
	take_info(r, ev);
	if (r->rec && ev->size <= r->copy_size) {
		memcpy(r->copy, ev, ev->size);
		if (ev->type == RP_EV_SESSION && r->o->record_raw)
			((struct rp_ev_session *)(void *)r->copy)->flags |= RP_SESSION_RAW;
		fixed = rp_payload_at(ev->type);
		if (fixed && !r->o->record_raw && ev->size > fixed) {
			keep = r->copy + fixed;
			memset(keep, 'x', ev->size - fixed);
		}
	}
	pthread_mutex_lock(&r->lock);
	rp_timeline_event(r->tl, ev, keep);
	pthread_mutex_unlock(&r->lock);
	if (r->rec && ev->size <= r->copy_size)
		rec_result(r, rp_rec_write(r->rec, (const void *)r->copy));
	return 0;
}

void rp_run_flush(struct rp_run *r)
{
	if (r->jsonl)
		records_written(r, rp_jsonl_flush(r->jsonl));
	if (r->steps)
		written("steps", r->o->steps, rp_jsonl_flush(r->steps), &r->steps_failed);
	/* what a kill -9 would take from a recording is a second of it */
	if (r->rec && r->last_tick - r->rec_flushed > 1000000000ULL) {
		r->rec_flushed = r->last_tick;
		rec_result(r, rp_rec_flush(r->rec));
	}
	if (r->term)
		rp_outlet_flush(&r->term_out);
	EACH_OUTPUT(r, i, tick) rp_outputs[i]->tick(r->outputs[i]);
	rp_say_flush();
}

void rp_run_finish(struct rp_run *r)
{
	pthread_mutex_lock(&r->lock);
	rp_timeline_finish(r->tl);
	pthread_mutex_unlock(&r->lock);
	if (r->jsonl && r->jsonl_file)
		rp_jsonl_summary(r->jsonl, rp_timeline_stats(r->tl), &r->info);
	rp_run_flush(r);
	if (r->jsonl) {
		records_written(r, rp_jsonl_end(r->jsonl));
		not_written("records", r->jsonl_file ? r->o->jsonl : "stdout", r->jsonl);
	}
	if (r->steps) {
		written("steps", r->o->steps, rp_jsonl_end(r->steps), &r->steps_failed);
		not_written("steps", r->o->steps, r->steps);
	}
	rec_result(r, rp_rec_close(r->rec));
	r->rec = NULL;
	EACH_OUTPUT(r, i, finish) r->output_failed |= rp_outputs[i]->finish(r->outputs[i]) < 0;
	if (r->term) {
		rp_outlet_drain(&r->term_out, TERM_END_MS); /* the summary wants room */
		rp_term_summary(r->term, rp_timeline_stats(r->tl));
		fflush(r->term_file);
		rp_outlet_drain(&r->term_out, TERM_END_MS);
		if (r->term_out.dropped)
			rp_say("the terminal was too slow, or stopped: %llu lines were not shown",
			       (unsigned long long)r->term_out.dropped);
	}
}

bool rp_run_lost(const struct rp_run *r)
{
	return r->jsonl_failed || r->steps_failed || r->rec_failed || r->output_failed;
}

void rp_run_close(struct rp_run *r)
{
	EACH_OUTPUT(r, i, close) rp_outputs[i]->close(r->outputs[i]);
	rp_jsonl_close(r->jsonl);
	rp_jsonl_close(r->steps);
	rp_rec_close(r->rec);
	rp_term_free(r->term);
	if (r->term_file)
		fclose(r->term_file);
	if (r->term_out.buf)
		rp_outlet_close(&r->term_out);
	rp_prom_free(r->prom);
	rp_timeline_free(r->tl);
	free(r->copy);
}
