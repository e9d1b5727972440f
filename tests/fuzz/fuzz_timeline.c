// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Any bytes as a stream of events: no crash, no leak, and the sums add up. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sink/sink.h"
#include "timeline/timeline.h"

static void on_record(void *ctx, const struct rp_record *r)
{
	size_t len;
	char *json = rp_record_json(r, &len);

	(void)ctx;
	for (int i = 0; i < RP_FIELD_COUNT; i++) {
		const struct rp_value *v = &r->v[i];
		enum rp_field_type t = rp_field_defs[i].type;

		if (!v->known && v->why == RP_WHY_NONE)
			abort(); /* a null without a reason */
		if (v->known && (t == RP_T_NS || t == RP_T_N || t == RP_T_US) && v->i < 0)
			abort(); /* a made-up number */
	}
	free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rp_observer obs = { .record = on_record };
	struct rp_timeline_opts o;
	const struct rp_stats *s;
	struct rp_timeline *t;
	uint64_t ends = 0;
	size_t pos = 0;

	rp_timeline_defaults(&o);
	o.max_conns = 64;
	o.max_requests = 64;
	o.max_tasks = 64;
	o.max_marks = 256;
	o.itl = true;
	o.memory_max = 1 << 20;
	t = rp_timeline_new(&o);
	if (!t || rp_timeline_observe(t, &obs))
		abort();
	while (size - pos >= sizeof(struct rp_event_hdr)) {
		struct rp_event_hdr h, *ev;
		uint8_t *keep = NULL;
		size_t n, fixed;

		memcpy(&h, data + pos, sizeof(h));
		n = (h.size & 0xfff) & ~(size_t)7;
		if (n < sizeof(h))
			n = sizeof(h);
		if (n > size - pos)
			n = size - pos;
		/* its own allocation, so that a read behind its end is seen */
		ev = malloc(n);
		memcpy(ev, data + pos, n);
		ev->size = (uint32_t)n;
		fixed = rp_payload_at(h.type);
		if (fixed && n > fixed) {
			keep = malloc(n - fixed);
			memset(keep, 'x', n - fixed);
		}
		rp_timeline_event(t, ev, keep);
		free(keep);
		free(ev);
		pos += n;
	}
	rp_timeline_finish(t);
	s = rp_timeline_stats(t);
	for (int i = 0; i < RP_END_COUNT; i++)
		ends += s->ends[i];
	if (s->started != ends + s->in_flight || s->in_flight || s->memory > o.memory_max)
		abort();
	rp_timeline_free(t);
	return 0;
}
