// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* facts.c - a line's members as facts: rp_facts_of() the other way round. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/reader.h"

enum text {
	TEXT_ID,
	TEXT_X_ID,
	TEXT_MODEL,
	TEXT_ENGINE,
	TEXT_VERSION,
	TEXT_FINISH,
	TEXT_ERROR_TYPE,
	TEXT_ERROR_CODE,
	TEXT_ERROR_WHERE,
};
_Static_assert(TEXT_ERROR_WHERE + 1 == RP_READER_TEXTS, "a text without room");

static const char *text(const struct rp_line *l, enum rp_leaf leaf, char *room)
{
	if (!l->v[leaf].p)
		return "";
	rp_slice_text(&l->v[leaf], room, 256);
	return room;
}

static int one_of(const struct rp_slice *s, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (rp_slice_is(s, names[i]))
			return i;
	return -1;
}

static int64_t count(const struct rp_slice *s)
{
	int64_t v;

	return rp_slice_int(s, &v) ? v : RP_NONE;
}

static int64_t ns(const struct rp_line *l, enum rp_field f)
{
	int64_t v;

	if (!rp_slice_fixed(&l->v[RP_LEAF_FIELDS + f], 6, &v))
		return RP_NONE;
	return v;
}

static double real(const struct rp_slice *s)
{
	double d;

	return rp_slice_double(s, &d) ? d : NAN;
}

static int boolean(const struct rp_slice *s)
{
	return s->p ? *s->p == 't' : -1;
}

/* "a","b" inside brackets */
static uint32_t flags(const struct rp_slice *s)
{
	const char *p = s->p, *end = p ? p + s->n : p;
	uint32_t f = 0;

	while (p && (p = memchr(p, '"', (size_t)(end - p)))) {
		const char *q = memchr(p + 1, '"', (size_t)(end - p - 1));
		struct rp_slice one;

		if (!q)
			break;
		one = (struct rp_slice){ p, (uint32_t)(q + 1 - p), false };
		for (unsigned i = 0; i < RP_FLAG_COUNT; i++)
			if (rp_slice_is(&one, rp_flag_names[i]))
				f |= 1u << i;
		p = q + 1;
	}
	return f;
}

struct gaps {
	struct rp_facts_room *room;
	size_t n;
	bool oom;
};

static void put_gap(void *ctx, int64_t gap)
{
	struct gaps *g = ctx;

	if (g->n == g->room->cap && !g->oom) {
		size_t cap = g->room->cap ? 2 * g->room->cap : 256;
		int64_t *more = realloc(g->room->icl, cap * sizeof(*more));

		if (!more) {
			g->oom = true;
			return;
		}
		g->room->icl = more;
		g->room->cap = cap;
	}
	if (!g->oom)
		g->room->icl[g->n++] = gap;
}

static int gaps(const struct rp_line *l, struct rp_facts *f, struct rp_facts_room *room)
{
	const struct rp_slice *s = &l->v[RP_LEAF_ICL];
	struct gaps g = { .room = room };

	if (!s->p)
		return 0;
	if (!room->cap) {
		/* a list without a gap is one, too */
		room->icl = malloc(256 * sizeof(*room->icl));
		if (!room->icl)
			return -ENOMEM;
		room->cap = 256;
	}
	if (!rp_slice_each_ns(s, put_gap, &g))
		return -EBADMSG;
	f->icl = room->icl;
	f->n_icl = g.n;
	return g.oom ? -ENOMEM : 0;
}

int rp_facts_of_line(const struct rp_line *l, struct rp_facts *f, struct rp_reader_room *room)
{
	static const char *const wheres[] = { "status", "stream", "engine" };
	int64_t v;
	int i;

	rp_facts_init(f);
	f->id = text(l, RP_LEAF_ID, room->text[TEXT_ID]);
	f->x_request_id = text(l, RP_LEAF_X_REQUEST_ID, room->text[TEXT_X_ID]);
	f->model = text(l, RP_LEAF_MODEL, room->text[TEXT_MODEL]);
	f->engine = text(l, RP_LEAF_ENGINE_NAME, room->text[TEXT_ENGINE]);
	f->engine_version = text(l, RP_LEAF_ENGINE_VERSION, room->text[TEXT_VERSION]);
	f->finish_reason = text(l, RP_LEAF_FINISH_REASON, room->text[TEXT_FINISH]);
	f->error_type = text(l, RP_LEAF_ERROR_TYPE, room->text[TEXT_ERROR_TYPE]);
	f->error_code = text(l, RP_LEAF_ERROR_CODE, room->text[TEXT_ERROR_CODE]);
	i = one_of(&l->v[RP_LEAF_ERROR_WHERE], wheres, 3);
	f->error_where = i < 0 ? "" : wheres[i];
	i = one_of(&l->v[RP_LEAF_OPERATION], rp_operation_names, RP_OP_COUNT);
	f->operation = i < 0 ? RP_OP_OTHER : (enum rp_operation)i;
	i = one_of(&l->v[RP_LEAF_END], rp_end_names, RP_END_COUNT);
	if (i < 0)
		return -EBADMSG;
	f->end = (enum rp_end)i;
	v = count(&l->v[RP_LEAF_STATUS]);
	f->status = v > 0 && v < 1000 ? (int)v : 0;
	f->stream = boolean(&l->v[RP_LEAF_STREAM]);
	v = count(&l->v[RP_LEAF_CHOICES]);
	f->choices = v > 0 && v < INT32_MAX ? (int)v : 1;
	f->flags = flags(&l->v[RP_LEAF_FLAGS]);
	f->has_error = l->has_error;
	f->context_overflow = boolean(&l->v[RP_LEAF_OVERFLOW]) == 1;
	f->reused = boolean(&l->v[RP_LEAF_REUSED]) == 1;
	if (rp_slice_time(&l->v[RP_LEAF_START], &v))
		f->start_wall = v;

#define NS(member, field) f->member = ns(l, RP_FIELD_##field)
#define N(member, field) f->member = count(&l->v[RP_LEAF_FIELDS + RP_FIELD_##field])
#define R(member, field) f->member = real(&l->v[RP_LEAF_FIELDS + RP_FIELD_##field])
#define TOLD(member, leaf) f->member = count(&l->v[RP_LEAF_##leaf])
	NS(receive, P_RECEIVE);
	NS(first_byte, S_FIRST_BYTE);
	NS(first_body, S_FIRST_BODY);
	NS(first_event, S_FIRST_EVENT);
	NS(ttft, S_TTFT);
	NS(second, S_TTST);
	NS(first_output, S_TTFO);
	NS(last_token, S_LAST_TOKEN);
	NS(last_body, S_LAST_BODY);
	NS(duration, S_DURATION);
	N(chunks, S_CHUNKS);
	N(keepalives, S_KEEPALIVES);
	N(first_chunk_tokens, S_FIRST_CHUNK);
	NS(frontend, P_FRONTEND);
	NS(queue, P_QUEUE);
	NS(prefill, P_PREFILL);
	NS(decode, P_DECODE);
	NS(flush, P_FLUSH);
	NS(after_first, FE_FIRST);
	NS(after_last, FE_LAST);
	NS(preempted, SCH_PREEMPTED);
	NS(requeue, SCH_REQUEUE);
	N(preemptions, SCH_PREEMPTIONS);
	N(requeues, SCH_REQUEUES);
	N(steps, SCH_STEPS);
	R(m_ttft, M_TTFT);
	R(m_generation, M_GENERATION);
	R(m_queue, M_QUEUE);
	R(m_mean_itl, M_MEAN_ITL);
	R(m_tps, M_TPS);
	N(prompt, TOK_PROMPT);
	N(completion, TOK_COMPLETION);
	N(cached, TOK_CACHED);
	N(reasoning, TOK_REASONING);
	for (i = 0; i < RP_USAGE_COUNT; i++)
		f->usage[i] = count(&l->v[RP_LEAF_USAGES + i]);
	f->prompt_audio_seconds = real(&l->v[RP_LEAF_AUDIO_S]);
	TOLD(max_tokens, MAX_TOKENS);
	TOLD(images, IMAGES);
	TOLD(audios, AUDIOS);
	TOLD(videos, VIDEOS);
	TOLD(spec_steps, SPEC_STEPS);
	TOLD(spec_draft_tokens, SPEC_DRAFT);
	TOLD(spec_accepted_tokens, SPEC_ACCEPTED);
	f->video_inference_s = real(&l->v[RP_LEAF_VIDEO_S]);
	f->video_peak_memory_mb = real(&l->v[RP_LEAF_VIDEO_MB]);
	NS(rtt, NET_RTT);
	NS(accept_wait, NET_ACCEPT);
	NS(last_ack, NET_LAST_ACK);
	N(retransmits, NET_RETRANS);
	TOLD(request_bytes, BYTES_RX);
	TOLD(response_bytes, BYTES_TX);
	TOLD(request_body, BODY_RX);
	TOLD(response_body, BODY_TX);
	TOLD(request_calls, CALLS_RX);
	TOLD(response_calls, CALLS_TX);
#undef NS
#undef N
#undef R
#undef TOLD
	return gaps(l, f, &room->gaps);
}

/* ---- other lines ---- */

bool rp_line_summary(const char *p, size_t n, char *host, size_t size)
{
	static const char head[] = "{\"schema\":\"reqprobe.summary/1\"";
	static const char key[] = ",\"host\":\"";
	const char *h, *q;

	*host = 0;
	if (n < sizeof(head) || memcmp(p, head, sizeof(head) - 1) != 0)
		return false;
	h = memmem(p, n < 512 ? n : 512, key, sizeof(key) - 1);
	if (!h)
		return true;
	h += sizeof(key) - 1;
	q = memchr(h, '"', n - (size_t)(h - p));
	if (q && !memchr(h, '\\', (size_t)(q - h)) && (size_t)(q - h) < size) {
		memcpy(host, h, (size_t)(q - h));
		host[q - h] = 0;
	}
	return true;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 x = (unsigned __int128)a * b;

	return (uint64_t)x ^ (uint64_t)(x >> 64);
}

static uint64_t add(uint64_t h, const struct rp_slice *s)
{
	const char *p = s->p;
	size_t n = p ? s->n : 0;
	uint64_t w;

	for (; n >= 8; p += 8, n -= 8) {
		memcpy(&w, p, 8);
		h = mix(h ^ w, 0x9e3779b97f4a7c15ULL);
	}
	w = 0;
	if (n)
		memcpy(&w, p, n);
	/* the length tells "a","bc" from "ab","c" */
	return mix(h ^ w, 0xbf58476d1ce4e5b9ULL + (p ? 2 * s->n + 1 : 0));
}

uint64_t rp_line_key(const struct rp_line *l, uint64_t seed)
{
	static const uint8_t leaves[] = {
		RP_LEAF_START,
		RP_LEAF_ID,
		RP_LEAF_REQUEST_IDS,
		RP_LEAF_X_REQUEST_ID,
		RP_LEAF_ENGINE_PID,
		RP_LEAF_CORE_PID,
		RP_LEAF_CLIENT_PORT,
		RP_LEAF_SERVER_ADDRESS,
		RP_LEAF_SERVER_PORT,
		RP_LEAF_STATUS,
		RP_LEAF_END,
		RP_LEAF_BYTES_RX,
		RP_LEAF_BYTES_TX,
		RP_LEAF_FIELDS + RP_FIELD_P_RECEIVE,
		RP_LEAF_FIELDS + RP_FIELD_S_DURATION,
		RP_LEAF_FIELDS + RP_FIELD_S_FIRST_BYTE,
		RP_LEAF_FIELDS + RP_FIELD_TOK_COMPLETION,
	};
	uint64_t h = mix(seed ^ 0x94d049bb133111ebULL, 0x9e3779b97f4a7c15ULL);

	for (size_t i = 0; i < sizeof(leaves); i++)
		h = add(h, &l->v[leaves[i]]);
	return h;
}
