/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Unit tests of protocol/vllm.c and protocol/msgpack.c. The messages in
 * vllm_msgs/ were made from the class definitions of each version's own source
 * (vllm_msgs/make.py): one file for each combination of layouts.
 */
#include "util.h"

#include <errno.h>
#include <math.h>
#include <time.h>

#include "protocol/msgpack.h"
#include "protocol/vllm.h"

/* The token ids of the messages, as they are encoded. */
#define TOKEN "\xce\x00\x5e\xc2\xe7"

/* ---- telling --------------------------------------------------------------- */

static void num(struct log *l, const char *name, int64_t v)
{
	if (v != RP_VLLM_UNKNOWN)
		log_add(l, " %s=%lld", name, (long long)v);
}

static void on_step(void *ctx, const struct rp_vllm_step *s)
{
	struct log *l = ctx;

	log_add(l, "step n=%u", s->n_outputs);
	num(l, "engine", s->engine_index);
	if (!isnan(s->timestamp))
		log_add(l, " ts=%g", s->timestamp);
	if (s->has_stats) {
		log_add(l, " stats");
		num(l, "run", s->stats.running);
		num(l, "wait", s->stats.waiting);
		if (!isnan(s->stats.kv_usage))
			log_add(l, " kv=%g", s->stats.kv_usage);
		num(l, "q", s->stats.prefix_queries);
		num(l, "h", s->stats.prefix_hits);
		log_add(l, "%s", s->stats.prefix_reset ? " reset" : "");
		num(l, "d", s->stats.spec_drafts);
		num(l, "dt", s->stats.spec_draft_tokens);
		num(l, "at", s->stats.spec_accepted_tokens);
	}
	log_add(l, "%s\n", s->has_utility ? " utility" : "");
}

static void on_output(void *ctx, const struct rp_vllm_output *o)
{
	struct log *l = ctx;

	log_add(l, "out ");
	log_bytes(l, o->id, o->id_len);
	log_add(l, " t=%u", o->tokens);
	num(l, "fin", o->finish);
	num(l, "prompt", o->prompt_tokens);
	num(l, "cached", o->cached_tokens);
	assert_true(o->n_events <= RP_VLLM_EVENTS);
	for (uint32_t i = 0; i < o->n_events; i++)
		log_add(l, " %d@%g", o->events[i].type, o->events[i].ts);
	if (o->more_events)
		log_add(l, " +%u", o->more_events);
	log_add(l, "%s\n", o->pooled ? " pooled" : "");
}

static void on_add(void *ctx, const struct rp_vllm_request *r)
{
	struct log *l = ctx;

	log_add(l, "add ");
	log_bytes(l, r->id, r->id_len);
	num(l, "prompt", r->prompt_tokens);
	num(l, "client", r->client_index);
	if (r->external_id) {
		log_add(l, " ext=");
		log_bytes(l, r->external_id, r->external_id_len);
	}
	log_add(l, "%s%s", r->pooling ? " pooling" : "", r->may_defer ? " defer" : "");
	log_add(l, "%s\n", r->resumable == 1 ? " resumable" : r->resumable ? " resumable?" : "");
}

static void on_abort(void *ctx, const char *id, size_t len)
{
	log_add(ctx, "abort ");
	log_bytes(ctx, id, len);
	log_add(ctx, "\n");
}

static void on_ready(void *ctx, const struct rp_vllm_ready *r)
{
	struct log *l = ctx;

	log_add(l, "ready ");
	log_bytes(l, r->version, r->version_len);
	num(l, "blocks", r->blocks);
	num(l, "size", r->block_size);
	num(l, "tokens", r->kv_tokens);
	num(l, "pp", r->pipeline);
	log_add(l, "\n");
}

/* What is told of bytes that end at a guard page; keep: len bytes, or NULL. */
static int tell(struct log *l, int type, const uint8_t *p, size_t len, bool cut, uint8_t *keep)
{
	struct rp_vllm_sink sink = { l, on_step, on_output, on_add, on_abort, on_ready };
	enum rp_vllm_kind kind = 99;
	uint8_t *in = guard_buf(0, len), *k = NULL;
	int rc;

	memcpy(in, p, len);
	if (keep) {
		k = guard_buf(1, len);
		memset(k, 'x', len);
	}
	l->n = 0;
	log_bytes(l, "", 0);
	rc = rp_vllm_decode(type, in, len, cut, k, &sink, &kind);
	assert_int_equal(memcmp(in, p, len), 0);
	if (keep)
		memcpy(keep, k, len);
	log_add(l, "kind %d rc %d\n", kind, rc);
	return rc;
}

static struct log story, again;
static uint8_t *keep0, *keep1;
static size_t keep_size;

/* All that holds for any bytes: the copy says the same, and nothing is made up. */
static int check_bytes(const char *name, int type, const uint8_t *p, size_t len, bool cut)
{
	int rc;

	if (len > keep_size) {
		keep_size = len + 4096;
		keep0 = realloc(keep0, keep_size);
		keep1 = realloc(keep1, keep_size);
	}
	if (!keep0)
		return 0;
	rc = tell(&story, type, p, len, cut, NULL);
	assert_int_equal(tell(&again, type, p, len, cut, keep0), rc);
	same_text(name, &again, log_str(&story));
	assert_int_equal(tell(&again, type, keep0, len, cut, keep1), rc);
	same_text(name, &again, log_str(&story));
	assert_int_equal(memcmp(keep0, keep1, len), 0);
	for (size_t i = 0; i < len; i++)
		if (keep0[i] != p[i] && keep0[i] != 'x' && keep0[i] && keep0[i] != 0xc2)
			fail_msg("%s: byte %zu was made up", name, i);
	return rc;
}

static int check_story(const char *name, int type, const void *p, size_t len, bool cut,
		       const char *want)
{
	int rc = check_bytes(name, type, p, len, cut);

	if (want)
		same_text(name, &story, want);
	return rc;
}

#define CHECK_BYTES(type, bytes, cut, want) \
	check_story(bytes, type, bytes, sizeof(bytes) - 1, cut, want)

/* ---- the versions ---------------------------------------------------------- */

struct frame {
	int type;
	const uint8_t *p;
	size_t len;
};

#define FRAMES 9
static const char msgs_dir[] = "tests/unit/vllm_msgs/";

static uint8_t *read_frames(const char *name, struct frame f[FRAMES])
{
	static uint8_t buf[1 << 16];
	char path[256];
	size_t n, at = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s%s.bin", msgs_dir, name);
	file = fopen(path, "r");
	if (!file)
		fail_msg("%s: %s", path, strerror(errno));
	n = fread(buf, 1, sizeof(buf), file);
	fclose(file);
	for (int i = 0; i < FRAMES; i++) {
		assert_true(n - at >= 5);
		f[i].type = buf[at] == 0xff ? -1 : buf[at];
		f[i].len = buf[at + 1] | buf[at + 2] << 8 | buf[at + 3] << 16;
		f[i].p = buf + at + 5;
		at += 5 + f[i].len;
		assert_true(at <= n);
	}
	assert_int_equal(at, n);
	return buf;
}

enum {
	ENGINE = 1,   /* engine_index */
	PREEMPT = 2,  /* PREEMPTED events */
	CACHED = 4,   /* num_cached_tokens */
	PREFILL = 8,  /* prefill_stats */
	POOLED = 16,  /* pooling_output */
	POOLING = 32, /* pooling_params */
	CLIENT = 64,  /* client_index */
	EXTERNAL = 128 /* external_req_id */,
	SPEC = 256,   /* spec_decoding_stats */
	DRAFTS = 512, /* its num_drafts */
	READY = 1024, /* a ready response */
	VERSION = 2048 /* that names the version */,
};

#define V08 (ENGINE | PREEMPT | SPEC)
#define V085 (V08 | DRAFTS)
#define V09 (V085 | CACHED)
#define V092 (V09 | POOLED | POOLING | CLIENT)
#define V014 (V092 | EXTERNAL)
#define V020 ((V014 & ~CACHED) | PREFILL | READY)
#define V023 (V020 | VERSION)

static const struct version {
	const char *name;
	int has;
} versions[] = {
	{ "vllm-0.7.3", 0 },	      { "vllm-0.8.3", V08 },	      { "vllm-0.8.5", V085 },
	{ "vllm-0.9.0.1", V09 },      { "vllm-0.9.1", V09 | CLIENT }, { "vllm-0.9.2", V092 },
	{ "vllm-0.10.2", V092 },      { "vllm-0.11.0", V092 },	      { "vllm-0.11.2", V092 },
	{ "vllm-0.14.0", V014 },      { "vllm-0.15.1", V014 },	      { "vllm-0.16.0", V014 },
	{ "vllm-0.17.1", V014 },      { "vllm-0.20.0", V020 },	      { "vllm-0.20.2", V020 },
	{ "vllm-0.21.0", V020 },      { "vllm-0.26.0", V023 },	      { "vllm-0.28.0", V023 },
	{ "vllm-0.29.0", V023 },      { "vllm-0.31.0", V023 },	      { "vllm-0.32.0", V023 },
	{ "aphrodite-0.10.0", V092 }, { "aphrodite-0.21.0", V020 },   { "aphrodite-0.24.1", V023 },
};

static const char *cond(int has, const char *s)
{
	return has ? s : "";
}

static void want_frame(struct log *l, int has, int i)
{
	const char *e0 = cond(has & ENGINE, " engine=0"), *c0 = cond(has & CACHED, " cached=0");
	const char *add = "add cmpl-0123456789abcdef-0-89abcdef prompt=20";

	l->n = 0;
	switch (i) {
	case 0:
		log_add(l,
			"step n=%d%s ts=1002.12 stats run=5 wait=2 kv=0.375 q=300 h=256 reset%s%s\n"
			"out cmpl-0123456789abcdef-0-89abcdef t=1%s%s 1@1000.5 2@1000.75\n",
			has & POOLED ? 6 : 5, cond(has & ENGINE, " engine=3"),
			cond(has & DRAFTS, " d=1"), cond(has & SPEC, " dt=4 at=2"),
			cond(has & PREFILL, " prompt=300"),
			cond(has & (CACHED | PREFILL), " cached=256"));
		log_add(l,
			"out 1_chatcmpl-my-req-1-996b10c4 t=3%s\n"
			"out chatcmpl-done t=1 fin=0%s\n"
			"out chatcmpl-back t=2%s%s 2@1001.25\n"
			"out chatcmpl-long t=1 fin=1%s\n",
			c0, c0, c0, cond(has & PREEMPT, " 3@1001"), c0);
		if (has & POOLED)
			log_add(l, "out embd-7 t=0 fin=0%s pooled\n", c0);
		log_add(l, "kind 1 rc 0\n");
		break;
	case 1:
		log_add(l, "step n=1%s ts=1003.5\nout chatcmpl-quiet t=1%s\nkind 1 rc 0\n", e0, c0);
		break;
	case 2:
		log_add(l, "step n=0%s ts=1004 stats run=0 wait=0 kv=0 q=0 h=0\nkind 1 rc 0\n", e0);
		break;
	case 3:
		log_add(l, "step n=0%s ts=1005 utility\nkind 1 rc 0\n", e0);
		break;
	case 4:
	case 5:
		log_add(l, "%s%s%s%s%s\nkind 2 rc 0\n", add, cond(has & CLIENT, " client=4"),
			cond(has & EXTERNAL, " ext=cmpl-0123456789abcdef-0"),
			cond(i == 5 && has & POOLING, " pooling"),
			cond(!(has & CLIENT), " defer resumable?"));
		break;
	case 6:
		log_add(l, "abort cmpl-0123456789abcdef-0-89abcdef\nabort chatcmpl-done\n"
			   "kind 3 rc 0\n");
		break;
	case 7:
		log_add(l, "kind 0 rc 0\n");
		break;
	case 8:
		if (has & READY)
			log_add(l, "ready %s blocks=4096\nkind 4 rc 0\n",
				cond(has & VERSION, "1.2.3+cpu"));
		else
			log_add(l, "kind 0 rc 0\n");
		break;
	}
}

static void no_secrets(const char *name, const uint8_t *keep, size_t len)
{
	if (memmem(keep, len, MARKER, strlen(MARKER)) || memmem(keep, len, TOKEN, 5)) {
		print_error("%s: text or token ids survived\n", name);
		fail();
	}
	for (size_t n = 6; n < strlen(MARKER); n++)
		assert_null(memmem(keep, len, MARKER, n));
}

static void layouts(void **state)
{
	struct frame f[FRAMES];
	struct log want = { 0 };

	(void)state;
	for (size_t v = 0; v < COUNT_OF(versions); v++) {
		read_frames(versions[v].name, f);
		for (int i = 0; i < FRAMES; i++) {
			char name[64];

			snprintf(name, sizeof(name), "%s, frame %d", versions[v].name, i);
			want_frame(&want, versions[v].has, i);
			check_story(name, f[i].type, f[i].p, f[i].len, false, log_str(&want));
			/* most of them have one of these in the original */
			no_secrets(name, keep0, f[i].len);
			/* all is there, although the caller thinks otherwise */
			if (f[i].len)
				check_story(name, f[i].type, f[i].p, f[i].len, true,
					    log_str(&want));
		}
	}
	free(want.s);
}

/* Lines of the cut message's story that are lines of the whole one's, at least. */
static void check_cut(const char *name, const struct log *whole, int type)
{
	const char *w = log_str(whole), *s = log_str(&story);

	if (type == -1 && !strncmp(s, "step", 4)) {
		/* the step may know less */
		s = strchr(s, '\n') + 1;
		w = strchr(w, '\n') + 1;
	} else if (type == RP_VLLM_ADD || !strncmp(s, "ready", 5)) {
		return;
	}
	while (strncmp(s, "kind", 4)) {
		size_t n = (size_t)(strchr(s, '\n') - s) + 1;

		if (strncmp(s, w, n)) {
			print_error("%s:\n  have %s\n  want %s\n", name, s, w);
			fail();
		}
		s += n;
		w += n;
	}
}

static void cuts(void **state)
{
	struct frame f[FRAMES];
	struct log whole = { 0 };

	(void)state;
	for (size_t v = 0; v < COUNT_OF(versions); v++) {
		read_frames(versions[v].name, f);
		for (int i = 0; i < FRAMES; i++) {
			tell(&whole, f[i].type, f[i].p, f[i].len, false, NULL);
			for (size_t n = 0; n < f[i].len; n++) {
				char name[80];

				snprintf(name, sizeof(name), "%s, frame %d, %zu bytes",
					 versions[v].name, i, n);
				assert_int_equal(check_bytes(name, f[i].type, f[i].p, n, true),
						 -ENODATA);
				check_cut(name, &whole, f[i].type);
				no_secrets(name, keep0, n);
				/* nothing is missing: then it is malformed */
				if (n)
					assert_int_equal(check_bytes(name, f[i].type, f[i].p, n,
								     false),
							 -EBADMSG);
			}
		}
	}
	free(whole.s);
}

static void mutations(void **state)
{
	struct frame f[FRAMES];
	uint32_t seed = 0x2545f491;
	static const uint8_t odd[] = { 0xc0, 0xc1, 0xc4, 0xc7, 0xd6, 0xd9, 0xdb, 0xdc, 0xdd,
				       0xdf, 0x80, 0x90, 0xa0, 0x00, 0xff, 0xcb, 0xcf, 0xd3 };
	uint8_t b[8192];

	(void)state;
	for (size_t v = 0; v < COUNT_OF(versions); v++) {
		read_frames(versions[v].name, f);
		for (int i = 0; i < FRAMES; i++) {
			assert_true(f[i].len <= sizeof(b));
			for (int k = 0; f[i].len && k < 1500; k++) {
				size_t n = f[i].len - (k % 3 ? 0 : rnd(&seed) % f[i].len);

				memcpy(b, f[i].p, n);
				for (uint32_t m = 0; m < 1u + k % 4; m++) {
					uint32_t r = rnd(&seed);

					b[r % n] = r & 0x10000 ? odd[(r >> 17) % sizeof(odd)] :
								 (uint8_t)(r >> 24);
				}
				check_bytes(versions[v].name, f[i].type, b, n, k & 1);
				/* and as what it isn't */
				check_bytes(versions[v].name, k % 5 - 1, b, n, k & 1);
			}
		}
	}
}

/* ---- small ones ------------------------------------------------------------ */

static void frames(void **state)
{
	(void)state;
	check_story("empty", -1, "", 0, false, "kind 0 rc 0\n");
	check_story("empty, utility", 3, "", 0, false, "kind 0 rc 0\n");
	check_story("empty, cut", -1, "", 0, true, "kind 0 rc -61\n");
	check_story("empty add", 0, "", 0, false, "kind 2 rc -74\n");
	check_story("empty abort", 1, "", 0, false, "kind 3 rc -74\n");
	CHECK_BYTES(-1, "ENGINE_CORE_DEAD", false, "kind 5 rc 0\n");
	CHECK_BYTES(-1, "ENGINE_CORE_DEAD", true, "kind 5 rc 0\n");
	CHECK_BYTES(-1, "ENGINE_CORE_", true, "kind 5 rc -61\n");
	CHECK_BYTES(-1, "ENGINE_CORE_", false, "kind 0 rc -71\n");
	CHECK_BYTES(-1, "ENGINE_CORE_DEAF", false, "kind 0 rc -71\n");
	CHECK_BYTES(3, "ENGINE_CORE_DEAD", false, "kind 0 rc -74\n");
	CHECK_BYTES(1, "\x90", false, "kind 3 rc 0\n");
	CHECK_BYTES(1,
		    "\x91\xa3"
		    "abc",
		    false, "abort abc\nkind 3 rc 0\n");
	CHECK_BYTES(1,
		    "\x92\xa3"
		    "abc\x07",
		    false, "abort abc\nkind 3 rc -74\n");
	CHECK_BYTES(1,
		    "\xa3"
		    "abc",
		    false, "kind 3 rc -74\n");
	CHECK_BYTES(1, "\x90\x90", false, "kind 3 rc -74\n");
	CHECK_BYTES(2, "\x92\x01\x02", false, "kind 0 rc 0\n");
	CHECK_BYTES(3, "\x92\x01", true, "kind 0 rc -61\n");
	CHECK_BYTES(77, "\xc1", true, "kind 0 rc -74\n");
	/* the hand-shake, and the coordinator's */
	CHECK_BYTES(-1, "\x82\xa6status\xa5HELLO\xa5local\xc3", false, "kind 0 rc 0\n");
	CHECK_BYTES(-1, "\x82\xa6status\xa5READY\xaenum_gpu_blocks\xcd\x10\x00", false,
		    "ready  blocks=4096\nkind 4 rc 0\n");
	CHECK_BYTES(-1, "\x81\xacvllm_version\x07", false, "ready \nkind 4 rc 0\n");
	CHECK_BYTES(-1,
		    "\x81\xacvllm_version\xa6"
		    "0.23.0",
		    false, "ready 0.23.0\nkind 4 rc 0\n");
	CHECK_BYTES(-1,
		    "\x82\xb1"
		    "aphrodite_version\xa6"
		    "0.24.1\xa1",
		    true, "ready 0.24.1\nkind 4 rc -61\n");
	CHECK_BYTES(-1, "\x82\x07\x08\xc0\xacvllm_version", false, "kind 0 rc 0\n");
	CHECK_BYTES(-1, "\x93\x90\x00\xc2", false, "kind 0 rc -71\n");
	CHECK_BYTES(-1, "\x92\x90\xc0", false, "kind 0 rc -71\n");
	CHECK_BYTES(-1, "\x95\x90\xc0\xc0\xc0\xc0", false, "kind 0 rc -71\n");
	CHECK_BYTES(-1, "\x99\x90\xc0\xc0\xc0\xc0", false, "kind 1 rc -74\n");
	CHECK_BYTES(-1, "\xc0", false, "kind 0 rc -71\n");
	CHECK_BYTES(-1, "\xa5hello", false, "kind 0 rc -71\n");
	CHECK_BYTES(-1, "\xa5hel", true, "kind 0 rc -61\n");
	CHECK_BYTES(-1, "\xc1", false, "kind 0 rc -74\n");
}

#define TS "\xcb\x40\x8f\x40\x00\x00\x00\x00\x00" /* 1000.0 */

static void fields(void **state)
{
	(void)state;
	/* outputs of no layout, or no outputs: nothing is told */
	CHECK_BYTES(-1, "\x94\x90\xc0" TS "\xc0", false, "step n=0 ts=1000\nkind 1 rc 0\n");
	CHECK_BYTES(-1, "\x94\x90\xc0\xca\x44\x7a\x00\x00\xc0", false,
		    "step n=0 ts=1000\nkind 1 rc 0\n");
	CHECK_BYTES(-1, "\x94\x90\xc0\xcd\x03\xe8\xc0", false, "step n=0 ts=1000\nkind 1 rc 0\n");
	CHECK_BYTES(-1, "\x94\x91\x95\xa1x\x90\xc2\xc0\xc0\xc0" TS "\xc0", false,
		    "kind 1 rc -71\n");
	CHECK_BYTES(-1, "\x94\x91\xa1x\xc0" TS "\xc0", false, "kind 1 rc -74\n");
	CHECK_BYTES(-1, "\x94\xa1x\xc0" TS "\xc0", false, "kind 1 rc -74\n");
	CHECK_BYTES(-1, "\x97\xc0\x90\xc0" TS "\xc0\xc0\xc0", false, "kind 1 rc -74\n");
	/* what is behind the outputs is wrong: they are told first */
	CHECK_BYTES(-1, "\x94\x91\x97\xa1x\x90\xc0\xc0\xc0\xc0\xc0\xc0\xa1y\xc0", false,
		    "step n=1\nout x t=0\nkind 1 rc -74\n");
	CHECK_BYTES(-1, "\x94\x91\x97\xa1x\x90\xc0\xc0\xc0\xc0\xc0\x90" TS "\xc0", false,
		    "step n=1 ts=1000\nout x t=0\nkind 1 rc -74\n");
	CHECK_BYTES(-1, "\x94\x91\x97\xa1x\x90\xc0\xc0\xc0\xc0\xc0\xc0" TS "\xc1", false,
		    "step n=1 ts=1000\nout x t=0\nkind 1 rc -74\n");
	CHECK_BYTES(-1, "\x94\x91\x97\xa1x\x90\xc0\xc0\xc0\xc0\xc0\xc0" TS "\xc0\xc0", false,
		    "step n=1 ts=1000\nout x t=0\nkind 1 rc -74\n");
	/* a later output is wrong */
	CHECK_BYTES(-1,
		    "\x94\x92\x97\xa1x\x90\xc0\xc0\xc0\xc0\xc0\x97\x07\x90\xc0\xc0\xc0\xc0\xc0"
		    "\xc0" TS "\xc0",
		    false, "step n=2 ts=1000\nout x t=0\nkind 1 rc -74\n");
	CHECK_BYTES(-1, "\x94\x92\x97\xa1x\x90\xc0\xc0\xc0\xc0\xc0\x91\xa1x\xc0" TS "\xc0", false,
		    "step n=2 ts=1000\nout x t=0\nkind 1 rc -71\n");
#define ONE(out) "\x98\x05\x91" out "\xc0" TS "\xc0\xc0\xc0\xc0"
#define TOLD(line) "step n=1 engine=5 ts=1000\n" line "kind 1 rc 0\n"
#define BAD "step n=1 engine=5 ts=1000\nkind 1 rc -74\n"
	/* new_token_ids: an extension, a tensor, bytes, nil */
	CHECK_BYTES(-1, ONE("\x97\xa1x\xd6\x03\x01\x02\x03\x04\xc0\xc0\xc0\xc0\xc0"), false,
		    TOLD("out x t=0\n"));
	CHECK_BYTES(-1, ONE("\x97\xa1x\x93\xa2i8\x91\x05\xd4\x03\x01\xc0\xc0\xc0\xc0\xc0"), false,
		    TOLD("out x t=0\n"));
	CHECK_BYTES(-1, ONE("\x97\xa1x\xc4\x02\x01\x02\xc0\xc0\xc0\xc0\xc0"), false,
		    TOLD("out x t=0\n"));
	CHECK_BYTES(-1, ONE("\x97\xa1x\xc0\xc0\xc0\xc0\xc0\xc0"), false, TOLD("out x t=0\n"));
	CHECK_BYTES(-1, ONE("\x97\xa1x\xdc\x00\x02\x01\x02\xc0\xc0\xc0\xc0\xc0"), false,
		    TOLD("out x t=2\n"));
	/* finish_reason */
	CHECK_BYTES(-1, ONE("\x97\xa1x\x90\xc0\xc0\xa6length\xc0\xc0"), false,
		    TOLD("out x t=0 fin=1\n"));
	CHECK_BYTES(-1, ONE("\x97\xa1x\x90\xc0\xc0\xaarepetition\xc0\xc0"), false,
		    TOLD("out x t=0 fin=4\n"));
	CHECK_BYTES(-1,
		    ONE("\x97\xa1x\x90\xc0\xc0\xa9"
			"SECRETmar"
			"\xc0\xc0"),
		    false, TOLD("out x t=0 fin=2147483647\n"));
	no_secrets("finish", keep0, 10);
	CHECK_BYTES(-1, ONE("\x97\xa1x\x90\xc0\xc0\x2a\xc0\xc0"), false,
		    TOLD("out x t=0 fin=42\n"));
	CHECK_BYTES(-1, ONE("\x97\xa1x\x90\xc0\xc0\xff\xc0\xc0"), false,
		    TOLD("out x t=0 fin=2147483647\n"));
	CHECK_BYTES(-1, ONE("\x97\xa1x\x90\xc0\xc0\xc3\xc0\xc0"), false, BAD);
	/* ids */
	CHECK_BYTES(-1, ONE("\x97\xc4\x01x\x90\xc0\xc0\xc0\xc0\xc0"), false, BAD);
	CHECK_BYTES(-1, ONE("\x97\xd9\x01x\x90\xc0\xc0\xc0\xc0\xc0"), false, TOLD("out x t=0\n"));
	CHECK_BYTES(-1, ONE("\x97\xa0\x90\xc0\xc0\xc0\xc0\xc0"), false, TOLD("out  t=0\n"));
	/* events */
#define EV(more) ONE("\x97\xa1x\x90\xc0\xc0\xc0\xc0" more)
	CHECK_BYTES(-1,
		    EV("\x92\x82\xa4type\x01\xa9timestamp" TS "\x82\xa9timestamp" TS
		       "\xa4type\xd2\x00\x00\x00\x02"),
		    false, TOLD("out x t=0 1@1000 2@1000\n"));
	CHECK_BYTES(-1, EV("\x92\x81\xa4type\x01\x83\xa1y\x07\xa4type\x02\xa9timestamp\x05"), false,
		    TOLD("out x t=0 2@5\n"));
	CHECK_BYTES(-1, EV("\x91\x92\x01" TS), false, BAD);
	CHECK_BYTES(-1, EV("\x91\x82\xa4type\xa1y\xa9timestamp" TS), false, BAD);
	CHECK_BYTES(-1, EV("\x91\x82\xa4type\x01\xa9timestamp\xc0"), false, BAD);
	CHECK_BYTES(-1, EV("\x80"), false, BAD);
	/* stats of other types are not told; numbers of any width are */
	CHECK_BYTES(
		-1,
		"\x94\x90\x86\xb0num_running_reqs\xa1x\xb0num_waiting_reqs\xcf\xff\xff\xff\xff"
		"\xff\xff\xff\xff\xaekv_cache_usage\xc0\xb2prefix_cache_stats\xc0\xb3spec_"
		"decoding_stats\x81\xaanum_drafts\xd3\x00\x00\x00\x00\x00\x00\x00\x09\x07\x08" TS
		"\xc0",
		false, "step n=0 ts=1000 stats wait=9223372036854775807 d=9\nkind 1 rc 0\n");
	/* signed, of each width */
	CHECK_BYTES(-1, "\x98\xd0\xfe\x90\xc0" TS "\xc0\xc0\xc0\xc0", false,
		    "step n=0 engine=-2 ts=1000\nkind 1 rc 0\n");
	CHECK_BYTES(-1, "\x98\xd1\xfe\x00\x90\xc0" TS "\xc0\xc0\xc0\xc0", false,
		    "step n=0 engine=-512 ts=1000\nkind 1 rc 0\n");
	CHECK_BYTES(-1, "\x98\xcc\xfe\x90\xc0" TS "\xc0\xc0\xc0\xc0", false,
		    "step n=0 engine=254 ts=1000\nkind 1 rc 0\n");
	CHECK_BYTES(-1, "\x98\xfe\x90\xc0" TS "\xc0\xc0\xc0\xc0", false,
		    "step n=0 engine=-2 ts=1000\nkind 1 rc 0\n");
	/* fields to come */
	CHECK_BYTES(
		-1,
		"\xdc\x00\x0b\x05\x91\xdc\x00\x16\xa1x\x91\x07\xc0\xc0\xc0\x01\xc0\xc0\xc0\xc0"
		"\xc0\x81\xb1num_prompt_tokens\x0c\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\xc0" TS
		"\xc0\xc0\xc0\xc0\x01\x02\x03",
		false, "step n=1 engine=5 ts=1000\nout x t=1 fin=1 prompt=12\nkind 1 rc 0\n");
}

static void requests(void **state)
{
	(void)state;
	/* a prompt as embeddings; one that is cut; one whose text comes first */
	CHECK_BYTES(0, "\x9b\xa1x\xc0\xc0\xc0\xc0\xc0\xc0" TS "\xc0\xc0\xc0", false,
		    "add x defer resumable?\nkind 2 rc 0\n");
	CHECK_BYTES(0, "\xdc\x00\x16\xa1x\xdd\x00\x01\x00\x00\x01\x02", true,
		    "add x prompt=65536 defer resumable?\nkind 2 rc -61\n");
	CHECK_BYTES(0, "\xdc\x00\x16\xa1x\xdd\x00\x01\x00\x00", true,
		    "add x prompt=65536 defer resumable?\nkind 2 rc -61\n");
	CHECK_BYTES(0, "\xdc\x00\x16\xa1x\xdd\x00\x01\x00", true,
		    "add x defer resumable?\nkind 2 rc -61\n");
	CHECK_BYTES(0, "\xdc\x00\x16\xa2x", true, "kind 2 rc -61\n");
	CHECK_BYTES(0, "\x9a\xa1x\xa1y\x93\x01", true,
		    "add x prompt=3 defer resumable?\nkind 2 rc -61\n");
	CHECK_BYTES(0, "\x9a\xa1x\xa5y", true, "add x defer resumable?\nkind 2 rc -61\n");
	CHECK_BYTES(0, "\x9a\x07\xa1y\x93\x01", true, "kind 2 rc -74\n");
	CHECK_BYTES(0, "\x99\xa1x\x90\xc0\xc0\xc0\xc0\xc0\xc0\xc0", false, "kind 2 rc -71\n");
	CHECK_BYTES(0, "\x81\xa1x\x90", false, "kind 2 rc -74\n");
	/* fields of other types where these were */
	CHECK_BYTES(0,
		    "\xdc\x00\x17\xa1x\x91\x01\xc0\x80\xc0" TS
		    "\xc0\xc0\xc0\xc0\xc0\xa1y\xc0\xc0\xc0\xc0\x07\xc0\xc0\xc0\xc0\xc0\xc0",
		    false, "add x prompt=1\nkind 2 rc 0\n");
}

/* Each type of value, where nothing is read. */
static void scrub(void **state)
{
	static const char in[] =
		"\xdc\x00\x19\x05\xe5\xcc\x81\xcd\x82\x83\xce\x01\x02\x03\x04\xcf"
		"abcdefgh\xd0\x81\xd1\x82\x83\xd2\x01\x02\x03\x04\xd3"
		"abcdefgh\xc0\xc2\xc3\xca"
		"abcd\xcb"
		"abcdefgh\xa3"
		"abc\xd9\x03"
		"abc\xc4\x03"
		"abc\xd5\x07"
		"ab\xc7\x03\x07"
		"abc\x81\xa1k\x09\xde\x00\x01\xa1k\xc3\xda\x00\x01z\x91\x7f\xdd\x00\x00\x00"
		"\x01\x7f";
	static const char out[] =
		"\xdc\x00\x19\x00\x00\xcc\x00\xcd\x00\x00\xce\x00\x00\x00\x00\xcf"
		"\x00\x00\x00\x00\x00\x00\x00\x00\xd0\x00\xd1\x00\x00\xd2\x00\x00\x00\x00\xd3"
		"\x00\x00\x00\x00\x00\x00\x00\x00\xc0\xc2\xc2\xca"
		"\x00\x00\x00\x00\xcb"
		"\x00\x00\x00\x00\x00\x00\x00\x00\xa3"
		"xxx\xd9\x03"
		"xxx\xc4\x03"
		"\x00\x00\x00\xd5\x07"
		"\x00\x00\xc7\x03\x07"
		"\x00\x00\x00\x81\xa1x\x00\xde\x00\x01\xa1x\xc2\xda\x00\x01x\x91\x00\xdd\x00\x00\x00"
		"\x01\x00";

	(void)state;
	assert_int_equal(sizeof(in), sizeof(out));
	CHECK_BYTES(3, in, false, "kind 0 rc 0\n");
	assert_memory_equal(keep0, out, sizeof(out) - 1);
	for (size_t n = 1; n < sizeof(in) - 1; n++)
		assert_int_equal(check_bytes("scrub", 3, (const uint8_t *)in, n, true), -ENODATA);
}

static void many_events(void **state)
{
	static const char head[] = "\x94\x91\x97\xa1x\x90\xc0\xc0\xc0\xc0\xdc\x00\x13";
	static const char event[] = "\x82\xa4type\x03\xa9timestamp\x05";
	static const char tail[] = "\xc0" TS "\xc0";
	char want[256] = "step n=1 ts=1000\nout x t=0";
	struct log m = { 0 };

	(void)state;
	log_bytes(&m, head, sizeof(head) - 1);
	for (int i = 0; i < 19; i++)
		log_bytes(&m, event, sizeof(event) - 1);
	log_bytes(&m, tail, sizeof(tail) - 1);
	for (int i = 0; i < 16; i++)
		strcat(want, " 3@5");
	strcat(want, " +3\nkind 1 rc 0\n");
	check_story("events", -1, m.s, m.n, false, want);
	free(m.s);
}

static void long_ids(void **state)
{
	struct log m = { 0 }, want = { 0 };

	(void)state;
	for (int n = 254; n < 258; n++) {
		char id[258];

		memset(id, 'i', sizeof(id));
		m.n = want.n = 0;
		log_bytes(&m, "\x91\xda\x01", 3);
		m.s[2] = (char)(n >> 8);
		log_bytes(&m, (char[]){ (char)n }, 1);
		log_bytes(&m, id, n);
		if (n <= RP_VLLM_ID_MAX) {
			log_add(&want, "abort ");
			log_bytes(&want, id, n);
			log_add(&want, "\n");
		}
		log_add(&want, "kind 3 rc %d\n", n <= RP_VLLM_ID_MAX ? 0 : -EBADMSG);
		check_story("id", 1, m.s, m.n, false, log_str(&want));
	}
	free(m.s);
	free(want.s);
}

static void no_sink(void **state)
{
	struct rp_vllm_sink none = { 0 };
	struct frame f[FRAMES];

	(void)state;
	read_frames("vllm-0.32.0", f);
	for (int i = 0; i < FRAMES; i++) {
		assert_int_equal(
			rp_vllm_decode(f[i].type, f[i].p, f[i].len, false, NULL, &none, NULL), 0);
		assert_int_equal(
			rp_vllm_decode(f[i].type, f[i].p, f[i].len, false, NULL, NULL, NULL), 0);
	}
}

/* ---- hostile --------------------------------------------------------------- */

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void nesting(void **state)
{
	static const struct {
		const char *head;
		size_t len;
		int fill;
	} t[] = {
		{ "", 0, 0x91 },
		{ "", 0, 0x9f },
		{ "", 0, 0x81 },
		{ "", 0, 0x8f },
		{ "\x98\x03", 2, 0x91 },
		{ "\x98\x03\x91", 3, 0x9f },
		{ "\x98\x03\x91\x9f\xa1x", 6, 0x91 },
		{ "\x98\x03\x9f", 3, 0x9f },
		{ "\x98\x03\x90", 3, 0x81 },
		{ "\x98\x03\x90\x81\xb2prefix_cache_stats", 23, 0x8f },
		{ "\x9f\xa1x", 3, 0x9e },
		{ "\xdd\xff\xff\xff\xff", 5, 0xc0 },
		{ "\x98\x03\xdd\xff\xff\xff\xff", 7, 0x97 },
	};
	const size_t n = 1 << 20;
	uint8_t *b = malloc(n);
	double t0 = seconds();

	(void)state;
	if (!b)
		return;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		memset(b, t[i].fill, n);
		memcpy(b, t[i].head, t[i].len);
		for (int type = -1; type < 4; type++) {
			int rc = check_bytes("nesting", type, b, n, true);

			assert_true(rc == -ENODATA || rc == -EPROTO || rc == -EBADMSG);
		}
	}
	/* 65 times 1 MB, five times each, under a sanitizer; quadratic takes hours */
	assert_true(seconds() - t0 < 60);
	free(b);
}

static void counts(void **state)
{
	/* at each place of a message, a count that is not there */
	static const char *const huge[] = { "\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff",
					    "\xdb\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff",
					    "\xc9\xff\xff\xff\xff", "\xdc\xff\xff",
					    "\xde\xff\xff",	    "\xc7\xff" };
	struct frame f[FRAMES];
	uint8_t b[8192];

	(void)state;
	read_frames("vllm-0.32.0", f);
	for (int i = 0; i < FRAMES; i++)
		for (size_t at = 0; at < f[i].len; at++)
			for (size_t h = 0; h < COUNT_OF(huge); h++) {
				size_t n = strlen(huge[h]);

				memcpy(b, f[i].p, f[i].len);
				if (at + n > f[i].len)
					n = f[i].len - at;
				memcpy(b + at, huge[h], n);
				check_bytes("count", f[i].type, b, f[i].len, h & 1);
			}
}

static void big_step(void **state)
{
	struct log m = { 0 }, want = { 0 };
	size_t head;

	(void)state;
	log_bytes(&m, "\x98\x03\xdc\x02\x00", 5);
	log_add(&want, "step n=512 engine=3 ts=1000\n");
	head = want.n;
	for (int i = 0; i < 512; i++) {
		char id[32];

		snprintf(id, sizeof(id), "chatcmpl-%016x", i);
		log_add(&m, "\x9d\xb9%s\x91\xcd\x12\x34", id);
		for (int k = 0; k < 10; k++)
			log_bytes(&m, "\xc0", 1);
		log_bytes(&m, "\0", 1);
		log_add(&want, "out %s t=1\n", id);
	}
	log_bytes(&m, "\xc0" TS "\xc0\xc0\xc0\xc0", 14);
	log_add(&want, "kind 1 rc 0\n");
	check_story("512", -1, m.s, m.n, false, log_str(&want));
	for (size_t n = 0; n < m.n; n += 97) {
		size_t outs = 0;

		assert_int_equal(check_bytes("512, cut", -1, (uint8_t *)m.s, n, true), -ENODATA);
		if (n < 5)
			continue;
		for (char *s = story.s; (s = strstr(s, "\nout ")); s++)
			outs++;
		/* each output takes 42 bytes: all that lie wholly in the bytes */
		assert_int_equal(outs, (n - 5) / 42 < 512 ? (n - 5) / 42 : 512);
		assert_int_equal(strncmp(strchr(story.s, '\n') + 1, want.s + head,
					 outs * strlen("out chatcmpl-0123456789abcdef t=1\n")),
				 0);
	}
	free(m.s);
	free(want.s);
}

/* ---- names ----------------------------------------------------------------- */

static void names(void **state)
{
	static const struct {
		const char *id, *want;
	} t[] = {
		{ "", "0 0" },
		{ "1_cmpl-9ffbefc47dbd6763-0-96800035", "2 1 32 23 21" },
		{ "cmpl-9ffbefc47dbd6763-0-96800035", "0 0 32 23 21" },
		{ "chatcmpl-9ffbefc47dbd6763-96800035", "0 0 34 25" },
		{ "chatcmpl-my-req-1-996b10c4", "0 0 26 17 15" },
		{ "chatcmpl-0123456789abcdef0123456789abcdef", "0 0 41" },
		{ "cmpl-0123456789abcdef0123456789abcdef-12", "0 0 40 37" },
		{ "chatcmpl-9ffbefc47dbd6763_3-0a0b0c0d", "0 0 36 27 25" },
		{ "12_chatcmpl-x", "3 12 10" },
		{ "0_chatcmpl-x", "2 0 10" },
		{ "00_chatcmpl-x", "0 0 13" },
		{ "01_chatcmpl-x", "0 0 13" },
		{ "7_", "0 0 2" },
		{ "_7", "0 0 2" },
		{ "77", "0 0 2" },
		{ "x-1-2-3-4", "0 0 9 7 5" },
		{ "x--1", "0 0 4 2" },
		{ "x-ABCDEF01", "0 0 10" },
		{ "x-abcdef0", "0 0 9" },
		{ "x_abcdef01", "0 0 10" },
		{ "x_12345678", "0 0 10" },
		{ "x-12345678", "0 0 10 1" },
		{ "x-123456789", "0 0 11" },
		{ "999999999_x", "10 999999999 1" },
		{ "9999999999_x", "0 0 12" },
		{ "1_2_x", "2 1 3" },
		{ "resp_0123456789abcdef0123456789abcdef_2", "0 0 39 37" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct log l = { 0 };
		size_t n = strlen(t[i].id), start, lens[3];
		char *id = (char *)guard_buf(0, n);
		uint32_t choice;
		int k;

		memcpy(id, t[i].id, n);
		k = rp_vllm_names(id, n, &start, &choice, lens);
		log_add(&l, "%zu %u", start, choice);
		for (int j = 0; j < k; j++)
			log_add(&l, " %zu", lens[j]);
		same_text(t[i].id, &l, t[i].want);
		free(l.s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layouts),   cmocka_unit_test(cuts),
		cmocka_unit_test(mutations), cmocka_unit_test(frames),
		cmocka_unit_test(fields),    cmocka_unit_test(requests),
		cmocka_unit_test(scrub),     cmocka_unit_test(many_events),
		cmocka_unit_test(long_ids),  cmocka_unit_test(no_sink),
		cmocka_unit_test(nesting),   cmocka_unit_test(counts),
		cmocka_unit_test(big_step),  cmocka_unit_test(names),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);

	free(story.s);
	free(again.s);
	free(keep0);
	free(keep1);
	return rc;
}
