// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * prometheus.c - what /metrics says. Counters come from rp_stats; histograms are
 * kept here, fed by records and gaps. How it is written is expo.c's.
 *
 * A histogram takes only what can be trusted: a figure that is null gives no
 * sample, and a record that a loss may have touched (partial, lost_events)
 * gives none at all. Its request is counted all the same.
 */
#include "sink/expo.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sink/name.h"

/* ---- histograms ---- */

/* The `le` of text 0.0.4 are older than the canonical form, and stay. The sets of
 * times follow vLLM's (v1/metrics/buckets.py), with finer steps at the low end: a
 * probe sees queue times of microseconds. */
#define US(n, s)              \
	{                     \
		s, (n)*1000LL \
	}
#define MS(n, s)                 \
	{                        \
		s, (n)*1000000LL \
	}

static const struct rp_bound request_bounds[] = {
	/* ttft, queue, prefill, decode, duration */
	US(100, "0.0001"),   US(500, "0.0005"),	  MS(1, "0.001"),    MS(5, "0.005"),
	MS(10, "0.01"),	     MS(20, "0.02"),	  MS(40, "0.04"),    MS(60, "0.06"),
	MS(80, "0.08"),	     MS(100, "0.1"),	  MS(250, "0.25"),   MS(500, "0.5"),
	MS(750, "0.75"),     MS(1000, "1"),	  MS(2500, "2.5"),   MS(5000, "5"),
	MS(7500, "7.5"),     MS(10000, "10"),	  MS(20000, "20"),   MS(40000, "40"),
	MS(80000, "80"),     MS(160000, "160"),	  MS(320000, "320"), MS(640000, "640"),
	MS(1280000, "1280"), MS(2560000, "2560"),
};
static const struct rp_bound gap_bounds[] = {
	/* inter-token, inter-chunk */
	US(100, "0.0001"), US(500, "0.0005"), MS(1, "0.001"),	   US(2500, "0.0025"),
	MS(5, "0.005"),	   MS(10, "0.01"),    MS(25, "0.025"),	   MS(50, "0.05"),
	MS(75, "0.075"),   MS(100, "0.1"),    MS(150, "0.15"),	   MS(200, "0.2"),
	MS(300, "0.3"),	   MS(400, "0.4"),    MS(500, "0.5"),	   MS(750, "0.75"),
	MS(1000, "1"),	   MS(2500, "2.5"),   MS(5000, "5"),	   MS(7500, "7.5"),
	MS(10000, "10"),   MS(20000, "20"),   MS(40000, "40"),	   MS(80000, "80"),
	MS(160000, "160"), MS(640000, "640"), MS(2560000, "2560"),
};
static const struct rp_bound rtt_bounds[] = {
	US(10, "0.00001"),  US(25, "0.000025"), US(50, "0.00005"), US(100, "0.0001"),
	US(250, "0.00025"), US(500, "0.0005"),	MS(1, "0.001"),	   US(2500, "0.0025"),
	MS(5, "0.005"),	    MS(10, "0.01"),	MS(25, "0.025"),   MS(50, "0.05"),
	MS(100, "0.1"),	    MS(250, "0.25"),	MS(500, "0.5"),	   MS(1000, "1"),
	MS(2500, "2.5"),    MS(5000, "5"),	MS(10000, "10"),
};
/* Of one step: counts, not times. A step may bring nothing. */
static const struct rp_bound batch_bounds[] = {
	{ "0", 0 },	{ "1", 1 },	  { "2", 2 },	    { "4", 4 },	      { "8", 8 },
	{ "16", 16 },	{ "32", 32 },	  { "64", 64 },	    { "128", 128 },   { "256", 256 },
	{ "512", 512 }, { "1024", 1024 }, { "2048", 2048 }, { "4096", 4096 },
};
#define N(a) (sizeof(a) / sizeof(*(a)))
_Static_assert(N(request_bounds) < RP_MAX_BOUNDS && N(gap_bounds) < RP_MAX_BOUNDS &&
		       N(rtt_bounds) < RP_MAX_BOUNDS && N(batch_bounds) < RP_MAX_BOUNDS,
	       "one more for +Inf");

static const struct rp_scale request_scale = { request_bounds, N(request_bounds), false, true };
static const struct rp_scale gap_scale = { gap_bounds, N(gap_bounds), false, true };
static const struct rp_scale rtt_scale = { rtt_bounds, N(rtt_bounds), false, true };
static const struct rp_scale batch_scale = { batch_bounds, N(batch_bounds), true, true };

/* Of all histograms here: some 2 MiB at most. */
#define MAX_NATIVE 1024
#define MAX_EXEMPLARS 4096

/* Per model and operation. */
enum request_hist {
	H_TTFT,
	H_QUEUE,
	H_PREFILL,
	H_DECODE,
	H_DURATION,
	H_BEFORE,
	H_AFTER,
	H_PREEMPTED,
	H_REQUEUE,
	H_COUNT
};

struct model {
	char name[RP_MODEL_MAX];
	struct rp_hist *ops[RP_OP_COUNT]; /* H_COUNT of them, made when first used */
	struct rp_hist *itl[2];		  /* scope: engine, server */
	struct rp_hist *icl;
};

/* Of one engine process. */
enum step_hist { S_TIME, S_TOKENS, S_REQUESTS, S_COUNT };

struct core {
	uint32_t pid;
	int64_t index, last; /* instant of its last step */
	struct rp_hist h[S_COUNT];
};

#define STATUS_MAX 600

struct rp_prom {
	struct model *models;
	uint32_t n_models, max_models; /* models[0] is "other" */
	uint32_t told;		       /* the last one that an answer told, 0 = none yet */
	uint32_t last;		       /* index found last: tokens come in runs */
	struct rp_hist rtt;
	struct core *cores[RP_MAX_CORES]; /* in order of their first step */
	unsigned n_cores;
	uint64_t requests[RP_END_COUNT][STATUS_MAX];
	uint64_t other_models; /* a name had no room in the table: under "other" */
	struct rp_hist_room room;
};

struct rp_prom *rp_prom_new(const struct rp_prom_opts *o)
{
	struct rp_prom *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->room.max_native = MAX_NATIVE;
	p->room.max_exemplars = MAX_EXEMPLARS;
	p->max_models = (o && o->max_models ? o->max_models : 32) + 1;
	if (p->max_models > 1025)
		p->max_models = 1025;
	p->models = calloc(p->max_models, sizeof(*p->models));
	if (!p->models) {
		free(p);
		return NULL;
	}
	strcpy(p->models[0].name, RP_NAME_OTHER);
	p->n_models = 1;
	return p;
}

static void drop(struct rp_prom *p, struct rp_hist *h, size_t n)
{
	for (size_t i = 0; h && i < n; i++)
		rp_hist_free(&h[i], &p->room);
	free(h);
}

void rp_prom_free(struct rp_prom *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < p->n_models; i++) {
		struct model *m = &p->models[i];

		for (int o = 0; o < RP_OP_COUNT; o++)
			drop(p, m->ops[o], H_COUNT);
		drop(p, m->itl[0], 1);
		drop(p, m->itl[1], 1);
		drop(p, m->icl, 1);
	}
	for (unsigned i = 0; i < p->n_cores; i++) {
		for (int h = 0; h < S_COUNT; h++)
			rp_hist_free(&p->cores[i]->h[h], &p->room);
		free(p->cores[i]);
	}
	rp_hist_free(&p->rtt, &p->room);
	free(p->models);
	free(p);
}

/* `learn`: the server accepted this name. Names that clients make up and the
 * server refuses must not use up the table. */
static struct model *find_model(struct rp_prom *p, const char *raw, bool learn)
{
	struct model *m = &p->models[p->last];
	char name[RP_MODEL_MAX];

	rp_name_label(name, sizeof(name), raw);
	if (!strcmp(m->name, name))
		return m;
	for (uint32_t i = 0; i < p->n_models; i++) {
		if (!strcmp(p->models[i].name, name)) {
			p->last = i;
			return &p->models[i];
		}
	}
	if (!learn || p->n_models == p->max_models) {
		p->other_models += learn;
		return &p->models[0];
	}
	p->last = p->n_models++;
	m = &p->models[p->last];
	strcpy(m->name, name);
	return m;
}

static struct rp_hist *lazy(struct rp_hist **h, size_t n)
{
	if (!*h)
		*h = calloc(n, sizeof(**h));
	return *h;
}

static void sample(struct rp_prom *p, struct rp_hist *set, enum request_hist which,
		   const struct rp_value *v, const struct rp_exemplar_of *of)
{
	if (v->known)
		rp_hist_add(&set[which], &request_scale, &p->room, v->i, 1, of);
}

void rp_prom_record(struct rp_prom *p, const struct rp_record *r)
{
	bool accepted = r->status >= 200 && r->status < 300;
	struct model *m;
	struct rp_exemplar_of of;
	struct rp_hist *set;

	p->requests[r->end][r->status > 0 && r->status < STATUS_MAX ? r->status : 0]++;

	if (r->flags & (RP_FLAG_PARTIAL | RP_FLAG_LOST_EVENTS))
		return;
	m = find_model(p, r->model, accepted || !r->model[0]);
	if (accepted)
		p->told = (uint32_t)(m - p->models);
	set = lazy(&m->ops[r->operation], H_COUNT);
	if (!set)
		return;
	of = rp_exemplar_of(r);
	/* what was cut may have held the true first token */
	if (!(r->flags & RP_FLAG_TRUNCATED))
		sample(p, set, H_TTFT, &r->v[RP_FIELD_S_TTFT], &of);
	sample(p, set, H_QUEUE, &r->v[RP_FIELD_P_QUEUE], &of);
	sample(p, set, H_PREFILL, &r->v[RP_FIELD_P_PREFILL], &of);
	sample(p, set, H_BEFORE, &r->v[RP_FIELD_FE_BEFORE], &of);
	if (!(r->flags & RP_FLAG_TRUNCATED))
		sample(p, set, H_AFTER, &r->v[RP_FIELD_FE_FIRST], &of);
	/* only those that had to: a 0 of all others would drown them */
	if (r->v[RP_FIELD_SCH_PREEMPTIONS].known && r->v[RP_FIELD_SCH_PREEMPTIONS].i)
		sample(p, set, H_PREEMPTED, &r->v[RP_FIELD_SCH_PREEMPTED], &of);
	if (r->v[RP_FIELD_SCH_REQUEUES].known && r->v[RP_FIELD_SCH_REQUEUES].i)
		sample(p, set, H_REQUEUE, &r->v[RP_FIELD_SCH_REQUEUE], &of);
	/* a decode or a duration that was broken off is no measure of the server */
	if (r->end == RP_END_COMPLETE) {
		sample(p, set, H_DECODE, &r->v[RP_FIELD_P_DECODE], &of);
		sample(p, set, H_DURATION, &r->v[RP_FIELD_S_DURATION], &of);
	}
}

void rp_prom_gap(struct rp_prom *p, const struct rp_gap_info *g)
{
	struct model *m = find_model(p, g->model, !g->asked);
	struct rp_hist *h;

	/* A name that a client made up: the server has most likely one, and told it before. */
	if (g->asked && m == p->models)
		m = p->told ? &p->models[p->told] : find_model(p, NULL, true);
	else if (!g->asked)
		p->told = (uint32_t)(m - p->models);
	h = g->chunk ? lazy(&m->icl, 1) : lazy(&m->itl[g->source == RP_ITL_SERVER], 1);

	if (h)
		rp_hist_add(h, &gap_scale, &p->room, g->gap_ns, g->n, NULL);
}

void rp_prom_handshake(struct rp_prom *p, int64_t rtt_us)
{
	if (rtt_us >= 0 && rtt_us < INT64_MAX / 1000)
		rp_hist_add(&p->rtt, &rtt_scale, &p->room, rtt_us * 1000, 1, NULL);
}

void rp_prom_step(struct rp_prom *p, const struct rp_step_info *s)
{
	struct core *c = NULL;

	for (unsigned i = 0; i < p->n_cores && !c; i++)
		if (p->cores[i]->pid == s->pid && p->cores[i]->index == s->index)
			c = p->cores[i];
	if (!c && p->n_cores < RP_MAX_CORES) {
		c = calloc(1, sizeof(*c));
		if (!c)
			return;
		p->cores[p->n_cores++] = c;
	} else if (!c) { /* engines that came back: the one silent for longest goes */
		c = p->cores[0];
		for (unsigned i = 1; i < p->n_cores; i++)
			if (p->cores[i]->last < c->last)
				c = p->cores[i];
		for (int h = 0; h < S_COUNT; h++)
			rp_hist_free(&c->h[h], &p->room);
		memset(c, 0, sizeof(*c));
	}
	c->pid = s->pid;
	c->index = s->index;
	c->last = s->ts;
	if (s->step_ns != RP_NONE)
		rp_hist_add(&c->h[S_TIME], &gap_scale, &p->room, s->step_ns, 1, NULL);
	if (s->cut) /* lower bounds are no samples */
		return;
	rp_hist_add(&c->h[S_TOKENS], &batch_scale, &p->room, s->tokens, 1, NULL);
	rp_hist_add(&c->h[S_REQUESTS], &batch_scale, &p->room, s->requests, 1, NULL);
}

/* ---- writing ---- */

static void plain(struct rp_expo *e, const char *name, enum rp_expo_type type, const char *help,
		  uint64_t v)
{
	rp_expo_family(e, name, type, help);
	rp_expo_u64(e, NULL, 0, v);
}
#define COUNTER RP_EXPO_COUNTER
#define GAUGE RP_EXPO_GAUGE

static void labelled(struct rp_expo *e, const char *name, const char *help, const char *key,
		     const char *const *names, const uint64_t *v, size_t n)
{
	rp_expo_family(e, name, COUNTER, help);
	for (size_t i = 0; i < n; i++)
		rp_expo_u64(e, &(struct rp_label){ key, names[i] }, 1, v[i]);
}

static void request_hists(struct rp_expo *e, const struct rp_prom *p)
{
	static const struct {
		const char *name, *help;
	} fam[H_COUNT] = {
		[H_TTFT] = { "reqprobe_time_to_first_token_seconds",
			     "Server scope: last byte of the request read to the first event with generated text handed to the socket. Streaming responses only." },
		[H_QUEUE] = { "reqprobe_queue_time_seconds",
			      "Engine scope: queued to first scheduled." },
		[H_PREFILL] = { "reqprobe_prefill_time_seconds",
				"Engine scope: first scheduled to first token." },
		[H_DECODE] = { "reqprobe_decode_time_seconds",
			       "Engine scope: first to last token, of complete requests." },
		[H_DURATION] = { "reqprobe_request_duration_seconds",
				 "Server scope: last byte of the request read to last byte of the response handed to the socket, of complete requests." },
		[H_BEFORE] = { "reqprobe_frontend_before_seconds",
			       "Last byte of the request read to queued in the engine." },
		[H_AFTER] = { "reqprobe_frontend_after_first_token_seconds",
			      "Engine's instant of the first token to the first event with generated text handed to the socket. Streaming responses only." },
		[H_PREEMPTED] = { "reqprobe_preempted_time_seconds",
				  "Engine scope: preempted to scheduled again, summed, of requests that were preempted." },
		[H_REQUEUE] = { "reqprobe_requeue_time_seconds",
				"Engine scope: queued again to scheduled again, summed, of requests that were queued more than once." },
	};

	for (int h = 0; h < H_COUNT; h++) {
		rp_expo_family(e, fam[h].name, RP_EXPO_HISTOGRAM, fam[h].help);
		for (uint32_t i = 0; i < p->n_models; i++) {
			const struct model *m = &p->models[i];

			for (int o = 0; o < RP_OP_COUNT; o++) {
				const struct rp_label l[] = {
					{ "model", m->name }, { "operation", rp_operation_names[o] }
				};

				if (m->ops[o])
					rp_expo_hist(e, l, 2, &request_scale, &m->ops[o][h]);
			}
		}
	}
}

static void gap_hists(struct rp_expo *e, const struct rp_prom *p)
{
	static const char *const scope[] = { "engine", "server" };

	rp_expo_family(
		e, "reqprobe_inter_token_latency_seconds", RP_EXPO_HISTOGRAM,
		"Time between consecutive tokens of one choice; k tokens at once after a gap g count as k gaps of g/k. Scope engine where hooks see tokens, else server.");
	for (uint32_t i = 0; i < p->n_models; i++) {
		for (int s = 0; s < 2; s++) {
			const struct rp_label l[] = { { "model", p->models[i].name },
						      { "scope", scope[s] } };

			if (p->models[i].itl[s])
				rp_expo_hist(e, l, 2, &gap_scale, p->models[i].itl[s]);
		}
	}
	rp_expo_family(
		e, "reqprobe_inter_chunk_latency_seconds", RP_EXPO_HISTOGRAM,
		"Server scope: time between consecutive events with generated text of one response.");
	for (uint32_t i = 0; i < p->n_models; i++)
		if (p->models[i].icl)
			rp_expo_hist(e, &(struct rp_label){ "model", p->models[i].name }, 1,
				     &gap_scale, p->models[i].icl);
}

/* ---- the engines' schedulers ---- */

/* An index names an engine process, unless two have the same: several engines
 * watched at once, or one that came back. Then both get their pid, too. */
struct core_labels {
	struct rp_label l[2];
	size_t n;
	char index[24], pid[12];
};

static void core_labels(struct core_labels *c, const struct rp_prom *p, const struct rp_stats *s,
			uint32_t pid, int64_t index)
{
	bool shared = false;

	for (unsigned i = 0; i < s->n_cores && i < RP_MAX_CORES; i++)
		shared |= s->cores[i].index == index && s->cores[i].pid != pid;
	for (unsigned i = 0; i < p->n_cores; i++)
		shared |= p->cores[i]->index == index && p->cores[i]->pid != pid;
	snprintf(c->index, sizeof(c->index), "%lld", (long long)index);
	snprintf(c->pid, sizeof(c->pid), "%u", pid);
	c->l[0] = (struct rp_label){ "engine_index", c->index };
	c->l[1] = (struct rp_label){ "pid", c->pid };
	c->n = shared ? 2 : 1;
}

/* Which of them have the figure. */
enum core_has { HAS_ALWAYS, HAS_PREFIX, HAS_SPEC, HAS_NOW, HAS_KV, HAS_PREEMPTIONS };

static bool core_has(const struct rp_core *c, enum core_has h)
{
	switch (h) {
	case HAS_PREFIX:
		return rp_core_prefix(c);
	case HAS_SPEC:
		return c->spec;
	case HAS_NOW:
		return c->stats && !c->gone;
	case HAS_KV:
		return (c->stats || !c->log_stats) && !c->gone;
	case HAS_PREEMPTIONS:
		return rp_core_preemptions(c);
	default:
		return true;
	}
}

static void cores(struct rp_expo *e, const struct rp_prom *p, const struct rp_stats *s)
{
	enum what { U64, I64, DBL };
#define CORE(f) offsetof(struct rp_core, f)
	static const struct {
		const char *name;
		enum rp_expo_type type;
		const char *help;
		size_t at;
		enum what what;
		enum core_has has;
	} fam[] = {
		{ "reqprobe_scheduler_requests_running", GAUGE,
		  "Requests in the engine's batch, as its scheduler tells.", CORE(running), I64,
		  HAS_NOW },
		{ "reqprobe_scheduler_requests_waiting", GAUGE,
		  "Requests waiting in the engine, as its scheduler tells.", CORE(waiting), I64,
		  HAS_NOW },
		{ "reqprobe_scheduler_kv_cache_usage_ratio", GAUGE,
		  "Part of the KV cache in use, 0 to 1, as the engine's scheduler tells; log stats off, and llama.cpp: an estimate from its steps.",
		  CORE(kv_usage), DBL, HAS_KV },
		{ "reqprobe_scheduler_prefix_cache_queries_tokens_total", COUNTER,
		  "Prompt tokens looked up in the prefix cache.", CORE(prefix_queries), U64,
		  HAS_PREFIX },
		{ "reqprobe_scheduler_prefix_cache_hits_tokens_total", COUNTER,
		  "Prompt tokens found in the prefix cache.", CORE(prefix_hits), U64, HAS_PREFIX },
		{ "reqprobe_scheduler_preemptions_total", COUNTER,
		  "Times the engine took a running request off again; log stats off: an estimate from its steps.",
		  CORE(preemptions), U64, HAS_PREEMPTIONS },
		{ "reqprobe_scheduler_spec_drafts_total", COUNTER,
		  "Speculative decoding: drafts made.", CORE(spec_drafts), U64, HAS_SPEC },
		{ "reqprobe_scheduler_spec_draft_tokens_total", COUNTER,
		  "Speculative decoding: tokens drafted.", CORE(spec_draft_tokens), U64, HAS_SPEC },
		{ "reqprobe_scheduler_spec_accepted_tokens_total", COUNTER,
		  "Speculative decoding: drafted tokens that were accepted.",
		  CORE(spec_accepted_tokens), U64, HAS_SPEC },
		{ "reqprobe_scheduler_steps_total", COUNTER,
		  "Steps of the engine's scheduler that were told of.", CORE(steps), U64,
		  HAS_ALWAYS },
		{ "reqprobe_scheduler_tokens_total", COUNTER, "Tokens generated in steps.",
		  CORE(tokens), U64, HAS_ALWAYS },
		{ "reqprobe_scheduler_outputs_total", COUNTER,
		  "Requests with an output in a step, summed over steps.", CORE(outputs), U64,
		  HAS_ALWAYS },
	};
#undef CORE
	static const struct {
		const char *name, *help;
		const struct rp_scale *scale;
	} hist[S_COUNT] = {
		[S_TIME] = { "reqprobe_step_seconds",
			     "Engine scope: time from one step of the scheduler to the next while it is busy.",
			     &gap_scale },
		[S_TOKENS] = { "reqprobe_step_tokens", "Tokens generated in one step.",
			       &batch_scale },
		[S_REQUESTS] = { "reqprobe_step_requests", "Requests with an output in one step.",
				 &batch_scale },
	};
	unsigned n = s->n_cores < RP_MAX_CORES ? s->n_cores : RP_MAX_CORES;
	struct core_labels l;

	for (size_t f = 0; f < N(fam); f++) {
		bool said = false;

		for (unsigned i = 0; i < n; i++) {
			const struct rp_core *c = &s->cores[i];
			const char *at = (const char *)c + fam[f].at;
			int64_t v;
			double d;

			if (!core_has(c, fam[f].has))
				continue;
			memcpy(&v, at, sizeof(v));
			memcpy(&d, at, sizeof(d));
			if (fam[f].what == DBL ? !(d >= 0 && d <= 1e300) :
						 fam[f].what == I64 && v < 0)
				continue; /* not told */
			if (!said)
				rp_expo_family(e, fam[f].name, fam[f].type, fam[f].help);
			said = true;
			core_labels(&l, p, s, c->pid, c->index);
			if (fam[f].what == DBL)
				rp_expo_double(e, l.l, l.n, d);
			else
				rp_expo_u64(e, l.l, l.n, (uint64_t)v);
		}
	}
	for (int h = 0; h < S_COUNT && p->n_cores; h++) {
		rp_expo_family(e, hist[h].name, RP_EXPO_HISTOGRAM, hist[h].help);
		for (unsigned i = 0; i < p->n_cores; i++) {
			core_labels(&l, p, s, p->cores[i]->pid, p->cores[i]->index);
			rp_expo_hist(e, l.l, l.n, hist[h].scale, &p->cores[i]->h[h]);
		}
	}
}

static void messages(struct rp_expo *e, const struct rp_stats *s)
{
	static const char *const result[] = { "decoded", "cut", "bad", "repeated" };
	const uint64_t v[] = { s->messages, s->messages_cut, s->messages_bad,
			       s->messages_repeated };

	labelled(
		e, "reqprobe_engine_messages_total",
		"Messages between the engine's processes: decoded, cut at the capture limit, malformed or of an unknown layout, or handed over twice.",
		"result", result, v, N(v));
	plain(e, "reqprobe_engine_requests_unclaimed_total", COUNTER,
	      "Requests of the engine whose HTTP request was never found.", s->tasks_unclaimed);
}

/* ---- the rest ---- */

static void requests(struct rp_expo *e, const struct rp_prom *p, const struct rp_stats *s)
{
	const char *name = "reqprobe_requests_total";

	rp_expo_family(
		e, name, COUNTER,
		"Finished inference requests by how they ended and HTTP status; status none when no response was seen.");
	for (int i = 0; i < RP_END_COUNT; i++) {
		for (int c = 0; c < STATUS_MAX; c++) {
			char status[8] = "none";

			/* one series is there from the start, so that rates have a beginning */
			if (!p->requests[i][c] && !(i == RP_END_COMPLETE && c == 200))
				continue;
			if (c)
				snprintf(status, sizeof(status), "%d", c);
			rp_expo_u64(e,
				    (struct rp_label[]){ { "end", rp_end_names[i] },
							 { "status", status } },
				    2, p->requests[i][c]);
		}
	}
	plain(e, "reqprobe_requests_started_total", COUNTER,
	      "Inference requests seen to start: the finished ones of all ends, those in flight, and those proxied.",
	      s->started + s->proxied); /* found out later: a counter may not go back */
	plain(e, "reqprobe_requests_in_flight", GAUGE, "Inference requests not yet finished.",
	      s->in_flight);
	if (s->scheduler_known) {
		plain(e, "reqprobe_requests_waiting", GAUGE,
		      "Engine tasks queued and not yet scheduled.", s->waiting);
		plain(e, "reqprobe_requests_running", GAUGE,
		      "Engine tasks scheduled and not yet ended.", s->running);
	}
	plain(e, "reqprobe_other_requests_total", COUNTER,
	      "HTTP requests that are no inference (health checks, metrics, model lists): counted, not recorded.",
	      s->other_paths);
	plain(e, "reqprobe_requests_proxied_total", COUNTER,
	      "Requests seen on their way through a proxy of the watched tree: recorded where the engine serves them.",
	      s->proxied);
	plain(e, "reqprobe_requests_not_joined_total", COUNTER,
	      "Finished requests for which no engine task was found though hooks are attached.",
	      s->not_joined);
}

static void loss(struct rp_expo *e, const struct rp_prom *p, const struct rp_stats *s,
		 const struct rp_prom_process *x)
{
	static const char *const limit[] = {
		"conns", "requests", "tasks",  "memory",    "marks",
		"cores", "ids",	     "models", "exemplars", "native_histograms"
	};
	const uint64_t limits[] = {
		s->limit_conns,	     s->limit_requests, s->limit_tasks, s->limit_memory,
		s->limit_marks,	     s->limit_cores,	s->limit_ids,	p->other_models,
		p->room.no_exemplar, p->room.no_native,
	};

	labelled(e, "reqprobe_events_total",
		 "Events the kernel side saw, lost ones included, by class.", "class",
		 rp_class_names, s->seen, RP_CLASS_COUNT);
	labelled(e, "reqprobe_events_lost_total", "Events lost because the ring buffer was full.",
		 "class", rp_class_names, s->lost, RP_CLASS_COUNT);
	labelled(e, "reqprobe_map_full_total", "Inserts refused because a BPF map was full.", "map",
		 rp_map_names, s->map_full, RP_MAP_COUNT);
	labelled(e, "reqprobe_limit_hits_total",
		 "Times a configured limit of the daemon cut something.", "limit", limit, limits,
		 N(limits));
	plain(e, "reqprobe_stream_bytes_lost_total", COUNTER,
	      "Bytes of followed connections that never reached the daemon.", s->bytes_lost);
	plain(e, "reqprobe_stream_bytes_cut_total", COUNTER,
	      "Bytes of followed connections beyond the capture limit of one call.", s->bytes_cut);
	plain(e, "reqprobe_invalid_order_total", COUNTER,
	      "Pairs of instants that were out of order and dropped.", s->invalid_order);
	plain(e, "reqprobe_parse_errors_total", COUNTER,
	      "Messages that were not what their headers said.", s->parse_errors);
	plain(e, "reqprobe_records_failed_total", COUNTER,
	      "Records that could not be written to the JSONL file.", x->jsonl_failed);
}

static void network(struct rp_expo *e, const struct rp_prom *p, const struct rp_stats *s)
{
	static const char *const proto[] = { "tls", "http2", "other", "io_uring" };
	const uint64_t unobserved[] = { s->unobserved_tls, s->unobserved_http2, s->unobserved_other,
					s->unobserved_io_uring };
	static const char *const reason[] = { "retransmitted", "no_sample" };
	const uint64_t untrusted[] = { s->handshakes_untrusted[RP_RTT_RETRANS],
				       s->handshakes_untrusted[RP_RTT_NO_SAMPLE] };
	static const char *const seen[RP_PROTO_COUNT] = {
		[RP_PROTO_UNKNOWN] = "unknown", [RP_PROTO_HTTP1] = "http1",
		[RP_PROTO_TLS] = "tls",		[RP_PROTO_HTTP2] = "http2",
		[RP_PROTO_OTHER] = "other",	[RP_PROTO_MIDSTREAM] = "midstream",
	};

	rp_expo_family(
		e, "reqprobe_handshake_rtt_seconds", RP_EXPO_HISTOGRAM,
		"The kernel's own round-trip sample of the TCP handshake, one for each connection accepted.");
	rp_expo_hist(e, NULL, 0, &rtt_scale, &p->rtt);
	labelled(
		e, "reqprobe_handshakes_untrusted_total",
		"Handshakes without a usable sample: retransmitted SYN or SYN-ACK, or none taken (SYN cookies, fast open).",
		"reason", reason, untrusted, N(untrusted));
	plain(e, "reqprobe_connections", GAUGE, "Server-side connections open now.",
	      s->connections);
	labelled(e, "reqprobe_connections_classified_total",
		 "Connections by what their first bytes are.", "protocol", seen, s->conns_by_proto,
		 RP_PROTO_COUNT);
	labelled(
		e, "reqprobe_unobserved_connections_total",
		"Connections whose requests can't be seen, by protocol; io_uring: ended without a byte seen in a process that has one.",
		"protocol", proto, unobserved, N(unobserved));
}

static void hooks(struct rp_expo *e, const struct rp_stats *s, const struct rp_engine *t)
{
	if (!t || !t->n_hooks)
		return;
	rp_expo_family(e, "reqprobe_hook_hits_total", COUNTER,
		       "Entries of hooked engine functions.");
	for (size_t i = 0; i < t->n_hooks && i < RP_MAX_HOOKS; i++) {
		uint64_t sum = 0;
		bool again = false;

		/* variants of one function share its plain name: one series */
		for (size_t j = 0; j < t->n_hooks && j < RP_MAX_HOOKS; j++) {
			if (strcmp(t->hooks[i].function, t->hooks[j].function))
				continue;
			again |= j < i;
			sum += s->hook_hits[j];
		}
		if (!again)
			rp_expo_u64(e, &(struct rp_label){ "hook", t->hooks[i].function }, 1, sum);
	}
}

static void own_cost(struct rp_expo *e, const struct rp_stats *s, const struct rp_prom_process *x)
{
	/* programs of one name (several objects) share a series, too */
	rp_expo_family(
		e, "reqprobe_bpf_run_seconds_total", COUNTER,
		"Time spent in a BPF program, in the traced process: estimated from the second in twenty that the kernel accounts.");
	for (int which = 0; which < 2; which++) {
		if (which)
			rp_expo_family(e, "reqprobe_bpf_runs_total", COUNTER,
				       "Runs of a BPF program, estimated in the same way.");
		for (size_t i = 0; i < x->n_progs; i++) {
			const struct rp_label l = { "program", x->progs[i].name };
			uint64_t sum = 0;
			bool again = false;

			for (size_t j = 0; j < x->n_progs; j++) {
				if (strcmp(x->progs[i].name, x->progs[j].name))
					continue;
				again |= j < i;
				sum += which ? x->progs[j].run_cnt : x->progs[j].run_ns;
			}
			if (again)
				continue;
			if (which)
				rp_expo_u64(e, &l, 1, sum);
			else
				rp_expo_seconds(e, &l, 1, sum);
		}
	}
	plain(e, "reqprobe_ring_backlog_bytes", GAUGE, "Bytes waiting in the ring buffer.",
	      x->ring_backlog_bytes);
	plain(e, "reqprobe_timeline_memory_bytes", GAUGE, "Memory held for requests in flight.",
	      s->memory);
	plain(e, "reqprobe_timeline_events_total", COUNTER, "Events the daemon has worked off.",
	      s->events);
	rp_expo_family(e, "process_cpu_seconds_total", COUNTER,
		       "User and system CPU time of the daemon.");
	rp_expo_double(e, NULL, 0, x->cpu_seconds);
	plain(e, "process_resident_memory_bytes", GAUGE, "Resident memory of the daemon.",
	      x->resident_bytes);
	if (x->start_seconds > 0) {
		rp_expo_family(e, "process_start_time_seconds", GAUGE,
			       "Start of the daemon since the epoch.");
		rp_expo_double(e, NULL, 0, x->start_seconds);
	}
	if (x->max_fds) {
		plain(e, "process_open_fds", GAUGE, "Open file descriptors of the daemon.",
		      x->open_fds);
		plain(e, "process_max_fds", GAUGE, "How many it may open.", x->max_fds);
	}
	plain(e, "reqprobe_lines_dropped_total", COUNTER,
	      "Lines for people (stderr, terminal) that nobody read in time.", x->lines_dropped);
	if (x->http) {
		labelled(
			e, "reqprobe_metrics_clients_cut_total",
			"Clients of this page that were cut off: did not take it in time (slow), while too much of it was held for slow ones (memory), or for the place of a newer one (connections).",
			"reason", rp_httpd_cut_names, x->http->cut, RP_HTTPD_CUT_COUNT);
		plain(e, "reqprobe_metrics_held_bytes", GAUGE,
		      "Bytes of this page that clients have not yet taken.", x->http->held_bytes);
	}
}

char *rp_prom_render(struct rp_prom *p, const struct rp_stats *s, const struct rp_prom_process *x,
		     size_t *len)
{
	static const char *const direction[] = { "input", "output" };
	const uint64_t tokens[] = { s->tokens_prompt, s->tokens_completion };
	const uint64_t unknown[] = { s->unknown_prompt, s->unknown_completion };
	static const char *const what[] = { "request", "response" };
	/* a counter may not go back */
	const uint64_t bytes[] = { s->bytes_rx + s->proxied_rx, s->bytes_tx + s->proxied_tx };
	struct rp_buf b = { 0 };
	struct rp_expo e = { .b = &b, .format = x->format };
	struct rp_label version = { "version", RP_VERSION };
	struct rp_label engine = { "engine", x->engine ? x->engine : "unknown" };

	rp_expo_family(&e, "reqprobe_build_info", GAUGE,
		       "Version of reqprobe; the value is always 1.");
	rp_expo_u64(&e, &version, 1, 1);
	rp_expo_family(&e, "reqprobe_engine_info", GAUGE,
		       "Engine that is watched; the value is always 1.");
	rp_expo_u64(&e, &engine, 1, 1);
	requests(&e, p, s);
	request_hists(&e, p);
	gap_hists(&e, p);
	cores(&e, p, s);
	messages(&e, s);
	labelled(
		&e, "reqprobe_tokens_total",
		"Tokens of prompts (input) and of completions (output), by the best source at hand.",
		"direction", direction, tokens, 2);
	labelled(
		&e, "reqprobe_requests_tokens_unknown_total",
		"Finished requests whose tokens nobody told, or not all of them: reqprobe_tokens_total lacks those. Not of requests refused with a status 4xx.",
		"direction", direction, unknown, 2);
	labelled(&e, "reqprobe_bytes_total",
		 "Bytes of inference requests and responses on the socket.", "direction", what,
		 bytes, 2);
	network(&e, p, s);
	loss(&e, p, s, x);
	hooks(&e, s, x->table);
	own_cost(&e, s, x);
	if (x->more)
		x->more(x->ctx, &e);
	rp_expo_end(&e);

	rp_buf_put(&b, "", 1);
	if (b.oom) {
		free(b.p);
		return NULL;
	}
	*len = b.n - 1;
	return b.p;
}
