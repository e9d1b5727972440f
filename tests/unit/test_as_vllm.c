// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* --compat vllm: what records, gaps, steps and HTTP requests become. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sink/as_vllm.h"
#include "sink/compat.h"
#include "source/recording.h"
#include "timeline/internal.h"

#define MS 1000000LL

struct side {
	struct rp_timeline *tl;
	const struct rp_observer *obs;
	void *state;
};

static struct side side(uint32_t compat)
{
	struct rp_timeline_opts to;
	struct rp_options o = { .compat = compat };
	static struct rp_summary_info info;
	struct side s = { .state = NULL };
	char err[100];

	rp_timeline_defaults(&to);
	s.tl = rp_timeline_new(&to);
	assert_non_null(s.tl);
	assert_int_equal(rp_as_vllm_output.open(&o, &info, s.tl, &s.state, err, sizeof(err)), 0);
	s.obs = s.tl->obs;
	return s;
}

static void end(struct side *s)
{
	rp_as_vllm_output.close(s->state);
	rp_timeline_free(s->tl);
}

static char *text(struct side *s)
{
	struct rp_buf b = { 0 };
	struct rp_expo e = { .b = &b };

	rp_as_vllm_output.metrics(s->state, &e);
	rp_expo_end(&e);
	rp_buf_put(&b, "", 1);
	assert_false(b.oom);
	return b.p;
}

static void has(const char *t, const char *line)
{
	char want[512];

	snprintf(want, sizeof(want), "\n%s\n", line);
	if (!strstr(t, want))
		fail_msg("%s is not in\n%s", line, t);
}

static void hasnt(const char *t, const char *what)
{
	if (strstr(t, what))
		fail_msg("%s is in\n%s", what, t);
}

static struct rp_record record(const char *model)
{
	struct rp_record r;

	memset(&r, 0, sizeof(r));
	snprintf(r.model, sizeof(r.model), "%s", model);
	r.operation = RP_OP_CHAT;
	r.status = 200;
	r.choices = r.asked_n = r.asked_prompts = 1;
	strcpy(r.finish_reason, "length");
	r.max_tokens = RP_NONE;
	r.t_start = r.t_request_end = 1000 * MS;
	r.t_queued = r.t_scheduled = r.t_eng_first = r.t_eng_last = RP_NONE;
	r.t_first_token = r.t_last_token = r.t_end = RP_NONE;
	for (int f = 0; f < RP_FIELD_COUNT; f++)
		r.v[f].why = RP_WHY_NOT_SEEN;
	return r;
}

static void set(struct rp_record *r, enum rp_field f, int64_t v)
{
	r->v[f] = (struct rp_value){ .known = true, .i = v };
}

/* One request of the engine behind it, all known; then one whose counts are not. */
static void test_one(void **st)
{
	struct side s = side(RP_COMPAT_VLLM);
	struct rp_engine_request q = { .t_queued = 1010 * MS,
				       .t_scheduled = 1050 * MS,
				       .t_first = 1150 * MS,
				       .t_last = 1450 * MS,
				       .tokens = 4,
				       .prompt = 100,
				       .cached = 64,
				       .preemptions = 2,
				       .index = 1,
				       .finish = "length" };
	struct rp_record r = record("m");
	char *t;

	(void)st;
	t = text(&s); /* nothing told: no series of an engine, and no made-up zeros */
	hasnt(t, "vllm:num_requests_running{");
	hasnt(t, "model_name");
	free(t);
	r.engine_index = 1;
	r.core_pid = 7;
	r.engine_requests = &q;
	r.n_engine_requests = 1;
	set(&r, RP_FIELD_TOK_COMPLETION, 4);
	set(&r, RP_FIELD_S_TTFT, 155 * MS);
	set(&r, RP_FIELD_S_DURATION, 460 * MS);
	s.obs->record(s.obs->ctx, &r);
	q.tokens = 1;
	q.t_last = q.t_first;
	q.prompt = q.cached = q.preemptions = RP_NONE;
	set(&r, RP_FIELD_TOK_COMPLETION, 1);
	q.finish = "stop";
	s.obs->record(s.obs->ctx, &r);
	/* one that a loss touched is counted, and timed by nobody */
	r.flags = RP_FLAG_LOST_EVENTS;
	s.obs->record(s.obs->ctx, &r);
	t = text(&s);
#define L "{engine=\"1\",model_name=\"m\""
	has(t, "vllm:time_to_first_token_seconds_sum" L "} 0.3");
	has(t, "vllm:time_to_first_token_seconds_bucket" L ",le=\"0.25\"} 2");
	has(t, "vllm:time_to_first_token_seconds_bucket" L ",le=\"0.1\"} 0");
	has(t, "vllm:e2e_request_latency_seconds_sum" L "} 0.6");
	has(t, "vllm:request_queue_time_seconds_sum" L "} 0.08");
	has(t, "vllm:request_prefill_time_seconds_sum" L "} 0.2");
	has(t, "vllm:request_decode_time_seconds_sum" L "} 0.3");
	has(t, "vllm:request_inference_time_seconds_sum" L "} 0.5");
	/* 300 ms for three tokens; and 0 for a request of one, as the engine has it */
	has(t, "vllm:request_time_per_output_token_seconds_sum" L "} 0.1");
	has(t, "vllm:request_time_per_output_token_seconds_count" L "} 2");
	has(t, "vllm:request_prompt_tokens_count" L "} 1");
	has(t, "vllm:request_prompt_tokens_bucket" L ",le=\"100.0\"} 1");
	has(t, "vllm:request_prefill_kv_computed_tokens_sum" L "} 36");
	has(t, "vllm:request_num_preemptions_sum" L "} 2");
	has(t, "vllm:request_generation_tokens_sum" L "} 5");
	has(t, "vllm:request_params_n_sum" L "} 2");
	has(t, "vllm:request_success_total" L ",finished_reason=\"stop\"} 2");
	has(t, "vllm:request_success_total" L ",finished_reason=\"length\"} 1");
	has(t, "vllm:request_success_total" L ",finished_reason=\"repetition\"} 0");
#undef L
	free(t);
	end(&s);
}

/* Instants that are out of order give no sample. */
static void test_order(void **st)
{
	struct side s = side(RP_COMPAT_VLLM);
	struct rp_engine_request q = { .t_queued = 1060 * MS,
				       .t_scheduled = 1050 * MS,
				       .t_first = 1040 * MS,
				       .t_last = 1450 * MS,
				       .tokens = 4,
				       .prompt = 64,
				       .cached = 100,
				       .preemptions = RP_NONE,
				       .finish = "length" };
	struct rp_record r = record("m");
	char *t;

	(void)st;
	r.engine_requests = &q;
	r.n_engine_requests = 1;
	s.obs->record(s.obs->ctx, &r);
	t = text(&s);
#define L "{engine=\"0\",model_name=\"m\""
	has(t, "vllm:request_queue_time_seconds_count" L "} 0");
	has(t, "vllm:request_prefill_time_seconds_count" L "} 0");
	has(t, "vllm:request_inference_time_seconds_sum" L "} 0.4");
	has(t, "vllm:request_prompt_tokens_sum" L "} 64");
	has(t, "vllm:request_prefill_kv_computed_tokens_count" L "} 0");
#undef L
	free(t);
	end(&s);
}

/* How a request ended, by what the engine would call it. */
static void test_ends(void **st)
{
	static const struct {
		enum rp_end end;
		int status;
		const char *word, *reason;
	} e[] = {
		{ RP_END_COMPLETE, 200, "tool_calls", "stop" },
		{ RP_END_COMPLETE, 200, "max_tokens", "length" },
		{ RP_END_COMPLETE, 200, "repetition", "repetition" },
		{ RP_END_COMPLETE, 200, "", "stop" },
		{ RP_END_CLIENT_DISCONNECT, 200, "", "abort" },
		{ RP_END_SERVER_CLOSE, 200, "", "error" },
		{ RP_END_ERROR, 503, "", "error" },
		{ RP_END_ERROR, 200, "", "error" },
		{ RP_END_ERROR, 400, "", NULL },
		{ RP_END_UNKNOWN, 200, "", NULL },
	};

	(void)st;
	for (size_t i = 0; i < sizeof(e) / sizeof(*e); i++) {
		struct side s = side(RP_COMPAT_APHRODITE);
		struct rp_record r = record("m");
		char *t, want[200];

		s.obs->record(s.obs->ctx, &r); /* tells the name */
		r.end = e[i].end;
		r.status = e[i].status;
		snprintf(r.finish_reason, sizeof(r.finish_reason), "%s", e[i].word);
		s.obs->record(s.obs->ctx, &r);
		t = text(&s);
		hasnt(t, "vllm:");
		for (const char *const *w = (const char *const[]){ "stop", "length", "abort",
								   "error", "repetition", NULL };
		     *w; w++) {
			int n = !strcmp(*w, "length"); /* the first one */

			n += e[i].reason && !strcmp(*w, e[i].reason);
			snprintf(
				want, sizeof(want),
				"aphrodite:request_success_total{engine=\"0\",model_name=\"m\",finished_reason=\"%s\"} %d",
				*w, n);
			has(t, want);
		}
		free(t);
		end(&s);
	}
}

/* Three choices are three requests to the engine, and one to who asked. */
static void test_choices(void **st)
{
	struct side s = side(RP_COMPAT_VLLM);
	struct rp_engine_request q[3];
	struct rp_record r = record("m");
	char *t;

	(void)st;
	for (int i = 0; i < 3; i++)
		q[i] = (struct rp_engine_request){ .t_queued = 1000 * MS,
						   .t_scheduled = 1000 * MS,
						   .t_first = (1100 + i) * MS,
						   .t_last = (1200 + i) * MS,
						   .tokens = 10 + i,
						   .prompt = 5,
						   .cached = RP_NONE,
						   .preemptions = RP_NONE,
						   .finish = i ? "stop" : "length" };
	r.engine_requests = q;
	r.n_engine_requests = 3;
	r.more_engine_requests = 2;
	r.choices = r.asked_n = 3;
	set(&r, RP_FIELD_S_DURATION, 300 * MS);
	s.obs->record(s.obs->ctx, &r);
	/* three prompts of one choice each: three to who asked, too */
	r.asked_n = 1;
	r.asked_prompts = 3;
	r.max_tokens = 64;
	r.more_engine_requests = 0;
	s.obs->record(s.obs->ctx, &r);
	t = text(&s);
#define L "{engine=\"0\",model_name=\"m\"}"
	has(t, "vllm:time_to_first_token_seconds_count" L " 6");
	has(t, "vllm:time_to_first_token_seconds_sum" L " 0.606");
	has(t, "vllm:e2e_request_latency_seconds_sum" L " 1.206");
	has(t, "vllm:request_generation_tokens_sum" L " 66");
	has(t, "vllm:request_max_num_generation_tokens_count" L " 4");
	has(t, "vllm:request_max_num_generation_tokens_sum" L " 45");
	has(t, "vllm:request_params_n_count" L " 4");
	has(t, "vllm:request_params_n_sum" L " 6");
	has(t, "vllm:request_num_preemptions_count" L " 0");
	has(t, "vllm:request_params_max_tokens_count" L " 3");
	has(t, "vllm:request_params_max_tokens_sum" L " 192");
	has(t, "reqprobe_compat_limit_hits_total{limit=\"engine_requests\"} 2");
#undef L
	free(t);
	end(&s);
}

static struct rp_step_info step(int64_t index, uint32_t requests, uint32_t tokens, int64_t computed)
{
	return (struct rp_step_info){ .pid = 7,
				      .index = index,
				      .requests = requests,
				      .tokens = tokens,
				      .computed = computed };
}

/* What the engine's steps and scheduler tell, by rank; steps before the first answer. */
static void test_cores(void **st)
{
	struct side s = side(RP_COMPAT_VLLM);
	struct rp_record r = record("m");
	struct rp_step_info i = step(0, 2, 2, 30), none = step(0, 0, 0, 0),
			    unknown = step(0, 1, 1, RP_NONE), cut = step(0, 1, 1, 0);
	char *t;

	(void)st;
	cut.cut = true;
	s.tl->st.n_cores = 2;
	s.tl->st.cores[0] = (struct rp_core){ .pid = 7,
					      .stats = true,
					      .log_stats = true,
					      .running = 3,
					      .waiting = 4,
					      .deferred = 1,
					      .kv_usage = 0.25,
					      .prefix_queries = 100,
					      .prefix_hits = 60,
					      .preemptions = 2,
					      .tokens = 50,
					      .tokens_prompt = 90,
					      .tokens_computed = 30,
					      .tokens_cached = 60,
					      .tokens_cached_local = 60,
					      .cached_known = true,
					      .cached_parts_known = true };
	/* sends no stats, and is of a version that does not tell what was cached */
	s.tl->st.cores[1] = (struct rp_core){ .pid = 8,
					      .index = 1,
					      .deferred = RP_NONE,
					      .kv_usage = NAN,
					      .preemptions = 3,
					      .tokens = 5,
					      .tokens_prompt = 9 };
	s.obs->step(s.obs->ctx, &i);
	s.obs->step(s.obs->ctx, &none);
	s.obs->step(s.obs->ctx, &unknown);
	s.obs->step(s.obs->ctx, &cut);
	t = text(&s);
	hasnt(t, "vllm:iteration_tokens_total_count");
	hasnt(t, "vllm:num_requests_running{");
	free(t);
	r.core_pid = 7;
	s.obs->record(s.obs->ctx, &r);
	r.core_pid = 8;
	r.engine_index = 1;
	s.obs->record(s.obs->ctx, &r);
	s.obs->step(s.obs->ctx, &i);
	t = text(&s);
#define L(x) "{engine=\"" #x "\",model_name=\"m\""
	has(t, "vllm:iteration_tokens_total_bucket" L(0) ",le=\"16.0\"} 0");
	has(t, "vllm:iteration_tokens_total_bucket" L(0) ",le=\"32.0\"} 2");
	has(t, "vllm:iteration_tokens_total_count" L(0) "} 2");
	has(t, "vllm:iteration_tokens_total_sum" L(0) "} 64");
	has(t, "vllm:num_requests_running" L(0) "} 3");
	has(t, "vllm:num_requests_waiting" L(0) "} 5");
	has(t, "vllm:num_requests_waiting_by_reason" L(0) ",reason=\"capacity\"} 4");
	has(t, "vllm:num_requests_waiting_by_reason" L(0) ",reason=\"deferred\"} 1");
	has(t, "vllm:kv_cache_usage_perc" L(0) "} 0.25");
	has(t, "vllm:prefix_cache_hits_total" L(0) "} 60");
	has(t, "vllm:num_preemptions_total" L(0) "} 2");
	has(t, "vllm:generation_tokens_total" L(0) "} 50");
	has(t, "vllm:prompt_tokens_by_source_total" L(0) ",source=\"local_compute\"} 30");
	has(t, "vllm:prompt_tokens_by_source_total" L(0) ",source=\"local_cache_hit\"} 60");
	/* of the other: by our own count, or not at all */
	has(t, "vllm:num_requests_running" L(1) "} 0");
	has(t, "vllm:num_requests_waiting" L(1) "} NaN"); /* no message that adds one is seen */
	has(t, "vllm:prompt_tokens_total" L(1) "} 9");
	/* what it has and can't be told is no 0, and no hole in a panel's list either */
	has(t, "vllm:kv_cache_usage_perc" L(1) "} NaN");
	has(t, "vllm:num_preemptions_total" L(1) "} 3");
	has(t, "vllm:num_requests_waiting_by_reason" L(1) ",reason=\"capacity\"} NaN");
	has(t, "vllm:num_requests_waiting_by_reason" L(1) ",reason=\"deferred\"} NaN");
	hasnt(t, "vllm:prefix_cache_queries_total" L(1));
	hasnt(t, "vllm:prompt_tokens_cached_total" L(1));
	hasnt(t, "spec_decode");
	free(t);
	/* ended: its gauges with it, its totals not */
	s.tl->st.cores[0].gone = true;
	s.tl->st.cores[0].stats = false;
	/* more is known of the other, and less */
	s.tl->st.cores[1].kv_usage = 0.5;
	s.tl->st.cores[1].gaps_unknown = true;
	t = text(&s);
	has(t, "vllm:num_preemptions_total" L(0) "} 2");
	has(t, "vllm:prefix_cache_queries_total" L(0) "} 100");
	has(t, "vllm:prefix_cache_hits_total" L(0) "} 60");
	hasnt(t, "vllm:kv_cache_usage_perc" L(0));
	has(t, "vllm:kv_cache_usage_perc" L(1) "} 0.5");
	has(t, "vllm:num_preemptions_total" L(1) "} NaN");
	hasnt(t, "vllm:num_requests_running" L(0));
	has(t, "vllm:generation_tokens_total" L(0) "} 50");
#undef L
	free(t);
	s.tl->st.n_cores = 0;
	end(&s);
}

/* Drafts, of two engine processes behind one name; the third drafts nothing. */
static void test_drafts(void **st)
{
	struct side s = side(RP_COMPAT_VLLM);
	struct rp_record r = record("m");
	char *t;

	(void)st;
	s.tl->st.n_cores = 3;
	for (unsigned c = 0; c < 2; c++)
		s.tl->st.cores[c] = (struct rp_core){ .pid = 7 + c,
						      .spec = true,
						      .spec_drafts = 10 + c,
						      .spec_draft_tokens = 20 + c,
						      .spec_accepted_tokens = 12 + c,
						      .spec_accepted_at = { 8, 4 + c, c },
						      .spec_positions = 2 + c };
	s.tl->st.cores[2] = (struct rp_core){ .pid = 9, .index = 1 };
	for (unsigned c = 0; c < 3; c++) {
		r.core_pid = 7 + c;
		r.engine_index = c == 2;
		s.obs->record(s.obs->ctx, &r);
	}
	t = text(&s);
#define POS "vllm:spec_decode_num_accepted_tokens_per_pos_total"
#define L "{engine=\"0\",model_name=\"m\""
	has(t, "vllm:spec_decode_num_drafts_total" L "} 21");
	has(t, "vllm:spec_decode_num_draft_tokens_total" L "} 41");
	has(t, "vllm:spec_decode_num_accepted_tokens_total" L "} 25");
	has(t, POS L ",position=\"0\"} 16");
	has(t, POS L ",position=\"1\"} 9");
	has(t, POS L ",position=\"2\"} 1");
	hasnt(t, "position=\"3\"");
	hasnt(t, "drafts_total{engine=\"1\"");
	hasnt(t, POS "{engine=\"1\"");
	assert_ptr_equal(strstr(strstr(t, "TYPE " POS) + 1, "TYPE " POS), NULL);
#undef L
#undef POS
	free(t);
	s.tl->st.n_cores = 0;
	end(&s);
}

/* Steps that are calls of the model: each has its tokens, output or not; prompts' tokens and
 * what was cached are those of the records. Each engine's gauges go to the model it serves. */
static void test_calls(void **st)
{
	struct side s = side(RP_COMPAT_VLLM);
	struct rp_record r = record("m");
	struct rp_step_info i = step(0, 2, 2, RP_NONE), part = step(0, 0, 0, RP_NONE);
	char *t;

	(void)st;
	i.batch = 41;
	part.batch = 512;
	s.tl->st.n_cores = 2;
	for (unsigned c = 0; c < 2; c++)
		s.tl->st.cores[c] = (struct rp_core){ .pid = 7 + c,
						      .stats = true,
						      .log_stats = true,
						      .calls = true,
						      .running = 2,
						      .waiting = 1 + c,
						      .kv_usage = c ? NAN : 0.125,
						      .steps = 2,
						      .tokens = 2,
						      .cached_known = true,
						      .cached_parts_known = true };
	i.pid = part.pid = 7;
	set(&r, RP_FIELD_TOK_PROMPT, 9);
	set(&r, RP_FIELD_TOK_CACHED, 3);
	set(&r, RP_FIELD_TOK_COMPLETION, 4);
	r.pid = 7;
	s.obs->record(s.obs->ctx, &r);
	strcpy(r.model, "second");
	r.pid = 8;
	s.obs->record(s.obs->ctx, &r);
	s.obs->step(s.obs->ctx, &i);
	s.obs->step(s.obs->ctx, &part);
	t = text(&s);
#define L(m) "{engine=\"0\",model_name=\"" m "\""
	has(t, "vllm:iteration_tokens_total_count" L("m") "} 2");
	has(t, "vllm:iteration_tokens_total_sum" L("m") "} 553");
	has(t, "vllm:iteration_tokens_total_count" L("second") "} 0");
	has(t, "vllm:num_requests_running" L("m") "} 2");
	has(t, "vllm:num_requests_waiting" L("m") "} 1");
	has(t, "vllm:num_requests_waiting" L("second") "} 2");
	has(t, "vllm:num_requests_waiting_by_reason" L("m") ",reason=\"capacity\"} 1");
	has(t, "vllm:num_requests_waiting_by_reason" L("m") ",reason=\"deferred\"} 0");
	has(t, "vllm:kv_cache_usage_perc" L("m") "} 0.125");
	has(t, "vllm:kv_cache_usage_perc" L("second") "} NaN");
	has(t, "vllm:num_preemptions_total" L("m") "} 0");
	has(t, "vllm:prompt_tokens_total" L("m") "} 9");
	has(t, "vllm:generation_tokens_total" L("m") "} 4");
	has(t, "vllm:prompt_tokens_by_source_total" L("m") ",source=\"local_compute\"} 6");
	has(t, "vllm:prompt_tokens_by_source_total" L("m") ",source=\"local_cache_hit\"} 3");
	has(t, "vllm:prefix_cache_queries_total" L("m") "} 9");
	has(t, "vllm:prefix_cache_hits_total" L("m") "} 3");
	hasnt(t, "spec_decode");
	free(t);
	/* attached while it worked: how many run and wait is not known, and not 0 */
	s.tl->st.cores[0].running = s.tl->st.cores[0].waiting = RP_NONE;
	s.tl->st.cores[0].kv_usage = NAN;
	t = text(&s);
	has(t, "vllm:num_requests_running" L("m") "} NaN");
	has(t, "vllm:num_requests_waiting" L("m") "} NaN");
	has(t, "vllm:num_requests_waiting_by_reason" L("m") ",reason=\"capacity\"} NaN");
	has(t, "vllm:kv_cache_usage_perc" L("m") "} NaN");
	has(t, "vllm:num_requests_running" L("second") "} 2");
#undef L
	free(t);
	s.tl->st.n_cores = 0;
	end(&s);
}

/* One observation for each output, whatever it brought; names as told by answers. */
static void test_gaps(void **st)
{
	struct side s = side(RP_COMPAT_VLLM);
	struct rp_gap_info g = { .model = "made-up",
				 .asked = true,
				 .source = RP_ITL_ENGINE,
				 .gap_ns = 10 * MS,
				 .n = 3,
				 .whole_ns = 30 * MS };
	char *t;

	(void)st;
	s.obs->gap(s.obs->ctx, &g); /* no answer has told a name yet */
	g.model = "m";
	g.asked = false;
	s.obs->gap(s.obs->ctx, &g);
	g.model = "made-up";
	g.asked = true;
	s.obs->gap(s.obs->ctx, &g);
	g.whole_ns = RP_NONE;
	s.obs->gap(s.obs->ctx, &g);
	g.whole_ns = 5 * MS;
	g.chunk = true;
	s.obs->gap(s.obs->ctx, &g);
	t = text(&s);
	hasnt(t, "made-up");
	has(t, "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"m\"} 2");
	has(t, "vllm:inter_token_latency_seconds_sum{engine=\"0\",model_name=\"m\"} 0.06");
	free(t);
	end(&s);
}

static void test_bounded(void **st)
{
	struct side s = side(RP_COMPAT_VLLM | RP_COMPAT_APHRODITE);
	struct rp_record r;
	char name[32], *t;
	size_t n = 0;

	(void)st;
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "m%d", i);
		r = record(name);
		r.status = i < 5 ? 404 : i < 10 ? 500 : 200; /* refused: no name */
		r.end = i < 10 ? RP_END_ERROR : RP_END_COMPLETE;
		s.obs->record(s.obs->ctx, &r);
	}
	t = text(&s);
	hasnt(t, "\"m4\"");
	hasnt(t, "\"m9\"");
	has(t,
	    "vllm:request_success_total{engine=\"0\",model_name=\"m72\",finished_reason=\"length\"} 1");
	has(t,
	    "vllm:request_success_total{engine=\"0\",model_name=\"other\",finished_reason=\"length\"} 27");
	has(t, "reqprobe_compat_limit_hits_total{limit=\"label_sets\"} 27");
	for (const char *p = t; (p = strstr(p, "\nvllm:e2e_request_latency_seconds_count{")); p++)
		n++;
	assert_int_equal(n, 64);
	free(t);
	end(&s);
}

/* A model may be called as those are that had no room, and as bytes that are no text. */
static void test_names(void **st)
{
	struct side s = side(RP_COMPAT_VLLM);
	struct rp_gap_info g = { .gap_ns = MS, .whole_ns = MS, .n = 1 };
	struct rp_record r;
	const char *line[400];
	char name[32], *t;
	size_t n = 0;

	(void)st;
	for (int i = 0; i < 100; i++) {
		static const char *const odd[] = { "other",   "a\xff", "a\x1f",
						   "unknown", "",      "_other" };

		snprintf(name, sizeof(name), "m%d", i);
		r = record(i < 6 ? odd[i] : name);
		s.obs->record(s.obs->ctx, &r);
		g.model = r.model;
		s.obs->gap(s.obs->ctx, &g);
	}
	t = text(&s);
#define LENGTH ",finished_reason=\"length\"} "
	has(t, "vllm:request_success_total{engine=\"0\",model_name=\"_other\"" LENGTH "1");
	has(t, "vllm:request_success_total{engine=\"0\",model_name=\"__other\"" LENGTH "1");
	has(t, "vllm:request_success_total{engine=\"0\",model_name=\"_unknown\"" LENGTH "1");
	has(t, "vllm:request_success_total{engine=\"0\",model_name=\"unknown\"" LENGTH "1");
	has(t, "vllm:request_success_total{engine=\"0\",model_name=\"a\xef\xbf\xbd\"" LENGTH "2");
	has(t, "vllm:request_success_total{engine=\"0\",model_name=\"other\"" LENGTH "36");
	has(t, "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"_other\"} 1");
	has(t,
	    "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"a\xef\xbf\xbd\"} 2");
#undef LENGTH
	for (const char *p = t; (p = strstr(p, "\nvllm:request_success_total{")); p++) {
		size_t len = (size_t)((char *)memchr(p, ' ', 512) - p);

		line[n] = p;
		for (size_t i = 0; i < n; i++)
			if (!memcmp(line[i], p, len + 1))
				fail_msg("twice: %.200s", p);
		n++;
		assert_true(n < sizeof(line) / sizeof(*line));
	}
	assert_int_equal(n, 64 * 5);
	free(t);
	/* a name that only a client told is the last model's, whatever that is called */
	r = record("other");
	s.obs->record(s.obs->ctx, &r);
	r = record("made-up");
	r.status = 500;
	r.end = RP_END_ERROR;
	s.obs->record(s.obs->ctx, &r);
	t = text(&s);
	has(t,
	    "vllm:request_success_total{engine=\"0\",model_name=\"_other\",finished_reason=\"error\"} 1");
	free(t);
	end(&s);
	/* and so is that of an engine process that answered nothing yet */
	s = side(RP_COMPAT_VLLM);
	r = record("other");
	s.obs->record(s.obs->ctx, &r);
	s.tl->st.n_cores = 1;
	s.tl->st.cores[0] = (struct rp_core){ .pid = 8, .index = 1, .tokens = 9 };
	t = text(&s);
	has(t, "vllm:generation_tokens_total{engine=\"1\",model_name=\"_other\"} 9");
	s.tl->st.n_cores = 0;
	free(t);
	end(&s);
}

static void http(struct side *s, const char *method, const char *path, int status, int64_t in)
{
	s->obs->http(s->obs->ctx, &(struct rp_http_info){ .method = method,
							  .path = path,
							  .status = status,
							  .request_length = in,
							  .response_length = RP_NONE,
							  .duration_ns = 200 * MS,
							  .complete = true });
}

static void test_http(void **st)
{
	struct side s = side(RP_COMPAT_VLLM);
	char *t, path[64];

	(void)st;
	http(&s, "POST", "/v1/chat/completions", 200, 100);
	http(&s, "POST", "/v1/chat/completions", 201, 11);
	http(&s, "POST", "/v1/chat/completions", 400, RP_NONE);
	http(&s, "GET", "/v1/responses/resp_1", 200, RP_NONE);
	http(&s, "GET", "/health", 200, RP_NONE);
	http(&s, "GET", "/metrics", 200, RP_NONE);
	http(&s, "GET", "/v1/models", 200, RP_NONE);
	http(&s, "GET", "/v1/models", 99, RP_NONE);
	for (int i = 0; i < 1000; i++) { /* anybody's words make one series */
		snprintf(path, sizeof(path), "/wp-admin/%d", i);
		http(&s, i % 2 ? "GET" : "BREW", path, 404, RP_NONE);
	}
	t = text(&s);
	has(t,
	    "http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"2xx\"} 2");
	has(t,
	    "http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"4xx\"} 1");
	has(t,
	    "http_requests_total{handler=\"/v1/responses/{response_id}\",method=\"GET\",status=\"2xx\"} 1");
	has(t, "http_requests_total{handler=\"/v1/models\",method=\"GET\",status=\"2xx\"} 1");
	has(t, "http_requests_total{handler=\"none\",method=\"GET\",status=\"4xx\"} 500");
	has(t, "http_requests_total{handler=\"none\",method=\"other\",status=\"4xx\"} 500");
	has(t, "http_request_size_bytes_sum{handler=\"/v1/chat/completions\"} 111");
	has(t, "http_request_size_bytes_count{handler=\"/v1/chat/completions\"} 3");
	has(t, "http_response_size_bytes_sum{handler=\"none\"} 0");
	has(t, "http_request_duration_highr_seconds_count 1005");
	has(t,
	    "http_request_duration_seconds_bucket{handler=\"none\",method=\"GET\",le=\"0.5\"} 500");
	has(t,
	    "http_request_duration_seconds_bucket{handler=\"none\",method=\"GET\",le=\"0.1\"} 0");
	hasnt(t, "health");
	hasnt(t, "wp-admin");
	free(t);
	end(&s);
}

/* An engine of which only sockets are seen: what its answers tell. */
static void test_generic(void **st)
{
	struct side s = side(RP_COMPAT_VLLM);
	struct rp_record r = record("m");
	char *t;

	(void)st;
	r.t_first_token = 1100 * MS;
	r.t_last_token = 1400 * MS;
	set(&r, RP_FIELD_TOK_COMPLETION, 4);
	set(&r, RP_FIELD_TOK_PROMPT, 10);
	set(&r, RP_FIELD_S_TTFT, 120 * MS); /* not the engine's: on the wire */
	set(&r, RP_FIELD_S_DURATION, 450 * MS);
	s.obs->record(s.obs->ctx, &r);
	s.tl->st.in_flight = 3;
	t = text(&s);
#define L "{engine=\"0\",model_name=\"m\"}"
	has(t, "vllm:num_requests_running" L " 3");
	hasnt(t, "vllm:num_requests_waiting{");
	has(t, "vllm:prompt_tokens_total" L " 10");
	has(t, "vllm:generation_tokens_total" L " 4");
	hasnt(t, "vllm:prompt_tokens_cached_total{");
	hasnt(t, "vllm:prefix_cache_queries_total{");
	hasnt(t, "vllm:kv_cache_usage_perc");
	has(t, "vllm:request_queue_time_seconds_count" L " 0");
	has(t, "vllm:time_to_first_token_seconds_sum" L " 0.12");
	has(t, "vllm:e2e_request_latency_seconds_sum" L " 0.45");
	has(t, "vllm:request_decode_time_seconds_sum" L " 0.3");
	has(t, "vllm:request_time_per_output_token_seconds_sum" L " 0.1");
	free(t);
	set(&r, RP_FIELD_TOK_CACHED, 6);
	s.obs->record(s.obs->ctx, &r);
	s.tl->st.scheduler_known = true;
	s.tl->st.running = 2;
	s.tl->st.waiting = 1;
	t = text(&s);
	has(t, "vllm:num_requests_running" L " 2");
	has(t, "vllm:num_requests_waiting" L " 1");
	has(t, "vllm:prefix_cache_queries_total" L " 10"); /* of the one that told */
	has(t, "vllm:prefix_cache_hits_total" L " 6");
#undef L
	free(t);
	s.tl->st.in_flight = 0;
	end(&s);
}

/* Recordings of real engines: what their requests, outputs and HTTP come to. */
static int feed(void *ctx, const struct rp_event_hdr *ev)
{
	struct side *s = ctx;

	rp_timeline_event(s->tl, ev, NULL);
	return 0;
}

static char *replayed(const char *file)
{
	struct side s = side(RP_COMPAT_VLLM);
	char err[200] = "", *t;

	if (rp_rec_replay(file, feed, &s, err, sizeof(err)))
		fail_msg("%s", err);
	rp_timeline_finish(s.tl);
	t = text(&s);
	end(&s);
	return t;
}

static void test_recordings(void **st)
{
	char *t = replayed("tests/replay/vllm-0.32.0.rec");

	(void)st;
	/* 12 HTTP requests: one of two choices, one that the client left */
#define L "{engine=\"0\",model_name=\"tiny\""
	has(t, "vllm:request_success_total" L ",finished_reason=\"length\"} 10");
	has(t, "vllm:request_success_total" L ",finished_reason=\"stop\"} 2");
	has(t, "vllm:request_success_total" L ",finished_reason=\"abort\"} 1");
	has(t, "vllm:e2e_request_latency_seconds_count" L "} 12");
	has(t, "vllm:request_queue_time_seconds_count" L "} 12");
	has(t, "vllm:time_to_first_token_seconds_count" L "} 13");
	has(t, "vllm:inter_token_latency_seconds_count" L "} 87");
	has(t, "vllm:request_generation_tokens_sum" L "} 95");
	has(t, "vllm:generation_tokens_total" L "} 100");
	has(t, "vllm:request_num_preemptions_sum" L "} 0");
	has(t, "vllm:prompt_tokens_cached_total" L "} 128"); /* as the scheduler says */
	has(t, "vllm:prefix_cache_hits_total" L "} 128");
	has(t, "vllm:prompt_tokens_total" L "} 1551");
	has(t, "vllm:prefix_cache_queries_total" L "} 1551");
	has(t,
	    "http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"2xx\"} 7");
	has(t, "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} 5");
	free(t);
	/* a version that tells how many wait, and not why */
	t = replayed("tests/replay/vllm-0.12.0.rec");
	has(t, "vllm:num_requests_waiting_by_reason" L ",reason=\"capacity\"} 0");
	has(t, "vllm:num_requests_waiting_by_reason" L ",reason=\"deferred\"} 0");
	free(t);
	/* log stats off, started under our eyes, 8 blocks of cache for four requests at once */
	t = replayed("tests/replay/vllm-0.32.0-no-stats.rec");
	has(t, "vllm:num_preemptions_total" L "} 3");
	has(t, "vllm:request_num_preemptions_sum" L "} 3");
	has(t, "vllm:request_num_preemptions_count" L "} 6");
	has(t, "vllm:kv_cache_usage_perc" L "} 0");
	has(t, "vllm:num_requests_waiting" L "} 0");
	has(t, "vllm:num_requests_waiting_by_reason" L ",reason=\"capacity\"} 0");
	has(t, "vllm:num_requests_waiting_by_reason" L ",reason=\"deferred\"} 0");
#undef L
	free(t);
	t = replayed("tests/replay/llama-b11434.rec");
#define L "{engine=\"0\",model_name=\"gemma-3-270m-q4_km\""
	has(t, "vllm:request_success_total" L ",finished_reason=\"length\"} 5");
	has(t, "vllm:request_success_total" L ",finished_reason=\"abort\"} 1");
	has(t, "vllm:e2e_request_latency_seconds_count" L "} 5");
	has(t, "vllm:request_queue_time_seconds_count" L "} 5");
	has(t, "vllm:time_to_first_token_seconds_count" L "} 6");
	has(t, "vllm:inter_token_latency_seconds_count" L "} 97");
	has(t, "vllm:generation_tokens_total" L "} 103");
	has(t, "vllm:prompt_tokens_total" L "} 92");
	has(t, "vllm:num_requests_running" L "} 0");
	has(t, "vllm:num_requests_waiting" L "} 0");
	hasnt(t, "vllm:kv_cache_usage_perc");
	has(t,
	    "http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"4xx\"} 1");
#undef L
	free(t);
}

static void test_off(void **st)
{
	struct side s = side(0);

	(void)st;
	assert_null(s.state);
	assert_int_equal(s.tl->n_obs, 0);
	rp_timeline_free(s.tl);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one),	   cmocka_unit_test(test_ends),
		cmocka_unit_test(test_order),	   cmocka_unit_test(test_choices),
		cmocka_unit_test(test_cores),	   cmocka_unit_test(test_drafts),
		cmocka_unit_test(test_calls),	   cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_bounded),	   cmocka_unit_test(test_http),
		cmocka_unit_test(test_names),	   cmocka_unit_test(test_generic),
		cmocka_unit_test(test_recordings), cmocka_unit_test(test_off),
	};

	return cmocka_run_group_tests_name("as_vllm", tests, NULL, NULL);
}
