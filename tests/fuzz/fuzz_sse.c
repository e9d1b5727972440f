/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Choices: 1 NDJSON, 2 with json.c behind it; cuts; place of a gap; whether. */
#include "fuzz.h"

#include "protocol/json.h"
#include "protocol/sse.h"

struct run {
	struct rp_sse p;
	struct rp_json json;
	struct trace *t;
	uint64_t at;
	bool chain;
};

static void event(struct run *r)
{
	struct rp_json_facts *f = &r->json.f;

	if (!r->chain)
		return;
	rp_json_end(&r->json);
	trace_put(r->t, f, sizeof(*f));
	rp_json_init(&r->json, RP_JSON_RESPONSE_BODY);
}

static void feed(void *ctx, const uint8_t *in, uint8_t *keep, size_t n)
{
	struct run *r = ctx;
	struct rp_sse_item it;
	size_t i = 0, used;

	for (;;) {
		used = rp_sse_next(&r->p, in + i, keep ? keep + i : NULL, n - i, &it);
		CHECK(used <= n - i && (used || it.type == RP_SSE_MORE));
		CHECK(memchr(r->p.event, 0, sizeof(r->p.event)));
		switch (it.type) {
		case RP_SSE_DATA:
			CHECK(it.len && it.pos + it.len == used);
			CHECK(!memchr(in + i + it.pos, '\n', it.len) &&
			      !memchr(in + i + it.pos, '\r', it.len));
			trace_span(r->t, it.type, r->at + i + it.pos, r->at + i + used);
			if (r->chain)
				rp_json_feed(&r->json, in + i + it.pos,
					     keep ? keep + i + it.pos : NULL, it.len);
			break;
		case RP_SSE_NEWLINE:
			if (r->chain)
				rp_json_feed(&r->json, (const uint8_t *)"\n", NULL, 1);
			trace_num(r->t, it.type, r->at + i + it.pos, 0);
			break;
		case RP_SSE_EVENT:
			trace_num(r->t, it.type, r->at + i + it.pos, rp_sse_gapped(&r->p));
			trace_put(r->t, r->p.event, strlen(r->p.event));
			event(r);
			break;
		case RP_SSE_COMMENT:
			trace_num(r->t, it.type, r->at + i + it.pos, 0);
			break;
		case RP_SSE_MORE:
			CHECK(i + used == n);
			r->at += n;
			return;
		}
		i += used;
	}
}

static void gap(void *ctx, uint64_t n)
{
	struct run *r = ctx;

	(void)n;
	rp_sse_gap(&r->p);
	rp_json_gap(&r->json);
	CHECK(rp_sse_gapped(&r->p));
}

static void run(const uint8_t *data, size_t n, const struct way *w, struct trace *t, void *arg)
{
	const uint8_t *opt = arg;
	struct run r = { .t = t, .chain = opt[0] & 2 };

	rp_sse_init(&r.p, opt[0] & 1);
	rp_json_init(&r.json, RP_JSON_RESPONSE_BODY);
	feed_way(w, data, n, feed, gap, &r);
	trace_num(t, 99, rp_sse_eof(&r.p), rp_sse_gapped(&r.p));
	event(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t opt[4];

	if (size < 4)
		return 0;
	memcpy(opt, data, 4);
	compare_ways(data + 4, size - 4, opt[1], opt[3] & 1 ? opt[2] * 4u : SIZE_MAX, 1, run, opt);
	return 0;
}
