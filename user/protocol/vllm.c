/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * vllm.c - messages of vLLM's and Aphrodite's EngineCore.
 *
 * The arrays, by length. EngineCoreOutputs:
 *
 *   len  vLLM          engine_index outputs stats timestamp utility
 *   4    0.7.3-0.8.2   -            0       1     2         3
 *   7    0.8.3-0.8.4   0            1       2     3         4
 *   8    0.8.5-0.31    0            1       2     3         4
 *   9    0.32-0.33     0            1       2     3         4
 *
 * EngineCoreOutput; request_id is 0, new_token_ids 1 (C: num_cached_tokens, an
 * int; P: prefill_stats, a map):
 *
 *   len  vLLM                   pooling finish events  C / P
 *   7    0.7.3-0.8.5            -       4      6       -
 *   9    0.9.0-0.9.1            -       4      6       C 8
 *   10   0.9.2-0.10.1           4       5      7       C 9
 *   11   0.10.2-0.11.0          4       5      7       C 10
 *   12   0.11.1-0.13            4       5      7       C 10
 *   13   0.14-0.15, 0.20-0.25   4       5      7       C 10, P 10
 *   14   0.16-0.19              4       5      7       C 10
 *   14   0.26-0.27              4       5      7       P 11 (10: trace headers)
 *   16-  0.28-0.33              4       5      7       P 11
 *
 * EngineCoreRequest: request_layouts[] below. 15, 17 and 18 fields have meant
 * two things each; where arrival_time is, the first float of 5 to 8, tells.
 *
 * Scrubbing is the other way round from reading: first everything is blanked
 * (rp_mp_scrub), then the bytes of each field that is read are put back. A field
 * that is not read can't be forgotten so.
 */
#include "protocol/vllm.h"
#include "protocol/msgpack.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define OUTPUTS_MIN 4
#define OUTPUTS_INDEXED 7 /* from here, engine_index comes first */
#define OUTPUT_MIN 7
#define REQUEST_MIN 10

static const char dead[] = "ENGINE_CORE_DEAD";
#define DEAD_LEN (sizeof(dead) - 1)

struct dec {
	const uint8_t *p;
	size_t len;
	uint8_t *keep;
	const struct rp_vllm_sink *sink;
};

/* ---- values: the caller has skipped them, so they are wholly there ---------- */

static void restore(const struct dec *d, size_t from, size_t to)
{
	if (d->keep)
		memcpy(d->keep + from, d->p + from, to - from);
}

/* With its body; false for what isn't wholly there, too. */
static bool item_at(const struct dec *d, size_t at, struct rp_mp_item *it)
{
	return at < d->len && !rp_mp_item(d->p + at, d->len - at, it) &&
	       rp_mp_body(it) <= d->len - at - it->head;
}

static uint64_t be(const uint8_t *p, unsigned n)
{
	uint64_t v = 0;

	while (n--)
		v = v << 8 | *p++;
	return v;
}

static bool read_int(const struct dec *d, size_t at, int64_t *v)
{
	struct rp_mp_item it;
	uint8_t c;
	uint64_t u;

	if (!item_at(d, at, &it) || it.kind != RP_MP_INT)
		return false;
	c = d->p[at];
	if (!it.n) {
		*v = (int8_t)c;
	} else {
		u = be(d->p + at + 1, it.n);
		if (c < 0xd0) /* unsigned */
			*v = u > INT64_MAX ? INT64_MAX : (int64_t)u;
		else
			*v = (int64_t)(u << (64 - 8 * it.n)) >> (64 - 8 * it.n);
	}
	restore(d, at, at + 1 + it.n);
	return true;
}

static bool read_num(const struct dec *d, size_t at, double *v)
{
	struct rp_mp_item it;
	int64_t i;

	if (read_int(d, at, &i)) {
		*v = (double)i;
		return true;
	}
	if (!item_at(d, at, &it) || it.kind != RP_MP_FLOAT)
		return false;
	if (it.n == 4) {
		uint32_t w = rp_mp_be(d->p + at + 1, 4);
		float f;

		memcpy(&f, &w, 4);
		*v = f;
	} else {
		uint64_t w = be(d->p + at + 1, 8);

		memcpy(v, &w, 8);
	}
	restore(d, at, at + 1 + it.n);
	return true;
}

/* A string, not put back to keep. */
static bool peek_str(const struct dec *d, size_t at, const char **s, size_t *n)
{
	struct rp_mp_item it;

	if (!item_at(d, at, &it) || it.kind != RP_MP_STR)
		return false;
	*s = (const char *)d->p + at + it.head;
	*n = it.n;
	return true;
}

static bool read_id(const struct dec *d, size_t at, const char **s, size_t *n)
{
	size_t from;

	if (!peek_str(d, at, s, n) || *n > RP_VLLM_ID_MAX)
		return false;
	from = (size_t)((const uint8_t *)*s - d->p);
	restore(d, from, from + *n);
	return true;
}

static bool is_nil(const struct dec *d, size_t at)
{
	return at < d->len && d->p[at] == 0xc0;
}

/* ---- containers ------------------------------------------------------------ */

/*
 * Walk `count` elements from *at: off[] takes where the first `max` stand (the
 * one at which it ends early, too), *got how many of those are wholly there.
 */
static int walk_array(const struct dec *d, size_t *at, uint64_t count, size_t *off, size_t max,
		      size_t *got)
{
	size_t i = *at, k, m = count < max ? count : max;
	int rc = 0;

	for (k = 0; k < m; k++) {
		off[k] = i;
		/* nil, by far the most frequent */
		if (i < d->len && d->p[i] == 0xc0) {
			i++;
			continue;
		}
		rc = rp_mp_skip(d->p, d->len, &i, 1);
		if (rc)
			break;
	}
	*got = k;
	if (!rc)
		rc = rp_mp_skip(d->p, d->len, &i, count - m);
	*at = i;
	return rc;
}

struct map {
	const struct dec *d;
	uint32_t left;
	size_t at;
	/* the pair */
	const char *key; /* "" if it is no string */
	size_t key_len, key_at, value;
};

/* False if there is no map. */
static bool map_begin(struct map *m, const struct dec *d, size_t at)
{
	struct rp_mp_item it;

	if (!item_at(d, at, &it) || it.kind != RP_MP_MAP)
		return false;
	m->d = d;
	m->left = it.n;
	m->at = at + it.head;
	return true;
}

/* The next pair that is wholly there: 1, or 0, or why there is none. */
static int map_next(struct map *m)
{
	int rc;

	if (!m->left)
		return 0;
	m->left--;
	m->key_at = m->at;
	if (!peek_str(m->d, m->at, &m->key, &m->key_len)) {
		m->key = "";
		m->key_len = 0;
	}
	rc = rp_mp_skip(m->d->p, m->d->len, &m->at, 1);
	if (rc)
		return rc;
	m->value = m->at;
	rc = rp_mp_skip(m->d->p, m->d->len, &m->at, 1);
	return rc ? rc : 1;
}

static bool map_key(const struct map *m, const char *name)
{
	size_t n = strlen(name);

	if (m->key_len != n || memcmp(m->key, name, n))
		return false;
	restore(m->d, m->key_at, m->value);
	return true;
}

/* What is named, unlike what has a position, may be of another type: not told. */
static void map_int(const struct map *m, int64_t *v)
{
	if (!read_int(m->d, m->value, v))
		*v = RP_VLLM_UNKNOWN;
}

/* ---- EngineCoreOutputs ----------------------------------------------------- */

static void read_prefix_stats(const struct dec *d, size_t at, struct rp_vllm_stats *s)
{
	struct map m;

	if (!map_begin(&m, d, at))
		return;
	while (map_next(&m) > 0) {
		if (map_key(&m, "queries")) {
			map_int(&m, &s->prefix_queries);
		} else if (map_key(&m, "hits")) {
			map_int(&m, &s->prefix_hits);
		} else if (map_key(&m, "reset")) {
			s->prefix_reset = d->p[m.value] == 0xc3;
			if (s->prefix_reset)
				restore(d, m.value, m.value + 1);
		}
	}
}

static void read_positions(const struct dec *d, size_t at, struct rp_vllm_stats *s)
{
	struct rp_mp_item it;

	if (!item_at(d, at, &it) || it.kind != RP_MP_ARRAY)
		return;
	restore(d, at, at + it.head);
	at += it.head;
	for (uint32_t i = 0; i < it.n && i < RP_VLLM_POSITIONS; i++) {
		if (!read_int(d, at, &s->spec_accepted_at[i]) || s->spec_accepted_at[i] < 0) {
			s->spec_positions = 0;
			return;
		}
		s->spec_positions = i + 1;
		if (rp_mp_skip(d->p, d->len, &at, 1))
			return;
	}
}

static void read_spec_stats(const struct dec *d, size_t at, struct rp_vllm_stats *s)
{
	struct map m;

	if (!map_begin(&m, d, at))
		return;
	while (map_next(&m) > 0) {
		if (map_key(&m, "num_drafts"))
			map_int(&m, &s->spec_drafts);
		else if (map_key(&m, "num_draft_tokens"))
			map_int(&m, &s->spec_draft_tokens);
		else if (map_key(&m, "num_accepted_tokens"))
			map_int(&m, &s->spec_accepted_tokens);
		else if (map_key(&m, "num_accepted_tokens_per_pos"))
			read_positions(d, m.value, s);
	}
}

static void read_stats(const struct dec *d, size_t at, struct rp_vllm_stats *s)
{
	struct map m;

	if (!map_begin(&m, d, at))
		return;
	while (map_next(&m) > 0) {
		if (map_key(&m, "num_running_reqs")) {
			map_int(&m, &s->running);
		} else if (map_key(&m, "num_waiting_reqs")) {
			map_int(&m, &s->waiting);
		} else if (map_key(&m, "num_skipped_waiting_reqs")) {
			map_int(&m, &s->deferred);
		} else if (map_key(&m, "kv_cache_usage") || map_key(&m, "gpu_cache_usage")) {
			if (!read_num(d, m.value, &s->kv_usage))
				s->kv_usage = NAN;
		} else if (map_key(&m, "prefix_cache_stats")) {
			read_prefix_stats(d, m.value, s);
		} else if (map_key(&m, "spec_decoding_stats")) {
			read_spec_stats(d, m.value, s);
		}
	}
}

static void read_prefill(const struct dec *d, size_t at, struct rp_vllm_output *o)
{
	struct map m;

	if (!map_begin(&m, d, at))
		return;
	while (map_next(&m) > 0) {
		if (map_key(&m, "num_prompt_tokens"))
			map_int(&m, &o->prompt_tokens);
		else if (map_key(&m, "num_cached_tokens"))
			map_int(&m, &o->cached_tokens);
		else if (map_key(&m, "num_local_cached_tokens"))
			map_int(&m, &o->cached_local);
		else if (map_key(&m, "num_external_cached_tokens"))
			map_int(&m, &o->cached_external);
	}
}

/* One EngineCoreEvent; one that lacks its type or its instant is none. */
static bool read_event(const struct dec *d, size_t at, struct rp_vllm_event *e, bool *is)
{
	bool type = false, ts = false;
	struct map m;
	int64_t v;

	if (!map_begin(&m, d, at))
		return false;
	while (map_next(&m) > 0) {
		if (map_key(&m, "type")) {
			if (!read_int(d, m.value, &v) || v < INT32_MIN || v > INT32_MAX)
				return false;
			e->type = (int)v;
			type = true;
		} else if (map_key(&m, "timestamp")) {
			if (!read_num(d, m.value, &e->ts))
				return false;
			ts = true;
		}
	}
	*is = type && ts;
	return true;
}

static int read_events(const struct dec *d, size_t at, struct rp_vllm_output *o)
{
	struct rp_vllm_event e;
	struct rp_mp_item it;
	bool is;

	if (is_nil(d, at))
		return 0;
	if (!item_at(d, at, &it) || it.kind != RP_MP_ARRAY)
		return -EBADMSG;
	at += it.head;
	for (uint32_t i = 0; i < it.n; i++) {
		if (!read_event(d, at, &e, &is))
			return -EBADMSG;
		if (is && o->n_events < RP_VLLM_EVENTS)
			o->events[o->n_events++] = e;
		else if (is)
			o->more_events++;
		if (rp_mp_skip(d->p, d->len, &at, 1))
			return -EBADMSG;
	}
	return 0;
}

static bool read_finish(const struct dec *d, size_t at, int *finish)
{
	static const char *const names[] = { "stop", "length", "abort", "error", "repetition" };
	const char *s;
	int64_t v;
	size_t n;

	if (is_nil(d, at)) {
		*finish = RP_VLLM_RUNNING;
	} else if (read_int(d, at, &v)) {
		*finish = v < 0 || v > INT32_MAX ? RP_VLLM_FINISH_OTHER : (int)v;
	} else if (peek_str(d, at, &s, &n)) {
		*finish = RP_VLLM_FINISH_OTHER;
		for (int i = 0; i < 5; i++)
			if (n == strlen(names[i]) && !memcmp(s, names[i], n)) {
				read_id(d, at, &s, &n);
				*finish = i;
			}
	} else {
		return false;
	}
	return true;
}

/* How many ids an array declares. What doesn't start with a number is something
 * else: a tensor is [dtype, shape, data]. */
static bool count_ids(const struct dec *d, size_t at, uint32_t *n)
{
	struct rp_mp_item it, first;

	if (at >= d->len || rp_mp_item(d->p + at, d->len - at, &it) || it.kind != RP_MP_ARRAY)
		return false;
	at += it.head;
	if (it.n && at < d->len &&
	    (rp_mp_item(d->p + at, d->len - at, &first) || first.kind != RP_MP_INT))
		return false;
	*n = it.n;
	return true;
}

static int check_output(const struct dec *d, size_t at, struct rp_mp_item *it)
{
	int rc = rp_mp_item(d->p + at, d->len - at, it);

	if (rc)
		return rc;
	if (it->kind != RP_MP_ARRAY)
		return -EBADMSG;
	return it->n < OUTPUT_MIN ? -EPROTO : 0;
}

/* num_cached_tokens, an int of each output; then prefill_stats, a map of the first. */
static void read_cached(const struct dec *d, const size_t *off, uint32_t n,
			struct rp_vllm_output *o)
{
	if (n < 9)
		return;
	if (n < 15 && read_int(d, off[n < 11 ? n - 1 : 10], &o->cached_tokens))
		return;
	if (n >= 13)
		read_prefill(d, off[n == 13 ? 10 : 11], o);
}

static int decode_output(const struct dec *d, size_t *at, struct rp_vllm_output *o)
{
	struct rp_mp_item it;
	size_t off[12], got;
	bool old;
	int rc;

	rc = check_output(d, *at, &it);
	if (rc)
		return rc;
	*at += it.head;
	rc = walk_array(d, at, it.n, off, 12, &got);
	if (rc)
		return rc;
	old = it.n < 10;
	o->n_events = o->more_events = 0;
	o->prompt_tokens = o->cached_tokens = RP_VLLM_UNKNOWN;
	o->cached_local = o->cached_external = RP_VLLM_UNKNOWN;
	if (!read_id(d, off[0], &o->id, &o->id_len)) /* too long: this one is not told */
		return peek_str(d, off[0], &o->id, &o->id_len) ? 0 : -EBADMSG;
	if (!count_ids(d, off[1], &o->tokens))
		o->tokens = 0;
	o->pooled = !old && !is_nil(d, off[4]);
	if (!read_finish(d, off[old ? 4 : 5], &o->finish))
		return -EBADMSG;
	rc = read_events(d, off[old ? 6 : 7], o);
	if (rc)
		return rc;
	read_cached(d, off, it.n, o);
	if (d->sink->output)
		d->sink->output(d->sink->ctx, o);
	return 0;
}

static int decode_outputs(const struct dec *d, size_t *at, const struct rp_mp_item *top,
			  enum rp_vllm_kind *kind)
{
	struct rp_vllm_output o = { 0 };
	struct rp_vllm_step s = { .engine_index = RP_VLLM_UNKNOWN, .timestamp = NAN };
	struct rp_mp_item it;
	size_t off[5], got, outs, i;
	int rc, bad = 0;

	if (top->n < OUTPUTS_MIN || (top->n > OUTPUTS_MIN && top->n < OUTPUTS_INDEXED))
		return -EPROTO;
	*kind = RP_VLLM_KIND_OUTPUTS;
	*at += top->head;
	/* what is behind the outputs is told before them: a walk to find it */
	rc = walk_array(d, at, top->n, off, 5, &got);
	outs = top->n >= OUTPUTS_INDEXED;
	if (outs && got && !read_int(d, off[0], &s.engine_index))
		return -EBADMSG;
	if (got < outs || rp_mp_item(d->p + off[outs], d->len - off[outs], &it))
		return rc;
	if (it.kind != RP_MP_ARRAY)
		return -EBADMSG;
	s.n_outputs = it.n;
	i = off[outs] + it.head;
	if (it.n && i < d->len) {
		struct rp_mp_item first;
		int r = check_output(d, i, &first);

		if (r && r != -ENODATA)
			return r;
	}
	s.stats = (struct rp_vllm_stats){ .running = RP_VLLM_UNKNOWN,
					  .waiting = RP_VLLM_UNKNOWN,
					  .kv_usage = NAN,
					  .prefix_queries = RP_VLLM_UNKNOWN,
					  .prefix_hits = RP_VLLM_UNKNOWN,
					  .spec_drafts = RP_VLLM_UNKNOWN,
					  .spec_draft_tokens = RP_VLLM_UNKNOWN,
					  .spec_accepted_tokens = RP_VLLM_UNKNOWN,
					  .deferred = RP_VLLM_UNKNOWN };
	if (got > outs + 1 && !is_nil(d, off[outs + 1])) {
		struct map m;

		s.has_stats = map_begin(&m, d, off[outs + 1]);
		if (s.has_stats)
			read_stats(d, off[outs + 1], &s.stats);
		else
			bad = -EBADMSG;
	}
	if (got > outs + 2 && !read_num(d, off[outs + 2], &s.timestamp))
		bad = -EBADMSG;
	s.has_utility = got > outs + 3 && !is_nil(d, off[outs + 3]);
	if (d->sink->step)
		d->sink->step(d->sink->ctx, &s);
	for (uint32_t k = 0; k < s.n_outputs; k++) {
		int r = decode_output(d, &i, &o);

		if (r)
			return r;
	}
	return bad ? bad : rc;
}

/* ---- requests -------------------------------------------------------------- */

/* 0: it has none. The last one stands for all that are longer. */
static const struct request_layout {
	uint8_t len, arrival, pooling, client, external;
} request_layouts[] = {
	{ 13, 7, 0, 11, 0 },  /* 0.9.1 */
	{ 15, 8, 6, 12, 0 },  /* 0.9.2-0.10.1 */
	{ 14, 6, 4, 10, 0 },  /* 0.10.2 */
	{ 15, 6, 4, 11, 0 },  /* 0.11-0.13 */
	{ 16, 6, 4, 11, 15 }, /* 0.14 */
	{ 17, 6, 4, 11, 16 }, /* 0.15 */
	{ 18, 6, 4, 11, 16 }, /* 0.16 */
	{ 17, 5, 4, 10, 15 }, /* 0.17-0.20.0 */
	{ 18, 5, 4, 10, 15 }, /* 0.20.2 */
	{ 19, 5, 4, 11, 16 }, /* 0.21-0.33: 19 to 22 */
};
#define REQUEST_FIELDS 17

static const struct request_layout *request_layout(const struct dec *d, uint32_t n,
						   const size_t *off, size_t got)
{
	const size_t count = sizeof(request_layouts) / sizeof(request_layouts[0]);
	struct rp_mp_item it;
	size_t a = 5;

	while (a < got && a < 9 && !(item_at(d, off[a], &it) && it.kind == RP_MP_FLOAT))
		a++;
	if (a >= got || a == 9)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		const struct request_layout *l = &request_layouts[i];

		if (l->arrival == a && (l->len == n || (i == count - 1 && n > l->len)))
			return l;
	}
	return NULL;
}

/* Prompts are longer than what is captured: their count stands before them. */
static void read_prompt(const struct dec *d, uint32_t n, const size_t *off, size_t got,
			struct rp_vllm_request *r)
{
	uint32_t count;
	size_t i = 1;

	/* to 0.8.4, the prompt's text came first */
	if (n == REQUEST_MIN && got > 1) {
		struct rp_mp_item it;

		if (item_at(d, off[1], &it) && (it.kind == RP_MP_NIL || it.kind == RP_MP_STR))
			i = 2;
	}
	if (got >= i && count_ids(d, off[i], &count))
		r->prompt_tokens = count;
}

/* Is this a map with one of these keys, and a value behind it? Keys of SamplingParams
 * that ask for nothing are left out, or nil. */
static bool asks_for(const struct dec *d, size_t at, const char *const *keys)
{
	struct map m;

	if (!map_begin(&m, d, at))
		return false;
	while (map_next(&m) > 0)
		for (const char *const *k = keys; *k; k++)
			if (map_key(&m, *k) && !is_nil(d, m.value))
				return true;
	return false;
}

/* Where extra_args stand in the sampling parameters; 0: there are none. */
static size_t extra_args(const struct dec *d, size_t at)
{
	struct map m;

	if (!map_begin(&m, d, at))
		return 0;
	while (map_next(&m) > 0)
		if (map_key(&m, "extra_args"))
			return m.value;
	return 0;
}

static void read_waits(const struct dec *d, const struct request_layout *l, const size_t *off,
		       size_t got, struct rp_vllm_request *r)
{
	static const char *const grammar[] = { "structured_outputs", "guided_decoding", NULL };
	static const char *const transfer[] = { "kv_transfer_params", NULL };
	/* the parameters stand before those of pooling or, without them, two before the
	 * arrival time; the adapter behind it; `resumable` before the external id (0.15) */
	size_t params = l->pooling ? l->pooling - 1U : l->arrival - 2U;
	size_t lora = l->arrival + 1U, extra;
	size_t more = l->external && l->len != 16 ? l->external - 1U : 0;

	if (got <= lora || got <= params || got <= more)
		return;
	r->resumable = more && d->p[off[more]] == 0xc3;
	if (r->resumable)
		restore(d, off[more], off[more] + 1);
	extra = extra_args(d, off[params]);
	r->may_defer = r->resumable || !is_nil(d, off[lora]) || asks_for(d, off[params], grammar) ||
		       asks_for(d, off[params], transfer) ||
		       (extra && asks_for(d, extra, transfer));
}

static int decode_add(const struct dec *d, size_t *at, const struct rp_mp_item *top)
{
	struct rp_vllm_request r = { .prompt_tokens = RP_VLLM_UNKNOWN,
				     .client_index = RP_VLLM_UNKNOWN,
				     .may_defer = true,
				     .resumable = RP_VLLM_UNKNOWN };
	const struct request_layout *l;
	size_t off[REQUEST_FIELDS], got;
	int rc;

	if (top->kind != RP_MP_ARRAY)
		return -EBADMSG;
	if (top->n < REQUEST_MIN)
		return -EPROTO;
	*at += top->head;
	rc = walk_array(d, at, top->n, off, REQUEST_FIELDS, &got);
	if (!got)
		return rc;
	if (!read_id(d, off[0], &r.id, &r.id_len))
		return -EBADMSG;
	read_prompt(d, top->n, off, got, &r);
	l = request_layout(d, top->n, off, got);
	if (l) {
		r.pooling = l->pooling && !is_nil(d, off[l->pooling]);
		/* a field more, before these, must not cost the request */
		if (l->client < got && !read_int(d, off[l->client], &r.client_index))
			r.client_index = RP_VLLM_UNKNOWN;
		if (l->external && l->external < got &&
		    !read_id(d, off[l->external], &r.external_id, &r.external_id_len)) {
			r.external_id = NULL;
			r.external_id_len = 0;
		}
		read_waits(d, l, off, got, &r);
	}
	if (d->sink->add)
		d->sink->add(d->sink->ctx, &r);
	return rc;
}

static int decode_abort(const struct dec *d, size_t *at, const struct rp_mp_item *top)
{
	const char *id;
	size_t n, from;
	int rc;

	if (top->kind != RP_MP_ARRAY)
		return -EBADMSG;
	*at += top->head;
	for (uint32_t i = 0; i < top->n; i++) {
		from = *at;
		rc = rp_mp_skip(d->p, d->len, at, 1);
		if (rc)
			return rc;
		if (!read_id(d, from, &id, &n))
			return -EBADMSG;
		if (d->sink->abort)
			d->sink->abort(d->sink->ctx, id, n);
	}
	return 0;
}

/* EngineCoreReadyResponse. The hand-shake before it sends other maps. */
static int decode_map(const struct dec *d, size_t *at, enum rp_vllm_kind *kind)
{
	struct rp_vllm_ready r = { .version = "",
				   .blocks = RP_VLLM_UNKNOWN,
				   .block_size = RP_VLLM_UNKNOWN,
				   .kv_tokens = RP_VLLM_UNKNOWN,
				   .pipeline = RP_VLLM_UNKNOWN };
	struct map m;
	int rc;

	if (!map_begin(&m, d, *at))
		return -EBADMSG;
	while ((rc = map_next(&m)) > 0) {
		bool ready = true;

		if (map_key(&m, "vllm_version") || map_key(&m, "aphrodite_version")) {
			if (!read_id(d, m.value, &r.version, &r.version_len)) {
				r.version = "";
				r.version_len = 0;
			}
		} else if (map_key(&m, "num_gpu_blocks")) {
			map_int(&m, &r.blocks);
		} else if (map_key(&m, "max_model_len")) {
			; /* told by it, and by nothing else */
		} else {
			ready = false;
			if (map_key(&m, "block_size"))
				map_int(&m, &r.block_size);
			else if (map_key(&m, "kv_cache_size_tokens"))
				map_int(&m, &r.kv_tokens);
			else if (map_key(&m, "pipeline_parallel_size"))
				map_int(&m, &r.pipeline);
		}
		if (ready)
			*kind = RP_VLLM_KIND_READY;
	}
	*at = m.at;
	if (*kind == RP_VLLM_KIND_READY && d->sink->ready)
		d->sink->ready(d->sink->ctx, &r);
	return rc;
}

/* ---- frames ---------------------------------------------------------------- */

static int decode_frame(const struct dec *d, int type, size_t *at, enum rp_vllm_kind *kind)
{
	struct rp_mp_item top;
	int rc;

	if (type == RP_VLLM_ADD)
		*kind = RP_VLLM_KIND_ADD;
	else if (type == RP_VLLM_ABORT)
		*kind = RP_VLLM_KIND_ABORT;
	rc = rp_mp_item(d->p, d->len, &top);
	if (rc)
		return rc;
	if (type == RP_VLLM_ADD)
		return decode_add(d, at, &top);
	if (type == RP_VLLM_ABORT)
		return decode_abort(d, at, &top);
	if (type >= 0)
		return rp_mp_skip(d->p, d->len, at, 1);
	if (top.kind == RP_MP_ARRAY)
		return decode_outputs(d, at, &top, kind);
	if (top.kind == RP_MP_MAP)
		return decode_map(d, at, kind);
	rc = rp_mp_skip(d->p, d->len, at, 1);
	return rc ? rc : -EPROTO;
}

/* b"ENGINE_CORE_DEAD", which is no msgpack; all of it, or all of it at hand. */
static bool is_dead(const uint8_t *p, size_t len, bool cut)
{
	return len && (len == DEAD_LEN || (cut && len < DEAD_LEN)) && !memcmp(p, dead, len);
}

int rp_vllm_decode(int type, const uint8_t *p, size_t len, bool cut, uint8_t *keep,
		   const struct rp_vllm_sink *sink, enum rp_vllm_kind *kind)
{
	static const struct rp_vllm_sink deaf;
	struct dec d = { p, len, keep, sink ? sink : &deaf };
	enum rp_vllm_kind k = RP_VLLM_KIND_OTHER;
	size_t at = 0;
	int rc;

	if (type < 0 && is_dead(p, len, cut)) {
		restore(&d, 0, len);
		k = RP_VLLM_KIND_DEAD;
		rc = len < DEAD_LEN ? -ENODATA : 0;
	} else if (!len && !cut && type != RP_VLLM_ADD && type != RP_VLLM_ABORT) {
		rc = 0;
	} else {
		if (keep)
			rp_mp_scrub(p, len, keep);
		rc = decode_frame(&d, type, &at, &k);
		if ((rc == -ENODATA && !cut) || (!rc && at < len))
			rc = -EBADMSG;
	}
	if (kind)
		*kind = k;
	return rc;
}

/* ---- names ----------------------------------------------------------------- */

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

/* The length without a last part that the engine's front end may have added:
 * "-<i>", "_<i>" or "-<8 hex>"; len itself if it has none. */
static size_t without_part(const char *s, size_t len)
{
	size_t i = len, digits = 0, n;

	while (i && (digit(s[i - 1]) || (s[i - 1] >= 'a' && s[i - 1] <= 'f'))) {
		digits += digit(s[i - 1]);
		i--;
	}
	n = len - i;
	if (i < 2 || !n)
		return len;
	if (s[i - 1] == '-' && (n == 8 || (n < 8 && digits == n)))
		return i - 1;
	if (s[i - 1] == '_' && n < 8 && digits == n)
		return i - 1;
	return len;
}

int rp_vllm_names(const char *id, size_t len, size_t *start, uint32_t *choice, size_t names[3])
{
	uint32_t k = 0;
	size_t i = 0;
	int n = 0;

	while (i < len && i < 9 && digit(id[i]))
		k = k * 10 + (uint32_t)(id[i++] - '0');
	/* a number as Python writes it, and an id behind it */
	if (i && i + 1 < len && id[i] == '_' && (i == 1 || id[0] != '0')) {
		i++;
	} else {
		i = 0;
		k = 0;
	}
	*start = i;
	*choice = k;
	for (len -= i; len && n < 3; n++) {
		size_t less = without_part(id + i, len);

		names[n] = len;
		if (less == len)
			return n + 1;
		len = less;
	}
	return n;
}
