// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * otlp.c - the output. The thread that drains the ring counts and fills the queue of
 * spans; metrics and spans have a thread each, so that a slow receiver of one does not
 * hold up the other, and neither the drain.
 *
 * The two sides share no lock. The copy of the metrics changes hands by one word:
 *
 *   IDLE    nobody's
 *   WANTED  the sender asked for one: made at the next tick
 *   READY   the sender's, until it sets IDLE
 *   LAST    the sender's for good, at the end
 */
#include "otlp/otlp.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "lib/caps.h"
#include "lib/clock.h"
#include "otlp/config.h"
#include "otlp/metrics.h"
#include "otlp/send.h"
#include "otlp/spans.h"
#include "run.h"

#define MS 1000000LL
#define POINTS 4000 /* of one request: 2 MiB of protobuf at most */

enum { IDLE, WANTED, READY, LAST };

/* A thread and what it sends with. */
struct side {
	struct rp_otlp_sender s;
	pthread_t thread;
	bool started;
	int efd; /* wakes it */
	struct rp_otlp_random rnd;
	struct rp_buf body;
	_Atomic bool lost; /* at the end, something had to stay */
	/* metrics: what was refused for good, and no later export has brought */
	_Atomic bool refused;
};

struct otlp {
	const struct rp_options *o;
	struct rp_otlp_config c;
	const struct rp_summary_info *info;
	struct rp_timeline *tl;
	bool live;
	/* the drain's */
	struct rp_otlp_metrics *m;
	struct rp_otlp_random rnd;
	int64_t opened; /* ns of CLOCK_REALTIME */
	bool gave_up;	/* replay: the receiver does not take anything */
	/* the resource, written once, then read by all */
	struct {
		char engine[32], version[64], host[64], instance[37];
		uint32_t pid;
	} res;
	_Atomic bool known;
	struct rp_otlp_queue *q;
	struct side metrics, spans;
	_Atomic int copy;
	_Atomic bool closing, woken;
	_Atomic int64_t deadline; /* with closing; ns of CLOCK_MONOTONIC */
	_Atomic uint64_t full, refused, unsampled, no_instant, left; /* requests */
	_Atomic uint32_t series;
};

static void wake(struct side *s)
{
	const uint64_t one = 1;

	if (s->efd >= 0 && write(s->efd, &one, sizeof(one)) < 0)
		return; /* full: it is awake */
}

/* Until woken or ns have passed. */
static void doze(struct side *s, int64_t ns)
{
	struct pollfd p = { .fd = s->efd, .events = POLLIN };
	uint64_t n;

	if (ns > 0 && poll(&p, 1, (int)(ns / MS < 3600000 ? ns / MS + 1 : 3600000)) > 0 &&
	    read(s->efd, &n, sizeof(n)) < 0)
		return;
}

static uint32_t a_random(struct side *s)
{
	uint32_t r;

	rp_otlp_id(&s->rnd, (uint8_t *)&r, sizeof(r));
	return r;
}

static bool too_late(struct otlp *o)
{
	return atomic_load(&o->closing) &&
	       rp_clock_ns(CLOCK_MONOTONIC) >= atomic_load(&o->deadline);
}

/* ---- the resource ---- */

static void uuid(struct rp_otlp_random *r, char out[37])
{
	uint8_t b[16];

	rp_otlp_id(r, b, sizeof(b));
	b[6] = (b[6] & 0x0f) | 0x40; /* RFC 9562: version 4, variant 10 */
	b[8] = (b[8] & 0x3f) | 0x80;
	snprintf(out, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		 b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
		 b[13], b[14], b[15]);
}

static void learn_resource(struct otlp *o, bool anyway)
{
	const struct rp_summary_info *i = o->info;

	if (atomic_load_explicit(&o->known, memory_order_relaxed) || (!i->engine && !anyway))
		return;
	snprintf(o->res.engine, sizeof(o->res.engine), "%s", i->engine ? i->engine : "");
	snprintf(o->res.version, sizeof(o->res.version), "%s",
		 i->engine_version ? i->engine_version : "");
	snprintf(o->res.host, sizeof(o->res.host), "%s", i->host ? i->host : "");
	o->res.pid = i->pid;
	uuid(&o->rnd, o->res.instance);
	atomic_store(&o->known, true);
}

static void resource_attr(struct otlp *o, struct rp_ow *w, const char *key, const char *value)
{
	/* what the user says goes before what was found out */
	for (unsigned i = 0; i < o->c.resource.n; i++)
		if (!strcmp(o->c.resource.kv[i].key, key))
			return;
	if (*value)
		rp_ow_attr(w, 1, key, value);
}

static void put_resource(void *ctx, struct rp_ow *w)
{
	struct otlp *o = ctx;
	size_t mark = rp_ow_begin(w, 1, "resource");

	rp_ow_list(w, "attributes");
	for (unsigned i = 0; i < o->c.resource.n; i++)
		rp_ow_attr(w, 1, o->c.resource.kv[i].key, o->c.resource.kv[i].value);
	resource_attr(o, w, "service.name", *o->res.engine ? o->res.engine : "reqprobe");
	resource_attr(o, w, "service.version", o->res.version);
	resource_attr(o, w, "service.instance.id", o->res.instance);
	resource_attr(o, w, "host.name", o->res.host);
	if (o->res.pid)
		rp_ow_attr_i64(w, 1, "process.pid", o->res.pid);
	rp_ow_list_end(w);
	rp_ow_end(w, mark);
}

/* ---- metrics ---- */

static int copy_state(struct otlp *o)
{
	return atomic_load(&o->copy);
}

/* All of the copy. False: try again after s.wait_ms. */
static bool export_metrics(struct otlp *o)
{
	struct side *s = &o->metrics;
	struct rp_otlp_cursor at = { 0 }, from;
	struct rp_ow w = { &s->body, s->s.to->json };
	bool refused = false, cumulative = o->c.temporality == RP_OTLP_CUMULATIVE;
	enum rp_otlp_result r;
	size_t n;

	for (;;) {
		from = at;
		s->body.n = 0;
		s->body.oom = false;
		n = rp_otlp_metrics_encode(o->m, &w, &at, POINTS, put_resource, o);
		if (!n || s->body.oom) {
			/* no memory: the next interval's has it all, if there is one */
			if (cumulative)
				atomic_store(&s->refused, refused || s->body.oom);
			else if (s->body.oom && copy_state(o) == LAST)
				atomic_store(&s->refused, true);
			return true;
		}
		r = rp_otlp_send(&s->s, &s->body, n, a_random(s));
		if (r == RP_OTLP_RETRY)
			return false;
		refused |= r == RP_OTLP_REFUSED;
		if (refused && !cumulative) /* no later one has it again */
			atomic_store(&s->refused, true);
		rp_otlp_metrics_commit(o->m, &from, &at);
	}
}

static void *metrics_main(void *ctx)
{
	struct otlp *o = ctx;
	struct side *s = &o->metrics;
	int64_t interval = o->c.interval_ms * MS, next = rp_clock_ns(CLOCK_MONOTONIC) + interval,
		now;
	bool ok;

	rp_thread_begin(NULL, 0);
	for (;;) {
		int idle = IDLE;

		while (!atomic_load(&o->closing) && (now = rp_clock_ns(CLOCK_MONOTONIC)) < next)
			doze(s, next - now);
		if (!atomic_load(&o->closing))
			atomic_compare_exchange_strong(&o->copy, &idle, WANTED);
		while (copy_state(o) != READY && copy_state(o) != LAST) {
			if (too_late(o)) {
				atomic_store(&s->lost, true);
				return NULL;
			}
			doze(s, 200 * MS);
		}
		ok = export_metrics(o);
		if (copy_state(o) == LAST) {
			while (!ok && !too_late(o)) {
				now = atomic_load(&o->deadline) - rp_clock_ns(CLOCK_MONOTONIC);
				doze(s, now < s->s.wait_ms * MS ? now : s->s.wait_ms * MS);
				ok = !too_late(o) && export_metrics(o);
			}
			atomic_store(&s->lost, !ok);
			return NULL;
		}
		atomic_store(&o->copy, IDLE);
		now = rp_clock_ns(CLOCK_MONOTONIC);
		if (!ok)
			next = now + s->s.wait_ms * MS;
		else
			next = next + interval > now ? next + interval : now + interval;
	}
}

/* ---- spans ---- */

/* One batch, however long it takes. False: the end came before. */
static bool export_batch(struct otlp *o, size_t spans, uint64_t requests)
{
	struct side *s = &o->spans;
	enum rp_otlp_result r;
	int64_t wait, until, now;

	for (;;) {
		r = rp_otlp_send(&s->s, &s->body, spans, a_random(s));
		if (r == RP_OTLP_TAKEN)
			return true;
		if (r == RP_OTLP_REFUSED) {
			atomic_fetch_add(&o->refused, requests);
			return true;
		}
		wait = s->s.wait_ms * MS;
		until = rp_clock_ns(CLOCK_MONOTONIC) + wait;
		while ((now = rp_clock_ns(CLOCK_MONOTONIC)) < until) {
			bool closing = atomic_load(&o->closing);

			if (closing && until > atomic_load(&o->deadline))
				until = atomic_load(&o->deadline);
			doze(s, until - now);
			if (!closing && atomic_load(&o->closing))
				break; /* the end begins: once more at once */
		}
		if (too_late(o)) {
			atomic_fetch_add(&o->left, requests);
			return false;
		}
	}
}

static void *spans_main(void *ctx)
{
	struct otlp *o = ctx;
	struct side *s = &o->spans;
	struct rp_ow w = { &s->body, s->s.to->json };
	uint64_t requests;
	bool closing = false, ok = true;
	size_t n;

	rp_thread_begin(NULL, 0);
	while (!closing && ok) {
		if (!atomic_load(&o->closing))
			doze(s, o->c.delay_ms * MS);
		atomic_store(&o->woken, false);
		closing = atomic_load(&o->closing);
		while (ok) {
			s->body.n = 0;
			s->body.oom = false;
			n = rp_otlp_spans_encode(o->q, &o->c, &s->rnd, &w, o->c.batch, put_resource,
						 o, &requests);
			if (!n)
				break;
			if (s->body.oom)
				atomic_fetch_add(&o->refused, requests);
			else
				ok = export_batch(o, n, requests);
		}
	}
	atomic_fetch_add(&o->left, rp_otlp_queue_requests(o->q));
	return NULL;
}

/* ---- the drain's side ---- */

/* Replay is as fast as the receiver: what is in a recording is not to be lost for that. */
static int wait_for_room(struct otlp *o, const struct rp_record *r, const struct rp_otlp_trace *t)
{
	int64_t until = rp_clock_ns(CLOCK_MONOTONIC) + o->c.flush_ms * MS;
	const struct timespec ms = { 0, 1000000 };
	int e = -ENOSPC;

	while (e == -ENOSPC && !rp_stopping() && rp_clock_ns(CLOCK_MONOTONIC) < until) {
		wake(&o->spans);
		nanosleep(&ms, NULL);
		e = rp_otlp_queue_put(o->q, r, t);
	}
	o->gave_up = e == -ENOSPC;
	return e;
}

static void span(struct otlp *o, const struct rp_record *r, const struct rp_otlp_trace *t)
{
	int e;

	if (!t->sampled) {
		atomic_fetch_add_explicit(&o->unsampled, 1, memory_order_relaxed);
		return;
	}
	e = rp_otlp_queue_put(o->q, r, t);
	if (e == -ENOSPC && !o->live && !o->gave_up)
		e = wait_for_room(o, r, t);
	else if (!e)
		o->gave_up = false;
	if (e)
		atomic_fetch_add_explicit(e == -ENOSPC ? &o->full : &o->no_instant, 1,
					  memory_order_relaxed);
	/* enough for a batch: no more waiting for others */
	if (rp_otlp_queue_requests(o->q) * 4 >= o->c.batch &&
	    !atomic_exchange_explicit(&o->woken, true, memory_order_relaxed))
		wake(&o->spans);
}

static void on_record(void *ctx, const struct rp_record *r)
{
	struct otlp *o = ctx;
	struct rp_otlp_trace t;

	learn_resource(o, true);
	rp_otlp_trace(&o->c, r, &o->rnd, &t);
	if (o->m)
		rp_otlp_metrics_record(o->m, r, &t);
	if (o->q)
		span(o, r, &t);
}

static void on_gap(void *ctx, const struct rp_gap_info *g)
{
	rp_otlp_metrics_gap(((struct otlp *)ctx)->m, g);
}

static void on_handshake(void *ctx, int64_t rtt_us)
{
	rp_otlp_metrics_handshake(((struct otlp *)ctx)->m, rtt_us);
}

static void on_step(void *ctx, const struct rp_step_info *s)
{
	rp_otlp_metrics_step(((struct otlp *)ctx)->m, s);
}

static void snapshot(struct otlp *o, int state)
{
	int64_t start = o->info->started_wall ? o->info->started_wall : o->opened;
	int64_t now = o->live || !o->info->stopped_wall ? rp_clock_ns(CLOCK_REALTIME) :
							  o->info->stopped_wall;

	learn_resource(o, true);
	rp_otlp_metrics_snapshot(o->m, rp_timeline_stats(o->tl), start, now);
	atomic_store_explicit(&o->series, rp_otlp_metrics_series(o->m), memory_order_relaxed);
	atomic_store(&o->copy, state);
	wake(&o->metrics);
}

static void tick(void *state)
{
	struct otlp *o = state;

	learn_resource(o, false);
	if (o->m && atomic_load(&o->known) && copy_state(o) == WANTED)
		snapshot(o, READY);
}

/* ---- beginning and end ---- */

static void tell(const char *line)
{
	rp_say("otlp: %s", line);
}

static int start(struct otlp *o, struct side *s, const struct rp_otlp_signal *to,
		 void *(*fn)(void *))
{
	sigset_t all, old;
	int e;

	s->s.to = to;
	e = rp_otlp_sender_open(&s->s);
	if (e)
		return e;
	s->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->efd < 0)
		return -errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	e = -pthread_create(&s->thread, NULL, fn, o);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	s->started = !e;
	return e;
}

static void close_otlp(void *state)
{
	struct otlp *o = state;

	if (o->metrics.started || o->spans.started)
		return; /* a thread that could not be ended in time has it all */
	rp_otlp_sender_close(&o->metrics.s);
	rp_otlp_sender_close(&o->spans.s);
	if (o->metrics.efd >= 0)
		close(o->metrics.efd);
	if (o->spans.efd >= 0)
		close(o->spans.efd);
	free(o->metrics.body.p);
	free(o->spans.body.p);
	rp_otlp_metrics_free(o->m);
	rp_otlp_queue_free(o->q);
	rp_otlp_config_free(&o->c);
	free(o);
	curl_global_cleanup();
}

static void end_threads(struct otlp *o, int64_t ns);

size_t rp_otlp_memory(const struct rp_options *o)
{
	struct rp_otlp_config c;
	char err[256];
	size_t n = 0;

	if (!rp_otlp_configure(o, getenv, NULL, &c, err, sizeof(err)) && c.traces.on)
		n = c.queue;
	rp_otlp_config_free(&c);
	return n;
}

static int open_otlp(const struct rp_options *opts, const struct rp_summary_info *info,
		     struct rp_timeline *tl, void **state, char *err, size_t errlen)
{
	struct otlp *o = calloc(1, sizeof(*o));
	struct rp_observer obs = { .ctx = o, .record = on_record };
	int e;

	if (!o) {
		snprintf(err, errlen, "no memory");
		return -ENOMEM;
	}
	o->o = opts;
	o->info = info;
	o->tl = tl;
	o->live = opts->verb == RP_VERB_WATCH || opts->iface;
	o->opened = rp_clock_ns(CLOCK_REALTIME);
	o->metrics.efd = o->spans.efd = -1;
	e = rp_otlp_configure(opts, getenv, tell, &o->c, err, errlen);
	if (e || (!o->c.metrics.on && !o->c.traces.on)) {
		rp_otlp_config_free(&o->c);
		free(o);
		return e;
	}
	if (opts->ring + rp_otlp_memory(opts) + rp_log_memory(&opts->log, opts->memory) +
		    rp_lrm_reserve(opts) + (12u << 20) >
	    opts->memory) {
		snprintf(
			err, errlen,
			"--memory leaves no room beside an --otlp-queue of %zu bytes: make one larger or the other smaller",
			rp_otlp_memory(opts));
		rp_otlp_config_free(&o->c);
		free(o);
		return -EINVAL;
	}
	o->metrics.s.what = "metrics";
	o->metrics.s.data = "data points";
	o->metrics.s.meanwhile = "trying again; the next ones bring what these would have";
	o->spans.s.what = "spans";
	o->spans.s.data = "spans";
	o->spans.s.meanwhile =
		"trying again; kept up to the queue's limit, then dropped and counted";
	curl_global_init(CURL_GLOBAL_DEFAULT);
	e = -ENOMEM;
	if (o->c.metrics.on) {
		o->m = rp_otlp_metrics_new(&o->c);
		obs.gap = on_gap;
		obs.handshake = on_handshake;
		obs.step = on_step;
		if (!o->m)
			goto fail;
	}
	if (o->c.traces.on) {
		o->q = rp_otlp_queue_new(o->c.queue);
		if (!o->q)
			goto fail;
	}
	e = rp_timeline_observe(tl, &obs);
	if (!e && o->c.metrics.on)
		e = start(o, &o->metrics, &o->c.metrics, metrics_main);
	if (!e && o->c.traces.on)
		e = start(o, &o->spans, &o->c.traces, spans_main);
	if (e)
		goto fail;
	if (o->c.from_env && !opts->quiet)
		rp_say("otlp: %s%s%s to %s, as the environment says",
		       o->c.metrics.on ? "metrics" : "",
		       o->c.metrics.on && o->c.traces.on ? " and " : "",
		       o->c.traces.on ? "spans" : "",
		       o->c.metrics.on ? o->c.metrics.shown : o->c.traces.shown);
	*state = o;
	return 0;
fail:
	snprintf(err, errlen, "otlp: can't start: %s", strerror(-e));
	end_threads(o, 0);
	close_otlp(o);
	return e;
}

/* Both threads, within ns; what is still to be sent is sent, or counted as lost. */
static void end_threads(struct otlp *o, int64_t ns)
{
	struct side *const sides[] = { &o->metrics, &o->spans };
	int64_t deadline = rp_clock_ns(CLOCK_MONOTONIC) + ns, give_up;
	const struct timespec ms = { 0, 1000000 };
	struct timespec until;

	atomic_store(&o->deadline, deadline);
	for (int i = 0; i < 2; i++)
		atomic_store(&sides[i]->s.deadline, deadline);
	atomic_store(&o->closing, true);
	wake(&o->spans);
	wake(&o->metrics);
	if (o->metrics.started && ns) {
		while (copy_state(o) == READY && rp_clock_ns(CLOCK_MONOTONIC) < deadline)
			nanosleep(&ms, NULL);
		if (copy_state(o) != READY)
			snapshot(o, LAST);
	}
	/* curl looks at the deadline once a second */
	give_up = rp_clock_ns(CLOCK_REALTIME) + ns + 2000 * MS;
	until.tv_sec = give_up / 1000000000LL;
	until.tv_nsec = give_up % 1000000000LL;
	for (int i = 0; i < 2; i++) {
		if (!sides[i]->started)
			continue;
		if (!pthread_timedjoin_np(sides[i]->thread, NULL, &until))
			sides[i]->started = false;
		else
			atomic_store(&sides[i]->lost, true);
	}
}

static int finish(void *state)
{
	struct otlp *o = state;
	struct side *const sides[] = { &o->metrics, &o->spans };
	uint64_t lost, full, refused, left, rejected = 0;
	bool metrics;

	end_threads(o, o->c.flush_ms * MS);
	full = atomic_load(&o->full);
	refused = atomic_load(&o->refused);
	left = atomic_load(&o->left);
	lost = full + refused + left;
	metrics = atomic_load(&o->metrics.lost) || atomic_load(&o->metrics.refused);
	if (atomic_load(&o->metrics.lost))
		rp_say("otlp: the last metrics could not be delivered to %s", o->c.metrics.shown);
	else if (metrics)
		rp_say("otlp: metrics were not delivered: %llu data points were refused by %s",
		       (unsigned long long)atomic_load(&o->metrics.s.refused), o->c.metrics.shown);
	if (lost || atomic_load(&o->spans.lost))
		rp_say("otlp: spans of %llu requests were not delivered: %llu found the queue full, %llu were refused, %llu were left at the end",
		       (unsigned long long)lost, (unsigned long long)full,
		       (unsigned long long)refused, (unsigned long long)left);
	for (int i = 0; i < 2; i++) {
		uint64_t n = atomic_load(&sides[i]->s.rejected);

		if (n)
			rp_say("otlp: %llu %s were taken by the receiver and rejected",
			       (unsigned long long)n, sides[i]->s.data);
		rejected += n;
	}
	return lost || metrics || rejected || atomic_load(&o->spans.lost) ? -EIO : 0;
}

/* ---- what it tells of itself ---- */

static void of_signals(struct otlp *o, struct rp_expo *e, const char *name, enum rp_expo_type type,
		       const char *help, uint64_t (*get)(const struct rp_otlp_sender *))
{
	struct rp_label l = { "signal", "metrics" };

	rp_expo_family(e, name, type, help);
	if (o->m)
		rp_expo_u64(e, &l, 1, get(&o->metrics.s));
	l.value = "spans";
	if (o->q)
		rp_expo_u64(e, &l, 1, get(&o->spans.s));
}

static uint64_t get_items(const struct rp_otlp_sender *s)
{
	return atomic_load(&s->items);
}

static uint64_t get_rejected(const struct rp_otlp_sender *s)
{
	return atomic_load(&s->rejected);
}

static uint64_t get_bytes(const struct rp_otlp_sender *s)
{
	return atomic_load(&s->bytes);
}

static uint64_t get_up(const struct rp_otlp_sender *s)
{
	return !atomic_load(&s->failing);
}

static uint64_t get_last(const struct rp_otlp_sender *s)
{
	return (uint64_t)atomic_load(&s->last_success) / 1000000000u;
}

static void metrics(void *state, struct rp_expo *e)
{
	static const char *const result[] = { "taken", "retry", "refused" };
	static const char *const reason[] = { "queue_full", "refused", "end", "no_instant" };
	struct otlp *o = state;
	const _Atomic uint64_t *const dropped[] = { &o->full, &o->refused, &o->left,
						    &o->no_instant };
	const struct side *const sides[] = { o->m ? &o->metrics : NULL, o->q ? &o->spans : NULL };

	rp_expo_family(e, "reqprobe_otlp_exports_total", RP_EXPO_COUNTER,
		       "Attempts to send by OTLP: taken, to be tried again, or refused for good.");
	for (int s = 0; s < 2; s++)
		for (int r = 0; sides[s] && r < RP_OTLP_RESULTS; r++) {
			const struct rp_label l[] = { { "signal", s ? "spans" : "metrics" },
						      { "result", result[r] } };

			rp_expo_u64(e, l, 2, atomic_load(&sides[s]->s.results[r]));
		}
	of_signals(o, e, "reqprobe_otlp_items_total", RP_EXPO_COUNTER,
		   "Data points (metrics) and spans that the receiver took.", get_items);
	of_signals(o, e, "reqprobe_otlp_items_rejected_total", RP_EXPO_COUNTER,
		   "Of them, those that it took and rejected: partial success.", get_rejected);
	of_signals(o, e, "reqprobe_otlp_sent_bytes_total", RP_EXPO_COUNTER,
		   "Bodies that the receiver took, as sent.", get_bytes);
	of_signals(o, e, "reqprobe_otlp_up", RP_EXPO_GAUGE,
		   "0 while nothing gets through to the receiver.", get_up);
	of_signals(o, e, "reqprobe_otlp_last_success_timestamp_seconds", RP_EXPO_GAUGE,
		   "When the receiver last took something; 0: never.", get_last);
	if (o->m) {
		rp_expo_family(e, "reqprobe_otlp_overflow_total", RP_EXPO_COUNTER,
			       "Measurements beyond --otlp-max-series: in otel.metric.overflow.");
		rp_expo_u64(e, NULL, 0, rp_otlp_metrics_overflow(o->m));
		rp_expo_family(e, "reqprobe_otlp_series", RP_EXPO_GAUGE,
			       "Sets of attributes at the last export.");
		rp_expo_u64(e, NULL, 0, atomic_load(&o->series));
	}
	if (!o->q)
		return;
	rp_expo_family(e, "reqprobe_otlp_queue_requests", RP_EXPO_GAUGE,
		       "Requests whose spans wait to be sent.");
	rp_expo_u64(e, NULL, 0, rp_otlp_queue_requests(o->q));
	rp_expo_family(e, "reqprobe_otlp_queue_bytes", RP_EXPO_GAUGE, "Bytes of the queue in use.");
	rp_expo_u64(e, NULL, 0, rp_otlp_queue_bytes(o->q));
	rp_expo_family(e, "reqprobe_otlp_requests_dropped_total", RP_EXPO_COUNTER,
		       "Requests whose spans were given up.");
	for (int i = 0; i < 4; i++) {
		const struct rp_label l = { "reason", reason[i] };

		rp_expo_u64(e, &l, 1, atomic_load(dropped[i]));
	}
	rp_expo_family(e, "reqprobe_otlp_requests_unsampled_total", RP_EXPO_COUNTER,
		       "Requests without a span because the sampler, or their trace, says so.");
	rp_expo_u64(e, NULL, 0, atomic_load(&o->unsampled));
}

const struct rp_output rp_otlp_output = {
	.name = "otlp",
	.open = open_otlp,
	.tick = tick,
	.metrics = metrics,
	.finish = finish,
	.close = close_otlp,
};
