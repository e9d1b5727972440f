// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* facts.c - a record's instants and counts, as struct rp_facts has them. */
#include "metrics/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const rp_error_class_names[RP_ERROR_CLASS_COUNT] = {
	[RP_ERROR_NONE] = "",
	[RP_ERROR_4XX] = "http_4xx",
	[RP_ERROR_5XX] = "http_5xx",
	[RP_ERROR_STREAM] = "stream",
	[RP_ERROR_ENGINE] = "engine",
	[RP_ERROR_CANCELLED] = "cancelled",
	[RP_ERROR_CLOSED] = "server_close",
	[RP_ERROR_NO_CONTENT] = "no_content",
	[RP_ERROR_UNSEEN] = "unknown",
};

void rp_facts_init(struct rp_facts *f)
{
	memset(f, 0, sizeof(*f));
	f->id = f->x_request_id = f->model = f->engine = f->engine_version = "";
	f->finish_reason = f->error_type = f->error_code = f->error_where = "";
	f->operation = RP_OP_OTHER;
	f->end = RP_END_UNKNOWN;
	f->stream = -1;
	f->choices = 1;
	f->start_wall = RP_NONE;
	f->receive = f->first_byte = f->first_body = f->first_event = f->ttft = RP_NONE;
	f->second = f->first_output = f->last_token = f->last_body = f->duration = RP_NONE;
	f->chunks = f->keepalives = f->first_chunk_tokens = RP_NONE;
	f->frontend = f->queue = f->prefill = f->decode = f->flush = RP_NONE;
	f->after_first = f->after_last = f->preempted = f->requeue = RP_NONE;
	f->preemptions = f->requeues = f->steps = RP_NONE;
	f->m_ttft = f->m_generation = f->m_queue = f->m_mean_itl = f->m_tps = NAN;
	f->prompt = f->completion = f->cached = f->reasoning = RP_NONE;
	for (int i = 0; i < RP_USAGE_COUNT; i++)
		f->usage[i] = RP_NONE;
	f->prompt_audio_seconds = f->video_inference_s = f->video_peak_memory_mb = NAN;
	f->max_tokens = f->images = f->audios = f->videos = RP_NONE;
	f->spec_steps = f->spec_draft_tokens = f->spec_accepted_tokens = RP_NONE;
	f->rtt = f->accept_wait = f->last_ack = f->retransmits = RP_NONE;
	f->request_bytes = f->response_bytes = f->request_body = f->response_body = RP_NONE;
	f->request_calls = f->response_calls = RP_NONE;
}

static int64_t whole(const struct rp_record *r, enum rp_field f)
{
	return r->v[f].known ? r->v[f].i : RP_NONE;
}

static double real(const struct rp_record *r, enum rp_field f)
{
	return r->v[f].known ? r->v[f].d : NAN;
}

static int64_t micro(const struct rp_record *r, enum rp_field f)
{
	return r->v[f].known ? r->v[f].i * 1000 : RP_NONE;
}

static const char *text(const char *s)
{
	return s ? s : "";
}

struct gaps {
	int64_t *to;
	size_t n;
};

static void gap(void *ctx, int64_t ns)
{
	struct gaps *g = ctx;

	g->to[g->n++] = ns;
}

/* At most one gap for each mark; without memory there are none, as without --itl. */
static void take_gaps(const struct rp_record *r, struct rp_facts *f, struct rp_facts_room *room)
{
	struct gaps g;

	if (!room || !r->itl_wanted || !r->v[RP_FIELD_S_CHUNKS].known)
		return;
	if (room->cap < r->n_chunk_marks + 1) {
		size_t cap = (r->n_chunk_marks + 1) * 2;
		int64_t *p = realloc(room->icl, cap * sizeof(*p));

		if (!p)
			return;
		room->icl = p;
		room->cap = cap;
	}
	g = (struct gaps){ .to = room->icl };
	rp_gaps(r->chunk_marks, r->n_chunk_marks, false, gap, &g);
	f->icl = room->icl;
	f->n_icl = g.n;
}

void rp_facts_of(const struct rp_record *r, struct rp_facts *f, struct rp_facts_room *room)
{
	rp_facts_init(f);
	f->id = r->id;
	f->x_request_id = r->x_request_id;
	f->model = r->model;
	f->engine = text(r->engine_name);
	f->engine_version = text(r->engine_version);
	f->finish_reason = r->finish_reason;
	f->error_type = r->error_type;
	f->error_code = r->error_code;
	f->error_where = r->has_error ? text(r->error_where) : "";
	f->operation = r->operation;
	f->end = r->end;
	f->status = r->status;
	f->stream = r->stream;
	f->choices = r->choices;
	f->flags = r->flags;
	f->has_error = r->has_error;
	f->context_overflow = r->has_error && r->context_overflow;
	f->reused = r->conn_reused;
	if (r->t_start != RP_NONE)
		f->start_wall = r->t_start + r->wall_offset;

	f->receive = whole(r, RP_FIELD_P_RECEIVE);
	f->first_byte = whole(r, RP_FIELD_S_FIRST_BYTE);
	f->first_body = whole(r, RP_FIELD_S_FIRST_BODY);
	f->first_event = whole(r, RP_FIELD_S_FIRST_EVENT);
	f->ttft = whole(r, RP_FIELD_S_TTFT);
	f->second = whole(r, RP_FIELD_S_TTST);
	f->first_output = whole(r, RP_FIELD_S_TTFO);
	f->last_token = whole(r, RP_FIELD_S_LAST_TOKEN);
	f->last_body = whole(r, RP_FIELD_S_LAST_BODY);
	f->duration = whole(r, RP_FIELD_S_DURATION);
	f->chunks = whole(r, RP_FIELD_S_CHUNKS);
	f->keepalives = whole(r, RP_FIELD_S_KEEPALIVES);
	f->first_chunk_tokens = whole(r, RP_FIELD_S_FIRST_CHUNK);
	take_gaps(r, f, room);

	f->frontend = whole(r, RP_FIELD_P_FRONTEND);
	f->queue = whole(r, RP_FIELD_P_QUEUE);
	f->prefill = whole(r, RP_FIELD_P_PREFILL);
	f->decode = whole(r, RP_FIELD_P_DECODE);
	f->flush = whole(r, RP_FIELD_P_FLUSH);
	f->after_first = whole(r, RP_FIELD_FE_FIRST);
	f->after_last = whole(r, RP_FIELD_FE_LAST);
	f->preempted = whole(r, RP_FIELD_SCH_PREEMPTED);
	f->requeue = whole(r, RP_FIELD_SCH_REQUEUE);
	f->preemptions = whole(r, RP_FIELD_SCH_PREEMPTIONS);
	f->requeues = whole(r, RP_FIELD_SCH_REQUEUES);
	f->steps = whole(r, RP_FIELD_SCH_STEPS);
	f->m_ttft = real(r, RP_FIELD_M_TTFT);
	f->m_generation = real(r, RP_FIELD_M_GENERATION);
	f->m_queue = real(r, RP_FIELD_M_QUEUE);
	f->m_mean_itl = real(r, RP_FIELD_M_MEAN_ITL);
	f->m_tps = real(r, RP_FIELD_M_TPS);

	f->prompt = whole(r, RP_FIELD_TOK_PROMPT);
	f->completion = whole(r, RP_FIELD_TOK_COMPLETION);
	f->cached = whole(r, RP_FIELD_TOK_CACHED);
	f->reasoning = whole(r, RP_FIELD_TOK_REASONING);
	memcpy(f->usage, r->usage, sizeof(f->usage));
	f->prompt_audio_seconds = r->prompt_audio_seconds;
	f->max_tokens = r->max_tokens;
	f->images = r->images;
	f->audios = r->audios;
	f->videos = r->videos;
	f->spec_steps = r->spec_steps;
	f->spec_draft_tokens = r->spec_draft_tokens;
	f->spec_accepted_tokens = r->spec_accepted_tokens;
	f->video_inference_s = r->video_inference_s;
	f->video_peak_memory_mb = r->video_peak_memory_mb;

	f->rtt = micro(r, RP_FIELD_NET_RTT);
	f->accept_wait = whole(r, RP_FIELD_NET_ACCEPT);
	f->last_ack = whole(r, RP_FIELD_NET_LAST_ACK);
	f->retransmits = whole(r, RP_FIELD_NET_RETRANS);
	f->request_bytes = (int64_t)r->bytes_rx;
	f->response_bytes = (int64_t)r->bytes_tx;
	f->request_body = (int64_t)r->body_rx;
	f->response_body = (int64_t)r->body_tx;
	f->request_calls = (int64_t)r->calls_rx;
	f->response_calls = (int64_t)r->calls_tx;
}

/*
 * The order is that of certainty: what the response says, then who went away. A
 * whole answer without any text is an error to AIPerf, whatever its status; one of
 * images has none. Of one body, usage says that there was none.
 */
enum rp_error_class rp_error_class(const struct rp_facts *f)
{
	if (f->status >= 500)
		return RP_ERROR_5XX;
	if (f->status >= 400)
		return RP_ERROR_4XX;
	if (f->has_error)
		return strcmp(f->error_where, "engine") == 0 ? RP_ERROR_ENGINE : RP_ERROR_STREAM;
	switch (f->end) {
	case RP_END_COMPLETE:
		return rp_generative(f->operation) && f->operation != RP_OP_GENERATE &&
				       (f->stream == 1 ? f->chunks == 0 : f->completion == 0) ?
			       RP_ERROR_NO_CONTENT :
			       RP_ERROR_NONE;
	case RP_END_CLIENT_DISCONNECT:
		return RP_ERROR_CANCELLED;
	case RP_END_SERVER_CLOSE:
		return RP_ERROR_CLOSED;
	case RP_END_ERROR:
		return RP_ERROR_STREAM;
	default:
		return RP_ERROR_UNSEEN;
	}
}
