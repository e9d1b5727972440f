// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The formulas, against figures worked out by hand. Case names (A1, B7, ...)
 * are those of the project's list of cases.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record/record.h"
#include "reqprobe/event.h"

#define MS 1000000LL

static uint64_t rnd_state = 88172645463325252ULL;
static uint64_t rnd(void)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return rnd_state;
}

/* A streaming chat request of which nothing but the request was seen. */
static struct rp_record blank(void)
{
	struct rp_record r;

	memset(&r, 0, sizeof(r));
	r.engine_name = "vllm";
	r.engine_version = "";
	r.operation = RP_OP_CHAT;
	r.status = 200;
	r.stream = 1;
	r.choices = 1;
	r.t_start = 1000 * MS;
	r.t_request_end = 1000 * MS;
	r.t_first_byte = r.t_first_event = r.t_first_token = r.t_second_token = r.t_first_output =
		r.t_last_token = r.t_end = RP_NONE;
	r.t_queued = r.t_scheduled = r.t_eng_first = r.t_eng_last = RP_NONE;
	r.t_established = 999 * MS;
	r.tok_prompt = r.tok_completion_usage = r.tok_cached = r.tok_reasoning = RP_NONE;
	r.tok_prompt_engine = r.tok_engine = r.chunk_tokens = RP_NONE;
	r.t_first_body = r.t_last_body = r.first_chunk_tokens = RP_NONE;
	r.rtt_us = 31;
	r.rtt_status = RP_RTT_HANDSHAKE;
	r.preemptions = r.requeues = r.steps = r.preempted_ns = r.requeue_ns = RP_NONE;
	r.e_queued = r.e_scheduled = r.e_first = r.e_last = NAN;
	r.engine_why = RP_WHY_NO_ENGINE_HOOKS;
	return r;
}

/* ENGINES.md 1.7: chatcmpl-my-req-1 on vLLM 0.32.0 */
static struct rp_record vllm(void)
{
	struct rp_record r = blank();

	r.joined = true;
	r.engine_why = RP_WHY_NONE;
	r.t_queued = 2803921513000LL;
	r.t_scheduled = r.t_queued + 32138;
	r.t_eng_first = r.t_scheduled + 10665429;
	r.t_eng_last = r.t_eng_first + 19468061;
	r.t_start = r.t_queued - 3 * MS;
	r.t_request_end = r.t_queued - 2 * MS;
	r.t_first_byte = r.t_first_event = r.t_queued + 5 * MS;
	r.t_first_token = r.t_first_output = r.t_eng_first + 500000;
	r.t_second_token = r.t_first_token + 4 * MS;
	r.t_last_token = r.t_first_token + 20 * MS;
	r.t_end = r.t_last_token + 100000;
	r.t_established = r.t_start - 200000;
	r.tok_prompt = 11;
	r.tok_engine = r.tok_completion_usage = r.chunks = 6;
	r.steps = 6;
	return r;
}

static const char *name(int f)
{
	static char t[80];

	snprintf(t, sizeof(t), "%s.%s", rp_field_defs[f].group, rp_field_defs[f].name);
	return t;
}

#define F(r, f) (&(r)->v[RP_FIELD_##f])
#define is(r, f, want)                                                  \
	do {                                                            \
		if (!F(r, f)->known)                                    \
			fail_msg("%s is null (%s)", name(RP_FIELD_##f), \
				 rp_reason_names[F(r, f)->why]);        \
		assert_int_equal(F(r, f)->i, want);                     \
	} while (0)
#define is_d(r, f, want)                                                \
	do {                                                            \
		if (!F(r, f)->known)                                    \
			fail_msg("%s is null (%s)", name(RP_FIELD_##f), \
				 rp_reason_names[F(r, f)->why]);        \
		assert_true(F(r, f)->d == (want));                      \
	} while (0)
#define is_null(r, f, reason)                                           \
	do {                                                            \
		if (F(r, f)->known)                                     \
			fail_msg("%s is not null", name(RP_FIELD_##f)); \
		assert_string_equal(rp_reason_names[F(r, f)->why],      \
				    rp_reason_names[RP_WHY_##reason]);  \
	} while (0)

static void test_vllm_metrics(void **s)
{
	struct rp_record r = vllm();
	char t[32];

	(void)s;
	rp_derive(&r);
	is_d(&r, M_QUEUE, 0.032138);
	is_d(&r, M_TTFT, 10.665429);
	is_d(&r, M_GENERATION, 19.468061);
	is_d(&r, M_MEAN_ITL, 3.8936122);
	/* vLLM prints eight decimals */
	snprintf(t, sizeof(t), "%.8f", F(&r, M_TPS)->d);
	assert_string_equal(t, "199.11400903");
	is(&r, TOK_COMPLETION, 6);
	assert_int_equal(r.token_source, RP_TOKENS_ENGINE);
	is(&r, TOK_PROMPT, 11);
	is_null(&r, TOK_CACHED, NOT_REPORTED);
	is_null(&r, TOK_REASONING, NOT_REPORTED);
	is(&r, SCH_STEPS, 6);
	is_null(&r, SCH_PREEMPTIONS, NOT_REPORTED);
}

/*
 * The engine's own doubles, in its own order of operations. What is wanted is
 * what build_per_request_timing_metrics() gives for these four instants and n,
 * as Python prints it.
 */
static void test_engine_arithmetic(void **s)
{
	static const struct {
		double queued, scheduled, first, last;
		int64_t n;
		const char *queue, *ttft, *generation, *itl, *tps;
	} t[] = {
		{ 2803.921513, 2803.921545138, 2803.932210567, 2803.951678628, 6,
		  "0.03213800027879188", "10.665428999800497", "19.468061000225134",
		  "3.893612200045027", "199.11400903097837" },
		{ 13.122901694, 13.130319563, 13.209838919, 13.209838919, 1, "7.417869000001076",
		  "79.51935599999871", "0.0", NULL, "12.575554560577883" },
		{ 13.442450283, 13.449849268, 13.542081767, 13.542661871, 2, "7.398985000000025",
		  "92.23249900000141", "0.580103999999082", "0.580103999999082",
		  "21.548797634734903" },
		{ 12.965622654, 12.975056221, 13.039953676, 13.10301671, 7, "9.433566999998533",
		  "64.89745500000055", "63.063034000000684", "10.51050566666678",
		  "54.70438613281583" },
		{ 12.613205964, 12.617896654, 12.642553937, 13.338567836, 128, "4.69069000000033",
		  "24.657282999999808", "696.0138989999987", "5.480424401574793",
		  "177.6122081706887" },
		{ 285120.573941187, 285120.574072328, 285120.595745308, 285120.595745308, 1,
		  "0.13114098692312837", "21.672979986760765", "0.0", NULL, "46.14040157887211" },
		{ 285120.279482366, 285120.288645819, 285120.365218364, 285120.368410448, 2,
		  "9.163453010842204", "76.5725449891761", "3.1920840265229344",
		  "3.1920840265229344", "25.073770475461824" },
		{ 285120.797146991, 285120.798534665, 285120.860279917, 285120.869148863, 7,
		  "1.387674012221396", "61.74525199458003", "8.868945995345712",
		  "1.4781576658909519", "99.1302060953615" },
		{ 285120.001774862, 285120.010488909, 285120.031434547, 285120.307250443, 128,
		  "8.714047027751803", "20.945637952536345", "275.8158959913999", "2.1717787085937",
		  "431.3227469169962" },
		{ 17340480.982421108, 17340480.991145186, 17340481.0200757, 17340481.0200757, 1,
		  "8.72407853603363", "28.93051505088806", "0.0", NULL, "34.56557887894581" },
		{ 17340480.961477987, 17340480.966870222, 17340481.03465327, 17340481.03874886, 2,
		  "5.392234772443771", "67.78304651379585", "4.095591604709625",
		  "4.095591604709625", "27.824678546394036" },
		{ 17340480.940976, 17340480.94788242, 17340481.04453885, 17340481.10710077, 7,
		  "6.906419992446899", "96.6564305126667", "62.561918050050735",
		  "10.426986341675123", "43.964782094462194" },
		{ 17340480.298788898, 17340480.302400798, 17340480.318996403, 17340480.505494848,
		  128, "3.6118999123573303", "16.59560576081276", "186.49844452738762",
		  "1.4684916891920285", "630.2498759484178" },
	};
	struct rp_record r;

	(void)s;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		r = vllm();
		r.e_queued = t[i].queued;
		r.e_scheduled = t[i].scheduled;
		r.e_first = t[i].first;
		r.e_last = t[i].last;
		r.tok_engine = r.tok_completion_usage = t[i].n;
		rp_derive(&r);
		is_d(&r, M_QUEUE, strtod(t[i].queue, NULL));
		is_d(&r, M_TTFT, strtod(t[i].ttft, NULL));
		is_d(&r, M_GENERATION, strtod(t[i].generation, NULL));
		if (t[i].itl)
			is_d(&r, M_MEAN_ITL, strtod(t[i].itl, NULL));
		else
			is_null(&r, M_MEAN_ITL, ONE_TOKEN);
		is_d(&r, M_TPS, strtod(t[i].tps, NULL));
		/* phases are ours, in nanoseconds */
		is(&r, P_QUEUE, 32138);
	}
}

/* Each figure falls back on its own, and a mistake in order is one here, too. */
static void test_engine_partly(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	r.e_scheduled = 100;
	r.e_first = 100.5;
	r.e_last = 102.5;
	rp_derive(&r); /* no e_queued: the estimate's instants */
	is_d(&r, M_QUEUE, 0.032138);
	is_d(&r, M_TTFT, 500.0);
	is_d(&r, M_GENERATION, 2000.0);
	is_d(&r, M_MEAN_ITL, 400.0);
	is_d(&r, M_TPS, 2.4);

	r.e_scheduled = NAN; /* neither event: a build without them */
	rp_derive(&r);
	is_d(&r, M_TTFT, 10.665429);
	is_d(&r, M_GENERATION, 2000.0);
	r.e_first = r.e_last = 0; /* the engine's own word for none */
	rp_derive(&r);
	is_d(&r, M_GENERATION, 19.468061);
	is_d(&r, M_MEAN_ITL, 3.8936122);

	r.e_queued = 101;
	r.e_scheduled = 100;
	r.e_first = 99;
	r.e_last = 98;
	rp_derive(&r);
	is_null(&r, M_QUEUE, INVALID);
	is_null(&r, M_TTFT, INVALID);
	is_null(&r, M_GENERATION, INVALID);
	is_null(&r, M_MEAN_ITL, INVALID);
	is_null(&r, M_TPS, INVALID);
	r.e_first = r.e_last = r.e_scheduled;
	rp_derive(&r);
	is_null(&r, M_TPS, INVALID); /* no rate over no time */
	r.e_scheduled = 1e-300;
	r.e_last = 1e308;
	rp_derive(&r);
	is_null(&r, M_TPS, INVALID);
	r.e_last = INFINITY;
	rp_derive(&r);
	assert_true(F(&r, M_TPS)->known); /* no instant: by ours */

	r = vllm();
	r.e_queued = 1;
	r.e_scheduled = 2;
	r.choices = 2;
	rp_derive(&r);
	is_null(&r, M_QUEUE, SEVERAL_CHOICES);
}

/* A stop string is found in the front end: what the engine sampled beyond it is
 * no part of the answer. */
static void test_stop_string(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	r.tok_engine = 8;
	r.tok_completion_usage = 6;
	rp_derive(&r);
	is(&r, TOK_COMPLETION, 6);
	assert_int_equal(r.token_source, RP_TOKENS_USAGE);
	is_d(&r, M_MEAN_ITL, 3.8936122);
	/* more than sampled is not the engine's: what was seen stands */
	r.tok_completion_usage = 9;
	rp_derive(&r);
	is(&r, TOK_COMPLETION, 8);
	assert_int_equal(r.token_source, RP_TOKENS_ENGINE);
	r.tok_completion_usage = RP_NONE;
	rp_derive(&r);
	is(&r, TOK_COMPLETION, 8);
	/* nor is that of one choice the count of all */
	r.choices = 2;
	r.tok_completion_usage = 6;
	rp_derive(&r);
	is(&r, TOK_COMPLETION, 8);
	r.choices = 1;
	/* broken off: a usage on the way is not the last word */
	r.tok_completion_usage = 6;
	r.end = RP_END_CLIENT_DISCONNECT;
	rp_derive(&r);
	is(&r, TOK_COMPLETION, 8);
	assert_int_equal(r.token_source, RP_TOKENS_ENGINE);
}

static void event_times(struct rp_record *r, const int *ms, int n)
{
	int64_t t = r->t_request_end;

	r->t_first_token = t + ms[0] * MS;
	r->t_second_token = n > 1 ? t + ms[1] * MS : RP_NONE;
	r->t_last_token = t + ms[n - 1] * MS;
	r->t_first_output = r->t_first_token;
	r->chunks = n;
}

static void test_frontend(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	rp_derive(&r);
	is(&r, FE_BEFORE, 2 * MS);
	is(&r, FE_FIRST, 500000);
	is(&r, FE_LAST, 20500000 - 19468061);
	r.choices = 2;
	rp_derive(&r);
	is(&r, FE_FIRST, 500000);

	/* the last token is an end of sequence: no text, no event, no mistake */
	r.t_last_token = r.t_eng_last - 1;
	rp_derive(&r);
	is_null(&r, FE_LAST, NO_TOKEN);
	r.end = RP_END_CLIENT_DISCONNECT;
	rp_derive(&r);
	is_null(&r, FE_LAST, NOT_REACHED);
	r.end = RP_END_COMPLETE;
	r.t_last_token = r.t_eng_first - 1;
	rp_derive(&r);
	is_null(&r, FE_LAST, INVALID);
	r.t_first_token = r.t_eng_first - 1;
	rp_derive(&r);
	is_null(&r, FE_FIRST, INVALID);

	r = vllm();
	r.stream = 0;
	r.t_first_event = r.t_first_token = r.t_second_token = r.t_first_output = r.t_last_token =
		RP_NONE;
	rp_derive(&r);
	is(&r, FE_BEFORE, 2 * MS);
	is_null(&r, FE_FIRST, NOT_STREAMING);
	is_null(&r, FE_LAST, NOT_STREAMING);

	r = blank();
	event_times(&r, (int[]){ 210, 260, 310 }, 3);
	rp_derive(&r);
	is_null(&r, FE_BEFORE, NO_ENGINE_HOOKS);
	is_null(&r, FE_FIRST, NO_ENGINE_HOOKS);
	is_null(&r, FE_LAST, NO_ENGINE_HOOKS);
}

static void test_waits(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	rp_derive(&r);
	is_null(&r, SCH_PREEMPTED, NOT_REPORTED);
	is_null(&r, SCH_REQUEUE, NOT_REPORTED);
	r.preemptions = 2;
	r.preempted_ns = 30 * MS;
	r.requeues = r.requeue_ns = 0;
	rp_derive(&r);
	is(&r, SCH_PREEMPTED, 30 * MS);
	is(&r, SCH_REQUEUE, 0);
	r.preempted_ns = -1;
	rp_derive(&r);
	is_null(&r, SCH_PREEMPTED, INVALID);
}

static void test_phases_add_up(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	rp_derive(&r);
	is(&r, P_RECEIVE, 1 * MS);
	is(&r, P_FRONTEND, 2 * MS);
	is(&r, P_QUEUE, 32138);
	is(&r, P_PREFILL, 10665429);
	is(&r, P_DECODE, 19468061);
	/* t_end = eng_first + 0.5 + 20 + 0.1 ms */
	is(&r, P_FLUSH, 20600000 - 19468061);
	is(&r, S_DURATION, 2 * MS + 32138 + 10665429 + 20600000);

	for (int i = 0; i < 100000; i++) {
		int64_t sum = 0;

		r.t_request_end = (int64_t)(rnd() >> 8);
		r.t_queued = r.t_request_end + (int64_t)(rnd() >> 24);
		r.t_scheduled = r.t_queued + (int64_t)(rnd() >> 24);
		r.t_eng_first = r.t_scheduled + (int64_t)(rnd() >> 24);
		r.t_eng_last = r.t_eng_first + (int64_t)(rnd() >> 24);
		r.t_end = r.t_eng_last + (int64_t)(rnd() >> 24);
		rp_derive(&r);
		for (int f = RP_FIELD_P_FRONTEND; f <= RP_FIELD_P_FLUSH; f++) {
			assert_true(r.v[f].known);
			sum += r.v[f].i;
		}
		is(&r, S_DURATION, sum);
	}
}

/* One instant unknown: only the phases that need it are null. */
static void test_phase_unknown(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	r.t_eng_first = RP_NONE;
	r.engine_why = RP_WHY_LOST;
	rp_derive(&r);
	is(&r, P_QUEUE, 32138);
	is_null(&r, P_PREFILL, LOST);
	is_null(&r, P_DECODE, LOST);
	assert_true(F(&r, P_FLUSH)->known);
	is_null(&r, M_TTFT, LOST);
	is_null(&r, M_GENERATION, LOST);
	is_null(&r, M_MEAN_ITL, LOST);
	/* n / (last - scheduled) doesn't need it */
	assert_true(F(&r, M_TPS)->known);
}

static void test_several_choices(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	r.choices = 2;
	r.tok_engine = 12;
	rp_derive(&r);
	for (int f = RP_FIELD_M_TTFT; f <= RP_FIELD_M_TPS; f++) {
		assert_false(r.v[f].known);
		assert_int_equal(r.v[f].why, RP_WHY_SEVERAL_CHOICES);
	}
	is(&r, P_QUEUE, 32138);
	is(&r, TOK_COMPLETION, 12);
	assert_true(F(&r, S_TTFT)->known);
}

/* C4: ROLE 10, tokens 210 260 310, finish 320, usage 500, [DONE] 510 */
static void test_c4_which_event(void **s)
{
	struct rp_record r = blank();

	(void)s;
	event_times(&r, (int[]){ 210, 260, 310 }, 3);
	r.t_first_byte = r.t_request_end + 9 * MS;
	r.t_first_event = r.t_request_end + 10 * MS;
	r.t_end = r.t_request_end + 510 * MS;
	r.tok_completion_usage = 3;
	r.keepalives = 0;
	rp_derive(&r);
	is(&r, S_FIRST_BYTE, 9 * MS);
	is(&r, S_FIRST_EVENT, 10 * MS);
	is(&r, S_TTFT, 210 * MS);
	is(&r, S_TTST, 50 * MS);
	is(&r, S_LAST_TOKEN, 310 * MS);
	is(&r, S_DURATION, 510 * MS);
	is_d(&r, S_MEAN_ICL, 50.0);
	is(&r, S_CHUNKS, 3);
	is(&r, S_KEEPALIVES, 0);
	is(&r, TOK_COMPLETION, 3);
	assert_int_equal(r.token_source, RP_TOKENS_USAGE);
	is_null(&r, M_QUEUE, NO_ENGINE_HOOKS);
	is_null(&r, P_QUEUE, NO_ENGINE_HOOKS);
	is_null(&r, SCH_STEPS, NO_ENGINE_HOOKS);
	is(&r, P_RECEIVE, 0);
	is(&r, C_TTFT, 210 * MS + 31000);
	is(&r, C_DURATION, 510 * MS + 31000);
	assert_false(r.flags & RP_FLAG_ESTIMATED);
}

/* C2: reasoning 100 150 200, content 800 850 */
static void test_c2_reasoning(void **s)
{
	struct rp_record r = blank();

	(void)s;
	event_times(&r, (int[]){ 100, 150, 850 }, 3);
	r.chunks = 5;
	r.t_first_output = r.t_request_end + 800 * MS;
	r.t_end = r.t_request_end + 860 * MS;
	rp_derive(&r);
	is(&r, S_TTFT, 100 * MS);
	is(&r, S_TTFO, 800 * MS);
	is_d(&r, S_MEAN_ICL, 187.5);

	/* thinking only, to the end of the budget */
	r.t_first_output = RP_NONE;
	rp_derive(&r);
	is_null(&r, S_TTFO, NO_TOKEN);
}

/* B7: one JSON body after 500 ms */
static void test_b7_not_streaming(void **s)
{
	struct rp_record r = blank();

	(void)s;
	r.stream = 0;
	r.stream_why = RP_WHY_NOT_STREAMING;
	r.t_first_byte = r.t_end = r.t_request_end + 500 * MS;
	r.tok_completion_usage = 7;
	rp_derive(&r);
	is(&r, S_DURATION, 500 * MS);
	is(&r, S_FIRST_BYTE, 500 * MS);
	is_null(&r, S_FIRST_EVENT, NOT_STREAMING);
	is_null(&r, S_TTFT, NOT_STREAMING);
	is_null(&r, S_TTST, NOT_STREAMING);
	is_null(&r, S_TTFO, NOT_STREAMING);
	is_null(&r, S_LAST_TOKEN, NOT_STREAMING);
	is_null(&r, S_MEAN_ICL, NOT_STREAMING);
	is_null(&r, S_CHUNKS, NOT_STREAMING);
	is_null(&r, S_KEEPALIVES, NOT_STREAMING);
	is_null(&r, C_TTFT, NOT_STREAMING);
	is(&r, C_DURATION, 500 * MS + 31000);
	is(&r, TOK_COMPLETION, 7);
}

static void test_no_token(void **s)
{
	struct rp_record r = blank();

	(void)s;
	r.t_first_byte = r.t_first_event = r.t_request_end + 10 * MS;
	r.t_end = r.t_request_end + 20 * MS;
	r.stream_why = RP_WHY_NO_TOKEN;
	rp_derive(&r);
	is(&r, S_CHUNKS, 0);
	is(&r, S_FIRST_EVENT, 10 * MS);
	is(&r, S_DURATION, 20 * MS);
	is_null(&r, S_TTFT, NO_TOKEN);
	is_null(&r, S_TTST, NO_TOKEN);
	is_null(&r, S_TTFO, NO_TOKEN);
	is_null(&r, S_LAST_TOKEN, NO_TOKEN);
	is_null(&r, S_MEAN_ICL, NO_TOKEN);
	is_null(&r, TOK_COMPLETION, NOT_REPORTED);
}

static void test_one_token(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	event_times(&r, (int[]){ 20 }, 1);
	r.t_end = r.t_request_end + 21 * MS;
	r.t_eng_last = r.t_eng_first;
	r.tok_engine = 1;
	r.stream_why = RP_WHY_NO_TOKEN; /* the timeline's verdict for what is missing */
	rp_derive(&r);
	is(&r, S_TTFT, 20 * MS);
	is_null(&r, S_TTST, ONE_TOKEN);
	is_null(&r, S_MEAN_ICL, ONE_TOKEN);
	is_d(&r, M_GENERATION, 0.0);
	is_null(&r, M_MEAN_ITL, ONE_TOKEN);
	assert_true(F(&r, M_TPS)->known);
	is(&r, S_LAST_TOKEN, 20 * MS);
}

/* A6 (a): the client goes away after some tokens, or before the first */
static void test_ended_early(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	r.end = RP_END_CLIENT_DISCONNECT;
	r.stream_why = RP_WHY_NOT_REACHED;
	r.t_end = RP_NONE;
	rp_derive(&r);
	assert_true(F(&r, S_TTFT)->known);
	is_null(&r, S_DURATION, NOT_REACHED);
	is_null(&r, P_FLUSH, NOT_REACHED);
	is_null(&r, C_DURATION, NOT_REACHED);

	r = vllm();
	r.end = RP_END_CLIENT_DISCONNECT;
	r.t_end = r.t_first_byte = r.t_first_event = r.t_first_token = r.t_second_token =
		r.t_first_output = r.t_last_token = r.t_eng_first = r.t_eng_last = r.t_scheduled =
			RP_NONE;
	r.chunks = r.tok_engine = 0;
	rp_derive(&r);
	is_null(&r, S_FIRST_BYTE, NOT_REACHED);
	is_null(&r, S_TTFT, NOT_REACHED);
	is_null(&r, S_TTST, NOT_REACHED);
	is(&r, S_CHUNKS, 0);
	is(&r, P_FRONTEND, 2 * MS);
	is_null(&r, P_QUEUE, NOT_REACHED);
	is_null(&r, M_QUEUE, NOT_REACHED);
	is_null(&r, M_TPS, NOT_REACHED);
	is(&r, TOK_COMPLETION, 0);
}

/* A6 (b): found half way */
static void test_start_not_seen(void **s)
{
	struct rp_record r = blank();

	(void)s;
	r.t_start = r.t_request_end = RP_NONE;
	r.end = RP_END_UNKNOWN;
	r.flags = RP_FLAG_PARTIAL | RP_FLAG_PRE_ATTACH;
	r.stream_why = r.engine_why = RP_WHY_NOT_SEEN;
	r.t_established = RP_NONE;
	r.rtt_status = RP_RTT_NONE;
	r.rtt_us = RP_NONE;
	rp_derive(&r);
	for (int f = RP_FIELD_S_FIRST_BYTE; f <= RP_FIELD_S_KEEPALIVES; f++) {
		assert_false(r.v[f].known);
		assert_int_equal(r.v[f].why, RP_WHY_NOT_SEEN);
	}
	is_null(&r, P_RECEIVE, NOT_SEEN);
	is_null(&r, M_QUEUE, NOT_SEEN);
	is_null(&r, NET_RTT, PRE_ATTACH);
	is_null(&r, NET_AGE, PRE_ATTACH);
	is_null(&r, C_TTFT, NOT_SEEN);
}

/* D3: never a difference that wrapped */
static void test_d3_order(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	r.t_scheduled = r.t_queued - 10;
	rp_derive(&r);
	is_null(&r, M_QUEUE, INVALID);
	is_null(&r, P_QUEUE, INVALID);
	assert_true(F(&r, P_PREFILL)->known);

	r = vllm();
	r.t_queued = INT64_MIN + 1; /* garbage must not overflow */
	r.t_scheduled = INT64_MAX;
	rp_derive(&r);
	is_null(&r, M_QUEUE, INVALID);

	r = vllm();
	r.t_established = r.t_start;
	rp_derive(&r);
	is_d(&r, NET_AGE, 0.0);
	r.t_established = r.t_start + 1;
	rp_derive(&r);
	is_null(&r, NET_AGE, INVALID);

	r = vllm();
	r.t_eng_first = r.t_eng_last = r.t_scheduled;
	rp_derive(&r);
	is_null(&r, M_TPS, INVALID); /* no rate over no time */
}

static void test_network(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	r.retransmits = 2;
	rp_derive(&r);
	is(&r, NET_RTT, 31);
	is_d(&r, NET_AGE, 0.0002);
	is(&r, NET_RETRANS, 2);
	assert_int_equal(r.rtt_source, RP_RTTSRC_HANDSHAKE);

	for (int st = RP_RTT_RETRANS; st <= RP_RTT_NO_SAMPLE; st++) {
		r.rtt_status = st;
		rp_derive(&r);
		is_null(&r, NET_RTT, HANDSHAKE_UNTRUSTED);
		is_null(&r, C_TTFT, HANDSHAKE_UNTRUSTED);
		assert_int_equal(r.rtt_source, RP_RTTSRC_NONE);
	}
	r.rtt_status = RP_RTT_UNIX;
	r.retransmits = RP_NONE;
	r.t_established = RP_NONE;
	rp_derive(&r);
	is_null(&r, NET_RTT, UNIX_SOCKET);
	is_null(&r, NET_AGE, UNIX_SOCKET);
	is_null(&r, NET_RETRANS, UNIX_SOCKET);
	is_null(&r, C_DURATION, UNIX_SOCKET);
}

/* What the socket knew: its own quantities, and a client that is slow. */
static void test_tcp(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	r.unacked_first = 230;
	r.unacked_last = 90000;
	r.notsent_last = 60000;
	r.srtt_us = 90000;
	r.min_rtt_us = 80000;
	r.queued_chunks = 3;
	r.t_accepted = r.t_established + 700 * MS;
	r.t_acked = r.t_end + 80 * MS;
	rp_derive(&r);
	is(&r, NET_RTT, 31);
	is(&r, NET_SRTT, 90000);
	is(&r, NET_MIN_RTT, 80000);
	is(&r, NET_ACCEPT, 700 * MS);
	is(&r, NET_UNACKED_FIRST, 230);
	is(&r, NET_UNACKED_LAST, 90000);
	is(&r, NET_NOTSENT_LAST, 60000);
	is(&r, NET_QUEUED, 3);
	is(&r, NET_LAST_ACK, 80 * MS);
	assert_false(r.flags & RP_FLAG_SLOW_CLIENT); /* 3 of 6 is not most */
	r.queued_chunks = 4;
	rp_derive(&r);
	assert_true(r.flags & RP_FLAG_SLOW_CLIENT);

	r = vllm();
	r.unacked_last = r.notsent_last = 100;
	r.t_acked = RP_NONE;
	rp_derive(&r);
	is_null(&r, NET_LAST_ACK, NOT_SEEN);
	assert_false(r.flags & RP_FLAG_SLOW_CLIENT); /* it only was not seen */
	r.ack_late = true;
	rp_derive(&r);
	assert_true(r.flags & RP_FLAG_SLOW_CLIENT);
	r.end = RP_END_CLIENT_DISCONNECT;
	r.flags = 0;
	r.ack_late = false;
	rp_derive(&r);
	is_null(&r, NET_LAST_ACK, NOT_REACHED);
	assert_false(r.flags & RP_FLAG_SLOW_CLIENT);

	r = vllm(); /* a source that does not tell */
	r.unacked_first = r.unacked_last = r.notsent_last = r.queued_chunks = RP_NONE;
	r.srtt_us = r.min_rtt_us = r.t_acked = r.t_accepted = RP_NONE;
	rp_derive(&r);
	is_null(&r, NET_LAST_ACK, NOT_REPORTED);
	is_null(&r, NET_QUEUED, NOT_REPORTED);
	is_null(&r, NET_SRTT, NOT_REPORTED);
}

static void test_tokens(void **s)
{
	struct rp_record r = blank();

	(void)s;
	/* C8: usage deltas 1, 6, 1, 2 and no final usage */
	r.chunks = 4;
	r.chunk_tokens = 10;
	rp_derive(&r);
	is(&r, TOK_COMPLETION, 10);
	assert_int_equal(r.token_source, RP_TOKENS_USAGE);
	/* without usage: events are no tokens */
	r.chunk_tokens = RP_NONE;
	rp_derive(&r);
	is_null(&r, TOK_COMPLETION, NOT_REPORTED);
	assert_int_equal(r.token_source, RP_TOKENS_NONE);
	/* a count of hooks that are not joined to this request is not its own */
	r.tok_engine = 9;
	rp_derive(&r);
	is_null(&r, TOK_COMPLETION, NOT_REPORTED);
	r.joined = true;
	r.tok_prompt = 5;
	r.tok_prompt_engine = 6;
	rp_derive(&r);
	is(&r, TOK_COMPLETION, 9);
	is(&r, TOK_PROMPT, 6);
}

static void test_embeddings(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	r.operation = RP_OP_EMBEDDINGS;
	r.stream = 0;
	r.stream_why = RP_WHY_NOT_GENERATIVE;
	r.t_first_event = r.t_first_token = r.t_second_token = r.t_first_output = r.t_last_token =
		r.t_eng_first = r.t_eng_last = RP_NONE;
	r.chunks = 0;
	r.tok_engine = RP_NONE;
	r.tok_completion_usage = 0;
	rp_derive(&r);
	is_null(&r, TOK_COMPLETION, NOT_GENERATIVE);
	is(&r, TOK_PROMPT, 11);
	is_d(&r, M_QUEUE, 0.032138);
	is_null(&r, M_TTFT, NOT_GENERATIVE);
	is_null(&r, S_TTFT, NOT_GENERATIVE);
	is_null(&r, S_CHUNKS, NOT_GENERATIVE);
	assert_true(F(&r, S_DURATION)->known);
}

static void test_what_was_hidden(void **s)
{
	struct rp_record r = blank();

	(void)s;
	r.t_first_byte = r.t_request_end + 10 * MS;
	r.t_end = r.t_request_end + 20 * MS;
	r.flags = RP_FLAG_ENCODED;
	r.stream_why = RP_WHY_ENCODED;
	rp_derive(&r);
	is(&r, S_FIRST_BYTE, 10 * MS);
	is_null(&r, S_TTFT, ENCODED);
	is_null(&r, S_CHUNKS, ENCODED);
	is_null(&r, TOK_COMPLETION, ENCODED);

	/* tokens are a lower bound: the count stays and is flagged, the mean is null */
	r = vllm();
	r.flags = RP_FLAG_TRUNCATED;
	r.stream_why = RP_WHY_TRUNCATED;
	r.t_second_token = RP_NONE;
	rp_derive(&r);
	is(&r, S_CHUNKS, 6);
	is_null(&r, S_MEAN_ICL, TRUNCATED);
	is_null(&r, S_TTST, TRUNCATED);
	assert_true(F(&r, S_TTFT)->known);

	r.flags = RP_FLAG_LOST_EVENTS;
	r.stream_why = RP_WHY_LOST;
	r.chunks = 0;
	rp_derive(&r);
	is_null(&r, S_CHUNKS, LOST);
}

/* Whatever is known or not: each null has a reason, no figure is negative, and
 * all that is known is finite. */
static void test_every_null_says_why(void **s)
{
	(void)s;
	for (int i = 0; i < 200000; i++) {
		struct rp_record r = vllm();
		int64_t *p[] = { &r.t_start,	    &r.t_request_end,
				 &r.t_first_byte,   &r.t_first_event,
				 &r.t_first_token,  &r.t_second_token,
				 &r.t_first_output, &r.t_last_token,
				 &r.t_end,	    &r.t_queued,
				 &r.t_scheduled,    &r.t_eng_first,
				 &r.t_eng_last,	    &r.t_established,
				 &r.tok_prompt,	    &r.tok_completion_usage,
				 &r.tok_engine,	    &r.chunks,
				 &r.keepalives,	    &r.rtt_us,
				 &r.retransmits,    &r.chunk_tokens,
				 &r.preempted_ns,   &r.requeue_ns };
		double *e[] = { &r.e_queued, &r.e_scheduled, &r.e_first, &r.e_last };

		for (size_t k = 0; k < sizeof(p) / sizeof(*p); k++) {
			uint64_t x = rnd() % 8;

			if (x == 0)
				*p[k] = RP_NONE;
			else if (x == 1 && *p[k] != RP_NONE)
				*p[k] += (int64_t)(rnd() % (40 * MS)) - 20 * MS;
			else if (x == 2)
				*p[k] = (int64_t)rnd();
		}
		for (size_t k = 0; k < 4; k++) {
			uint64_t x = rnd();

			if (rnd() % 4 == 0)
				memcpy(e[k], &x, sizeof(x)); /* anything at all */
			else if (x % 2)
				*e[k] = 1e3 + (double)k + (double)(x % 1000000) / 1e6;
		}
		r.stream = (int)(rnd() % 3) - 1;
		r.joined = rnd() % 2;
		r.choices = 1 + rnd() % 2;
		r.end = rnd() % RP_END_COUNT;
		r.operation = rnd() % RP_OP_COUNT;
		r.engine_why = rnd() % RP_WHY_COUNT;
		r.stream_why = rnd() % RP_WHY_COUNT;
		r.flags = rnd() % (1 << RP_FLAG_COUNT);
		r.rtt_status = rnd() % 6;
		rp_derive(&r);
		for (int f = 0; f < RP_FIELD_COUNT; f++) {
			const struct rp_value *v = &r.v[f];

			if (!v->known) {
				assert_true(v->why > RP_WHY_NONE && v->why < RP_WHY_COUNT);
				continue;
			}
			assert_int_equal(v->why, RP_WHY_NONE);
			if (rp_field_defs[f].type == RP_T_MS || rp_field_defs[f].type == RP_T_R)
				assert_true(isfinite(v->d) && v->d >= 0);
			else
				assert_true(v->i >= 0);
		}
	}
}

static void test_names(void **s)
{
	(void)s;
	for (int i = 0; i < RP_WHY_COUNT; i++)
		assert_non_null(rp_reason_names[i]);
	for (int i = 0; i < RP_OP_COUNT; i++)
		assert_non_null(rp_operation_names[i]);
	for (int i = 0; i < RP_END_COUNT; i++)
		assert_non_null(rp_end_names[i]);
	for (int i = 0; i < RP_FLAG_COUNT; i++)
		assert_non_null(rp_flag_names[i]);
	for (int i = 0; i < RP_FIELD_COUNT; i++)
		assert_non_null(rp_field_defs[i].name);
	for (int i = 0; i < RP_EST_COUNT; i++)
		assert_non_null(rp_estimate_names[i]);
	assert_string_equal(rp_estimate_names[RP_EST_STEPS], "steps");
	assert_string_equal(rp_flag_names[__builtin_ctz(RP_FLAG_ENCODED)], "encoded");
	assert_string_equal(rp_field_defs[RP_FIELD_NET_AGE].name, "age_s");
}

/* ---- gaps ---- */

static int64_t got[64];
static size_t n_got;

static void take(void *ctx, int64_t gap)
{
	(void)ctx;
	assert_true(n_got < 64);
	got[n_got++] = gap;
}

#define gaps_are(marks, per_token, ...)                                                            \
	do {                                                                                       \
		const int64_t want[] = { __VA_ARGS__ };                                            \
		size_t n_want = sizeof(want) / sizeof(*want);                                      \
		n_got = 0;                                                                         \
		assert_int_equal(rp_gaps(marks, sizeof(marks) / sizeof(*(marks)), per_token, take, \
					 NULL),                                                    \
				 n_want);                                                          \
		assert_int_equal(n_got, n_want);                                                   \
		assert_memory_equal(got, want, sizeof(want));                                      \
	} while (0)

static void test_gaps(void **s)
{
	/* A1: a at 140, then b c d in one call at 200 */
	const struct rp_mark a1[] = { { 140, 1, 0 }, { 200, 1, 0 }, { 200, 1, 0 }, { 200, 1, 0 } };
	/* C8: deltas 1, 6, 1, 2 at 100, 400, 450, 600 */
	const struct rp_mark c8[] = { { 100, 1, 0 }, { 400, 6, 0 }, { 450, 1, 0 }, { 600, 2, 0 } };
	const struct rp_mark first3[] = { { 5, 3, 0 }, { 15, 3, 0 } };
	const struct rp_mark two[] = { { 10, 1, 0 }, { 11, 1, 1 }, { 20, 1, 0 }, { 31, 1, 1 } };
	const struct rp_mark zero[] = { { 10, 1, 0 }, { 20, 0, 0 }, { 30, 1, 0 } };
	const struct rp_mark back[] = { { 10, 1, 0 }, { 5, 1, 0 }, { 30, 1, 0 } };
	const struct rp_mark far[] = { { 10, 1, 4000000000u }, { INT64_MAX, 1, 0 } };

	(void)s;
	gaps_are(a1, true, 60, 0, 0);
	gaps_are(c8, true, 50, 50, 50, 50, 50, 50, 50, 75, 75);
	gaps_are(c8, false, 300, 50, 150);
	gaps_are(first3, true, 0, 0, 3, 3, 4); /* nothing of the 10 is lost */
	gaps_are(two, true, 10, 20);
	gaps_are(two, false, 1, 9, 11);
	gaps_are(zero, true, 20);
	gaps_are(zero, false, 10, 10);
	gaps_are(back, true, 20);
	n_got = 0;
	assert_int_equal(rp_gaps(far, 2, true, take, NULL), 0);
	assert_int_equal(rp_gaps(NULL, 0, true, take, NULL), 0);
}

static int64_t sum_of;
static void add(void *ctx, int64_t gap)
{
	(void)ctx;
	assert_true(gap >= 0);
	sum_of += gap;
}

/* n tokens have n-1 gaps, and their sum is last minus first. */
static void test_gaps_sum(void **s)
{
	(void)s;
	for (int i = 0; i < 20000; i++) {
		struct rp_mark m[32];
		size_t n = 1 + rnd() % 32, tokens = 0;
		int64_t t = (int64_t)(rnd() >> 4);

		for (size_t k = 0; k < n; k++) {
			m[k] = (struct rp_mark){ t, 1 + rnd() % 7, 3 };
			tokens += m[k].tokens;
			t += (int64_t)(rnd() >> (10 + rnd() % 50));
		}
		sum_of = 0;
		assert_int_equal(rp_gaps(m, n, true, add, NULL), tokens - 1);
		assert_int_equal(sum_of, m[n - 1].ts - m[0].ts);
		sum_of = 0;
		assert_int_equal(rp_gaps(m, n, false, add, NULL), n - 1);
		assert_int_equal(sum_of, m[n - 1].ts - m[0].ts);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_vllm_metrics),
		cmocka_unit_test(test_engine_arithmetic),
		cmocka_unit_test(test_engine_partly),
		cmocka_unit_test(test_stop_string),
		cmocka_unit_test(test_frontend),
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_phases_add_up),
		cmocka_unit_test(test_phase_unknown),
		cmocka_unit_test(test_several_choices),
		cmocka_unit_test(test_c4_which_event),
		cmocka_unit_test(test_c2_reasoning),
		cmocka_unit_test(test_b7_not_streaming),
		cmocka_unit_test(test_no_token),
		cmocka_unit_test(test_one_token),
		cmocka_unit_test(test_ended_early),
		cmocka_unit_test(test_start_not_seen),
		cmocka_unit_test(test_d3_order),
		cmocka_unit_test(test_network),
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_embeddings),
		cmocka_unit_test(test_what_was_hidden),
		cmocka_unit_test(test_every_null_says_why),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_gaps_sum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
