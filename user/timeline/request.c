// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* request.c - one request from its first byte to its record. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "protocol/vllm.h"
#include "record/anon.h"
#include "timeline/internal.h"

/* More in one event, or in one response, is no count of tokens. */
#define MAX_EVENT_TOKENS 4096
#define MAX_TOKENS 100000000

struct route {
	const char *suffix;
	enum rp_operation op;
};

/* By the end of the path: servers are mounted under prefixes. */
static const struct route routes[] = {
	{ "/chat/completions", RP_OP_CHAT },
	{ "/api/chat", RP_OP_CHAT },
	{ "/completions", RP_OP_COMPLETION },
	{ "/completion", RP_OP_COMPLETION },
	{ "/api/generate", RP_OP_COMPLETION },
	{ "/infill", RP_OP_INFILL },
	{ "/embeddings", RP_OP_EMBEDDINGS },
	{ "/embedding", RP_OP_EMBEDDINGS },
	{ "/api/embed", RP_OP_EMBEDDINGS },
	{ "/rerank", RP_OP_RERANK },
	{ "/reranking", RP_OP_RERANK },
	{ "/pooling", RP_OP_EMBEDDINGS },
	{ "/score", RP_OP_RERANK },
	{ "/responses", RP_OP_RESPONSES },
	{ "/messages", RP_OP_MESSAGES },
	{ "/images/generations", RP_OP_GENERATE },
	{ "/images/edits", RP_OP_GENERATE },
	{ "/videos", RP_OP_GENERATE },
	{ "/audio/transcriptions", RP_OP_GENERATE },
	{ "/audio/translations", RP_OP_GENERATE },
};

static enum rp_operation operation(const char *method, const char *path)
{
	size_t n = strlen(path);

	if (strcmp(method, "POST"))
		return RP_OP_OTHER;
	while (n > 1 && path[n - 1] == '/')
		n--;
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		size_t l = strlen(routes[i].suffix);

		if (n >= l && !memcmp(path + n - l, routes[i].suffix, l))
			return routes[i].op;
	}
	return RP_OP_OTHER;
}

bool rp_tl_target_known(const char *target, size_t n, bool complete)
{
	char path[RP_PATH_MAX + 1];

	if (complete) {
		snprintf(path, sizeof(path), "%.*s", (int)n, target);
		return operation("POST", path) != RP_OP_OTHER;
	}
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		for (int v1 = 0; v1 < 2; v1++) {
			snprintf(path, sizeof(path), "%s%s", v1 ? "/v1" : "", routes[i].suffix);
			if (n <= strlen(path) && !memcmp(path, target, n))
				return true;
		}
	}
	return false;
}

bool rp_tl_ndjson(const char *content_type)
{
	/* no name is registered: application/x-ndjson, application/jsonl, jsonlines, ... */
	return strstr(content_type, "ndjson") || strstr(content_type, "jsonl") ||
	       strstr(content_type, "json-lines");
}

/* Whoever looks for it under its whole length finds nothing. */
static void id_cut(struct rp_timeline *t, struct rp_record *r)
{
	r->flags |= RP_FLAG_LIMIT;
	t->st.limit_ids++;
}

struct request *rp_tl_request_new(struct rp_timeline *t, struct conn *c, int64_t ts)
{
	struct request *q;
	struct rp_record *r;

	if (t->st.in_flight >= t->o.max_requests) {
		t->st.limit_requests++;
		rp_tl_notice(t, SAY_LIMIT,
			     "limit of %u requests in flight reached: more are not followed",
			     t->o.max_requests);
		return NULL;
	}
	q = rp_tl_alloc(t, sizeof(*q));
	if (!q)
		return NULL;
	q->conn = c;
	q->s = rp_tl_session(t, c->pid);
	q->retrans0 = c->retrans;
	q->usage_all = true;
	q->body_call[RP_RX] = q->body_call[RP_TX] = RP_NONE;
	for (unsigned i = 0; i < 64; i++)
		q->prev_event[i] = RP_NONE;
	r = &q->r;
	r->t_start = ts;
	r->t_request_end = r->t_first_byte = r->t_first_event = r->t_first_token = RP_NONE;
	r->t_second_token = r->t_first_output = r->t_last_token = r->t_end = r->t_ended = RP_NONE;
	r->t_first_body = r->t_last_body = r->first_chunk_tokens = RP_NONE;
	r->max_tokens = r->images = r->audios = r->videos = RP_NONE;
	for (unsigned i = 0; i < RP_USAGE_COUNT; i++)
		r->usage[i] = RP_NONE;
	r->spec_steps = r->spec_draft_tokens = r->spec_accepted_tokens = RP_NONE;
	r->prompt_audio_seconds = r->video_inference_s = r->video_peak_memory_mb = NAN;
	r->t_queued = r->t_scheduled = r->t_eng_first = r->t_eng_last = RP_NONE;
	r->tok_prompt = r->tok_completion_usage = r->tok_cached = r->tok_reasoning = RP_NONE;
	r->tok_prompt_engine = r->tok_engine = r->chunk_tokens = RP_NONE;
	r->preemptions = r->requeues = r->steps = RP_NONE;
	r->preempted_ns = r->requeue_ns = RP_NONE;
	r->unacked_first = r->unacked_last = r->notsent_last = r->srtt_us = r->min_rtt_us = RP_NONE;
	r->queued_chunks = r->t_acked = RP_NONE;
	r->t_accepted = c->accepted;
	r->e_queued = r->e_scheduled = r->e_first = r->e_last = NAN;
	q->request_length = q->response_length = RP_NONE;
	r->stream = -1;
	r->choices = 1;
	r->operation = RP_OP_OTHER;
	r->wall_offset = t->wall_offset;
	r->family = c->known ? c->o.family : 0;
	r->lport = c->o.lport;
	r->rport = c->o.rport;
	memcpy(r->laddr, c->o.laddr, sizeof(r->laddr));
	memcpy(r->raddr, c->o.raddr, sizeof(r->raddr));
	r->conn_reused = c->requests > 0 || c->pre_attach;
	r->t_established = c->t_established;
	r->rtt_status = c->o.family == AF_UNIX ? RP_RTT_UNIX : c->o.rtt_status;
	r->rtt_us = c->o.rtt_status == RP_RTT_HANDSHAKE ? (int64_t)c->o.rtt_us : RP_NONE;
	if (c->pre_attach)
		r->flags |= RP_FLAG_PRE_ATTACH;
	if (c->h->tail)
		c->h->tail->next = q;
	else
		c->h->head = q;
	c->h->tail = q;
	return q;
}

void rp_tl_request_head(struct rp_timeline *t, struct request *q, const struct rp_http1_head *h)
{
	struct rp_record *r = &q->r;

	q->head_seen = true;
	q->conn->requests++;
	memcpy(r->method, h->method, sizeof(r->method));
	memcpy(r->path, h->path, sizeof(r->path));
	memcpy(r->x_request_id, h->x_request_id, sizeof(r->x_request_id));
	memcpy(r->traceparent, h->traceparent, sizeof(r->traceparent));
	if (h->framing == RP_FRAMING_LENGTH)
		q->request_length = (int64_t)h->content_length;
	if (h->path_cut)
		r->flags |= RP_FLAG_LIMIT;
	r->operation = operation(h->method, h->path);
	q->recorded = r->operation != RP_OP_OTHER;
	if (!q->recorded) {
		t->st.other_paths++;
		return;
	}
	if (h->xreqid_cut)
		id_cut(t, r);
	r->key = ++t->next_key;
	t->st.started++;
	t->st.in_flight++;
	t->st.bytes_rx += r->bytes_rx;
	rp_tl_id_expected(t, q);
}

void rp_tl_request_body(struct rp_timeline *t, struct request *q, const struct rp_json_facts *f)
{
	struct rp_record *r = &q->r;
	int64_t n = f->n != RP_ABSENT && f->n > 1 ? f->n : 1;
	int64_t p = f->prompts != RP_ABSENT && f->prompts > 1 ? f->prompts : 1;

	if (!r->model[0])
		memcpy(r->model, f->model, sizeof(r->model));
	memcpy(r->request_model, f->model, sizeof(r->request_model));
	q->guided = f->guided;
	q->tools = f->tools;
	q->images = f->media[RP_JSON_IMAGE] > 0;
	memcpy(q->service_tier, f->service_tier, sizeof(q->service_tier));
	if (r->stream < 0 && f->stream >= 0)
		r->stream = f->stream;
	if (n > 1 << 16)
		n = 1 << 16;
	if (p > 1 << 16)
		p = 1 << 16;
	if (!(r->flags & (RP_FLAG_TRUNCATED | RP_FLAG_LOST_EVENTS))) {
		r->asked_n = (int)n;
		r->asked_prompts = (int)p;
	}
	if (rp_generative(r->operation) && n * p > r->choices)
		r->choices = (int)(n * p);
	if (f->whole && !f->gapped) {
		/* -1 is llama-server's "as many as there are" */
		if (f->max_tokens >= 0 && f->max_tokens <= INT32_MAX)
			r->max_tokens = f->max_tokens;
		r->images = f->media[RP_JSON_IMAGE];
		r->audios = f->media[RP_JSON_AUDIO];
		r->videos = f->media[RP_JSON_VIDEO];
	}
	rp_tl_started(t, q);
}

void rp_tl_response_head(struct rp_timeline *t, struct request *q, const struct rp_http1_head *h)
{
	struct rp_record *r = &q->r;

	(void)t;
	r->status = h->status;
	if (h->framing == RP_FRAMING_LENGTH)
		q->response_length = (int64_t)h->content_length;
	if (!strcmp(h->content_type, "text/event-stream") || rp_tl_ndjson(h->content_type))
		r->stream = 1;
	else if (h->status < 400)
		r->stream = 0;
	if (h->content_encoding[0] && strcmp(h->content_encoding, "identity"))
		r->flags |= RP_FLAG_ENCODED;
	if (h->status >= 400) {
		r->has_error = true;
		r->error_where = "status";
	}
}

static void take_count(struct rp_record *r, int64_t *to, int64_t n)
{
	if (n == RP_ABSENT)
		return;
	if (n >= 0 && n <= MAX_TOKENS)
		*to = n;
	else
		r->flags |= RP_FLAG_PARSE_ERROR;
}

/*
 * The usage object by itself. tokens.* is by the best source at hand; this is what
 * the response says. Each member by the last event that has it: streams tell either
 * all at the end, or running totals, and Anthropic's some at the start, others later.
 */
static void take_usage(struct request *q, const struct rp_json_facts *f, int64_t prompt)
{
	struct rp_record *r = &q->r;

	if (!f->has_usage)
		return;
	take_count(r, &r->usage[RP_USAGE_PROMPT], prompt);
	take_count(r, &r->usage[RP_USAGE_COMPLETION], f->completion_tokens);
	take_count(r, &r->usage[RP_USAGE_TOTAL], f->total_tokens);
	take_count(r, &r->usage[RP_USAGE_REASONING], f->reasoning_tokens);
	take_count(r, &r->usage[RP_USAGE_CACHE_READ], f->cached_tokens);
	take_count(r, &r->usage[RP_USAGE_CACHE_WRITE], f->cache_write_tokens);
	take_count(r, &r->usage[RP_USAGE_CACHE_MISS], f->cache_miss_tokens);
	take_count(r, &r->usage[RP_USAGE_PROMPT_AUDIO], f->prompt_audio_tokens);
	take_count(r, &r->usage[RP_USAGE_COMPLETION_AUDIO], f->completion_audio_tokens);
	take_count(r, &r->usage[RP_USAGE_ACCEPTED], f->accepted_tokens);
	take_count(r, &r->usage[RP_USAGE_REJECTED], f->rejected_tokens);
	take_count(r, &r->usage[RP_USAGE_TOOL_USE], f->tool_use_tokens);
	if (isfinite(f->prompt_audio_seconds) && f->prompt_audio_seconds >= 0)
		r->prompt_audio_seconds = f->prompt_audio_seconds;
}

/* Anthropic's input_tokens may come again without the caches that stood beside it. */
static int64_t prompt_tokens(struct request *q, const struct rp_json_facts *f)
{
	bool beside = f->cache_read_tokens != RP_ABSENT || f->cache_write_tokens != RP_ABSENT;

	if (f->cache_read_tokens >= 0 && f->cache_read_tokens <= MAX_TOKENS)
		q->cache_read = f->cache_read_tokens;
	if (f->cache_write_tokens >= 0 && f->cache_write_tokens <= MAX_TOKENS)
		q->cache_write = f->cache_write_tokens;
	if (beside || f->input_tokens < 0 || f->prompt_tokens > MAX_TOKENS)
		return f->prompt_tokens;
	return f->prompt_tokens + q->cache_read + q->cache_write;
}

/* What responses and events say alike. */
static void take_facts(struct rp_timeline *t, struct request *q, const struct rp_json_facts *f)
{
	struct rp_record *r = &q->r;
	int64_t prompt = prompt_tokens(q, f);

	if (f->id[0] && !r->id[0]) {
		memcpy(r->id, f->id, sizeof(r->id));
		q->id_cut = f->id_cut;
		if (f->id_cut)
			id_cut(t, r);
		else
			rp_tl_id_known(t, q, r->id);
	}
	/* The server's name for the model is the better one: requests may use aliases. */
	if (f->model[0]) {
		memcpy(r->model, f->model, sizeof(r->model));
		r->model_told = true;
	}
	if (f->finished || f->stop == 1 || f->finish_reason[0]) {
		if (f->finish_reason[0])
			memcpy(r->finish_reason, f->finish_reason, sizeof(r->finish_reason));
	}
	take_count(r, &r->tok_prompt, prompt);
	take_count(r, &r->tok_completion_usage, f->completion_tokens);
	take_count(r, &r->tok_cached,
		   f->cached_tokens != RP_ABSENT ? f->cached_tokens : f->t_cache_n);
	take_count(r, &r->tok_reasoning, f->reasoning_tokens);
	take_usage(q, f, prompt);
	take_count(r, &r->spec_steps, f->spec_steps);
	take_count(r, &r->spec_draft_tokens, f->spec_draft_tokens);
	take_count(r, &r->spec_accepted_tokens, f->spec_accepted_tokens);
	if (isfinite(f->video_inference_s) && f->video_inference_s >= 0)
		r->video_inference_s = f->video_inference_s;
	if (isfinite(f->video_peak_memory_mb) && f->video_peak_memory_mb >= 0)
		r->video_peak_memory_mb = f->video_peak_memory_mb;
	/* llama.cpp without usage: its timings count the same tokens */
	if (r->tok_completion_usage == RP_NONE)
		take_count(r, &r->tok_completion_usage, f->t_predicted_n);
	if (f->error && !r->has_error) {
		r->has_error = true;
		r->error_where = "stream";
	}
	if (f->error) {
		memcpy(r->error_type, f->error_type, sizeof(r->error_type));
		memcpy(r->error_code, f->error_code, sizeof(r->error_code));
	}
	/* what is no error for sure is none: a document may have a `message` of its own */
	r->context_overflow |= r->has_error &&
			       (f->too_long || strstr(f->error_code, "context_length_exceeded") ||
				strstr(f->error_type, "context_length_exceeded") ||
				strstr(f->error_type, "exceed_context_size"));
	q->choices_seen |= f->choices;
}

/* Its engine's tokens have instants of their own. */
static bool engine_tells(const struct request *q)
{
	return q->n_tasks && (q->tasks->name || q->s->has_role[RP_ROLE_TOKEN]);
}

static void token_event(struct rp_timeline *t, struct request *q, const struct rp_json_facts *f,
			int64_t ts)
{
	struct rp_record *r = &q->r;
	uint64_t who = f->content | f->reasoning | f->tool;
	uint32_t k = 1;

	/*
	 * Usage in every event so far tells the tokens of each; one choice only,
	 * since engines count them per choice there. Usage that comes with the last
	 * event alone is a sum and tells nothing of that event.
	 */
	if (q->usage_all && r->choices == 1 && f->completion_tokens != RP_ABSENT &&
	    f->completion_tokens >= q->usage_prev &&
	    f->completion_tokens - q->usage_prev <= MAX_EVENT_TOKENS) {
		k = (uint32_t)(f->completion_tokens - q->usage_prev);
		r->chunk_tokens = (r->chunk_tokens == RP_NONE ? 0 : r->chunk_tokens) + k;
	} else {
		q->usage_all = false;
	}
	if (!r->chunks && q->no_first == RP_WHY_NONE && q->usage_all)
		r->first_chunk_tokens = k;
	r->chunks++;
	if (q->conn->tcp) {
		if (r->unacked_first == RP_NONE)
			r->unacked_first = q->conn->unacked;
		r->queued_chunks = (r->queued_chunks == RP_NONE ? 0 : r->queued_chunks) +
				   (q->conn->notsent > q->conn->call_len);
	}
	if (r->t_first_token == RP_NONE) {
		if (q->no_first == RP_WHY_NONE)
			r->t_first_token = ts;
	} else if (r->chunks == 2 && !q->gap_since) {
		r->t_second_token = ts;
	}
	if (r->t_first_output == RP_NONE && (f->content | f->tool) && !q->output_missed &&
	    q->no_first == RP_WHY_NONE)
		r->t_first_output = ts;
	if (r->t_last_token != RP_NONE && !q->gap_since)
		rp_tl_gap(t, q, true, ts - r->t_last_token, 1, RP_NONE);
	r->t_last_token = ts;
	for (unsigned c = 0; c < 64 && q->gap_since; c++)
		q->prev_event[c] = RP_NONE;

	for (unsigned c = 0; c < 64 && who >> c; c++) {
		int64_t prev = q->prev_event[c];

		if (!(who >> c & 1))
			continue;
		if (!q->n_tasks && k) {
			if (prev != RP_NONE)
				rp_tl_gap(t, q, false, (ts - prev) / k, k, ts - prev);
			else if (k > 1)
				rp_tl_gap(t, q, false, 0, k - 1, RP_NONE);
		}
		if (k && !engine_tells(q))
			rp_tl_tokens(t, q, false, ts, k, c);
		if (k)
			q->prev_event[c] = ts;
		rp_tl_mark(t, q, &q->chunk, ts, k, c);
	}
	q->gap_since = q->last_missed = false;
}

void rp_tl_event(struct rp_timeline *t, struct request *q, const struct rp_json_facts *f,
		 const char *event_name, int64_t ts)
{
	struct rp_record *r = &q->r;

	if (f->done_marker) {
		q->done_marker = true;
		return;
	}
	if (r->t_first_event == RP_NONE && q->no_first == RP_WHY_NONE)
		r->t_first_event = ts;
	take_facts(t, q, f);
	if (!strcmp(event_name, "error") && !r->has_error) {
		r->has_error = true;
		r->error_where = "stream";
	}
	if (f->content | f->reasoning | f->tool)
		token_event(t, q, f, ts);
	if (f->completion_tokens != RP_ABSENT && f->completion_tokens > q->usage_prev)
		q->usage_prev = f->completion_tokens;
	if (f->stop == 1)
		q->done_marker = true; /* native streams have no [DONE] */
}

void rp_tl_response_body(struct rp_timeline *t, struct request *q, const struct rp_json_facts *f)
{
	take_facts(t, q, f);
}

/* ---- the end ---- */

static enum rp_reason engine_why(const struct request *q)
{
	const struct session *s = q->s;

	if (q->n_tasks)
		return RP_WHY_NONE;
	if (q->midstream)
		return RP_WHY_NOT_SEEN;
	/* refused by the front end: the engine never heard of it */
	if ((s->has_role[RP_ROLE_VLLM] || s->has_role[RP_ROLE_QUEUED]) && q->r.status >= 400 &&
	    q->r.status < 500)
		return RP_WHY_NOT_REACHED;
	switch (s->hook_reason) {
	case RP_HOOKS_NONE_FOR_ENGINE:
		return RP_WHY_NO_ENGINE_HOOKS;
	case RP_HOOKS_STRIPPED:
		return RP_WHY_STRIPPED;
	case RP_HOOKS_NOT_PERMITTED:
		return RP_WHY_NOT_PERMITTED;
	case RP_HOOKS_OFF:
		return RP_WHY_HOOKS_OFF;
	default:
		break;
	}
	if (q->r.flags & RP_FLAG_LOST_EVENTS)
		return RP_WHY_LOST;
	if (s->has_role[RP_ROLE_VLLM] && q->id_cut)
		return RP_WHY_LIMIT;
	return s->hits ? RP_WHY_NOT_JOINED : RP_WHY_SILENT;
}

static enum rp_reason stream_why(const struct request *q, enum rp_end end)
{
	const struct rp_record *r = &q->r;

	if (!rp_generative(r->operation))
		return RP_WHY_NOT_GENERATIVE;
	if (q->no_first != RP_WHY_NONE)
		return q->no_first;
	if (r->flags & RP_FLAG_ENCODED)
		return RP_WHY_ENCODED;
	if (r->stream == 0)
		return RP_WHY_NOT_STREAMING;
	if (r->flags & RP_FLAG_LOST_EVENTS)
		return RP_WHY_LOST;
	if (r->flags & RP_FLAG_TRUNCATED)
		return RP_WHY_TRUNCATED;
	if (end != RP_END_COMPLETE)
		return RP_WHY_NOT_REACHED;
	return RP_WHY_NO_TOKEN;
}

static int64_t earlier(int64_t a, int64_t b)
{
	if (a == RP_NONE)
		return b;
	return b != RP_NONE && b < a ? b : a;
}

static int64_t later(int64_t a, int64_t b)
{
	return a == RP_NONE || (b != RP_NONE && b > a) ? b : a;
}

static int64_t sum(int64_t a, int64_t b)
{
	return a == RP_NONE ? b : b == RP_NONE ? a : a + b;
}

/*
 * A stop string is found in the front end, which drops what the engine made
 * beyond it: outputs that were under way when it sent its abort. The last output
 * that counted holds the last token of `usage`; where the response says no usage,
 * it is the last one that was sent before the abort, or before the last chunk.
 */
static void trim_surplus(struct request *q, struct task *k)
{
	struct rp_record *r = &q->r;
	const struct task_output *best = NULL;
	unsigned n = k->n_last < RP_TASK_LAST ? k->n_last : RP_TASK_LAST;
	int64_t by = k->t_abort != RP_NONE ? k->t_abort : r->t_last_token;
	bool usage = r->tok_completion_usage != RP_NONE && q->n_tasks == 1;

	if (!k->name || r->end != RP_END_COMPLETE || k->no_last)
		return;
	/* one that the engine ended is cut only where the response says so */
	if (k->finish != RP_VLLM_RUNNING && !usage)
		return;
	for (unsigned i = 0; i < n; i++) {
		const struct task_output *o = &k->last[(k->n_last - n + i) % RP_TASK_LAST];

		if (usage && (int64_t)o->tokens < r->tok_completion_usage)
			continue;
		if (!usage && (by == RP_NONE || o->sent > by))
			break;
		best = o;
		if (usage)
			break;
	}
	if (!best || best->tokens >= k->tokens)
		return;
	/* the one that counted may have left the ring long ago */
	if (usage && k->n_last > RP_TASK_LAST && best == &k->last[(k->n_last - n) % RP_TASK_LAST] &&
	    (int64_t)best->tokens > r->tok_completion_usage) {
		k->no_last = true;
		return;
	}
	k->t_last = best->ts;
	k->e_last = best->stamp;
	k->tokens = best->tokens;
	while (q->eng.n && q->eng.m[q->eng.n - 1].ts > best->ts)
		q->eng.n--;
}

static const char *finish_name(int finish)
{
	static const char *const finishes[] = {
		[RP_VLLM_STOP] = "stop",
		[RP_VLLM_LENGTH] = "length",
		[RP_VLLM_ABORTED] = "abort",
		[RP_VLLM_ERROR] = "error",
		[RP_VLLM_REPETITION] = "repetition",
	};

	if (finish < 0 || finish >= (int)(sizeof(finishes) / sizeof(finishes[0])))
		return "";
	return finishes[finish];
}

/* For observers, one by one. */
static void tell_task(struct rp_timeline *t, struct request *q, const struct task *k)
{
	struct rp_record *r = &q->r;
	struct rp_engine_request *e;
	const char *finish = k->name ? finish_name(k->finish) : "";

	if (r->n_engine_requests == RP_ENGINE_REQUESTS_TOLD) {
		r->more_engine_requests++;
		return;
	}
	/* ended by a stop string, or an engine that gives no reasons */
	if (!finish[0] && r->end == RP_END_COMPLETE)
		finish = r->finish_reason;
	e = &t->told[r->n_engine_requests++];
	*e = (struct rp_engine_request){
		.t_queued = k->t_queued,
		.t_scheduled = k->t_scheduled,
		.t_first = k->no_first ? RP_NONE : k->t_first,
		.t_last = k->no_last ? RP_NONE : k->t_last,
		.tokens = RP_NONE,
		.prompt = k->name && k->prompt >= 0 ? k->prompt : RP_NONE,
		.cached = k->name && k->cached >= 0 ? k->cached : RP_NONE,
		.preemptions = RP_NONE,
		.index = k->name ? k->index : 0,
		.finish = finish,
		.estimated = k->estimate != RP_EST_NONE,
	};
	if ((k->name || q->s->has_role[RP_ROLE_TOKEN]) && rp_generative(r->operation) && !k->lost &&
	    !k->no_first)
		e->tokens = (int64_t)k->tokens;
	if (k->decoded || (k->name && (k->s->log_stats || k->told || rp_tl_msgs_gaps(t, k))))
		e->preemptions = k->preemptions;
	r->engine_requests = t->told;
}

/* Waits after the first schedule: told by events, or estimated from steps. */
static void take_waits(const struct rp_timeline *t, struct request *q, const struct task *k)
{
	struct rp_record *r = &q->r;
	bool told = k->s->log_stats || k->told, known = told || rp_tl_msgs_gaps(t, k);

	if (known) {
		r->preemptions = sum(r->preemptions, k->preemptions);
		r->preempted_ns = sum(r->preempted_ns, k->preempted_ns);
	}
	if (known && !told) {
		r->preempt_estimate = RP_EST_STEPS;
		r->flags |= RP_FLAG_ESTIMATED;
	}
	/* without events it is queued again only if it was sent as one to which more comes */
	if (told || (known && k->queued_once)) {
		r->requeues = sum(r->requeues, k->requeues);
		r->requeue_ns = sum(r->requeue_ns, k->requeue_ns);
	}
	q->waits_cut |= !known;
	q->requeues_cut |= !told && !(known && k->queued_once);
}

/* What messages say more than hooks. */
static void take_named(const struct rp_timeline *t, struct request *q, const struct task *k)
{
	struct rp_record *r = &q->r;

	take_waits(t, q, k);
	if (!k->lost)
		r->steps = sum(r->steps, k->steps);
	if (k->estimate != RP_EST_NONE) {
		r->estimate = k->estimate;
		r->flags |= RP_FLAG_ESTIMATED;
	}
	if (r->n_choice_tokens < RP_CHOICES_TOLD)
		r->choice_tokens[r->n_choice_tokens++] = (uint32_t)k->tokens;
	if (q->n_tasks == 1) {
		r->e_queued = k->e_queued;
		r->e_scheduled = k->e_scheduled;
		r->e_first = k->no_first ? NAN : k->e_first;
		r->e_last = k->no_last ? NAN : k->e_last;
		if (k->prompt >= 0)
			r->tok_prompt_engine = k->prompt;
		if (k->cached >= 0 && r->tok_cached == RP_NONE)
			r->tok_cached = k->cached;
	}
	if (!r->finish_reason[0])
		snprintf(r->finish_reason, sizeof(r->finish_reason), "%s", finish_name(k->finish));
	if (k->finish == RP_VLLM_ERROR && !r->has_error) {
		r->has_error = true;
		r->error_where = "engine";
	}
}

/* One that has a slot keeps it: never preempted, never queued again. */
static void take_decoded(struct rp_record *r, const struct task *k)
{
	if (k->t_scheduled == RP_NONE)
		return;
	r->preemptions = sum(r->preemptions, 0);
	r->requeues = sum(r->requeues, 0);
	r->preempted_ns = sum(r->preempted_ns, 0);
	r->requeue_ns = sum(r->requeue_ns, 0);
	if (!k->lost && !k->no_steps)
		r->steps = sum(r->steps, k->steps);
}

/* Choices of one prompt have one id, behind a "<k>_" of their own. */
static bool one_prompt(const struct request *q)
{
	const struct task *first = q->tasks;

	for (const struct task *k = first; k; k = k->next_of_req)
		if (!k->name || !k->n_names || !k->names[0].start || k->prompt < 0 ||
		    strcmp(k->name + k->names[0].start, first->name + first->names[0].start))
			return false;
	return true;
}

/* Several tasks of one request: first of the firsts, last of the lasts. */
static void take_tasks(struct rp_timeline *t, struct request *q)
{
	struct rp_record *r = &q->r;

	for (struct task *k = q->tasks; k; k = k->next_of_req) {
		trim_surplus(q, k);
		/* answered, and nothing of it was seen: it was before the engine was hooked */
		if (k->name && !k->steps && r->end == RP_END_COMPLETE)
			k->no_first = true;
		/* a lost entry may have been the first token, or the last */
		if (k->no_first)
			k->t_first = RP_NONE;
		if (k->no_last)
			k->t_last = RP_NONE;
		if (k->lost || k->no_first)
			q->tasks_cut = true;
		if (k->lost)
			r->flags |= RP_FLAG_LOST_EVENTS;
		q->began_unseen |= k->name && k->no_first && !k->lost;
		r->t_queued = earlier(r->t_queued, k->t_queued);
		r->t_scheduled = earlier(r->t_scheduled, k->t_scheduled);
		r->t_eng_first = earlier(r->t_eng_first, k->t_first);
		r->t_eng_last = later(r->t_eng_last, k->t_last);
		if ((k->name || q->s->has_role[RP_ROLE_TOKEN]) && rp_generative(r->operation) &&
		    !q->tasks_cut)
			r->tok_engine = sum(r->tok_engine, (int64_t)k->tokens);
		if (k->name)
			take_named(t, q, k);
		else if (k->decoded)
			take_decoded(r, k);
		tell_task(t, q, k);
		if (r->n_request_ids == RP_REQUEST_IDS)
			continue;
		if (k->name && k->name_len >= sizeof(r->request_ids[0]))
			id_cut(t, r);
		if (k->name)
			snprintf(r->request_ids[r->n_request_ids++], sizeof(r->request_ids[0]),
				 "%s", k->name);
		else
			snprintf(r->request_ids[r->n_request_ids++], sizeof(r->request_ids[0]),
				 "%lld", (long long)k->id);
	}
	if (q->tasks_cut)
		r->tok_engine = RP_NONE;
	/* a sum of which a part is not known is not known */
	if (q->waits_cut) {
		r->preemptions = r->preempted_ns = RP_NONE;
		r->preempt_estimate = RP_EST_NONE;
		if (r->estimate == RP_EST_NONE)
			r->flags &= ~(uint32_t)RP_FLAG_ESTIMATED;
	}
	if (q->requeues_cut)
		r->requeues = r->requeue_ns = RP_NONE;
	if (q->tasks && q->n_tasks > 1 && one_prompt(q))
		r->tok_prompt_engine = q->tasks->prompt;
}

/* first_event <= ttft <= last_token <= end, or they are not what they seem. */
static bool in_order(const struct rp_record *r)
{
	const int64_t all[] = { r->t_first_event, r->t_first_token, r->t_last_token, r->t_end };
	int64_t last = RP_NONE;

	for (unsigned i = 0; i < 4; i++) {
		if (all[i] == RP_NONE)
			continue;
		if (all[i] < last)
			return false;
		last = all[i];
	}
	return true;
}

/* Tokens that the totals lack, or have a part of. Refused, it has none. */
static void count_unknown(struct rp_timeline *t, const struct rp_record *r)
{
	if ((r->status >= 400 && r->status < 500) || r->operation == RP_OP_GENERATE)
		return;
	t->st.unknown_prompt += !r->v[RP_FIELD_TOK_PROMPT].known;
	t->st.unknown_completion += rp_generative(r->operation) &&
				    !r->v[RP_FIELD_TOK_COMPLETION].known;
}

static void emit(struct rp_timeline *t, struct request *q)
{
	struct rp_record *r = &q->r, masked;

	rp_tl_twin_check(t, q);
	if (q->last_missed)
		r->t_last_token = RP_NONE;
	take_tasks(t, q);
	r->ack_late = q->ack_of && t->now - q->finished_at >= RP_ACK_NS;
	if (!in_order(r)) {
		r->t_first_event = r->t_first_token = r->t_second_token = RP_NONE;
		r->t_first_output = r->t_last_token = RP_NONE;
		r->flags |= RP_FLAG_PARSE_ERROR;
		r->stream_why = RP_WHY_INVALID; /* and counted below */
	}
	r->joined = q->n_tasks > 0;
	r->engine_why = q->began_unseen ? RP_WHY_NOT_SEEN : engine_why(q);
	if (!r->joined && q->s->hook_reason == RP_HOOKS_OK && !q->midstream &&
	    r->engine_why != RP_WHY_NOT_REACHED) {
		t->st.not_joined++;
		/* Attached is not proof: say so when nothing ever fires. */
		if (!q->s->hits && q->r.t_start > q->s->since && ++q->s->finished_unjoined == 3 &&
		    !q->s->silent_said) {
			q->s->silent_said = true;
			for (unsigned i = 0; i < t->n_obs; i++)
				if (t->obs[i].notice)
					t->obs[i].notice(
						t->obs[i].ctx,
						"engine hooks are attached but silent: queue, prefill and decode times are null");
		}
	}
	if (q->n_tasks > (unsigned)r->choices && rp_generative(r->operation))
		r->choices = (int)q->n_tasks;
	for (int c = r->choices; c < 64; c++)
		if (q->choices_seen >> c & 1)
			r->choices = c + 1;
	if (!q->usage_all)
		r->chunk_tokens = r->first_chunk_tokens = RP_NONE;
	r->engine_name = q->s->engine;
	r->engine_version = q->s->version;
	if (t->wall_offset != r->wall_offset)
		r->flags |= RP_FLAG_CLOCK_STEP;
	r->eng_marks = q->eng.m;
	r->n_eng_marks = q->eng.n;
	r->chunk_marks = q->chunk.m;
	r->n_chunk_marks = q->chunk.n;
	r->itl_wanted = t->o.itl;
	r->itl_source = q->eng.n ? RP_ITL_ENGINE : q->chunk.n ? RP_ITL_SERVER : RP_ITL_NONE;
	r->seq = ++t->next_seq;
	rp_derive(r);
	for (int i = 0; i < RP_FIELD_COUNT; i++)
		if (!r->v[i].known && r->v[i].why == RP_WHY_INVALID) {
			t->st.invalid_order++;
			break;
		}
	t->st.ends[r->end]++;
	t->st.in_flight--;
	if (r->v[RP_FIELD_TOK_PROMPT].known)
		t->st.tokens_prompt += (uint64_t)r->v[RP_FIELD_TOK_PROMPT].i;
	/* engine tokens were counted as they came */
	if (r->v[RP_FIELD_TOK_COMPLETION].known && !(r->joined && r->tok_engine != RP_NONE) &&
	    !q->twin)
		rp_tl_count_tokens(t, (uint64_t)r->v[RP_FIELD_TOK_COMPLETION].i);
	count_unknown(t, r);
	if (t->o.anon) { /* a copy: the ids of the request itself still join what comes */
		masked = *r;
		rp_anon_record(t->o.anon, &masked);
		r = &masked;
	}
	for (unsigned i = 0; i < t->n_obs; i++)
		if (t->obs[i].record)
			t->obs[i].record(t->obs[i].ctx, r);
}

static void request_free(struct rp_timeline *t, struct request *q)
{
	rp_tl_id_forget(t, q);
	rp_tl_tasks_detach(t, q);
	t->st.memory -= (q->eng.cap + q->chunk.cap) * sizeof(struct rp_mark);
	free(q->eng.m);
	free(q->chunk.m);
	rp_tl_free(t, q, sizeof(*q));
}

/* Does the engine still work for it, and will it say when it stops? */
static bool engine_busy(const struct request *q)
{
	return q->n_open && (q->s->has_role[RP_ROLE_RELEASED] || q->s->has_role[RP_ROLE_VLLM]);
}

static void tell_http(struct rp_timeline *t, const struct request *q, enum rp_end end, int64_t ts)
{
	const struct rp_record *r = &q->r;
	struct rp_http_info h = {
		.method = r->method,
		.path = r->path,
		.status = r->status,
		.request_length = q->request_length,
		.response_length = q->response_length,
		.complete = end == RP_END_COMPLETE || end == RP_END_ERROR,
	};

	if (!q->head_seen || q->midstream || q->proxied || !h.status || r->t_start == RP_NONE)
		return;
	h.duration_ns = (ts == RP_NONE ? t->now : ts) - r->t_start;
	if (h.duration_ns < 0)
		return;
	for (unsigned i = 0; i < t->n_obs; i++)
		if (t->obs[i].http)
			t->obs[i].http(t->obs[i].ctx, &h);
}

static void tell_ended(struct rp_timeline *t, struct request *q, int64_t ts)
{
	rp_tl_started(t, q);
	for (unsigned i = 0; i < t->n_obs && q->r.key; i++)
		if (t->obs[i].ended)
			t->obs[i].ended(t->obs[i].ctx, q->r.key, ts);
}

/*
 * When it was over for who ended it. A FIN from before the request was read says only that
 * the client had no more to send.
 */
static int64_t over_at(const struct conn *c, const struct rp_record *r, enum rp_end end)
{
	const int64_t peer[] = { c->peer_fin, c->peer_rst, c->closed },
		      own[] = { c->local_fin, c->closed, RP_NONE },
		      *all = end == RP_END_CLIENT_DISCONNECT ? peer : own;
	int64_t ts = RP_NONE;

	if (end != RP_END_CLIENT_DISCONNECT && end != RP_END_SERVER_CLOSE)
		return RP_NONE;
	for (unsigned i = 0; i < 3; i++)
		if (all[i] != RP_NONE &&
		    (r->t_request_end == RP_NONE || all[i] >= r->t_request_end) &&
		    (ts == RP_NONE || all[i] < ts))
			ts = all[i];
	return ts;
}

void rp_tl_request_end(struct rp_timeline *t, struct request *q, enum rp_end end, int64_t ts)
{
	struct conn *c = q->conn;
	struct rp_record *r = &q->r;
	struct request **p = &c->h->head, *prev = NULL;

	tell_http(t, q, end, ts);
	while (*p && *p != q) {
		prev = *p;
		p = &(*p)->next;
	}
	if (*p)
		*p = q->next;
	if (c->h->tail == q)
		c->h->tail = prev;
	if (c->h->rx == q)
		c->h->rx = NULL;
	q->next = NULL;

	if (!q->recorded) {
		request_free(t, q);
		return;
	}
	tell_ended(t, q, ts != RP_NONE ? ts : t->now);
	r->pid = c->pid;
	r->end = end;
	if (end == RP_END_COMPLETE || end == RP_END_ERROR)
		r->t_end = ts;
	else
		r->t_end = RP_NONE; /* the last byte of the response was never sent */
	r->t_ended = over_at(c, r, end);
	r->retransmits = c->o.family == AF_UNIX || !c->known ? RP_NONE :
							       (int64_t)(c->retrans - q->retrans0);
	r->stream_why = stream_why(q, end);
	if (c->tcp) {
		r->unacked_last = c->unacked;
		r->notsent_last = c->notsent;
		r->srtt_us = c->srtt_us ? (int64_t)c->srtt_us : RP_NONE;
		r->min_rtt_us = c->min_rtt_us != UINT32_MAX ? (int64_t)c->min_rtt_us : RP_NONE;
	}
	q->conn = NULL;
	/* The client had closed its side before the last byte: whether it still
	 * read, only a reset can tell, and that takes a round trip. */
	if (end == RP_END_COMPLETE && c->peer_fin != RP_NONE && c->peer_fin < ts &&
	    c->o.family != AF_UNIX) {
		q->held_for = c->id;
		q->finished_at = t->now;
		*t->pending_tail = q;
		t->pending_tail = &q->next;
		return;
	}
	if (end == RP_END_COMPLETE && c->tcp && !c->unacked) {
		r->t_acked = ts;
	} else if (end == RP_END_COMPLETE && c->tcp && c->acked != RP_NONE &&
		   c->acked_off == c->off[RP_TX]) { /* closing was its end */
		r->t_acked = later(c->acked, ts);
	} else if (end == RP_END_COMPLETE && c->tcp && q->s->acks && c->closed == RP_NONE) {
		q->ack_of = c->id;
		q->ack_off = c->off[RP_TX];
	}
	q->hold = end == RP_END_CLIENT_DISCONNECT && !q->n_tasks && !r->id[0] &&
		  q->s->has_role[RP_ROLE_VLLM] && q->s->hits;
	if (q->ack_of || q->hold ||
	    (end != RP_END_COMPLETE && end != RP_END_ERROR && engine_busy(q))) {
		q->finished_at = t->now;
		*t->pending_tail = q;
		t->pending_tail = &q->next;
		return;
	}
	emit(t, q);
	request_free(t, q);
}

static bool waits(const struct rp_timeline *t, const struct request *q)
{
	int64_t for_ns = t->now - q->finished_at;

	if (q->ack_of)
		return for_ns < RP_ACK_NS;
	return (engine_busy(q) || q->held_for || (q->hold && !q->n_tasks)) && for_ns < RP_GRACE_NS;
}

/*
 * The peer has acknowledged the stream up to here, the last of it at ts. With more
 * written since, ts is of that: when it had a response's own end, nobody knows.
 */
void rp_tl_acked(struct rp_timeline *t, struct conn *c, uint64_t upto, int64_t ts)
{
	bool any = false;

	if (ts != RP_NONE) {
		c->acked_off = c->off[RP_TX];
		c->acked = ts;
	}
	for (struct request *q = t->pending; q; q = q->next) {
		if (q->ack_of != c->id || q->ack_off > upto)
			continue;
		q->ack_of = 0;
		/* the socket's clock has microseconds */
		if (ts != RP_NONE && q->ack_off == c->off[RP_TX])
			q->r.t_acked = ts < q->r.t_end ? q->r.t_end : ts;
		any = true;
	}
	if (any)
		rp_tl_pending(t, false);
}

void rp_tl_pending(struct rp_timeline *t, bool all)
{
	struct request **p = &t->pending, *q;

	while ((q = *p)) {
		if (!all && waits(t, q)) {
			p = &q->next;
			continue;
		}
		*p = q->next;
		emit(t, q);
		request_free(t, q);
	}
	t->pending_tail = p;
}

void rp_tl_reset(struct rp_timeline *t, const struct conn *c)
{
	bool any = false;

	for (struct request *q = t->pending; q; q = q->next) {
		if (q->held_for != c->id)
			continue;
		q->held_for = 0;
		q->r.end = RP_END_CLIENT_DISCONNECT;
		q->r.t_end = RP_NONE;
		q->r.t_ended = over_at(c, &q->r, q->r.end);
		any = true;
	}
	if (any)
		rp_tl_pending(t, false);
}

void rp_tl_proxied(struct rp_timeline *t, struct request *q)
{
	rp_tl_id_forget(t, q);
	rp_tl_tasks_release(t, q);
	for (unsigned i = 0; i < t->n_obs && q->start_told; i++)
		if (t->obs[i].dropped)
			t->obs[i].dropped(t->obs[i].ctx, q->r.key);
	q->recorded = false;
	q->proxied = true;
	t->st.proxied++;
	t->st.started--;
	t->st.in_flight--;
	t->st.bytes_rx -= q->r.bytes_rx;
	t->st.bytes_tx -= q->r.bytes_tx;
	t->st.proxied_rx += q->r.bytes_rx;
	t->st.proxied_tx += q->r.bytes_tx;
}
