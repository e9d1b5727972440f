// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A histogram takes only what can be trusted, as on /metrics: a null gives no sample,
 * a record that a loss may have touched (partial, lost_events) gives none at all.
 *
 * Each histogram is there three times: the live one, its copy for the encoder, and for
 * delta temporality what the receiver has taken. A delta is the difference of the last
 * two, so that nothing is lost while the receiver is away: the next one is longer.
 */
#include "otlp/metrics.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/exphist.h"
#include "sink/name.h"
#include "source/live.h"

/* ---- what there is ---- */

/* gen_ai-metrics.md: gen_ai.server.request.duration, .time_to_first_token,
 * .time_per_output_token; http-metrics.md: http.server.request.duration */
static const double duration_bounds[] = { 0.01, 0.02, 0.04, 0.08,  0.16,  0.32,	 0.64,
					  1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92 };
static const double ttft_bounds[] = { 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
				      0.25,  0.5,   0.75, 1,	2.5,  5,    7.5,  10 };
static const double tpot_bounds[] = { 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
				      0.3,  0.4,   0.5,	 0.75,	1,   2.5 };
static const double http_bounds[] = { 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25,
				      0.5,   0.75, 1,	  2.5,	5,     7.5, 10 };
/* as on /metrics: vLLM's, with finer steps at the low end */
static const double request_bounds[] = { 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08,
					 0.1,	 0.25,	 0.5,	0.75,  1,    2.5,  5,	 7.5,  10,
					 20,	 40,	 80,	160,   320,  640,  1280, 2560 };
static const double gap_bounds[] = {
	0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4,
	0.5,	0.75,	1,     2.5,    5,     7.5,  10,	   20,	 40,	80,  160,  640, 2560
};
static const double rtt_bounds[] = { 0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001,
				     0.0025,  0.005,	0.01,	 0.025,	 0.05,	  0.1,	  0.25,
				     0.5,     1,	2.5,	 5,	 10 };
static const double batch_bounds[] = { 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096 };
/* gen_ai.client.token.usage's: powers of 4 */
static const double token_bounds[] = { 1,     4,     16,     64,      256,     1024,	 4096,
				       16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864 };

#define N(a) (sizeof(a) / sizeof(*(a)))
#define MAX_BOUNDS 27

enum kind { K_GENAI, K_HTTP, K_GAP, K_STEP, K_RTT, K_COUNT };

/* A series has one slot for each metric of its kind. */
enum {
	G_DURATION,
	G_TTFT,
	G_TPOT,
	G_QUEUE,
	G_PREFILL,
	G_DECODE,
	G_BEFORE,
	G_AFTER,
	G_PREEMPTED,
	G_REQUEUE,
	G_INPUT,
	G_OUTPUT,
	G_COUNT
};
enum { S_TIME, S_TOKENS, S_REQUESTS, S_COUNT };
enum { GAP_TOKEN, GAP_CHUNK, GAP_COUNT };
#define MAX_SLOTS G_COUNT

struct metric {
	const char *name, *unit, *what;
	enum kind kind;
	unsigned slot;
	const double *bounds, *extended;
	uint8_t n, n_extended;
};

#define B(std, ext) std, ext, N(std), N(ext)
static const struct metric metrics[] = {
	{ "gen_ai.server.request.duration", "s",
	  "Last byte of the request read to last byte of the response.", K_GENAI, G_DURATION,
	  B(duration_bounds, request_bounds) },
	{ "gen_ai.server.time_to_first_token", "s",
	  "Time to generate first token for successful responses.", K_GENAI, G_TTFT,
	  B(ttft_bounds, request_bounds) },
	{ "gen_ai.server.time_per_output_token", "s",
	  "Time per output token generated after the first token, for successful responses.",
	  K_GENAI, G_TPOT, B(tpot_bounds, gap_bounds) },
	{ "http.server.request.duration", "s", "Duration of HTTP server requests.", K_HTTP, 0,
	  B(http_bounds, request_bounds) },
	{ "reqprobe.queue_time", "s", "Queued to first scheduled, in the engine.", K_GENAI, G_QUEUE,
	  B(request_bounds, request_bounds) },
	{ "reqprobe.prefill_time", "s", "First scheduled to first token, in the engine.", K_GENAI,
	  G_PREFILL, B(request_bounds, request_bounds) },
	{ "reqprobe.decode_time", "s", "First to last token, in the engine, of complete requests.",
	  K_GENAI, G_DECODE, B(request_bounds, request_bounds) },
	{ "reqprobe.frontend_before", "s", "Last byte of the request read to queued in the engine.",
	  K_GENAI, G_BEFORE, B(request_bounds, request_bounds) },
	{ "reqprobe.frontend_after_first_token", "s",
	  "First token in the engine to its text handed to the socket.", K_GENAI, G_AFTER,
	  B(request_bounds, request_bounds) },
	{ "reqprobe.preempted_time", "s",
	  "Preempted to scheduled again, of requests that were preempted.", K_GENAI, G_PREEMPTED,
	  B(request_bounds, request_bounds) },
	{ "reqprobe.requeue_time", "s",
	  "Queued again to scheduled again, of requests that were queued again.", K_GENAI,
	  G_REQUEUE, B(request_bounds, request_bounds) },
	{ "reqprobe.input_tokens", "{token}", "Tokens of a prompt.", K_GENAI, G_INPUT,
	  B(token_bounds, token_bounds) },
	{ "reqprobe.output_tokens", "{token}", "Tokens of a completion.", K_GENAI, G_OUTPUT,
	  B(token_bounds, token_bounds) },
	{ "reqprobe.inter_token_latency", "s",
	  "Time between consecutive tokens of one answer; k tokens after a gap are k parts of it.",
	  K_GAP, GAP_TOKEN, B(gap_bounds, gap_bounds) },
	{ "reqprobe.inter_chunk_latency", "s",
	  "Time between consecutive events with generated text of one response.", K_GAP, GAP_CHUNK,
	  B(gap_bounds, gap_bounds) },
	{ "reqprobe.handshake_rtt", "s",
	  "The kernel's round-trip sample of each connection's TCP handshake.", K_RTT, 0,
	  B(rtt_bounds, rtt_bounds) },
	{ "reqprobe.step", "s", "One step of the engine's scheduler to the next, while busy.",
	  K_STEP, S_TIME, B(gap_bounds, gap_bounds) },
	{ "reqprobe.step_tokens", "{token}", "Tokens generated in one step.", K_STEP, S_TOKENS,
	  B(batch_bounds, batch_bounds) },
	{ "reqprobe.step_requests", "{request}", "Requests with an output in one step.", K_STEP,
	  S_REQUESTS, B(batch_bounds, batch_bounds) },
};
#undef B
#define N_METRICS N(metrics)

static const unsigned slots_of[K_COUNT] = { G_COUNT, 1, GAP_COUNT, S_COUNT, 1 };

/* ---- state ---- */

#define EXEMPLARS 4 /* of one histogram and interval */

struct exemplar {
	int64_t time;
	double value;
	uint8_t trace[16], span[8];
	bool traced, client; /* client: the trace is not of our making */
	char id[RP_ID_MAX];  /* of the response */
};

struct hist {
	uint64_t count;
	double sum, min, max;
	double imin, imax;   /* since the last snapshot that was taken */
	bool pending;	     /* copy: not yet taken */
	unsigned n_ex;	     /* slots of ex in use: bits */
	struct exemplar *ex; /* EXEMPLARS, of requests only; else NULL */
	union {
		uint64_t bucket[MAX_BOUNDS + 1];
		struct rp_exphist e;
	}; /* last: only as much as needed is there */
};

struct slot {
	struct hist *live, *taken;
	_Atomic(struct hist *) copy; /* made while the encoder may be looking */
	int64_t taken_at;
};

/* Attributes, as they are sent: what is written alike is one series. Zero what is not
 * used: compared as bytes. */
struct key {
	uint32_t kind;
	uint32_t overflow;
	int64_t index; /* of an engine core */
	uint32_t pid, pad;
	uint16_t status, family, port;
	uint8_t op, scope;
	uint8_t addr[16];
	char method[RP_METHOD_MAX];
	char request_model[RP_MODEL_MAX], response_model[RP_MODEL_MAX];
	char error[72];
	char route[RP_PATH_MAX];
	char engine[32];
};
_Static_assert(sizeof(struct key) % 8 == 0, "hashed by words");

struct series {
	struct key key;
	struct slot slot[MAX_SLOTS];
};

#define STATUS_MAX 600

/* What comes from the timeline's own counters. */
struct totals {
	struct rp_stats st;
	uint64_t requests[RP_END_COUNT][STATUS_MAX];
	int64_t start, now;
};

/* What the server accepted. */
struct names {
	char (*v)[RP_PATH_MAX];
	uint32_t n, most;
};
#define MAX_ROUTES 32

struct rp_otlp_metrics {
	const struct rp_otlp_config *c;
	bool delta_hist, delta_sum;
	size_t hist_size;
	/* the feeding thread's */
	struct series **all; /* in order of their making: the encoder reads the first n_copy */
	uint32_t n, n_kind[K_COUNT], cap;
	uint32_t *table; /* index + 1 into all; open addressing */
	uint32_t mask;
	struct series *last[GAP_COUNT]; /* found last for a gap: tokens come in runs */
	struct series *other[K_COUNT];	/* overflow */
	struct names models, routes;
	const struct metric *def[K_COUNT][MAX_SLOTS];
	uint64_t requests[RP_END_COUNT][STATUS_MAX];
	int64_t wall; /* newest instant told, ns of CLOCK_REALTIME */
	_Atomic uint64_t overflow;
	/* the copy */
	struct totals copy, taken;
	uint32_t n_copy;
};

struct rp_otlp_metrics *rp_otlp_metrics_new(const struct rp_otlp_config *c)
{
	struct rp_otlp_metrics *m = calloc(1, sizeof(*m));
	uint32_t slots = 1;

	if (!m)
		return NULL;
	m->c = c;
	m->delta_hist = c->temporality != RP_OTLP_CUMULATIVE;
	m->delta_sum = c->temporality == RP_OTLP_DELTA;
	m->hist_size = c->exponential ?
			       sizeof(struct hist) :
			       offsetof(struct hist, bucket) + sizeof(((struct hist *)0)->bucket);
	m->cap = c->max_series * K_COUNT;
	while (slots < m->cap * 2)
		slots *= 2;
	m->mask = slots - 1;
	m->all = calloc(m->cap, sizeof(struct series *));
	m->table = calloc(slots, sizeof(*m->table));
	m->models.most = c->max_series;
	m->routes.most = MAX_ROUTES;
	m->models.v = calloc(m->models.most, sizeof(*m->models.v));
	m->routes.v = calloc(m->routes.most, sizeof(*m->routes.v));
	for (size_t i = 0; i < N_METRICS; i++)
		m->def[metrics[i].kind][metrics[i].slot] = &metrics[i];
	if (!m->all || !m->table || !m->models.v || !m->routes.v) {
		rp_otlp_metrics_free(m);
		return NULL;
	}
	return m;
}

static void hist_free(struct hist *h)
{
	if (h)
		free(h->ex);
	free(h);
}

void rp_otlp_metrics_free(struct rp_otlp_metrics *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n; i++) {
		for (unsigned s = 0; s < MAX_SLOTS; s++) {
			hist_free(m->all[i]->slot[s].live);
			hist_free(m->all[i]->slot[s].copy);
			hist_free(m->all[i]->slot[s].taken);
		}
		free(m->all[i]);
	}
	free(m->all);
	free(m->table);
	free(m->models.v);
	free(m->routes.v);
	free(m);
}

uint64_t rp_otlp_metrics_overflow(const struct rp_otlp_metrics *m)
{
	return atomic_load_explicit(&m->overflow, memory_order_relaxed);
}

uint32_t rp_otlp_metrics_series(const struct rp_otlp_metrics *m)
{
	return m->n;
}

static uint64_t hash(const struct key *k)
{
	uint64_t h = 0x9e3779b97f4a7c15u, w;

	for (size_t i = 0; i < sizeof(*k); i += 8) {
		memcpy(&w, (const char *)k + i, 8);
		h = (h ^ w) * 0xff51afd7ed558ccdu;
		h ^= h >> 32;
	}
	return h;
}

static struct series *series_new(struct rp_otlp_metrics *m, const struct key *k, uint32_t at)
{
	struct series *s = m->n < m->cap ? calloc(1, sizeof(*s)) : NULL;

	if (!s)
		return NULL;
	s->key = *k;
	m->all[m->n++] = s;
	m->table[at] = m->n;
	m->n_kind[k->kind]++;
	return s;
}

/* The one place of a kind is kept for what has no place of its own. NULL: no memory. */
static struct series *series_of(struct rp_otlp_metrics *m, const struct key *k)
{
	uint32_t at = (uint32_t)hash(k) & m->mask;
	struct key rest = { .kind = k->kind, .overflow = 1 };

	for (; m->table[at]; at = (at + 1) & m->mask)
		if (!memcmp(&m->all[m->table[at] - 1]->key, k, sizeof(*k)))
			return m->all[m->table[at] - 1];
	if (m->n_kind[k->kind] + 1 < m->c->max_series)
		return series_new(m, k, at);
	if (!m->other[k->kind]) {
		for (at = (uint32_t)hash(&rest) & m->mask; m->table[at]; at = (at + 1) & m->mask)
			;
		m->other[k->kind] = series_new(m, &rest, at);
	}
	return m->other[k->kind];
}

static const double *bounds(const struct rp_otlp_metrics *m, const struct metric *d, unsigned *n)
{
	*n = m->c->extended ? d->n_extended : d->n;
	return m->c->extended ? d->extended : d->bounds;
}

static struct hist *hist_new(const struct rp_otlp_metrics *m, bool with_exemplars)
{
	struct hist *h = calloc(1, m->hist_size);

	if (!h)
		return NULL;
	h->imin = h->imax = (double)NAN;
	if (m->c->exponential)
		rp_exphist_init(&h->e, RP_EXPHIST_BUCKETS);
	if (with_exemplars && m->c->exemplars != RP_OTLP_EX_OFF) {
		h->ex = calloc(EXEMPLARS, sizeof(*h->ex));
		if (!h->ex) {
			free(h);
			return NULL;
		}
	}
	return h;
}

/* What an observation leaves beside its value. */
struct context {
	const struct rp_record *r;
	const struct rp_otlp_trace *t;
};

static void exemplar(const struct rp_otlp_metrics *m, struct hist *h, unsigned which, double v,
		     const struct context *c)
{
	bool traced = c->t->sampled || (c->t->has_parent && c->t->parent_sampled);
	struct exemplar *e;

	if (!h->ex || (m->c->exemplars == RP_OTLP_TRACE_BASED && !traced))
		return;
	e = &h->ex[which % EXEMPLARS];
	if ((h->n_ex >> which % EXEMPLARS & 1) && e->client && !c->t->has_parent)
		return;
	e->client = c->t->has_parent;
	h->n_ex |= 1u << which % EXEMPLARS;
	e->time = m->wall;
	e->value = v;
	e->traced = c->t->sampled || c->t->has_parent;
	memcpy(e->trace, c->t->trace, sizeof(e->trace));
	memcpy(e->span, c->t->sampled ? c->t->span : c->t->parent, sizeof(e->span));
	memcpy(e->id, c->r->id, sizeof(e->id));
}

static void observe(struct rp_otlp_metrics *m, struct series *s, unsigned slot, double v,
		    uint64_t times, const struct context *c)
{
	const double *b;
	struct slot *p;
	struct hist *h;
	unsigned i = 0, n;

	if (!s || !(v >= 0) || !times)
		return;
	p = &s->slot[slot];
	if (!p->live) {
		/* both at once: a snapshot then has nothing to make */
		h = hist_new(m, c != NULL);
		p->live = h ? hist_new(m, c != NULL) : NULL;
		if (!p->live) {
			hist_free(h);
			return;
		}
		atomic_store(&p->copy, h);
	}
	if (s->key.overflow)
		atomic_fetch_add_explicit(&m->overflow, times, memory_order_relaxed);
	h = p->live;
	if (!h->count || v < h->min)
		h->min = v;
	if (!h->count || v > h->max)
		h->max = v;
	/* NAN at first: no comparison holds */
	if (!(h->imin <= v))
		h->imin = v;
	if (!(h->imax >= v))
		h->imax = v;
	h->count += times;
	h->sum += v * (double)times;
	if (m->c->exponential) {
		rp_exphist_add(&h->e, v, times);
		i = (unsigned)h->count;
	} else {
		b = bounds(m, m->def[s->key.kind][slot], &n);
		while (i < n && v > b[i])
			i++;
		h->bucket[i] += times;
		if (c)
			i = i * EXEMPLARS / (n + 1);
	}
	if (c)
		exemplar(m, h, i, v, c);
}

/* ---- attributes ---- */

const char *rp_otlp_operation(enum rp_operation op)
{
	switch (op) {
	case RP_OP_CHAT:
	case RP_OP_MESSAGES:
	case RP_OP_RESPONSES:
		return "chat";
	case RP_OP_COMPLETION:
	case RP_OP_INFILL:
		return "text_completion";
	case RP_OP_EMBEDDINGS:
		return "embeddings";
	case RP_OP_GENERATE:
		return "generate_content";
	default: /* none of the conventions' words */
		return rp_operation_names[op];
	}
}

const char *rp_otlp_provider(const struct rp_otlp_config *c, const char *engine)
{
	if (c->provider)
		return c->provider;
	return engine && *engine && strcmp(engine, "generic") ? engine : "_OTHER";
}

void rp_otlp_address(uint16_t family, const uint8_t addr[16], char buf[64])
{
	if ((family != AF_INET && family != AF_INET6) || !inet_ntop(family, addr, buf, 64))
		buf[0] = '\0';
}

/* Of the operations with the same word, the first. */
static uint8_t same_word(enum rp_operation op)
{
	int i = 0;

	while (i < (int)op &&
	       strcmp(rp_otlp_operation((enum rp_operation)i), rp_otlp_operation(op)))
		i++;
	return (uint8_t)i;
}

/* A word that a program made, not a sentence that a person or a prompt did. */
static bool is_word(const char *s)
{
	for (const char *p = s; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("_.-:", *p))
			return false;
	return *s != '\0';
}

const char *rp_otlp_error_type(const struct rp_record *r, char buf[72])
{
	if (r->status >= 400) {
		snprintf(buf, 72, "%d", r->status);
		return buf;
	}
	if (r->has_error)
		snprintf(buf, 72, "%s", is_word(r->error_type) ? r->error_type : "_OTHER");
	else if (r->end == RP_END_COMPLETE)
		return NULL;
	else if (r->end == RP_END_CLIENT_DISCONNECT || r->end == RP_END_SERVER_CLOSE)
		snprintf(buf, 72, "%s", rp_end_names[r->end]);
	else
		snprintf(buf, 72, "_OTHER");
	return buf;
}

/*
 * Names that clients make up and the server refuses must not use up the series: one is
 * told once an answer of status 2xx was given under it.
 */
static bool name_known(struct names *l, const char *name, bool accepted)
{
	if (!*name)
		return false;
	for (uint32_t i = 0; i < l->n; i++)
		if (!strcmp(l->v[i], name))
			return true;
	if (accepted && l->n < l->most)
		strncpy(l->v[l->n++], name, RP_PATH_MAX - 1);
	return accepted;
}

#define COPY(to, from) snprintf(to, sizeof(to), "%s", from)

static double seconds(int64_t ns)
{
	return (double)ns / 1e9;
}

static void figure(struct rp_otlp_metrics *m, struct series *s, unsigned slot,
		   const struct rp_value *v, bool time, const struct context *c)
{
	if (v->known)
		observe(m, s, slot, time ? seconds(v->i) : (double)v->i, 1, c);
}

static void gen_ai(struct rp_otlp_metrics *m, const struct rp_record *r, const char *error,
		   bool accepted, const struct context *c)
{
	const struct rp_value *v = r->v, *n = &v[RP_FIELD_TOK_COMPLETION];
	bool whole = !(r->flags & RP_FLAG_TRUNCATED);
	char model[RP_MODEL_MAX];
	struct key k;
	struct series *s;

	memset(&k, 0, sizeof(k));
	k.kind = K_GENAI;
	k.op = same_word(r->operation);
	if (!m->c->provider)
		COPY(k.engine, rp_otlp_provider(m->c, r->engine_name));
	rp_name_canonical(model, sizeof(model), r->request_model);
	if (name_known(&m->models, model, accepted))
		COPY(k.request_model, model);
	rp_name_canonical(model, sizeof(model), r->model);
	if (accepted && r->model_told)
		COPY(k.response_model, model);
	if (r->family == AF_INET || r->family == AF_INET6) {
		k.family = r->family;
		k.port = r->lport;
		memcpy(k.addr, r->laddr, sizeof(k.addr));
	}
	s = series_of(m, &k);
	if (!error) {
		figure(m, s, G_DURATION, &v[RP_FIELD_S_DURATION], true, c);
		if (whole)
			figure(m, s, G_TTFT, &v[RP_FIELD_S_TTFT], true, c);
		/* (request duration - time to first token) / output tokens after the first */
		if (whole && v[RP_FIELD_S_DURATION].known && v[RP_FIELD_S_TTFT].known && n->known &&
		    n->i > 1 && r->choices <= 1)
			observe(m, s, G_TPOT,
				seconds(v[RP_FIELD_S_DURATION].i - v[RP_FIELD_S_TTFT].i) /
					(double)(n->i - 1),
				1, c);
	}
	figure(m, s, G_QUEUE, &v[RP_FIELD_P_QUEUE], true, c);
	figure(m, s, G_PREFILL, &v[RP_FIELD_P_PREFILL], true, c);
	if (r->end == RP_END_COMPLETE)
		figure(m, s, G_DECODE, &v[RP_FIELD_P_DECODE], true, c);
	figure(m, s, G_BEFORE, &v[RP_FIELD_FE_BEFORE], true, c);
	if (whole)
		figure(m, s, G_AFTER, &v[RP_FIELD_FE_FIRST], true, c);
	if (v[RP_FIELD_SCH_PREEMPTIONS].known && v[RP_FIELD_SCH_PREEMPTIONS].i)
		figure(m, s, G_PREEMPTED, &v[RP_FIELD_SCH_PREEMPTED], true, c);
	if (v[RP_FIELD_SCH_REQUEUES].known && v[RP_FIELD_SCH_REQUEUES].i)
		figure(m, s, G_REQUEUE, &v[RP_FIELD_SCH_REQUEUE], true, c);
	figure(m, s, G_INPUT, &v[RP_FIELD_TOK_PROMPT], false, c);
	figure(m, s, G_OUTPUT, n, false, c);
	if (error) {
		COPY(k.error, error);
		s = series_of(m, &k);
		figure(m, s, G_DURATION, &v[RP_FIELD_S_DURATION], true, c);
	}
}

static void http(struct rp_otlp_metrics *m, const struct rp_record *r, const char *error,
		 bool accepted, const struct context *c)
{
	const struct rp_value *receive = &r->v[RP_FIELD_P_RECEIVE];
	const struct rp_value *rest = &r->v[RP_FIELD_S_DURATION];
	char method[RP_METHOD_MAX], route[RP_PATH_MAX];
	struct key k;

	if (!receive->known || !rest->known)
		return;
	memset(&k, 0, sizeof(k));
	k.kind = K_HTTP;
	k.status = (uint16_t)r->status;
	rp_name_canonical(method, sizeof(method), r->method);
	COPY(k.method, method);
	rp_name_canonical(route, sizeof(route), r->path);
	if (name_known(&m->routes, route, accepted))
		COPY(k.route, route);
	/* of a server, a 4xx is the client's error (HTTP conventions) */
	if (error && !(r->status >= 400 && r->status < 500))
		COPY(k.error, error);
	observe(m, series_of(m, &k), 0, seconds(receive->i + rest->i), 1, c);
}

void rp_otlp_metrics_record(struct rp_otlp_metrics *m, const struct rp_record *r,
			    const struct rp_otlp_trace *t)
{
	struct context c = { r, t };
	const char *error;
	char buf[72];
	bool accepted;

	if (r->t_end != RP_NONE)
		m->wall = r->t_end + r->wall_offset;
	else if (r->t_start != RP_NONE && r->t_start + r->wall_offset > m->wall)
		m->wall = r->t_start + r->wall_offset;
	m->requests[r->end][r->status > 0 && r->status < STATUS_MAX ? r->status : 0]++;
	if (r->flags & (RP_FLAG_PARTIAL | RP_FLAG_LOST_EVENTS))
		return;
	error = rp_otlp_error_type(r, buf);
	accepted = r->status >= 200 && r->status < 300;
	gen_ai(m, r, error, accepted, &c);
	http(m, r, error, accepted, &c);
}

void rp_otlp_metrics_gap(struct rp_otlp_metrics *m, const struct rp_gap_info *g)
{
	unsigned which = g->chunk ? GAP_CHUNK : GAP_TOKEN;
	uint8_t scope = g->chunk || g->source == RP_ITL_SERVER;
	struct series *s = m->last[which];
	char model[RP_MODEL_MAX];
	struct key k;

	rp_name_canonical(model, sizeof(model), g->model ? g->model : "");
	if (!name_known(&m->models, model, !g->asked))
		model[0] = '\0';
	if (!s || s->key.scope != scope || strcmp(s->key.response_model, model)) {
		memset(&k, 0, sizeof(k));
		k.kind = K_GAP;
		k.scope = scope;
		COPY(k.response_model, model);
		s = series_of(m, &k);
		if (s && !s->key.overflow)
			m->last[which] = s;
	}
	observe(m, s, which, seconds(g->gap_ns), g->n, NULL);
}

void rp_otlp_metrics_handshake(struct rp_otlp_metrics *m, int64_t rtt_us)
{
	struct key k = { .kind = K_RTT };

	if (rtt_us >= 0)
		observe(m, series_of(m, &k), 0, (double)rtt_us / 1e6, 1, NULL);
}

void rp_otlp_metrics_step(struct rp_otlp_metrics *m, const struct rp_step_info *i)
{
	struct series *s;
	struct key k;

	memset(&k, 0, sizeof(k));
	k.kind = K_STEP;
	k.index = i->index;
	k.pid = i->pid;
	s = series_of(m, &k);
	if (i->step_ns != RP_NONE)
		observe(m, s, S_TIME, seconds(i->step_ns), 1, NULL);
	if (i->cut) /* lower bounds are no samples */
		return;
	observe(m, s, S_TOKENS, i->tokens, 1, NULL);
	observe(m, s, S_REQUESTS, i->requests, 1, NULL);
}

/* ---- the copy ---- */

static void hist_copy(const struct rp_otlp_metrics *m, struct hist *to, struct hist *from)
{
	struct exemplar *ex = to->ex;
	double imin = from->imin, imax = from->imax;

	/* extremes of an interval that was not taken belong to the next; NAN is none */
	if (to->pending) {
		imin = fmin(imin, to->imin);
		imax = fmax(imax, to->imax);
	}
	if (ex && from->n_ex)
		memcpy(ex, from->ex, EXEMPLARS * sizeof(*ex));
	memcpy(to, from, m->hist_size);
	to->ex = ex;
	to->imin = imin;
	to->imax = imax;
	to->pending = true;
	from->n_ex = 0;
	from->imin = from->imax = (double)NAN;
}

void rp_otlp_metrics_snapshot(struct rp_otlp_metrics *m, const struct rp_stats *s, int64_t start,
			      int64_t now)
{
	for (uint32_t i = 0; i < m->n; i++)
		for (unsigned k = 0; k < slots_of[m->all[i]->key.kind]; k++)
			if (m->all[i]->slot[k].live)
				hist_copy(m, m->all[i]->slot[k].copy, m->all[i]->slot[k].live);
	m->n_copy = m->n;
	m->copy.st = *s;
	memcpy(m->copy.requests, m->requests, sizeof(m->copy.requests));
	m->copy.start = start;
	m->copy.now = now > start ? now : start + 1;
}

/* ---- encoding: histograms ---- */

static void attributes(const struct rp_otlp_metrics *m, struct rp_ow *w, uint32_t f,
		       const struct series *s)
{
	const struct key *k = &s->key;
	char addr[64];

	rp_ow_list(w, "attributes");
	if (k->overflow) {
		rp_ow_attr_bool(w, f, "otel.metric.overflow", true);
		rp_ow_list_end(w);
		return;
	}
	switch ((enum kind)k->kind) {
	case K_GENAI:
		rp_ow_attr(w, f, "gen_ai.operation.name",
			   rp_otlp_operation((enum rp_operation)k->op));
		rp_ow_attr(w, f, "gen_ai.provider.name", rp_otlp_provider(m->c, k->engine));
		break;
	case K_HTTP:
		rp_ow_attr(w, f, "http.request.method", k->method);
		rp_ow_attr(w, f, "url.scheme", "http");
		if (k->status)
			rp_ow_attr_i64(w, f, "http.response.status_code", k->status);
		if (k->route[0])
			rp_ow_attr(w, f, "http.route", k->route);
		rp_ow_attr(w, f, "network.protocol.name", "http");
		rp_ow_attr(w, f, "network.protocol.version", "1.1");
		break;
	case K_GAP:
		rp_ow_attr(w, f, "reqprobe.scope", k->scope ? "server" : "engine");
		break;
	case K_STEP:
		rp_ow_attr_i64(w, f, "reqprobe.engine.index", k->index);
		rp_ow_attr_i64(w, f, "process.pid", k->pid);
		break;
	default:
		break;
	}
	if (k->request_model[0])
		rp_ow_attr(w, f, "gen_ai.request.model", k->request_model);
	if (k->response_model[0])
		rp_ow_attr(w, f, "gen_ai.response.model", k->response_model);
	if (k->family) {
		rp_otlp_address(k->family, k->addr, addr);
		rp_ow_attr(w, f, "server.address", addr);
		rp_ow_attr_i64(w, f, "server.port", k->port);
	}
	if (k->error[0])
		rp_ow_attr(w, f, "error.type", k->error);
	rp_ow_list_end(w);
}

static void exemplars(struct rp_ow *w, uint32_t f, const struct hist *h)
{
	size_t item;

	if (!h->ex || !h->n_ex)
		return;
	rp_ow_list(w, "exemplars");
	for (unsigned i = 0; i < EXEMPLARS; i++) {
		const struct exemplar *e = &h->ex[i];

		if (!(h->n_ex >> i & 1))
			continue;
		item = rp_ow_item(w, f);
		if (e->id[0]) {
			rp_ow_list(w, "filteredAttributes");
			rp_ow_attr(w, 7, "gen_ai.response.id", e->id);
			rp_ow_list_end(w);
		}
		rp_ow_fixed64(w, 2, "timeUnixNano", (uint64_t)e->time);
		rp_ow_double(w, 3, "asDouble", e->value);
		if (e->traced) {
			rp_ow_id(w, 4, "spanId", e->span, sizeof(e->span));
			rp_ow_id(w, 5, "traceId", e->trace, sizeof(e->trace));
		}
		rp_ow_end(w, item);
	}
	rp_ow_list_end(w);
}

/* copy - taken, where both have the same scale. */
static void exp_subtract(struct rp_exphist *h, const struct rp_exphist *taken)
{
	struct rp_exphist t = *taken;
	uint32_t first = 0;

	rp_exphist_limit_scale(&t, h->scale);
	for (uint32_t i = 0; i < t.n; i++) {
		int64_t at = (int64_t)t.offset + i - h->offset;

		if (at >= 0 && at < h->n)
			h->bucket[at] -= t.bucket[i];
	}
	h->zero -= t.zero;
	while (h->n && !h->bucket[h->n - 1])
		h->n--;
	while (first < h->n && !h->bucket[first])
		first++;
	h->n -= first;
	h->offset += (int32_t)first;
	memmove(h->bucket, h->bucket + first, h->n * sizeof(*h->bucket));
}

static void buckets(struct rp_ow *w, const struct rp_exphist *e)
{
	size_t mark = rp_ow_begin(w, 8, "positive");

	rp_ow_sint32(w, 1, "offset", e->offset);
	rp_ow_u64s(w, 2, "bucketCounts", e->bucket, e->n);
	rp_ow_end(w, mark);
}

/* False: nothing new since it was taken. */
static bool point(const struct rp_otlp_metrics *m, struct rp_ow *w, const struct metric *d,
		  const struct series *s)
{
	const struct slot *p = &s->slot[d->slot];
	const struct hist *h = p->copy, *t = m->delta_hist ? p->taken : NULL;
	uint64_t count = h->count - (t ? t->count : 0), b[MAX_BOUNDS + 1];
	double sum = h->sum - (t ? t->sum : 0);
	double min = m->delta_hist ? h->imin : h->min, max = m->delta_hist ? h->imax : h->max;
	int64_t start = t ? p->taken_at : m->copy.start;
	struct rp_exphist e;
	const double *bnd;
	unsigned n;
	size_t item;

	if (!count)
		return false;
	if (sum < 0) /* a difference of rounded sums */
		sum = 0;
	item = rp_ow_item(w, 1);
	if (m->c->exponential) {
		e = h->e;
		if (t)
			exp_subtract(&e, &t->e);
		attributes(m, w, 1, s);
		rp_ow_fixed64(w, 2, "startTimeUnixNano", (uint64_t)start);
		rp_ow_fixed64(w, 3, "timeUnixNano", (uint64_t)m->copy.now);
		rp_ow_fixed64(w, 4, "count", count);
		rp_ow_double(w, 5, "sum", sum);
		rp_ow_sint32(w, 6, "scale", e.scale);
		rp_ow_fixed64(w, 7, "zeroCount", e.zero);
		if (e.n)
			buckets(w, &e);
		exemplars(w, 11, h);
		rp_ow_double(w, 12, "min", min);
		rp_ow_double(w, 13, "max", max);
	} else {
		bnd = bounds(m, d, &n);
		for (unsigned i = 0; i <= n; i++)
			b[i] = h->bucket[i] - (t ? t->bucket[i] : 0);
		rp_ow_fixed64(w, 2, "startTimeUnixNano", (uint64_t)start);
		rp_ow_fixed64(w, 3, "timeUnixNano", (uint64_t)m->copy.now);
		rp_ow_fixed64(w, 4, "count", count);
		rp_ow_double(w, 5, "sum", sum);
		rp_ow_fixed64s(w, 6, "bucketCounts", b, n + 1);
		rp_ow_doubles(w, 7, "explicitBounds", bnd, n);
		exemplars(w, 8, h);
		attributes(m, w, 9, s);
		rp_ow_double(w, 11, "min", min);
		rp_ow_double(w, 12, "max", max);
	}
	rp_ow_end(w, item);
	return true;
}

static bool has_point(const struct rp_otlp_metrics *m, const struct metric *d,
		      const struct series *s)
{
	const struct slot *p = &s->slot[d->slot];

	/* one that was made after the copy is empty there */
	return s->key.kind == (uint32_t)d->kind && p->copy &&
	       p->copy->count > (m->delta_hist && p->taken ? p->taken->count : 0);
}

/* ---- encoding: sums and gauges ---- */

struct sums {
	const struct rp_otlp_metrics *m;
	struct rp_ow *w;
	size_t points;
	size_t metric, data;
	bool sum, delta;
};

enum sum_type { COUNTER, UPDOWN, GAUGE };

static void sum_begin(struct sums *x, const char *name, const char *unit, const char *what,
		      enum sum_type type)
{
	x->sum = type != GAUGE;
	x->delta = type == COUNTER && x->m->delta_sum;
	x->metric = rp_ow_item(x->w, 2);
	rp_ow_str(x->w, 1, "name", name);
	rp_ow_str(x->w, 2, "description", what);
	rp_ow_str(x->w, 3, "unit", unit);
	x->data = type == GAUGE ? rp_ow_begin(x->w, 5, "gauge") : rp_ow_begin(x->w, 7, "sum");
	if (x->sum) {
		rp_ow_u32(x->w, 2, "aggregationTemporality", x->delta ? 1 : 2);
		if (type == COUNTER)
			rp_ow_bool(x->w, 3, "isMonotonic", true);
	}
	rp_ow_list(x->w, "dataPoints");
}

static void sum_end(struct sums *x)
{
	rp_ow_list_end(x->w);
	rp_ow_end(x->w, x->data);
	rp_ow_end(x->w, x->metric);
}

static size_t point_begin(struct sums *x)
{
	const struct rp_otlp_metrics *m = x->m;
	size_t item = rp_ow_item(x->w, 1);

	if (x->sum)
		rp_ow_fixed64(x->w, 2, "startTimeUnixNano",
			      (uint64_t)(x->delta && m->taken.now ? m->taken.now : m->copy.start));
	rp_ow_fixed64(x->w, 3, "timeUnixNano", (uint64_t)m->copy.now);
	x->points++;
	return item;
}

/* key may be NULL: no attributes. */
static void sum_point(struct sums *x, uint64_t v, uint64_t taken, const char *key,
		      const char *value)
{
	size_t item = point_begin(x);

	rp_ow_sfixed64(x->w, 6, "asInt", (int64_t)(x->delta ? v - taken : v));
	if (key) {
		rp_ow_list(x->w, "attributes");
		rp_ow_attr(x->w, 7, key, value);
		rp_ow_list_end(x->w);
	}
	rp_ow_end(x->w, item);
}

static void counter(struct sums *x, const char *name, const char *unit, const char *what,
		    uint64_t v, uint64_t taken)
{
	sum_begin(x, name, unit, what, COUNTER);
	sum_point(x, v, taken, NULL, NULL);
	sum_end(x);
}

static void counters(struct sums *x, const char *name, const char *unit, const char *what,
		     const char *key, const char *const *values, const uint64_t *v,
		     const uint64_t *taken, size_t n)
{
	sum_begin(x, name, unit, what, COUNTER);
	for (size_t i = 0; i < n; i++)
		sum_point(x, v[i], taken[i], key, values[i]);
	sum_end(x);
}

static void level(struct sums *x, const char *name, const char *unit, const char *what,
		  enum sum_type type, uint64_t v)
{
	sum_begin(x, name, unit, what, type);
	sum_point(x, v, 0, NULL, NULL);
	sum_end(x);
}

static void request_counts(struct sums *x)
{
	const struct rp_otlp_metrics *m = x->m;

	sum_begin(x, "reqprobe.requests", "{request}",
		  "Finished inference requests by how they ended.", COUNTER);
	for (int e = 0; e < RP_END_COUNT; e++) {
		for (int c = 0; c < STATUS_MAX; c++) {
			uint64_t v = m->copy.requests[e][c], taken = m->taken.requests[e][c];
			size_t item;

			/* one series is there from the start, so that rates have a beginning */
			if (!v && !(e == RP_END_COMPLETE && c == 200))
				continue;
			item = point_begin(x);
			rp_ow_sfixed64(x->w, 6, "asInt", (int64_t)(x->delta ? v - taken : v));
			rp_ow_list(x->w, "attributes");
			rp_ow_attr(x->w, 7, "reqprobe.end", rp_end_names[e]);
			if (c)
				rp_ow_attr_i64(x->w, 7, "http.response.status_code", c);
			rp_ow_list_end(x->w);
			rp_ow_end(x->w, item);
		}
	}
	sum_end(x);
}

static const struct rp_core *core_taken(const struct totals *t, const struct rp_core *c)
{
	static const struct rp_core none;

	for (unsigned i = 0; i < t->st.n_cores && i < RP_MAX_CORES; i++)
		if (t->st.cores[i].pid == c->pid && t->st.cores[i].index == c->index)
			return &t->st.cores[i];
	return &none;
}

enum core_has { HAS_ALWAYS, HAS_PREFIX, HAS_SPEC, HAS_NOW, HAS_KV, HAS_PREEMPTIONS };

static bool core_has(const struct rp_core *c, enum core_has h)
{
	return h == HAS_PREFIX	    ? rp_core_prefix(c) :
	       h == HAS_SPEC	    ? c->spec :
	       h == HAS_NOW	    ? c->stats && !c->gone :
	       h == HAS_KV	    ? (c->stats || !c->log_stats) && !c->gone :
	       h == HAS_PREEMPTIONS ? rp_core_preemptions(c) :
				      true;
}

static void cores(struct sums *x)
{
	static const struct {
		const char *name, *unit, *what;
		size_t at;
		enum sum_type type;
		bool real;
		enum core_has has;
	} fam[] = {
#define CORE(f) offsetof(struct rp_core, f)
		{ "reqprobe.scheduler.requests_running", "{request}",
		  "Requests in the engine's batch, as its scheduler tells.", CORE(running), GAUGE,
		  false, HAS_NOW },
		{ "reqprobe.scheduler.requests_waiting", "{request}",
		  "Requests waiting in the engine, as its scheduler tells.", CORE(waiting), GAUGE,
		  false, HAS_NOW },
		{ "reqprobe.scheduler.kv_cache_usage", "1",
		  "Part of the KV cache in use; log stats off: an estimate from the engine's steps.",
		  CORE(kv_usage), GAUGE, true, HAS_KV },
		{ "reqprobe.scheduler.prefix_cache_queries_tokens", "{token}",
		  "Prompt tokens looked up in the prefix cache.", CORE(prefix_queries), COUNTER,
		  false, HAS_PREFIX },
		{ "reqprobe.scheduler.prefix_cache_hits_tokens", "{token}",
		  "Prompt tokens found in the prefix cache.", CORE(prefix_hits), COUNTER, false,
		  HAS_PREFIX },
		{ "reqprobe.scheduler.preemptions", "{preemption}",
		  "Times the engine took a running request off again; log stats off: an estimate from its steps.",
		  CORE(preemptions), COUNTER, false, HAS_PREEMPTIONS },
		{ "reqprobe.scheduler.spec_drafts", "{draft}", "Speculative decoding: drafts made.",
		  CORE(spec_drafts), COUNTER, false, HAS_SPEC },
		{ "reqprobe.scheduler.spec_draft_tokens", "{token}",
		  "Speculative decoding: tokens drafted.", CORE(spec_draft_tokens), COUNTER, false,
		  HAS_SPEC },
		{ "reqprobe.scheduler.spec_accepted_tokens", "{token}",
		  "Speculative decoding: drafted tokens that were accepted.",
		  CORE(spec_accepted_tokens), COUNTER, false, HAS_SPEC },
		{ "reqprobe.scheduler.steps", "{step}", "Steps of the engine's scheduler.",
		  CORE(steps), COUNTER, false, HAS_ALWAYS },
		{ "reqprobe.scheduler.tokens", "{token}", "Tokens generated in steps.",
		  CORE(tokens), COUNTER, false, HAS_ALWAYS },
		{ "reqprobe.scheduler.outputs", "{output}",
		  "Requests with an output in a step, summed over steps.", CORE(outputs), COUNTER,
		  false, HAS_ALWAYS },
#undef CORE
	};
	const struct rp_stats *s = &x->m->copy.st;
	unsigned n = s->n_cores < RP_MAX_CORES ? s->n_cores : RP_MAX_CORES;

	for (size_t f = 0; f < N(fam); f++) {
		bool begun = false;

		for (unsigned i = 0; i < n; i++) {
			const struct rp_core *c = &s->cores[i], *t = core_taken(&x->m->taken, c);
			size_t item;
			int64_t v, tv;
			double d;

			memcpy(&v, (const char *)c + fam[f].at, sizeof(v));
			memcpy(&tv, (const char *)t + fam[f].at, sizeof(tv));
			memcpy(&d, (const char *)c + fam[f].at, sizeof(d));
			if (!core_has(c, fam[f].has) || (fam[f].real ? !(d >= 0) : v < 0))
				continue;
			if (!begun)
				sum_begin(x, fam[f].name, fam[f].unit, fam[f].what, fam[f].type);
			begun = true;
			item = point_begin(x);
			if (fam[f].real)
				rp_ow_double(x->w, 4, "asDouble", d);
			else
				rp_ow_sfixed64(x->w, 6, "asInt", x->delta ? v - tv : v);
			rp_ow_list(x->w, "attributes");
			rp_ow_attr_i64(x->w, 7, "reqprobe.engine.index", c->index);
			rp_ow_attr_i64(x->w, 7, "process.pid", c->pid);
			rp_ow_list_end(x->w);
			rp_ow_end(x->w, item);
		}
		if (begun)
			sum_end(x);
	}
}

/* Everything that comes from the timeline's counters. Returns the points. */
static size_t rest(const struct rp_otlp_metrics *m, struct rp_ow *w)
{
	static const char *const token_type[] = { "input", "output" };
	static const char *const direction[] = { "receive", "transmit" };
	static const char *const reason[] = { "retransmitted", "no_sample" };
	static const char *const proto[] = { "tls", "http2", "other", "io_uring" };
	const struct rp_stats *s = &m->copy.st, *t = &m->taken.st;
	struct sums x = { .m = m, .w = w };

#define PAIR(a, b) (const uint64_t[]){ s->a, s->b }, (const uint64_t[]){ t->a, t->b }
	request_counts(&x);
	/* found out later that it was proxied: a counter may not go back */
	counter(&x, "reqprobe.requests_started", "{request}", "Inference requests seen to start.",
		s->started + s->proxied, t->started + t->proxied);
	level(&x, "reqprobe.requests_in_flight", "{request}",
	      "Inference requests not yet finished.", UPDOWN, s->in_flight);
	if (s->scheduler_known) {
		level(&x, "reqprobe.requests_waiting", "{request}",
		      "Engine tasks queued and not yet scheduled.", GAUGE, s->waiting);
		level(&x, "reqprobe.requests_running", "{request}",
		      "Engine tasks scheduled and not yet ended.", GAUGE, s->running);
	}
	counter(&x, "reqprobe.requests_not_joined", "{request}",
		"Finished requests without an engine task though hooks are attached.",
		s->not_joined, t->not_joined);
	counters(&x, "reqprobe.tokens", "{token}", "Tokens of prompts and of completions.",
		 "gen_ai.token.type", token_type, PAIR(tokens_prompt, tokens_completion), 2);
	counters(
		&x, "reqprobe.requests_tokens_unknown", "{request}",
		"Finished requests whose tokens nobody told, or not all: reqprobe.tokens lacks them.",
		"gen_ai.token.type", token_type, PAIR(unknown_prompt, unknown_completion), 2);
	counters(&x, "reqprobe.bytes", "By", "Bytes of inference requests and responses.",
		 "network.io.direction", direction,
		 (const uint64_t[]){ s->bytes_rx + s->proxied_rx, s->bytes_tx + s->proxied_tx },
		 (const uint64_t[]){ t->bytes_rx + t->proxied_rx, t->bytes_tx + t->proxied_tx }, 2);
	level(&x, "reqprobe.connections", "{connection}", "Server-side connections open now.",
	      UPDOWN, s->connections);
	counters(&x, "reqprobe.unobserved_connections", "{connection}",
		 "Connections whose requests can't be seen.", "reqprobe.protocol", proto,
		 (const uint64_t[]){ s->unobserved_tls, s->unobserved_http2, s->unobserved_other,
				     s->unobserved_io_uring },
		 (const uint64_t[]){ t->unobserved_tls, t->unobserved_http2, t->unobserved_other,
				     t->unobserved_io_uring },
		 4);
	counters(&x, "reqprobe.handshakes_untrusted", "{handshake}",
		 "Handshakes without a usable round-trip sample.", "reqprobe.reason", reason,
		 PAIR(handshakes_untrusted[RP_RTT_RETRANS], handshakes_untrusted[RP_RTT_NO_SAMPLE]),
		 2);
	counters(&x, "reqprobe.events", "{event}",
		 "Events the kernel side saw, lost ones included.", "reqprobe.class",
		 rp_class_names, s->seen, t->seen, RP_CLASS_COUNT);
	counters(&x, "reqprobe.events_lost", "{event}",
		 "Events lost because the ring buffer was full.", "reqprobe.class", rp_class_names,
		 s->lost, t->lost, RP_CLASS_COUNT);
#undef PAIR
	cores(&x);
	return x.points;
}

/* ---- encoding: the request ---- */

/* One metric's points from *series on; moves *series. Returns the points. */
static size_t histogram(const struct rp_otlp_metrics *m, struct rp_ow *w, const struct metric *d,
			uint32_t *series, size_t most)
{
	size_t points = 0, item = 0, data = 0;

	for (; *series < m->n_copy && points < most; ++*series) {
		const struct series *s = m->all[*series];

		if (!has_point(m, d, s))
			continue;
		if (!points) {
			item = rp_ow_item(w, 2);
			rp_ow_str(w, 1, "name", d->name);
			rp_ow_str(w, 2, "description", d->what);
			rp_ow_str(w, 3, "unit", d->unit);
			data = m->c->exponential ? rp_ow_begin(w, 10, "exponentialHistogram") :
						   rp_ow_begin(w, 9, "histogram");
			rp_ow_u32(w, 2, "aggregationTemporality", m->delta_hist ? 1 : 2);
			rp_ow_list(w, "dataPoints");
		}
		points += point(m, w, d, s);
	}
	if (points) {
		rp_ow_list_end(w);
		rp_ow_end(w, data);
		rp_ow_end(w, item);
	}
	return points;
}

size_t rp_otlp_metrics_encode(struct rp_otlp_metrics *m, struct rp_ow *w, struct rp_otlp_cursor *at,
			      size_t most, rp_otlp_resource_fn resource, void *ctx)
{
	size_t points = 0, all, rm, sm, scope;

	all = rp_ow_begin(w, 0, NULL);
	rp_ow_list(w, "resourceMetrics");
	rm = rp_ow_item(w, 1);
	resource(ctx, w);
	rp_ow_list(w, "scopeMetrics");
	sm = rp_ow_item(w, 2);
	scope = rp_ow_begin(w, 1, "scope");
	rp_ow_str(w, 1, "name", "reqprobe");
	rp_ow_str(w, 2, "version", RP_VERSION);
	rp_ow_end(w, scope);
	rp_ow_list(w, "metrics");
	if (!at->rest) {
		points += rest(m, w);
		at->rest = true;
	}
	while (at->metric < N_METRICS && points < most) {
		points += histogram(m, w, &metrics[at->metric], &at->series, most - points);
		if (at->series >= m->n_copy) {
			at->metric++;
			at->series = 0;
		}
	}
	rp_ow_list_end(w);
	if (m->c->schema_url)
		rp_ow_str(w, 3, "schemaUrl", m->c->schema_url);
	rp_ow_end(w, sm);
	rp_ow_list_end(w);
	if (m->c->schema_url)
		rp_ow_str(w, 3, "schemaUrl", m->c->schema_url);
	rp_ow_end(w, rm);
	rp_ow_list_end(w);
	rp_ow_end(w, all);
	return points;
}

static void take(struct rp_otlp_metrics *m, const struct metric *d, struct series *s)
{
	struct slot *p = &s->slot[d->slot];
	struct exemplar *ex;

	if (!has_point(m, d, s))
		return;
	if (!p->taken)
		p->taken = hist_new(m, false);
	if (!p->taken)
		return; /* sent again with the next: too much rather than too little */
	ex = p->taken->ex;
	memcpy(p->taken, p->copy, m->hist_size);
	p->taken->ex = ex;
	p->taken_at = m->copy.now;
	p->copy->pending = false;
}

void rp_otlp_metrics_commit(struct rp_otlp_metrics *m, const struct rp_otlp_cursor *from,
			    const struct rp_otlp_cursor *to)
{
	if (m->delta_sum && to->rest && !from->rest)
		m->taken = m->copy;
	if (!m->delta_hist)
		return;
	for (unsigned i = from->metric; i <= to->metric && i < N_METRICS; i++) {
		uint32_t first = i == from->metric ? from->series : 0;
		uint32_t end = i == to->metric ? to->series : m->n_copy;

		for (uint32_t s = first; s < end; s++)
			take(m, &metrics[i], m->all[s]);
	}
}
