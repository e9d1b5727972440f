/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Choices: 1 request; cuts; place of a gap; whether. */
#include "fuzz.h"

#include "protocol/json.h"

static void feed(void *ctx, const uint8_t *in, uint8_t *keep, size_t n)
{
	struct rp_json *p = ctx;

	rp_json_feed(p, in, keep, n);
	CHECK(p->depth <= RP_JSON_DEPTH && p->tlen <= sizeof(p->tok));
}

static void gap(void *ctx, uint64_t n)
{
	(void)n;
	rp_json_gap(ctx);
}

static bool ends(const char *s, size_t n)
{
	return memchr(s, 0, n) != NULL;
}

static void run(const uint8_t *data, size_t n, const struct way *w, struct trace *t, void *arg)
{
	const uint8_t *opt = arg;
	const struct rp_json_facts *f;
	struct rp_json p;

	memset(&p, 0x5a, sizeof(p));
	rp_json_init(&p, opt[0] & 1 ? RP_JSON_REQUEST_BODY : RP_JSON_RESPONSE_BODY);
	feed_way(w, data, n, feed, gap, &p);
	rp_json_end(&p);
	f = &p.f;
	CHECK(ends(f->model, sizeof(f->model)) && ends(f->id, sizeof(f->id)));
	CHECK(ends(f->object, sizeof(f->object)) &&
	      ends(f->finish_reason, sizeof(f->finish_reason)));
	CHECK(ends(f->error_type, sizeof(f->error_type)) &&
	      ends(f->error_code, sizeof(f->error_code)));
	CHECK(!((f->content | f->reasoning | f->tool | f->finished) & ~f->choices));
	/* the end is idempotent, and nothing comes after it */
	trace_put(t, f, sizeof(*f));
	rp_json_feed(&p, (const uint8_t *)"{\"id\":\"late\"}", NULL, 13);
	rp_json_end(&p);
	CHECK(!memcmp(t->b, &p.f, sizeof(*f)));
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
