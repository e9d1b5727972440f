/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Choices: kind and expectation; cuts; place of a gap; its length. */
#include "fuzz.h"

#include "protocol/http1.h"

struct run {
	struct rp_http1 p;
	struct trace *t;
	uint64_t at;
	bool failed;
};

static void item(struct run *r, const struct rp_http1_item *it, uint64_t at)
{
	switch (it->type) {
	case RP_HTTP1_BODY:
		trace_span(r->t, it->type, at + it->pos, at + it->pos + it->len);
		break;
	case RP_HTTP1_HEAD:
		trace_num(r->t, it->type, at + it->pos, 0);
		trace_put(r->t, &r->p.head, sizeof(r->p.head));
		break;
	case RP_HTTP1_MORE:
		break;
	case RP_HTTP1_ERROR:
		r->failed = true;
		/* fall through */
	default:
		trace_num(r->t, it->type, at + it->pos, it->len);
	}
}

static void feed(void *ctx, const uint8_t *in, uint8_t *keep, size_t n)
{
	struct run *r = ctx;
	struct rp_http1_item it;
	size_t i = 0, used;
	unsigned int idle = 0;

	do {
		used = rp_http1_next(&r->p, in + i, keep ? keep + i : NULL, n - i, &it);
		CHECK(used <= n - i);
		if (r->failed) {
			CHECK(it.type == RP_HTTP1_ERROR && !used);
			return;
		}
		CHECK(it.pos <= n - i && (it.type != RP_HTTP1_BODY || it.len <= n - i - it.pos));
		CHECK(it.type != RP_HTTP1_BODY || (it.len && used == it.pos + it.len));
		/* START and END may need no byte, but not twice */
		idle = used ? 0 : idle + 1;
		CHECK(idle < 4);
		item(r, &it, r->at + i);
		i += used;
	} while (it.type != RP_HTTP1_MORE && it.type != RP_HTTP1_ERROR);
	CHECK(it.type == RP_HTTP1_ERROR || i == n);
	r->at += n;
}

static void gap(void *ctx, uint64_t n)
{
	struct run *r = ctx;
	struct rp_http1_item it;
	unsigned int idle = 0;

	while (n && !r->failed) {
		uint64_t used = rp_http1_gap(&r->p, n, &it);

		CHECK(used <= n);
		CHECK(it.type == RP_HTTP1_ERROR || it.type == RP_HTTP1_BODY_GAP ||
		      it.type == RP_HTTP1_END || it.type == RP_HTTP1_MORE);
		idle = used ? 0 : idle + 1;
		CHECK(idle < 4);
		item(r, &it, r->at);
		n -= used;
		feed(r, (const uint8_t *)"", NULL, 0);
	}
}

static void run(const uint8_t *data, size_t n, const struct way *w, struct trace *t, void *arg)
{
	const uint8_t *opt = arg;
	struct run r = { .t = t };
	struct rp_http1_item it;

	rp_http1_init(&r.p, opt[0] & 1 ? RP_HTTP1_REQUEST : RP_HTTP1_RESPONSE);
	rp_http1_expect(&r.p, opt[0] & 2, opt[0] & 4);
	if (opt[0] & 8) /* as if the head had been lost */
		rp_http1_resync_chunk(&r.p);
	feed_way(w, data, n, feed, gap, &r);
	if (!r.failed) {
		rp_http1_eof(&r.p, &it);
		item(&r, &it, r.at);
	}
	rp_http1_resync(&r.p);
	CHECK(rp_http1_idle(&r.p));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t opt[4];

	if (size < 4)
		return 0;
	memcpy(opt, data, 4);
	compare_ways(data + 4, size - 4, opt[1], opt[3] & 1 ? opt[2] * 4u : SIZE_MAX, opt[3] >> 1,
		     run, opt);
	return 0;
}
