// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Names and attributes: OpenTelemetry's semantic conventions for generative AI
 * (gen-ai-spans.md) and HTTP servers (http-spans.md). Text of prompts and answers is in
 * no record, so it is in no span.
 */
#include "otlp/spans.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

/* ---- traces ---- */

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* n bytes of lower-case hex. False: not that. */
static bool unhex(const char *s, uint8_t *to, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int a = digit(s[2 * i]), b = a < 0 ? -1 : digit(s[2 * i + 1]);

		if (b < 0)
			return false;
		to[i] = (uint8_t)(a << 4 | b);
	}
	return true;
}

static bool zero(const uint8_t *p, size_t n)
{
	uint8_t any = 0;

	for (size_t i = 0; i < n; i++)
		any |= p[i];
	return !any;
}

bool rp_otlp_traceparent(const char *s, struct rp_otlp_parent *p)
{
	uint8_t version;

	if (strnlen(s, 55) < 55 || !unhex(s, &version, 1) || version == 0xff || s[2] != '-' ||
	    !unhex(s + 3, p->trace, 16) || s[35] != '-' || !unhex(s + 36, p->span, 8) ||
	    s[52] != '-' || !unhex(s + 53, &p->flags, 1))
		return false;
	if (version ? s[55] && s[55] != '-' : s[55])
		return false;
	return !zero(p->trace, 16) && !zero(p->span, 8);
}

void rp_otlp_id(struct rp_otlp_random *r, uint8_t *id, size_t n)
{
	static _Atomic uint64_t counter;
	struct timespec ts;
	uint64_t v;

	do {
		if (r->left < n) {
			/* whole up to 256 bytes; before the kernel has entropy: none */
			for (size_t i = 0; i < sizeof(r->pool); i += 256) {
				if (getrandom(r->pool + i, 256, GRND_NONBLOCK) == 256)
					continue;
				clock_gettime(CLOCK_MONOTONIC, &ts);
				v = (uint64_t)ts.tv_nsec * 0x9e3779b97f4a7c15u +
				    atomic_fetch_add(&counter, 1);
				for (size_t j = 0; j < 256; j += 8) {
					v ^= v << 13;
					v ^= v >> 7;
					v ^= v << 17;
					memcpy(r->pool + i + j, &v, 8);
				}
			}
			r->left = sizeof(r->pool);
		}
		r->left -= n;
		memcpy(id, r->pool + r->left, n);
	} while (zero(id, n));
}

static bool sample(const struct rp_otlp_config *c, const uint8_t trace[16])
{
	uint64_t r = 0;

	switch (c->sampler) {
	case RP_OTLP_ALWAYS_OFF:
		return false;
	case RP_OTLP_RATIO:
		/* by the last 56 bits, which are random (trace/tracestate-probability-sampling) */
		for (int i = 9; i < 16; i++)
			r = r << 8 | trace[i];
		return (double)r >= (1 - c->ratio) * 0x1p56;
	default:
		return true;
	}
}

void rp_otlp_trace(const struct rp_otlp_config *c, const struct rp_record *r,
		   struct rp_otlp_random *rnd, struct rp_otlp_trace *t)
{
	struct rp_otlp_parent p;

	memset(t, 0, sizeof(*t));
	t->has_parent = r->traceparent[0] && rp_otlp_traceparent(r->traceparent, &p);
	if (t->has_parent) {
		memcpy(t->trace, p.trace, sizeof(t->trace));
		memcpy(t->parent, p.span, sizeof(t->parent));
		t->parent_sampled = p.flags & 1;
	}
	if (!c->traces.on)
		return;
	if (!t->has_parent)
		rp_otlp_id(rnd, t->trace, sizeof(t->trace));
	rp_otlp_id(rnd, t->span, sizeof(t->span));
	t->sampled = t->has_parent && c->parent_based ? t->parent_sampled : sample(c, t->trace);
}

/* ---- the queue ---- */

enum text {
	T_ID,
	T_X_REQUEST_ID,
	T_REQUEST_MODEL,
	T_MODEL,
	T_METHOD,
	T_PATH,
	T_FINISH,
	T_ERROR,
	T_ENGINE,
	T_ENGINE_ID,
	T_COUNT
};

/* What a span needs of a record; its texts follow, each with its NUL. */
struct item {
	uint32_t size; /* of all, a multiple of 8; 0: go on at the start of the buffer */
	uint16_t status, family;
	uint16_t lport, rport;
	uint16_t flags;
	uint8_t op, end;
	int8_t stream;
	bool has_parent, estimated, model_told, has_error;
	int32_t choices;
	uint32_t pid, core_pid;
	uint8_t laddr[16], raddr[16];
	uint8_t trace[16], span[8], parent[8];
	/* ns of CLOCK_REALTIME, RP_NONE unknown */
	int64_t start, stop, first_token;
	int64_t queued, scheduled, eng_first, eng_last;
	int64_t prompt, completion, cached, reasoning;
	int64_t ttft, rtt_us; /* ns, us */
	char text[];
};

struct rp_otlp_queue {
	size_t cap;		     /* a power of two */
	_Atomic uint64_t head, tail; /* bytes ever put, ever taken */
	_Atomic uint64_t put, taken; /* requests */
	uint8_t *buf;
};

struct rp_otlp_queue *rp_otlp_queue_new(size_t bytes)
{
	struct rp_otlp_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->cap = RP_OTLP_QUEUE_MIN;
	while (q->cap * 2 <= bytes)
		q->cap *= 2;
	q->buf = malloc(q->cap);
	if (!q->buf) {
		free(q);
		return NULL;
	}
	return q;
}

void rp_otlp_queue_free(struct rp_otlp_queue *q)
{
	if (q)
		free(q->buf);
	free(q);
}

uint64_t rp_otlp_queue_requests(const struct rp_otlp_queue *q)
{
	uint64_t taken = atomic_load(&q->taken);

	return atomic_load(&q->put) - taken;
}

size_t rp_otlp_queue_bytes(const struct rp_otlp_queue *q)
{
	uint64_t tail = atomic_load(&q->tail);

	return (size_t)(atomic_load(&q->head) - tail);
}

static int64_t wall(const struct rp_record *r, int64_t ts)
{
	return ts == RP_NONE ? RP_NONE : ts + r->wall_offset;
}

static int64_t known(const struct rp_record *r, enum rp_field f)
{
	return r->v[f].known ? r->v[f].i : RP_NONE;
}

static void last_of(int64_t *to, int64_t ts)
{
	if (ts != RP_NONE && (*to == RP_NONE || ts > *to))
		*to = ts;
}

static void fill(struct item *i, const struct rp_record *r, const struct rp_otlp_trace *t)
{
	memset(i, 0, sizeof(*i));
	i->status = (uint16_t)r->status;
	i->family = r->family;
	i->lport = r->lport;
	i->rport = r->rport;
	i->flags = (uint16_t)r->flags;
	i->op = (uint8_t)r->operation;
	i->end = (uint8_t)r->end;
	i->stream = (int8_t)r->stream;
	i->has_parent = t->has_parent;
	i->estimated = r->estimate != RP_EST_NONE;
	i->model_told = r->model_told;
	i->has_error = r->has_error;
	i->choices = r->choices;
	i->pid = r->pid;
	i->core_pid = r->core_pid;
	memcpy(i->laddr, r->laddr, sizeof(i->laddr));
	memcpy(i->raddr, r->raddr, sizeof(i->raddr));
	memcpy(i->trace, t->trace, sizeof(i->trace));
	memcpy(i->span, t->span, sizeof(i->span));
	memcpy(i->parent, t->parent, sizeof(i->parent));
	i->start = wall(r, r->t_start != RP_NONE ? r->t_start : r->t_request_end);
	i->stop = wall(r, r->t_end);
	if (i->stop == RP_NONE) { /* as far as it was seen */
		i->stop = i->start;
		last_of(&i->stop, wall(r, r->t_request_end));
		last_of(&i->stop, wall(r, r->t_first_byte));
		last_of(&i->stop, wall(r, r->t_last_token));
		last_of(&i->stop, wall(r, r->t_eng_last));
	}
	i->first_token = wall(r, r->t_first_token);
	/* phases that are null have no span, whatever is known of their instants */
	i->queued = r->v[RP_FIELD_P_QUEUE].known ? wall(r, r->t_queued) : RP_NONE;
	i->scheduled = r->v[RP_FIELD_P_QUEUE].known || r->v[RP_FIELD_P_PREFILL].known ?
			       wall(r, r->t_scheduled) :
			       RP_NONE;
	i->eng_first = r->v[RP_FIELD_P_PREFILL].known || r->v[RP_FIELD_P_DECODE].known ?
			       wall(r, r->t_eng_first) :
			       RP_NONE;
	i->eng_last = r->v[RP_FIELD_P_DECODE].known ? wall(r, r->t_eng_last) : RP_NONE;
	i->prompt = known(r, RP_FIELD_TOK_PROMPT);
	i->completion = known(r, RP_FIELD_TOK_COMPLETION);
	i->cached = known(r, RP_FIELD_TOK_CACHED);
	i->reasoning = known(r, RP_FIELD_TOK_REASONING);
	i->ttft = known(r, RP_FIELD_S_TTFT);
	i->rtt_us = known(r, RP_FIELD_NET_RTT);
}

int rp_otlp_queue_put(struct rp_otlp_queue *q, const struct rp_record *r,
		      const struct rp_otlp_trace *t)
{
	uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
	uint64_t tail = atomic_load_explicit(&q->tail, memory_order_acquire);
	size_t at = (size_t)head & (q->cap - 1), to_end = q->cap - at, n = sizeof(struct item);
	char error[72];
	const char *e = rp_otlp_error_type(r, error);
	const char *const text[T_COUNT] = {
		[T_ID] = r->id,
		[T_X_REQUEST_ID] = r->x_request_id,
		[T_REQUEST_MODEL] = r->request_model,
		[T_MODEL] = r->model_told ? r->model : "",
		[T_METHOD] = r->method,
		[T_PATH] = r->path,
		[T_FINISH] = r->finish_reason,
		[T_ERROR] = e ? e : "",
		[T_ENGINE] = r->engine_name ? r->engine_name : "",
		[T_ENGINE_ID] = r->n_request_ids ? r->request_ids[0] : "",
	};
	size_t len[T_COUNT];
	struct item *i;
	char *p;

	if (r->t_start == RP_NONE && r->t_request_end == RP_NONE)
		return -ENODATA;
	for (int k = 0; k < T_COUNT; k++) {
		len[k] = strlen(text[k]) + 1;
		n += len[k];
	}
	n = (n + 7) & ~(size_t)7;
	if (to_end < n) {
		if (q->cap - (head - tail) < to_end + n)
			return -ENOSPC;
		((struct item *)(void *)(q->buf + at))->size = 0;
		head += to_end;
		at = 0;
	} else if (q->cap - (head - tail) < n) {
		return -ENOSPC;
	}
	i = (void *)(q->buf + at);
	fill(i, r, t);
	i->size = (uint32_t)n;
	p = i->text;
	for (int k = 0; k < T_COUNT; k++) {
		memcpy(p, text[k], len[k]);
		p += len[k];
	}
	atomic_fetch_add_explicit(&q->put, 1, memory_order_relaxed);
	atomic_store_explicit(&q->head, head + n, memory_order_release);
	return 0;
}

/* ---- encoding ---- */

enum { INTERNAL = 1, SERVER = 2 };
#define SAMPLED 0x01u
#define HAS_IS_REMOTE 0x100u
#define IS_REMOTE 0x200u

static size_t span_begin(struct rp_ow *w, const struct item *i, const uint8_t *id,
			 const uint8_t *parent, const char *name, int kind, int64_t from,
			 int64_t to)
{
	size_t item = rp_ow_item(w, 2);

	rp_ow_id(w, 1, "traceId", i->trace, sizeof(i->trace));
	rp_ow_id(w, 2, "spanId", id, 8);
	if (parent)
		rp_ow_id(w, 4, "parentSpanId", parent, 8);
	rp_ow_str(w, 5, "name", name);
	rp_ow_u32(w, 6, "kind", (uint32_t)kind);
	rp_ow_fixed64(w, 7, "startTimeUnixNano", (uint64_t)from);
	rp_ow_fixed64(w, 8, "endTimeUnixNano", (uint64_t)to);
	return item;
}

static size_t phase(struct rp_ow *w, const struct item *i, struct rp_otlp_random *rnd,
		    const char *name, int64_t from, int64_t to)
{
	uint8_t id[8];
	size_t item;

	if (from == RP_NONE || to == RP_NONE || to < from)
		return 0;
	rp_otlp_id(rnd, id, sizeof(id));
	item = span_begin(w, i, id, i->span, name, INTERNAL, from, to);
	if (i->estimated) {
		rp_ow_list(w, "attributes");
		rp_ow_attr_bool(w, 9, "reqprobe.estimated", true);
		rp_ow_list_end(w);
	}
	rp_ow_fixed32(w, 16, "flags", SAMPLED | HAS_IS_REMOTE);
	rp_ow_end(w, item);
	return 1;
}

static void count(struct rp_ow *w, const char *key, int64_t n)
{
	if (n != RP_NONE)
		rp_ow_attr_i64(w, 9, key, n);
}

static void text(struct rp_ow *w, const char *key, const char *s)
{
	if (*s)
		rp_ow_attr(w, 9, key, s);
}

static void peer(struct rp_ow *w, const struct item *i, bool client)
{
	char addr[64];

	rp_otlp_address(i->family, client ? i->raddr : i->laddr, addr);
	if (!*addr)
		return;
	rp_ow_attr(w, 9, client ? "client.address" : "server.address", addr);
	rp_ow_attr_i64(w, 9, client ? "client.port" : "server.port", client ? i->rport : i->lport);
}

static void flag_names(struct rp_ow *w, const struct item *i)
{
	const char *names[RP_FLAG_COUNT];
	size_t n = 0;

	for (int b = 0; b < RP_FLAG_COUNT; b++)
		if (i->flags >> b & 1)
			names[n++] = rp_flag_names[b];
	if (n)
		rp_ow_attr_strs(w, 9, "reqprobe.flags", names, n);
}

static void span_attributes(struct rp_ow *w, const struct item *i, const struct rp_otlp_config *c,
			    const char *const t[T_COUNT])
{
	rp_ow_list(w, "attributes");
	rp_ow_attr(w, 9, "gen_ai.operation.name", rp_otlp_operation((enum rp_operation)i->op));
	rp_ow_attr(w, 9, "gen_ai.provider.name", rp_otlp_provider(c, t[T_ENGINE]));
	text(w, "gen_ai.request.model", t[T_REQUEST_MODEL]);
	text(w, "gen_ai.response.model", t[T_MODEL]);
	text(w, "gen_ai.response.id", t[T_ID]);
	if (i->choices > 1)
		rp_ow_attr_i64(w, 9, "gen_ai.request.choice.count", i->choices);
	if (i->stream >= 0)
		rp_ow_attr_bool(w, 9, "gen_ai.request.stream", i->stream);
	if (*t[T_FINISH])
		rp_ow_attr_strs(w, 9, "gen_ai.response.finish_reasons", &t[T_FINISH], 1);
	count(w, "gen_ai.usage.input_tokens", i->prompt);
	count(w, "gen_ai.usage.output_tokens", i->completion);
	count(w, "gen_ai.usage.cache_read.input_tokens", i->cached);
	count(w, "gen_ai.usage.reasoning.output_tokens", i->reasoning);
	text(w, "http.request.method", t[T_METHOD]);
	text(w, "url.path", t[T_PATH]);
	rp_ow_attr(w, 9, "url.scheme", "http");
	rp_ow_attr(w, 9, "network.protocol.name", "http");
	rp_ow_attr(w, 9, "network.protocol.version", "1.1");
	if (i->status)
		rp_ow_attr_i64(w, 9, "http.response.status_code", i->status);
	peer(w, i, false);
	peer(w, i, true);
	if (*t[T_X_REQUEST_ID])
		rp_ow_attr_strs(w, 9, "http.request.header.x-request-id", &t[T_X_REQUEST_ID], 1);
	text(w, "error.type", t[T_ERROR]);
	rp_ow_attr(w, 9, "reqprobe.end", rp_end_names[i->end]);
	text(w, "reqprobe.engine.request_id", t[T_ENGINE_ID]);
	if (i->pid)
		rp_ow_attr_i64(w, 9, "process.pid", i->pid);
	if (i->ttft != RP_NONE)
		rp_ow_attr_double(w, 9, "reqprobe.time_to_first_token", (double)i->ttft / 1e9);
	if (i->rtt_us != RP_NONE)
		rp_ow_attr_double(w, 9, "reqprobe.handshake_rtt", (double)i->rtt_us / 1e6);
	flag_names(w, i);
	rp_ow_list_end(w);
}

static void first_token(struct rp_ow *w, const struct item *i)
{
	size_t item;

	if (i->first_token == RP_NONE)
		return;
	rp_ow_list(w, "events");
	item = rp_ow_item(w, 11);
	rp_ow_fixed64(w, 1, "timeUnixNano", (uint64_t)i->first_token);
	rp_ow_str(w, 2, "name", "reqprobe.first_token");
	rp_ow_end(w, item);
	rp_ow_list_end(w);
}

/* HTTP servers: a 4xx is the client's fault, and no error of the server's span. */
static bool is_error(const struct item *i)
{
	return i->status >= 500 || (i->has_error && i->status < 400) ||
	       i->end == RP_END_SERVER_CLOSE;
}

static size_t request(struct rp_ow *w, const struct item *i, const struct rp_otlp_config *c,
		      struct rp_otlp_random *rnd)
{
	const char *t[T_COUNT], *p = i->text;
	char name[RP_MODEL_MAX + 64];
	size_t item, status, n = 1;

	for (int k = 0; k < T_COUNT; k++) {
		t[k] = p;
		p += strlen(p) + 1;
	}
	snprintf(name, sizeof(name), "%s%s%s", rp_otlp_operation((enum rp_operation)i->op),
		 *t[T_REQUEST_MODEL] ? " " : "", t[T_REQUEST_MODEL]);
	item = span_begin(w, i, i->span, i->has_parent ? i->parent : NULL, name, SERVER, i->start,
			  i->stop);
	span_attributes(w, i, c, t);
	first_token(w, i);
	if (is_error(i)) {
		status = rp_ow_begin(w, 15, "status");
		rp_ow_u32(w, 3, "code", 2);
		rp_ow_end(w, status);
	}
	rp_ow_fixed32(w, 16, "flags", SAMPLED | HAS_IS_REMOTE | (i->has_parent ? IS_REMOTE : 0));
	rp_ow_end(w, item);
	n += phase(w, i, rnd, "queue", i->queued, i->scheduled);
	n += phase(w, i, rnd, "prefill", i->scheduled, i->eng_first);
	n += phase(w, i, rnd, "decode", i->eng_first, i->eng_last);
	return n;
}

/* The oldest, or NULL; *at is where it is. */
static const struct item *oldest(struct rp_otlp_queue *q, uint64_t *at)
{
	uint64_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
	uint64_t head = atomic_load_explicit(&q->head, memory_order_acquire);
	const struct item *i;

	if (head == tail)
		return NULL;
	i = (const void *)(q->buf + ((size_t)tail & (q->cap - 1)));
	if (!i->size) {
		tail += q->cap - ((size_t)tail & (q->cap - 1));
		i = (const void *)q->buf;
	}
	*at = tail;
	return i;
}

size_t rp_otlp_spans_encode(struct rp_otlp_queue *q, const struct rp_otlp_config *c,
			    struct rp_otlp_random *rnd, struct rp_ow *w, size_t most,
			    rp_otlp_resource_fn resource, void *ctx, uint64_t *requests)
{
	size_t all, rs, ss, scope, n = 0;
	const struct item *i;
	uint64_t at;

	*requests = 0;
	if (!oldest(q, &at))
		return 0;
	all = rp_ow_begin(w, 0, NULL);
	rp_ow_list(w, "resourceSpans");
	rs = rp_ow_item(w, 1);
	resource(ctx, w);
	rp_ow_list(w, "scopeSpans");
	ss = rp_ow_item(w, 2);
	scope = rp_ow_begin(w, 1, "scope");
	rp_ow_str(w, 1, "name", "reqprobe");
	rp_ow_str(w, 2, "version", RP_VERSION);
	rp_ow_end(w, scope);
	rp_ow_list(w, "spans");
	/* a request's spans stay together: at least one, and not begun beyond `most` - 4 */
	while ((!n || n + 4 <= most) && (i = oldest(q, &at))) {
		n += request(w, i, c, rnd);
		++*requests;
		atomic_fetch_add_explicit(&q->taken, 1, memory_order_relaxed);
		atomic_store_explicit(&q->tail, at + i->size, memory_order_release);
	}
	rp_ow_list_end(w);
	if (c->schema_url)
		rp_ow_str(w, 3, "schemaUrl", c->schema_url);
	rp_ow_end(w, ss);
	rp_ow_list_end(w);
	if (c->schema_url)
		rp_ow_str(w, 3, "schemaUrl", c->schema_url);
	rp_ow_end(w, rs);
	rp_ow_list_end(w);
	rp_ow_end(w, all);
	return n;
}
