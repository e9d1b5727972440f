/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Choices: request type, or a letter for none; 1 cut; where the bytes end; unused. */
#include "fuzz.h"

#include <errno.h>
#include <math.h>

#include "protocol/vllm.h"

/* What is told, and that it lies in the bytes given. */
struct run {
	struct trace t;
	const uint8_t *p;
	size_t n;
	size_t outputs;
};

static void put_id(struct run *r, const char *s, size_t len)
{
	const uint8_t *b = (const uint8_t *)s;

	CHECK(len <= RP_VLLM_ID_MAX);
	trace_num(&r->t, 7, len, 0);
	if (!len)
		return;
	CHECK(b >= r->p && b + len <= r->p + r->n);
	trace_put(&r->t, s, len);
}

static void on_step(void *ctx, const struct rp_vllm_step *s)
{
	struct run *r = ctx;

	CHECK(!r->t.n);
	trace_num(&r->t, 1, s->n_outputs, s->has_stats | s->has_utility << 1);
	trace_put(&r->t, &s->engine_index, sizeof(s->engine_index));
	trace_put(&r->t, &s->timestamp, sizeof(s->timestamp));
	trace_num(&r->t, s->stats.running, s->stats.waiting, s->stats.prefix_reset);
	trace_put(&r->t, &s->stats.kv_usage, sizeof(s->stats.kv_usage));
	trace_num(&r->t, s->stats.prefix_queries, s->stats.prefix_hits, s->stats.spec_drafts);
	trace_num(&r->t, s->stats.spec_draft_tokens, s->stats.spec_accepted_tokens, 0);
}

static void on_output(void *ctx, const struct rp_vllm_output *o)
{
	struct run *r = ctx;

	CHECK(r->t.n);
	CHECK(o->tokens <= r->n && o->n_events <= RP_VLLM_EVENTS);
	CHECK(!o->more_events || o->n_events == RP_VLLM_EVENTS);
	r->outputs++;
	trace_num(&r->t, 2, o->tokens, o->finish);
	put_id(r, o->id, o->id_len);
	trace_num(&r->t, o->prompt_tokens, o->cached_tokens, o->pooled);
	for (uint32_t i = 0; i < o->n_events; i++) {
		trace_put(&r->t, &o->events[i].type, sizeof(o->events[i].type));
		trace_put(&r->t, &o->events[i].ts, sizeof(o->events[i].ts));
	}
	trace_num(&r->t, 3, o->n_events, o->more_events);
}

static void on_add(void *ctx, const struct rp_vllm_request *q)
{
	struct run *r = ctx;

	CHECK(!r->t.n);
	put_id(r, q->id, q->id_len);
	trace_num(&r->t, q->prompt_tokens, q->client_index, q->pooling);
	CHECK(q->resumable >= -1 && q->resumable <= 1 && (q->resumable != 1 || q->may_defer));
	trace_num(&r->t, 7, q->may_defer, q->resumable);
	CHECK(q->external_id || !q->external_id_len);
	if (q->external_id)
		put_id(r, q->external_id, q->external_id_len);
}

static void on_abort(void *ctx, const char *id, size_t len)
{
	trace_num(&((struct run *)ctx)->t, 4, 0, 0);
	put_id(ctx, id, len);
}

static void on_ready(void *ctx, const struct rp_vllm_ready *q)
{
	trace_num(&((struct run *)ctx)->t, 5, q->blocks, q->block_size);
	trace_num(&((struct run *)ctx)->t, 8, q->kv_tokens, q->pipeline);
	put_id(ctx, q->version, q->version_len);
}

static int run(struct run *r, int type, const uint8_t *data, size_t n, bool cut, uint8_t *keep)
{
	struct rp_vllm_sink sink = { r, on_step, on_output, on_add, on_abort, on_ready };
	enum rp_vllm_kind kind = 99;
	uint8_t *p = malloc(n), *k = NULL; /* ASan sees their ends */
	int rc;

	memcpy(p, data, n);
	if (keep) {
		k = malloc(n);
		memset(k, 'x', n);
	}
	r->p = p;
	r->n = n;
	r->t.n = r->outputs = 0;
	rc = rp_vllm_decode(type, p, n, cut, k, &sink, &kind);
	CHECK(rc == 0 || rc == -ENODATA || rc == -EBADMSG || rc == -EPROTO);
	CHECK(rc != -ENODATA || cut);
	CHECK(kind <= RP_VLLM_KIND_DEAD);
	CHECK(!memcmp(p, data, n));
	trace_num(&r->t, 6, rc, kind);
	if (keep)
		memcpy(keep, k, n);
	free(p);
	free(k);
	return rc;
}

static void same(const struct run *a, const struct run *b)
{
	CHECK(a->t.n == b->t.n && !memcmp(a->t.b, b->t.b, a->t.n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run whole = { 0 }, r = { 0 };
	uint8_t *keep0, *keep1;
	size_t n, start, lens[3];
	uint32_t choice;
	int type, rc;
	bool cut;

	if (size < 4)
		return 0;
	type = data[0] >= '0' && data[0] <= '9' ? data[0] - '0' : -1;
	cut = data[1] & 1;
	n = size - 4;
	keep0 = malloc(n + 1);
	keep1 = malloc(n + 1);

	rc = run(&whole, type, data + 4, n, cut, NULL);
	CHECK(run(&r, type, data + 4, n, cut, keep0) == rc);
	same(&whole, &r);
	CHECK(run(&r, type, keep0, n, cut, keep1) == rc);
	same(&whole, &r);
	CHECK(!memcmp(keep0, keep1, n));
	for (size_t i = 0; i < n; i++)
		CHECK(keep0[i] == data[4 + i] || keep0[i] == 'x' || !keep0[i] || keep0[i] == 0xc2);
	/* cut shorter, it tells no more outputs */
	if (n) {
		size_t m = data[2] * n / 256, outputs = whole.outputs;

		run(&r, type, data + 4, m, true, keep1);
		CHECK(r.outputs <= outputs || rc == -EBADMSG || rc == -EPROTO);
		/* the same bytes are scrubbed alike, as far as fields were complete */
		run(&whole, type, keep1, m, true, NULL);
		same(&whole, &r);
	}
	rc = rp_vllm_names((const char *)data + 4, n, &start, &choice, lens);
	CHECK(rc >= 0 && rc <= 3 && start <= n);
	for (int i = 0; i < rc; i++)
		CHECK(lens[i] && lens[i] <= (i ? lens[i - 1] - 1 : n - start));

	free(keep0);
	free(keep1);
	free(whole.t.b);
	free(r.t.b);
	return 0;
}
