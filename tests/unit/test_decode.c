// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* decode.c: calls of the model -> steps, and how full the KV cache is. */
#include "series.h"
#include "world.h"

#include <math.h>

enum { QUEUED, SCHEDULED, TOKEN, FINAL, RELEASED, STEP = 33 };
#define CTX 0x1000
#define DRAFT 0x2000
#define SIZE(n_ctx, n_seq) ((uint64_t)(n_seq) << 32 | (n_ctx))
#define AT(seq, pos) ((uint64_t)(seq) << 32 | (pos))
#define REQ                                                               \
	"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "      \
	"application/json\r\nContent-Length: 31\r\n\r\n{\"model\":\"m\"," \
	"\"prompt\":\"SECRET\"}"
#define ANSWER                                                                            \
	"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 47\r\n\r\n" \
	"{\"id\":\"c\",\"choices\":[{\"finish_reason\":\"stop\"}]}"

static struct rp_step_info steps[64];
static size_t n_steps;
static uint32_t seqs[64];
static uint32_t hook_pid = 100;

static void on_step(void *ctx, const struct rp_step_info *s)
{
	(void)ctx;
	assert_true(n_steps < 64);
	steps[n_steps++] = *s;
}

/* Roles as in a session of today: hooks beyond 32 have theirs behind the others'. */
static void llama(struct world *w, uint32_t pid)
{
	struct rp_ev_session e = { .h = hdr(RP_EV_SESSION, sizeof(e), 2, pid, 0),
				   .engine = "llamacpp",
				   .hooks_attached = 0x1f,
				   .hooks_attached_more = 1u << (STEP - 32),
				   .roles = { RP_ROLE_QUEUED, RP_ROLE_SCHEDULED, RP_ROLE_TOKEN,
					      RP_ROLE_FINAL, RP_ROLE_RELEASED },
				   .roles_more = { [STEP - 32] = RP_ROLE_STEP } };

	feed(w, &e);
}

static struct world *world(void)
{
	struct world *w = world_new();
	struct rp_observer obs = { .step = on_step };

	n_steps = 0;
	memset(seqs, 0, sizeof(seqs));
	assert_int_equal(rp_timeline_observe(w->t, &obs), 0);
	session(w, true);
	llama(w, 100);
	return w;
}

static void hook(struct world *w, unsigned h, uint64_t ts, uint32_t tid, unsigned n,
		 const uint64_t *val)
{
	struct rp_ev_hook e = { .h = hdr(RP_EV_HOOK, sizeof(e), ts, hook_pid, tid),
				.hook = (uint16_t)h,
				.n = (uint8_t)n,
				.ok = (uint8_t)((1u << n) - 1),
				.seq = seqs[h]++ };

	memcpy(e.val, val, n * sizeof(*val));
	feed(w, &e);
}
#define HOOK(w, h, ts, tid, ...)                                          \
	hook(w, h, (ts)*MS, tid, sizeof((uint64_t[]){ __VA_ARGS__ }) / 8, \
	     (uint64_t[]){ __VA_ARGS__ })
#define MAIN 50
/* a request of connection c, which is task c, gets slot c, sequence c */
#define ask(w, c, ts)                               \
	do {                                        \
		open_conn(w, c, (ts)*MS);           \
		rx(w, c, (ts)*MS, REQ);             \
		HOOK(w, QUEUED, ts, 1000 + (c), c); \
	} while (0)
#define launch(w, c, ts) HOOK(w, SCHEDULED, ts, MAIN, 0xa00 + (c), c, c)
#define token(w, c, ts) HOOK(w, TOKEN, ts, MAIN, 0xa00 + (c))
#define release(w, c, ts)                                 \
	do {                                              \
		HOOK(w, FINAL, ts, MAIN, 0xa00 + (c));    \
		HOOK(w, RELEASED, ts, MAIN, 0xa00 + (c)); \
		tx(w, c, (ts)*MS, ANSWER);                \
	} while (0)
#define step(w, ts, ctx, ...) HOOK(w, STEP, ts, MAIN, ctx, SIZE(4096, 2048), __VA_ARGS__)

static const struct rp_core *core(const struct world *w)
{
	const struct rp_stats *s = rp_timeline_stats(w->t);

	assert_int_equal(s->n_cores, 1);
	return &s->cores[0];
}

static void is_step(size_t i, int64_t ts, int64_t ms, int64_t batch, uint32_t requests,
		    uint32_t tokens)
{
	assert_true(i < n_steps);
	assert_int_equal(steps[i].seq, i + 1);
	assert_int_equal(steps[i].ts, ts * (int64_t)MS);
	assert_int_equal(steps[i].step_ns, ms < 0 ? RP_NONE : ms * (int64_t)MS);
	assert_int_equal(steps[i].batch, batch);
	assert_int_equal(steps[i].requests, requests);
	assert_int_equal(steps[i].tokens, tokens);
	assert_false(steps[i].cut);
}

static void near(double v, double want)
{
	if (!(fabs(v - want) < 1e-12))
		fail_msg("%.17g, not %.17g", v, want);
}

/* Two requests on two slots, the second waits: each call is a step with what came of it. */
static void two(void **st)
{
	struct world *w = world();

	(void)st;
	ask(w, 1, 1000);
	launch(w, 1, 1001);
	ask(w, 2, 1002);
	assert_int_equal(core(w)->running, 1);
	assert_int_equal(core(w)->waiting, 1);
	assert_int_equal(core(w)->deferred, 0);
	step(w, 1003, CTX, 512, AT(1, 511));
	near(core(w)->kv_usage, 512.0 / 4096);
	step(w, 1010, CTX, 88, AT(1, 599)); /* the rest of its prompt */
	token(w, 1, 1015);
	launch(w, 2, 1016);
	step(w, 1020, CTX, 41, AT(2, 39), AT(1, 600));
	near(core(w)->kv_usage, (601.0 + 40) / 4096);
	token(w, 1, 1025);
	token(w, 2, 1026);
	release(w, 1, 1027);
	near(core(w)->kv_usage, 40.0 / 4096);
	step(w, 1030, CTX, 1, AT(2, 40));
	token(w, 2, 1035);
	release(w, 2, 1036);
	assert_int_equal(n_steps, 3);
	tick(w, 1050 * MS);
	assert_int_equal(n_steps, 4);
	tick(w, 1100 * MS);
	is_step(0, 1003, 7, 512, 0, 0);
	is_step(1, 1010, 10, 88, 1, 1);
	is_step(2, 1020, 10, 41, 2, 2);
	is_step(3, 1030, -1, 1, 1, 1);
	assert_int_equal(steps[1].first_tokens, 1);
	assert_int_equal(steps[2].first_tokens, 1);
	assert_int_equal(steps[2].finished, 1);
	assert_int_equal(steps[2].max_tokens, 1);
	assert_int_equal(steps[0].running, 1);
	assert_int_equal(steps[0].waiting, 1);
	assert_int_equal(steps[3].running, 0);
	assert_int_equal(steps[3].sent, RP_NONE);
	near(steps[2].kv_usage, 40.0 / 4096);
	assert_true(steps[2].positions && steps[2].preempted_known && !steps[2].estimated);
	near(core(w)->kv_usage, 0);
	assert_int_equal(core(w)->steps, 4);
	assert_int_equal(core(w)->tokens, 4);
	assert_int_equal(core(w)->outputs, 4);
	assert_int_equal(core(w)->running, 0);
	/* by its tokens, not by the answers */
	assert_int_equal(w->n_gaps, 2);
	assert_int_equal(w->gaps[0], 10 * MS);
	assert_int_equal(w->gaps[1], 9 * MS);
	/* an idle time is no part of a step */
	ask(w, 3, 2000);
	launch(w, 3, 2001);
	step(w, 2002, CTX, 9, AT(3, 8));
	token(w, 3, 2005);
	release(w, 3, 2006);
	ask(w, 4, 2007);
	launch(w, 4, 2020);
	step(w, 2021, CTX, 9, AT(4, 8));
	is_step(4, 2002, -1, 9, 1, 1);
	token(w, 4, 2030);
	release(w, 4, 2031);
	rp_timeline_finish(w->t);
	is_step(5, 2021, -1, 9, 1, 1);
	/* what the records say */
	assert_int_equal(w->n, 4);
	assert_int_equal(NSV(&w->rec[0], SCH_STEPS), 2);
	assert_int_equal(NSV(&w->rec[0], SCH_PREEMPTIONS), 0);
	assert_int_equal(NSV(&w->rec[0], SCH_REQUEUES), 0);
	assert_int_equal(NSV(&w->rec[0], SCH_PREEMPTED), 0);
	world_end(w);
}

/* Whoever waits takes the slot: nothing is idle in between. */
static void busy(void **st)
{
	struct world *w = world();

	(void)st;
	ask(w, 1, 1000);
	ask(w, 2, 1000);
	launch(w, 1, 1001);
	step(w, 1002, CTX, 5, AT(1, 4));
	token(w, 1, 1003);
	release(w, 1, 1004);
	launch(w, 2, 1012);
	step(w, 1013, CTX, 5, AT(2, 4));
	is_step(0, 1002, 11, 5, 1, 1);
	release(w, 2, 1020);
	world_end(w);
}

/* Several tokens of a request in one step: accepted drafts. */
static void bursts(void **st)
{
	struct world *w = world();

	(void)st;
	ask(w, 1, 1000);
	ask(w, 2, 1000);
	launch(w, 1, 1001);
	launch(w, 2, 1001);
	step(w, 1003, CTX, 20, AT(1, 9), AT(2, 9));
	token(w, 1, 1004);
	token(w, 2, 1004);
	step(w, 1010, CTX, 10, AT(1, 14), AT(2, 14));
	token(w, 1, 1015);
	token(w, 1, 1015);
	token(w, 1, 1015);
	token(w, 2, 1016);
	step(w, 1020, CTX, 10, AT(1, 18), AT(2, 16));
	is_step(1, 1010, 10, 10, 2, 4);
	assert_int_equal(steps[1].max_tokens, 3);
	assert_int_equal(steps[1].first_tokens, 0);
	release(w, 1, 1030);
	release(w, 2, 1030);
	assert_int_equal(NSV(&w->rec[0], SCH_STEPS), 2);
	world_end(w);
}

/* What else calls the function: warm-up, and a draft model before, after and between. */
static void others(void **st)
{
	struct world *w = world();

	(void)st;
	step(w, 10, CTX, 2);
	tick(w, 20 * MS);
	ask(w, 1, 1000);
	step(w, 1001, DRAFT, 2); /* it waits: a warm-up after a sleep */
	assert_int_equal(core(w)->steps, 0);
	launch(w, 1, 1002);
	step(w, 1003, CTX, 5, AT(1, 4));
	step(w, 1004, DRAFT, 5, AT(1, 4));
	token(w, 1, 1005);
	step(w, 1006, DRAFT, 1, AT(1, 5));
	step(w, 1007, DRAFT, 1, AT(1, 3000));
	near(core(w)->kv_usage, 5.0 / 4096);
	step(w, 1008, CTX, 3, AT(1, 7));
	step(w, 1009, DRAFT, 3, AT(1, 7));
	token(w, 1, 1010);
	token(w, 1, 1010);
	release(w, 1, 1011);
	tick(w, 1020 * MS);
	assert_int_equal(n_steps, 2);
	is_step(0, 1003, 5, 5, 1, 1);
	is_step(1, 1008, -1, 3, 1, 2);
	/* the model was loaded anew, somewhere else */
	ask(w, 2, 2000);
	launch(w, 2, 2001);
	HOOK(w, STEP, 2002, MAIN, 0x3000, SIZE(8192, 2048), 7, AT(2, 6));
	near(core(w)->kv_usage, 7.0 / 8192);
	token(w, 2, 2003);
	step(w, 2004, CTX, 7, AT(2, 6));
	release(w, 2, 2005);
	rp_timeline_finish(w->t);
	assert_int_equal(n_steps, 3);
	is_step(2, 2002, -1, 7, 1, 1);
	world_end(w);
}

/* A launch while another request generates: the next call may be its draft's. */
static void drafts_in_between(void **st)
{
	struct world *w = world();

	(void)st;
	ask(w, 1, 1000);
	launch(w, 1, 1001);
	step(w, 1002, CTX, 5, AT(1, 4));
	token(w, 1, 1003);
	ask(w, 2, 1004);
	launch(w, 2, 1005);
	step(w, 1006, DRAFT, 1, AT(1, 5));
	assert_int_equal(core(w)->steps, 1);
	step(w, 1007, CTX, 9, AT(1, 5), AT(2, 6));
	assert_int_equal(core(w)->steps, 2);
	near(core(w)->kv_usage, (6.0 + 7) / 4096);
	release(w, 1, 1008);
	release(w, 2, 1008);
	world_end(w);
}

/* Attached while it generates, and with a draft model: what is whose is not known. */
static void unclear(void **st)
{
	struct world *w = world();

	(void)st;
	token(w, 9, 1000); /* nobody knows whose */
	step(w, 1001, DRAFT, 1, AT(0, 70));
	step(w, 1002, CTX, 2, AT(0, 71));
	token(w, 9, 1003);
	ask(w, 1, 1004);
	launch(w, 1, 1004);
	step(w, 1005, DRAFT, 1, AT(0, 71));
	step(w, 1006, CTX, 9, AT(0, 72), AT(1, 6));
	token(w, 9, 1007);
	token(w, 1, 1007);
	step(w, 1008, DRAFT, 1, AT(0, 72));
	release(w, 1, 1008);
	is_null(&w->rec[0], SCH_STEPS, "not_reported");
	assert_int_equal(NSV(&w->rec[0], SCH_PREEMPTIONS), 0);
	assert_int_equal(core(w)->steps, 0);
	/* no token of anybody's for a while, then a launch: that one is the model's */
	ask(w, 2, 3000);
	launch(w, 2, 3001);
	step(w, 3002, CTX, 9, AT(2, 8));
	token(w, 2, 3003);
	step(w, 3004, DRAFT, 1, AT(2, 9));
	release(w, 2, 3005);
	assert_int_equal(NSV(&w->rec[1], SCH_STEPS), 1);
	assert_int_equal(core(w)->steps, 1);
	world_end(w);
}

/* One context only: it is the model's, whatever came before. */
static void attached_late(void **st)
{
	struct world *w = world();

	(void)st;
	step(w, 999, CTX, 2, AT(0, 69)); /* whose it is, the next token tells */
	token(w, 9, 1000);
	step(w, 1001, CTX, 1, AT(0, 70));
	token(w, 9, 1002); /* now it is known to be the only one */
	step(w, 1003, CTX, 1, AT(0, 71));
	token(w, 9, 1004);
	step(w, 1005, CTX, 1, AT(0, 72));
	tick(w, 1050 * MS);
	assert_int_equal(n_steps, 2);
	is_step(0, 1003, 2, 1, 1, 1);
	assert_int_equal(steps[0].first_tokens, 0);
	world_end(w);
}

/* The context's size: what does not look like one, or can't be, is none. */
static void sizes(void **st)
{
	static const struct {
		uint64_t members;
		bool known;
	} of[] = {
		{ SIZE(4096, 2048), true },
		{ SIZE(4096, 4096), true },
		{ SIZE(131072, 512), true },
		{ SIZE(0, 0), false },
		{ SIZE(4096, 0), false },
		{ SIZE(4096, 8192), false },   /* more for one than for all */
		{ SIZE(4097, 2048), false },   /* never so odd */
		{ 0x00007f12a4c31180, false }, /* a pointer */
		{ 0x0000555500fe0020, false },
		{ SIZE(0x40000000, 2048), false },
	};

	(void)st;
	for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
		struct world *w = world();

		ask(w, 1, 1000);
		launch(w, 1, 1001);
		HOOK(w, STEP, 1002, MAIN, CTX, of[i].members, 5, AT(1, 4));
		if (of[i].known)
			near(core(w)->kv_usage, 5.0 / (double)(uint32_t)of[i].members);
		else
			assert_true(isnan(core(w)->kv_usage));
		assert_int_equal(core(w)->steps, 1);
		world_end(w);
	}
	/* a position that such a context has no room for */
	struct world *w = world();

	ask(w, 1, 1000);
	launch(w, 1, 1001);
	step(w, 1002, CTX, 5, AT(1, 4));
	step(w, 1003, CTX, 1, AT(1, 4096));
	assert_true(isnan(core(w)->kv_usage));
	step(w, 1004, CTX, 1, AT(1, 5));
	assert_true(isnan(core(w)->kv_usage));
	world_end(w);
}

/* Where it is not known, the user may. */
static void told_size(void **st)
{
	struct world *w = world();
	struct rp_ev_engine g = { .h = hdr(RP_EV_ENGINE, sizeof(g), 3, 100, 0), .kv_tokens = 100 };

	(void)st;
	feed(w, &g);
	ask(w, 1, 1000);
	launch(w, 1, 1001);
	HOOK(w, STEP, 1002, MAIN, CTX, 0, 5, AT(1, 4));
	near(core(w)->kv_usage, 0.05);
	step(w, 1003, CTX, 1, AT(1, 5)); /* it was not: it is read first */
	near(core(w)->kv_usage, 6.0 / 4096);
	world_end(w);
}

/* Values that were not read, or are absurd. */
static void hostile(void **st)
{
	struct world *w = world();
	struct rp_ev_hook e = { .h = hdr(RP_EV_HOOK, sizeof(e), 1010 * MS, 100, MAIN),
				.hook = STEP,
				.n = 8,
				.ok = 1,
				.val = { CTX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
					 UINT64_MAX, UINT64_MAX, UINT64_MAX } };

	(void)st;
	ask(w, 1, 1000);
	HOOK(w, SCHEDULED, 1001, MAIN, 0xa01, 1, UINT64_MAX); /* slot number -1 */
	feed(w, &e);
	e.ok = 0xff;
	e.seq = 1;
	feed(w, &e);
	e.ok = 0;
	e.seq = 2;
	feed(w, &e); /* not even the context */
	assert_int_equal(core(w)->steps, 2);
	assert_true(isnan(core(w)->kv_usage));
	HOOK(w, RELEASED, 1020, MAIN, 0xa01);
	seqs[STEP] = 3;
	ask(w, 2, 1030);
	HOOK(w, SCHEDULED, 1031, MAIN, 0xa02, 2, 256); /* no such sequence */
	step(w, 1032, CTX, 0);			       /* no tokens: no step */
	step(w, 1033, CTX, 3, AT(70000, 1), AT(255, 0xffffffff), AT(256, 1));
	assert_int_equal(core(w)->steps, 3);
	assert_true(isnan(core(w)->kv_usage));
	assert_int_equal(core(w)->running, 1);
	assert_int_equal(steps[0].batch, 0);
	world_end(w);
}

/* After a loss a step has lower bounds, and nobody knows how long it was. */
static void losses(void **st)
{
	struct world *w = world();

	(void)st;
	ask(w, 1, 1000);
	launch(w, 1, 1001);
	step(w, 1002, CTX, 5, AT(1, 4));
	token(w, 1, 1003);
	seqs[STEP] += 3;
	step(w, 1010, CTX, 1, AT(1, 8));
	token(w, 1, 1011);
	step(w, 1020, CTX, 1, AT(1, 9));
	assert_true(steps[0].cut);
	assert_int_equal(steps[0].step_ns, RP_NONE);
	assert_false(steps[1].cut);
	assert_int_equal(steps[1].step_ns, 10 * (int64_t)MS);
	near(core(w)->kv_usage, 10.0 / 4096);
	release(w, 1, 1030);
	is_null(&w->rec[0], SCH_STEPS, "lost_events");
	assert_int_equal(w->rec[0].t_eng_last, 1011 * (int64_t)MS); /* it came after the loss */
	/* the first call behind a launch may have been among them */
	ask(w, 2, 2000);
	launch(w, 2, 2001);
	seqs[STEP] += 3;
	step(w, 2003, DRAFT, 5, AT(2, 4));
	assert_int_equal(core(w)->steps, 3);
	step(w, 2004, CTX, 1, AT(2, 5));
	assert_int_equal(core(w)->steps, 4);
	release(w, 2, 2005);
	world_end(w);
}

static void known(struct world *w, int64_t running, double kv)
{
	assert_int_equal(core(w)->running, running);
	assert_int_equal(core(w)->waiting, running == RP_NONE ? RP_NONE : 0);
	if (running == RP_NONE)
		assert_true(isnan(core(w)->kv_usage));
	else
		near(core(w)->kv_usage, kv);
}

/* Attached while others generate: nobody knows how many, until all of them are over. */
static void strangers(void **st)
{
	struct world *w = world();

	(void)st;
	for (uint64_t i = 0; i < 4; i++) {
		step(w, 1000 + 10 * i, CTX, 1, AT(7, 4000 + i));
		token(w, 7, 1005 + 10 * i);
		known(w, RP_NONE, 0);
	}
	tick(w, 1040 * MS);
	assert_true(n_steps > 0);
	for (size_t i = 0; i < n_steps; i++) {
		assert_int_equal(steps[i].running, RP_NONE);
		assert_int_equal(steps[i].waiting, RP_NONE);
		assert_true(isnan(steps[i].kv_usage));
		assert_int_equal(steps[i].requests, 1);
	}
	/* one of ours beside it */
	ask(w, 1, 1050);
	launch(w, 1, 1051);
	step(w, 1052, CTX, 6, AT(7, 4004), AT(1, 4));
	token(w, 1, 1053);
	token(w, 7, 1053);
	known(w, RP_NONE, 0);
	/* it is gone: without a sign of it for long, but not where it may have had no room */
	for (uint64_t i = 0; i < 40; i++)
		step(w, 1060 + i, CTX, 65, AT(1, 5));
	known(w, RP_NONE, 0);
	for (uint64_t i = 0; i < 16; i++)
		step(w, 1100 + i, CTX, 1, AT(1, 5 + i));
	known(w, RP_NONE, 0);
	step(w, 1120, CTX, 1, AT(1, 100));
	known(w, 1, 101.0 / 4096);
	/* another, of which only a prompt is seen */
	step(w, 1121, CTX, 64, AT(9, 62), AT(1, 101));
	known(w, RP_NONE, 0);
	token(w, 1, 1122);
	release(w, 1, 1122);
	/* nobody computes it any more only if no call has come since */
	step(w, 1123, CTX, 64, AT(9, 126));
	tick(w, 5000 * MS);
	known(w, RP_NONE, 0);
	release(w, 9, 5001);
	tick(w, 5900 * MS);
	known(w, RP_NONE, 0);
	tick(w, 6100 * MS);
	known(w, 0, 0);
	ask(w, 2, 7000);
	launch(w, 2, 7001);
	step(w, 7002, CTX, 41, AT(2, 40));
	known(w, 1, 41.0 / 4096);
	release(w, 2, 7003);
	world_end(w);
}

/* It runs, but what it holds can't be told from what others do. */
static void no_number(void **st)
{
	struct world *w = world();
	struct rp_ev_hook e = { .h = hdr(RP_EV_HOOK, sizeof(e), 1007 * MS, 100, MAIN),
				.hook = SCHEDULED,
				.n = 3,
				.ok = 3, /* not the third */
				.val = { 0xa02, 2 } };

	(void)st;
	ask(w, 1, 1000);
	launch(w, 1, 1001);
	step(w, 1002, CTX, 100, AT(1, 99));
	known(w, 1, 100.0 / 4096);
	ask(w, 2, 1006);
	e.seq = seqs[SCHEDULED]++;
	feed(w, &e);
	assert_int_equal(core(w)->running, 2);
	assert_true(isnan(core(w)->kv_usage));
	release(w, 2, 1010);
	known(w, 1, 100.0 / 4096);
	release(w, 1, 1011);
	known(w, 0, 0);
	world_end(w);
}

/* The first slot's is 0, and it is let go like any other. */
static void sequence_zero(void **st)
{
	struct world *w = world();

	(void)st;
	ask(w, 1, 1000);
	HOOK(w, SCHEDULED, 1001, MAIN, 0xa01, 1, 0);
	step(w, 1002, CTX, 100, AT(0, 99));
	known(w, 1, 100.0 / 4096);
	release(w, 1, 1003);
	known(w, 0, 0);
	world_end(w);
}

/* Tasks of requests that have their record make room. */
static void room_for_tasks(void **st)
{
	struct rp_timeline_opts o;
	const struct rp_stats *s;
	struct world *w;
	unsigned with = 0;

	(void)st;
	rp_timeline_defaults(&o);
	o.max_tasks = 2;
	w = world_opts(&o);
	s = rp_timeline_stats(w->t);
	memset(seqs, 0, sizeof(seqs));
	session(w, true);
	for (uint64_t c = 1; c < 8; c++) {
		ask(w, c, c * 10000);
		launch(w, c, c * 10000 + 1);
		token(w, c, c * 10000 + 2);
		if (c & 1) { /* the client leaves, and the engine goes on for a while */
			close_conn(w, c, (c * 10000 + 3) * MS);
			for (uint64_t i = 1; i < 5; i++)
				tick(w, (c * 10000 + i * 1000) * MS);
			assert_int_equal(w->n, c);
			token(w, c, c * 10000 + 5000);
		}
		release(w, c, c * 10000 + 5001);
	}
	assert_int_equal(w->n, 7);
	assert_int_equal(s->limit_tasks, 0);
	assert_int_equal(s->running, 0);
	for (uint64_t c = 8; c < 11; c++)
		ask(w, c, 90000);
	assert_int_equal(s->limit_tasks, 1);
	rp_timeline_finish(w->t);
	assert_int_equal(w->n, 10);
	for (unsigned i = 7; i < 10; i++)
		with += w->rec[i].n_request_ids;
	assert_int_equal(with, 2);
	world_end(w);
}

/* A thread that reads no request, values that were not read, an end that comes twice. */
static void of_nobody(void **st)
{
	struct world *w = world();
	struct rp_ev_hook e = { .h = hdr(RP_EV_HOOK, sizeof(e), 1002 * MS, 100, 1001),
				.hook = QUEUED,
				.n = 2,
				.ok = 1,
				.val = { 1, 77 } };

	(void)st;
	HOOK(w, QUEUED, 999, 4242, 70);
	open_conn(w, 1, 1000 * MS);
	rx(w, 1, 1000 * MS, REQ);
	e.seq = seqs[QUEUED]++;
	feed(w, &e);
	assert_int_equal(rp_timeline_stats(w->t)->waiting, 1);
	launch(w, 1, 1003);
	e.hook = TOKEN;
	e.h.tid = MAIN;
	e.h.ts = 1004 * MS;
	e.seq = seqs[TOKEN]++;
	e.ok = 0;
	feed(w, &e);
	assert_int_equal(core(w)->running, 1);
	HOOK(w, RELEASED, 1005, MAIN, 0xa01);
	assert_int_equal(rp_timeline_stats(w->t)->running, 0);
	process(w, RP_PROC_EXIT, 100, 1006 * MS);
	assert_int_equal(rp_timeline_stats(w->t)->running, 0);
	assert_int_equal(rp_timeline_stats(w->t)->waiting, 0);
	world_end(w);
}

/* What a page says of the only core. */
static void page(struct world *w, uint64_t steps, bool lives)
{
	static const struct rp_prom_process self;
	struct rp_prom *p = rp_prom_new(NULL);
	size_t len;
	char *text = rp_prom_render(p, rp_timeline_stats(w->t), &self, &len), want[80];

	assert_int_equal(core(w)->gone, !lives);
	no_series_twice(text);
	snprintf(want, sizeof(want), "\nreqprobe_scheduler_steps_total{engine_index=\"0\"} %llu\n",
		 (unsigned long long)steps);
	if (!strstr(text, want))
		fail_msg("no %s", want);
	assert_int_equal(strstr(text, "\nreqprobe_scheduler_requests_waiting{") != NULL, lives);
	free(text);
	rp_prom_free(p);
}

/* The process ends; what comes late makes none; another begins with its pid. */
static void restart(void **st)
{
	struct world *w = world();

	(void)st;
	ask(w, 1, 1000);
	launch(w, 1, 1001);
	step(w, 1002, CTX, 5, AT(1, 4));
	process(w, RP_PROC_EXIT, 100, 1010 * MS);
	assert_int_equal(n_steps, 1);
	assert_int_equal(core(w)->running, 0);
	assert_int_equal(rp_timeline_stats(w->t)->running, 0);
	page(w, 1, false);
	token(w, 1, 1011);
	step(w, 1012, CTX, 1, AT(1, 5));
	launch(w, 1, 1013);
	page(w, 1, false);
	close_conn(w, 1, 1014 * MS);
	process(w, RP_PROC_FORK, 100, 1900 * MS);
	ask(w, 2, 2000);
	launch(w, 2, 2001);
	step(w, 2002, CTX, 5, AT(2, 4));
	assert_int_equal(core(w)->running, 1);
	near(core(w)->kv_usage, 5.0 / 4096);
	page(w, 2, true);
	process(w, RP_PROC_EXIT, 100, 2010 * MS);
	assert_int_equal(steps[1].seq, 2);
	page(w, 2, false);
	assert_int_equal(rp_timeline_stats(w->t)->limit_cores, 0);
	world_end(w);
}

/* Two servers: each has its own, and only the one that ends is gone. */
static void two_processes(void **st)
{
	struct world *w = world();
	const struct rp_stats *s = rp_timeline_stats(w->t);

	(void)st;
	llama(w, 200);
	ask(w, 1, 1000);
	launch(w, 1, 1001);
	hook_pid = 200;
	token(w, 1, 1002); /* the same slot, of the other */
	hook_pid = 100;
	assert_int_equal(s->n_cores, 2);
	assert_int_equal(s->cores[0].running, 1);
	assert_int_equal(s->cores[1].running, RP_NONE);
	process(w, RP_PROC_EXIT, 200, 1003 * MS);
	assert_false(s->cores[0].gone);
	assert_true(s->cores[1].gone);
	release(w, 1, 1004);
	assert_int_equal(w->rec[0].tok_engine, 0);
	world_end(w);
}

/* No core comes of a process whose end is all that was seen of it. */
static void late_only(void **st)
{
	struct world *w = world();

	(void)st;
	process(w, RP_PROC_EXIT, 100, 1000 * MS);
	token(w, 1, 1001);
	step(w, 1002, CTX, 1, AT(1, 5));
	assert_int_equal(rp_timeline_stats(w->t)->n_cores, 0);
	/* many have come and gone: that it was one of them is forgotten in the end */
	for (uint32_t i = 0; i < 5000; i++)
		process(w, RP_PROC_EXIT, 1000 + i, 1003 * MS);
	token(w, 1, 1004);
	assert_int_equal(rp_timeline_stats(w->t)->n_cores, 1);
	world_end(w);
}

/* A recording from before there were steps: as if there were none. */
static void old_recording(void **st)
{
	struct world *w = world_new();
	struct rp_ev_session e = { .h = hdr(RP_EV_SESSION, RP_SESSION_SIZE_MIN, 2, 100, 0),
				   .engine = "llamacpp",
				   .hooks_attached = 0x1f,
				   .roles = { RP_ROLE_QUEUED, RP_ROLE_SCHEDULED, RP_ROLE_TOKEN,
					      RP_ROLE_FINAL, RP_ROLE_RELEASED } };

	(void)st;
	n_steps = 0;
	memset(seqs, 0, sizeof(seqs));
	session(w, true);
	feed(w, &e);
	ask(w, 1, 1000);
	HOOK(w, SCHEDULED, 1001, MAIN, 0xa01, 1);
	token(w, 1, 1003);
	release(w, 1, 1004);
	assert_int_equal(rp_timeline_stats(w->t)->n_cores, 0);
	assert_int_equal(w->n, 1);
	is_null(&w->rec[0], SCH_PREEMPTIONS, "not_reported");
	world_end(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two),		 cmocka_unit_test(bursts),
		cmocka_unit_test(others),	 cmocka_unit_test(unclear),
		cmocka_unit_test(sizes),	 cmocka_unit_test(attached_late),
		cmocka_unit_test(hostile),	 cmocka_unit_test(losses),
		cmocka_unit_test(busy),		 cmocka_unit_test(told_size),
		cmocka_unit_test(restart),	 cmocka_unit_test(late_only),
		cmocka_unit_test(strangers),	 cmocka_unit_test(no_number),
		cmocka_unit_test(old_recording), cmocka_unit_test(drafts_in_between),
		cmocka_unit_test(two_processes), cmocka_unit_test(sequence_zero),
		cmocka_unit_test(of_nobody),	 cmocka_unit_test(room_for_tasks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
