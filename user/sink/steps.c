// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * steps.c - one JSON object for each step of an engine's scheduler:
 * reqprobe.step/1 (docs/schema/).
 */
#include "sink/put.h"

#include <math.h>

#define NS_PER_MS 1000000
#define NS_PER_S 1000000000

/* Counts and durations: what is not known is RP_NONE, and nothing is negative. */
static void put_count(struct rp_buf *b, bool known, int64_t v)
{
	if (known && v >= 0)
		rp_put_i64(b, v);
	else
		LIT(b, "null");
}

static void put_ms(struct rp_buf *b, bool known, int64_t ns)
{
	if (known && ns >= 0)
		rp_buf_fixed(b, ns, NS_PER_MS);
	else
		LIT(b, "null");
}

static void put_step(struct rp_buf *b, const void *what)
{
	const struct rp_step_info *s = what;
	bool has_ts = s->ts != RP_NONE, has_delay;
	bool has_kv = (s->has_stats || s->estimated) && isfinite(s->kv_usage) && s->kv_usage >= 0;
	int64_t delay = RP_NONE, wall = 0;

	has_delay = has_ts && s->sent != RP_NONE && !__builtin_sub_overflow(s->sent, s->ts, &delay);

	LIT(b, "{\"schema\":\"reqprobe.step/1\",\"time\":");
	if (has_ts && !__builtin_add_overflow(s->ts, s->wall_offset, &wall))
		rp_put_time(b, wall);
	else
		LIT(b, "null");
	LIT(b, ",\"engine\":{\"name\":");
	rp_put_string_or_null(b, s->engine);
	LIT(b, ",\"version\":");
	rp_put_string_or_null(b, s->version);
	LIT(b, ",\"core_pid\":");
	rp_put_pid(b, s->pid);
	LIT(b, ",\"index\":");
	rp_put_i64(b, s->index);
	LIT(b, "},\"seq\":");
	rp_buf_u64(b, s->seq);
	LIT(b, ",\"timestamp_s\":");
	if (has_ts)
		rp_buf_fixed(b, s->ts, NS_PER_S);
	else
		LIT(b, "null");
	LIT(b, ",\"send_delay_ms\":");
	put_ms(b, has_delay, delay);
	LIT(b, ",\"step_ms\":");
	put_ms(b, true, s->step_ns);
	LIT(b, ",\"batch_tokens\":");
	put_count(b, s->batch > 0, s->batch);
	LIT(b, ",\"requests\":");
	rp_buf_u64(b, s->requests);
	LIT(b, ",\"tokens\":");
	rp_buf_u64(b, s->tokens);
	LIT(b, ",\"first_tokens\":");
	rp_buf_u64(b, s->first_tokens);
	LIT(b, ",\"finished\":");
	rp_buf_u64(b, s->finished);
	LIT(b, ",\"preempted\":");
	put_count(b, s->preempted_known, s->preempted);
	LIT(b, ",\"max_tokens\":");
	put_count(b, true, s->max_tokens);
	LIT(b, ",\"running\":");
	put_count(b, s->has_stats, s->running);
	LIT(b, ",\"waiting\":");
	put_count(b, s->has_stats, s->waiting);
	LIT(b, ",\"kv_cache_usage\":");
	if (has_kv)
		rp_buf_double(b, s->kv_usage);
	else
		LIT(b, "null");
	LIT(b, ",\"prefix_cache_queries\":");
	put_count(b, s->has_stats, s->prefix_queries);
	LIT(b, ",\"prefix_cache_hits\":");
	put_count(b, s->has_stats, s->prefix_hits);
	LIT(b, ",\"spec_drafts\":");
	put_count(b, s->has_stats, s->spec_drafts);
	LIT(b, ",\"spec_draft_tokens\":");
	put_count(b, s->has_stats, s->spec_draft_tokens);
	LIT(b, ",\"spec_accepted_tokens\":");
	put_count(b, s->has_stats, s->spec_accepted_tokens);
	LIT(b, ",\"cut\":");
	rp_put_bool(b, s->cut);
	if (s->estimated && (s->preempted_known || has_kv)) {
		LIT(b, ",\"estimated\":{");
		if (s->preempted_known)
			LIT(b, "\"preempted\":\"steps\"");
		if (s->preempted_known && has_kv)
			LIT(b, ",");
		if (has_kv)
			LIT(b, "\"kv_cache_usage\":\"steps\"");
		LIT(b, "}");
	}
	if (s->positions && has_kv)
		LIT(b, ",\"estimated\":{\"kv_cache_usage\":\"positions\"}");
	LIT(b, "}");
}

char *rp_step_json(const struct rp_step_info *s, size_t *len)
{
	struct rp_buf b = { 0 };

	put_step(&b, s);
	return rp_buf_own(&b, len);
}

int rp_jsonl_step(struct rp_jsonl *j, const struct rp_step_info *s)
{
	return rp_jsonl_line(j, put_step, s);
}
