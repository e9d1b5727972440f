// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "sink/as_vllm.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "sink/compat.h"
#include "sink/name.h"

/* Label sets (model_name, engine) that are kept apart; further ones share the first,
 * "other". A model's name comes from answers of status 2xx, as in prometheus.c. */
#define MAX_ENTRIES 64
#define MAX_EXEMPLARS 2048

/* ---- bounds: `le` is the canonical form in every format, as the engines have it ---- */

#define MS(n)                       \
	{                           \
		NULL, (n)*1000000LL \
	}
#define N1(n)           \
	{               \
		NULL, n \
	}
#define N(a) (sizeof(a) / sizeof(*(a)))

static const struct rp_bound latency_bounds[] = {
	MS(300),   MS(500),    MS(800),	   MS(1000),   MS(1500),   MS(2000),	MS(2500),
	MS(5000),  MS(10000),  MS(15000),  MS(20000),  MS(30000),  MS(40000),	MS(50000),
	MS(60000), MS(120000), MS(240000), MS(480000), MS(960000), MS(1920000), MS(7680000),
};
static const struct rp_bound ttft_bounds[] = {
	MS(1),	   MS(5),     MS(10),	 MS(20),     MS(40),	 MS(60),      MS(80),	MS(100),
	MS(250),   MS(500),   MS(750),	 MS(1000),   MS(2500),	 MS(5000),    MS(7500), MS(10000),
	MS(20000), MS(40000), MS(80000), MS(160000), MS(640000), MS(2560000),
};
static const struct rp_bound itl_bounds[] = {
	MS(10),	  MS(25),    MS(50),	MS(75),	   MS(100),   MS(150),	MS(200),
	MS(300),  MS(400),   MS(500),	MS(750),   MS(1000),  MS(2500), MS(5000),
	MS(7500), MS(10000), MS(20000), MS(40000), MS(80000),
};
static const struct rp_bound iteration_bounds[] = {
	N1(1),	 N1(8),	   N1(16),   N1(32),   N1(64),	 N1(128),   N1(256),
	N1(512), N1(1024), N1(2048), N1(4096), N1(8192), N1(16384),
};
static const struct rp_bound n_bounds[] = { N1(1), N1(2), N1(5), N1(10), N1(20) };
static const struct rp_bound preemption_bounds[] = { N1(1), N1(2),  N1(3), N1(4),
						     N1(5), N1(10), N1(20) };
/* the engine's end at its max_model_len, which is not known from outside */
static const struct rp_bound token_bounds[] = {
	N1(1),	   N1(2),      N1(5),	   N1(10),     N1(20),	    N1(50),    N1(100),
	N1(200),   N1(500),    N1(1000),   N1(2000),   N1(5000),    N1(10000), N1(20000),
	N1(50000), N1(100000), N1(200000), N1(500000), N1(1000000),
};
static const struct rp_bound highr_bounds[] = {
	MS(10),	  MS(25),   MS(50),   MS(75),	MS(100),   MS(250),   MS(500),
	MS(750),  MS(1000), MS(1500), MS(2000), MS(2500),  MS(3000),  MS(3500),
	MS(4000), MS(4500), MS(5000), MS(7500), MS(10000), MS(30000), MS(60000),
};
static const struct rp_bound lowr_bounds[] = { MS(100), MS(500), MS(1000) };

#define SECONDS(b)                    \
	{                             \
		b, N(b), false, false \
	}
#define COUNTS(b)                    \
	{                            \
		b, N(b), true, false \
	}
static const struct rp_scale latency = SECONDS(latency_bounds), ttft = SECONDS(ttft_bounds),
			     itl = SECONDS(itl_bounds), highr = SECONDS(highr_bounds),
			     lowr = SECONDS(lowr_bounds), iteration = COUNTS(iteration_bounds),
			     n_param = COUNTS(n_bounds), preempted = COUNTS(preemption_bounds),
			     tokens = COUNTS(token_bounds);

/* ---- what is kept ---- */

enum hist {
	H_TTFT,
	H_ITL,
	H_TPOT,
	H_E2E,
	H_QUEUE,
	H_INFERENCE,
	H_PREFILL,
	H_DECODE,
	H_PROMPT,
	H_GENERATION,
	H_MAX_GENERATION,
	H_N,
	H_MAX_TOKENS,
	H_PREEMPTIONS,
	H_KV_COMPUTED,
	H_ITERATION,
	H_COUNT
};

static const struct {
	const char *name, *help;
	const struct rp_scale *scale;
} hists[H_COUNT] = {
	[H_TTFT] = { "time_to_first_token_seconds",
		     "Arrival of the request to its first token, by reqprobe.", &ttft },
	[H_ITL] = { "inter_token_latency_seconds",
		    "Time between consecutive outputs of a request, by reqprobe.", &itl },
	[H_TPOT] = { "request_time_per_output_token_seconds",
		     "Decode time of a request for each token after the first, by reqprobe.",
		     &itl },
	[H_E2E] = { "e2e_request_latency_seconds",
		    "Arrival of the request to the end of its answer, by reqprobe.", &latency },
	[H_QUEUE] = { "request_queue_time_seconds", "Queued to first scheduled, by reqprobe.",
		      &latency },
	[H_INFERENCE] = { "request_inference_time_seconds",
			  "First scheduled to last token, by reqprobe.", &latency },
	[H_PREFILL] = { "request_prefill_time_seconds",
			"First scheduled to first token, by reqprobe.", &latency },
	[H_DECODE] = { "request_decode_time_seconds", "First token to last token, by reqprobe.",
		       &latency },
	[H_PROMPT] = { "request_prompt_tokens", "Prompt tokens of a request, by reqprobe.",
		       &tokens },
	[H_GENERATION] = { "request_generation_tokens",
			   "Generated tokens of a request, by reqprobe.", &tokens },
	[H_MAX_GENERATION] = { "request_max_num_generation_tokens",
			       "Generated tokens of the longest choice of a request, by reqprobe.",
			       &tokens },
	[H_N] = { "request_params_n", "Choices asked for, by reqprobe.", &n_param },
	[H_MAX_TOKENS] = { "request_params_max_tokens",
			   "max_tokens of requests that have it, by reqprobe.", &tokens },
	[H_PREEMPTIONS] = { "request_num_preemptions",
			    "Times a request was preempted, by reqprobe.", &preempted },
	[H_KV_COMPUTED] = { "request_prefill_kv_computed_tokens",
			    "Prompt tokens of a request that were not cached, by reqprobe.",
			    &tokens },
	[H_ITERATION] = { "iteration_tokens_total",
			  "Tokens of prompts and of answers in one step of the engine, by reqprobe.",
			  &iteration },
};

enum finish { F_STOP, F_LENGTH, F_ABORT, F_ERROR, F_REPETITION, F_COUNT, F_NONE = F_COUNT };
static const char *const finish_names[F_COUNT] = { "stop", "length", "abort", "error",
						   "repetition" };

struct entry {
	char model[RP_MODEL_MAX];
	int64_t index;
	struct rp_hist h[H_COUNT];
	uint64_t success[F_COUNT];
	/* by the responses, for engines that tell no steps */
	uint64_t prompt, generation, cached, cached_of; /* cached_of: prompts that told */
	bool prompt_told, generation_told, cached_told;
};

/* An engine process and the model it was first seen to serve. Its first steps are over
 * before an answer names the model: they are held until then. */
struct core {
	uint32_t pid;
	int64_t index;
	uint32_t entry; /* 0: no answer yet */
	struct rp_hist held;
};

enum { METHODS = 8, CLASSES = 5 };
static const char *const methods[METHODS] = { "GET",  "POST",	 "PUT",	  "DELETE",
					      "HEAD", "OPTIONS", "PATCH", "other" };
static const char *const classes[CLASSES] = { "1xx", "2xx", "3xx", "4xx", "5xx" };

/* Paths that are told by name, by their whole or, with a slash at the end, by how they
 * begin; all others are "none", as paths without a route are in the engines. */
static const struct {
	const char *path, *handler;
} routes[] = {
	{ "none", "none" },
	{ "/v1/chat/completions", NULL },
	{ "/v1/completions", NULL },
	{ "/v1/responses", NULL },
	{ "/v1/responses/", "/v1/responses/{response_id}" },
	{ "/v1/messages", NULL },
	{ "/v1/messages/count_tokens", NULL },
	{ "/v1/embeddings", NULL },
	{ "/v1/models", NULL },
	{ "/v1/score", NULL },
	{ "/v1/rerank", NULL },
	{ "/v2/rerank", NULL },
	{ "/v1/audio/transcriptions", NULL },
	{ "/v1/audio/translations", NULL },
	{ "/v1/realtime", NULL },
	{ "/v1/load_lora_adapter", NULL },
	{ "/v1/unload_lora_adapter", NULL },
	{ "/inference/v1/generate", NULL },
	{ "/tokenize", NULL },
	{ "/detokenize", NULL },
	{ "/pooling", NULL },
	{ "/classify", NULL },
	{ "/score", NULL },
	{ "/rerank", NULL },
	{ "/invocations", NULL },
	{ "/sleep", NULL },
	{ "/wake_up", NULL },
	{ "/is_sleeping", NULL },
	{ "/reset_prefix_cache", NULL },
	/* llama-server's own */
	{ "/chat/completions", NULL },
	{ "/completions", NULL },
	{ "/completion", NULL },
	{ "/infill", NULL },
	{ "/embeddings", NULL },
	{ "/embedding", NULL },
	{ "/reranking", NULL },
	{ "/apply-template", NULL },
	{ "/props", NULL },
	{ "/slots", NULL },
	{ "/models", NULL },
};
#define ROUTES N(routes)

struct route_state {
	uint64_t requests[METHODS][CLASSES];
	struct rp_hist *duration[METHODS];
	uint64_t count, in_bytes, out_bytes;
	bool used;
};

struct as_vllm {
	const struct rp_timeline *tl;
	const struct rp_summary_info *info;
	bool vllm, aphrodite;
	struct entry *entries[MAX_ENTRIES]; /* [0]: other, made when needed */
	uint32_t n;			    /* from 1 on */
	uint32_t told;			    /* of the last answer's model; 0 none yet */
	struct core cores[RP_MAX_CORES];
	unsigned n_cores;
	struct route_state routes[ROUTES];
	struct rp_hist highr;
	bool http_seen;
	struct rp_hist_room room;
	uint64_t no_entry, no_request; /* limits that were hit */
	char name[96];
};

/* ---- entries ---- */

static struct entry *make(const char *model, int64_t index)
{
	struct entry *e = calloc(1, sizeof(*e));

	if (e) {
		snprintf(e->model, sizeof(e->model), "%s", model);
		e->index = index;
	}
	return e;
}

static uint32_t lookup(const struct as_vllm *a, const char *model, int64_t index)
{
	for (uint32_t i = 1; i < a->n; i++)
		if (a->entries[i]->index == index && !strcmp(a->entries[i]->model, model))
			return i;
	return 0;
}

/* model: a label's value. */
static struct entry *entry_named(struct as_vllm *a, const char *model, int64_t index, bool learn)
{
	uint32_t i = lookup(a, model, index);

	if (!i && a->n < MAX_ENTRIES) {
		struct entry *e = make(model, index);

		if (!e)
			return NULL;
		i = a->n++;
		a->entries[i] = e;
	} else if (!i) {
		a->no_entry++;
		if (!a->entries[0])
			a->entries[0] = make(RP_NAME_OTHER, 0);
		return a->entries[0];
	}
	if (learn)
		a->told = i;
	return a->entries[i];
}

/* learn: the server accepted the name. NULL: no memory, or a name that a client made
 * up before any answer told one. */
static struct entry *entry_of(struct as_vllm *a, const char *model, int64_t index, bool learn)
{
	char name[RP_MODEL_MAX];

	rp_name_label(name, sizeof(name), model);
	if (learn || lookup(a, name, index))
		return entry_named(a, name, index, learn);
	return a->told ? entry_named(a, a->entries[a->told]->model, index, false) : NULL;
}

static void release(struct as_vllm *a, struct core *c)
{
	struct rp_hist *to = &a->entries[c->entry]->h[H_ITERATION];

	for (size_t i = 0; i < RP_MAX_BOUNDS; i++)
		to->bucket[i] += c->held.bucket[i];
	to->count += c->held.count;
	to->sum += c->held.sum;
	rp_hist_free(&c->held, &a->room);
}

static struct core *core_of(struct as_vllm *a, uint32_t pid, int64_t index)
{
	for (unsigned i = 0; i < a->n_cores; i++)
		if (a->cores[i].pid == pid && a->cores[i].index == index)
			return &a->cores[i];
	if (a->n_cores == RP_MAX_CORES) { /* engines that came back: the oldest goes */
		rp_hist_free(&a->cores[0].held, &a->room);
		memmove(a->cores, a->cores + 1, --a->n_cores * sizeof(a->cores[0]));
	}
	a->cores[a->n_cores] = (struct core){ .pid = pid, .index = index };
	return &a->cores[a->n_cores++];
}

static void learn_core(struct as_vllm *a, uint32_t pid, int64_t index, uint32_t entry)
{
	struct core *c = core_of(a, pid, index);

	if (c->entry)
		return;
	c->entry = entry;
	release(a, c);
}

/* The entry of an engine process by its first answer. Before that it is the last model
 * that any answer told, and 0 as long as none has. */
static uint32_t core_entry(struct as_vllm *a, uint32_t pid, int64_t index)
{
	struct core *c = core_of(a, pid, index);
	struct entry *e;

	if (c->entry || !a->told)
		return c->entry;
	e = entry_named(a, a->entries[a->told]->model, index, false);
	return e ? lookup(a, e->model, index) : 0;
}

static void put(struct as_vllm *a, struct entry *e, enum hist h, int64_t v,
		const struct rp_exemplar_of *of)
{
	if (v != RP_NONE)
		rp_hist_add(&e->h[h], hists[h].scale, &a->room, v, 1, of);
}

static int64_t between(int64_t from, int64_t to)
{
	return from == RP_NONE || to == RP_NONE || to < from ? RP_NONE : to - from;
}

/* ---- requests ---- */

/* An engine's, or an API's, word for the end as the engine counts it. */
static enum finish finish_of(const struct rp_record *r, const char *word)
{
	static const struct {
		const char *word;
		enum finish f;
	} words[] = {
		{ "stop", F_STOP },
		{ "length", F_LENGTH },
		{ "abort", F_ABORT },
		{ "error", F_ERROR },
		{ "repetition", F_REPETITION },
		{ "max_tokens", F_LENGTH },
		{ "max_output_tokens", F_LENGTH },
		{ "limit", F_LENGTH },
		{ "incomplete", F_LENGTH },
		{ "failed", F_ERROR },
		{ "cancelled", F_ABORT },
	};

	switch (r->end) {
	case RP_END_CLIENT_DISCONNECT:
		return F_ABORT;
	case RP_END_SERVER_CLOSE:
		return F_ERROR;
	case RP_END_ERROR: /* one that was refused never was the engine's */
		if (r->status >= 400 && r->status < 500)
			return F_NONE;
		return F_ERROR;
	case RP_END_COMPLETE:
		break;
	default:
		return F_NONE;
	}
	for (size_t i = 0; i < N(words); i++)
		if (!strcmp(words[i].word, word))
			return words[i].f;
	return F_STOP; /* tool_calls, eos, end_turn, ...: it ended by itself */
}

/* Times and counts of one request of the engine. */
static void engine_request(struct as_vllm *a, struct entry *e, const struct rp_record *r,
			   const struct rp_engine_request *q, const struct rp_exemplar_of *of)
{
	int64_t decode = between(q->t_first, q->t_last);

	put(a, e, H_QUEUE, between(q->t_queued, q->t_scheduled), of);
	put(a, e, H_PREFILL, between(q->t_scheduled, q->t_first), of);
	put(a, e, H_INFERENCE, between(q->t_scheduled, q->t_last), of);
	put(a, e, H_DECODE, decode, of);
	if (q->tokens > 1 && decode != RP_NONE)
		put(a, e, H_TPOT, decode / (q->tokens - 1), of);
	else if (q->tokens == 1)
		put(a, e, H_TPOT, 0, of); /* as the engine has it */
	put(a, e, H_PROMPT, q->prompt, of);
	put(a, e, H_GENERATION, q->tokens, of);
	put(a, e, H_PREEMPTIONS, q->preemptions, of);
	/* without one the engine has a limit of its own, which is not known here */
	if (r->max_tokens > 0 && rp_generative(r->operation))
		put(a, e, H_MAX_TOKENS, r->max_tokens, of);
	if (q->prompt != RP_NONE && q->cached != RP_NONE && q->cached <= q->prompt)
		put(a, e, H_KV_COMPUTED, q->prompt - q->cached, of);
}

/*
 * From arrival to an output, as the API server has it: it takes its first instant some
 * time after the last byte of the request was read, and its second some time after the
 * engine made the output. The two delays are alike; the write of the response comes
 * later than both, by what the event loop is behind.
 */
static bool arrived(struct as_vllm *a, struct entry *e, enum hist h, const struct rp_record *r,
		    int64_t output, const struct rp_exemplar_of *of)
{
	int64_t v = between(r->t_request_end, output);

	put(a, e, h, v, of);
	return v != RP_NONE;
}

/* The request as a whole, for an engine that tells of no requests of its own. */
static struct rp_engine_request whole(const struct rp_record *r)
{
	const struct rp_value *v = r->v;
#define KNOWN(f) (v[RP_FIELD_##f].known ? v[RP_FIELD_##f].i : RP_NONE)
	return (struct rp_engine_request){
		.t_queued = r->t_queued,
		.t_scheduled = r->t_scheduled,
		.t_first = r->joined ? r->t_eng_first : r->t_first_token,
		.t_last = r->joined ? r->t_eng_last : r->t_last_token,
		.tokens = KNOWN(TOK_COMPLETION),
		.prompt = KNOWN(TOK_PROMPT),
		.cached = KNOWN(TOK_CACHED),
		.preemptions = RP_NONE,
		.finish = r->finish_reason,
	};
}

/* Counters of engines whose steps are not told: of the response, when it is over. */
static void count_tokens(struct entry *e, const struct rp_record *r)
{
	const struct rp_value *prompt = &r->v[RP_FIELD_TOK_PROMPT],
			      *cached = &r->v[RP_FIELD_TOK_CACHED],
			      *completion = &r->v[RP_FIELD_TOK_COMPLETION];

	if (prompt->known) {
		e->prompt += (uint64_t)prompt->i;
		e->prompt_told = true;
	}
	if (completion->known) {
		e->generation += (uint64_t)completion->i;
		e->generation_told = true;
	}
	if (prompt->known && cached->known && cached->i <= prompt->i) {
		e->cached += (uint64_t)cached->i;
		e->cached_of += (uint64_t)prompt->i;
		e->cached_told = true;
	}
}

/* Requests that were answered in full, as the engine's own: one that the client left
 * has none of these there. */
static void finished(struct as_vllm *a, struct entry *e, const struct rp_record *r,
		     const struct rp_exemplar_of *of)
{
	struct rp_engine_request one = whole(r);
	int64_t longest = RP_NONE;
	int n = r->asked_n;

	if (r->n_engine_requests <= 1) {
		if (r->n_engine_requests) {
			one = r->engine_requests[0];
			one.prompt = one.prompt != RP_NONE ? one.prompt : whole(r).prompt;
			one.cached = one.cached != RP_NONE ? one.cached : whole(r).cached;
			/* what a stop string cut off is not counted, and may be in usage only */
			if (r->v[RP_FIELD_TOK_COMPLETION].known)
				one.tokens = r->v[RP_FIELD_TOK_COMPLETION].i;
		}
		if (!(r->n_engine_requests && arrived(a, e, H_E2E, r, one.t_last, of)) &&
		    r->v[RP_FIELD_S_DURATION].known)
			put(a, e, H_E2E, r->v[RP_FIELD_S_DURATION].i, of);
		engine_request(a, e, r, &one, of);
		longest = one.tokens;
	}
	for (unsigned i = 0; r->n_engine_requests > 1 && i < r->n_engine_requests; i++) {
		const struct rp_engine_request *q = &r->engine_requests[i];

		arrived(a, e, H_E2E, r, q->t_last, of);
		engine_request(a, e, r, q, of);
		longest = q->tokens > longest ? q->tokens : longest;
		/* one of several prompts, with one choice, is a request of its own */
		if (n == 1) {
			put(a, e, H_MAX_GENERATION, q->tokens, of);
			put(a, e, H_N, 1, of);
		}
	}
	/* which choices belong to which of several prompts is not told */
	if (!rp_generative(r->operation) || n < 1 || (n == 1 && r->n_engine_requests > 1) ||
	    r->asked_prompts > 1)
		return;
	put(a, e, H_MAX_GENERATION, longest, of);
	put(a, e, H_N, n, of);
}

static void first_token(struct as_vllm *a, struct entry *e, const struct rp_record *r,
			const struct rp_exemplar_of *of)
{
	bool known = false;

	for (unsigned i = 0; i < r->n_engine_requests; i++)
		known |= arrived(a, e, H_TTFT, r, r->engine_requests[i].t_first, of);
	if (!known && r->n_engine_requests <= 1 && r->v[RP_FIELD_S_TTFT].known)
		put(a, e, H_TTFT, r->v[RP_FIELD_S_TTFT].i, of);
}

/* The process whose scheduler had it; 0: not known, or its steps are not. */
static uint32_t scheduler_pid(const struct as_vllm *a, const struct rp_record *r)
{
	const struct rp_stats *s = rp_timeline_stats(a->tl);

	if (r->core_pid)
		return r->core_pid;
	for (unsigned i = 0; i < s->n_cores && i < RP_MAX_CORES; i++)
		if (s->cores[i].calls && s->cores[i].pid == r->pid)
			return r->pid;
	return 0;
}

static void on_record(void *ctx, const struct rp_record *r)
{
	struct as_vllm *a = ctx;
	bool accepted = r->status >= 200 && r->status < 300;
	unsigned requests = r->n_engine_requests ? r->n_engine_requests : 1;
	struct rp_exemplar_of of;
	enum finish f;
	struct entry *e;

	/* refused by the front end: not one of the engine's */
	if (r->status >= 400 && r->status < 500)
		return;
	a->no_request += r->more_engine_requests;
	e = entry_of(a, r->model, r->engine_index, accepted);
	if (!e)
		return;
	if (accepted && scheduler_pid(a, r) && e != a->entries[0])
		learn_core(a, scheduler_pid(a, r), r->engine_index, a->told);
	for (unsigned i = 0; i < requests; i++) {
		f = finish_of(r, r->n_engine_requests ? r->engine_requests[i].finish :
							r->finish_reason);
		if (f != F_NONE)
			e->success[f]++;
	}
	count_tokens(e, r);
	if (r->flags & (RP_FLAG_PARTIAL | RP_FLAG_LOST_EVENTS))
		return;
	of = rp_exemplar_of(r);
	if (!(r->flags & RP_FLAG_TRUNCATED) && rp_generative(r->operation))
		first_token(a, e, r, &of);
	if (r->end == RP_END_COMPLETE)
		finished(a, e, r, &of);
}

static void on_gap(void *ctx, const struct rp_gap_info *g)
{
	struct as_vllm *a = ctx;
	struct entry *e;

	if (g->chunk || g->whole_ns == RP_NONE)
		return;
	e = entry_of(a, g->model, g->index, !g->asked);
	if (e)
		put(a, e, H_ITL, g->whole_ns, NULL);
}

static void on_step(void *ctx, const struct rp_step_info *s)
{
	struct as_vllm *a = ctx;
	struct core *c;

	int64_t n = s->batch;

	/* a step without outputs is none of vLLM's */
	if (!n && s->requests && s->computed != RP_NONE)
		n = s->computed + (int64_t)s->tokens;
	/* lower bounds are no samples */
	if (s->cut || !n)
		return;
	c = core_of(a, s->pid, s->index);
	rp_hist_add(c->entry ? &a->entries[c->entry]->h[H_ITERATION] : &c->held, &iteration,
		    &a->room, n, 1, NULL);
}

/* ---- HTTP ---- */

/* What the engines leave out: a path that has one of these in it. */
static bool excluded(const char *path)
{
	static const char *const not [] = { "/metrics", "/health",  "/load",
					    "/ping",	"/version", "/server_info" };

	for (size_t i = 0; i < N(not ); i++)
		if (strstr(path, not [i]))
			return true;
	return false;
}

static size_t route_of(const char *path)
{
	for (size_t i = 1; i < ROUTES; i++) {
		size_t n = strlen(routes[i].path);

		if (routes[i].handler ? !strncmp(path, routes[i].path, n) && path[n] :
					!strcmp(path, routes[i].path))
			return i;
	}
	return 0;
}

static void on_http(void *ctx, const struct rp_http_info *h)
{
	struct as_vllm *a = ctx;
	size_t route = route_of(h->path), m = 0;
	struct route_state *s = &a->routes[route];

	if (excluded(h->path))
		return;
	while (m < METHODS - 1 && strcmp(methods[m], h->method))
		m++;
	if (h->status < 100 || h->status > 599)
		return;
	a->http_seen = s->used = true;
	s->requests[m][h->status / 100 - 1]++;
	s->count++;
	s->in_bytes += h->request_length > 0 ? (uint64_t)h->request_length : 0;
	s->out_bytes += h->response_length > 0 ? (uint64_t)h->response_length : 0;
	rp_hist_add(&a->highr, &highr, &a->room, h->duration_ns, 1, NULL);
	if (!s->duration[m])
		s->duration[m] = calloc(1, sizeof(*s->duration[m]));
	if (s->duration[m])
		rp_hist_add(s->duration[m], &lowr, &a->room, h->duration_ns, 1, NULL);
}

static void put_http(const struct as_vllm *a, struct rp_expo *e)
{
	rp_expo_family(
		e, "http_requests_total", RP_EXPO_COUNTER,
		"HTTP requests of the engine's server by method, status and handler, by reqprobe.");
	for (size_t r = 0; r < ROUTES; r++)
		for (int m = 0; m < METHODS; m++)
			for (int c = 0; c < CLASSES; c++)
				if (a->routes[r].requests[m][c])
					rp_expo_u64(e,
						    (struct rp_label[]){
							    { "handler", routes[r].handler ?
										 routes[r].handler :
										 routes[r].path },
							    { "method", methods[m] },
							    { "status", classes[c] } },
						    3, a->routes[r].requests[m][c]);
	for (int out = 0; out < 2; out++) {
		rp_expo_family(
			e, out ? "http_response_size_bytes" : "http_request_size_bytes",
			RP_EXPO_SUMMARY,
			out ? "Content-Length of responses, 0 where there is none, by reqprobe." :
			      "Content-Length of requests, 0 where there is none, by reqprobe.");
		for (size_t r = 0; r < ROUTES; r++) {
			const struct route_state *s = &a->routes[r];
			const struct rp_label l = { "handler", routes[r].handler ?
								       routes[r].handler :
								       routes[r].path };

			if (s->used)
				rp_expo_summary(e, &l, 1, s->count,
						(double)(out ? s->out_bytes : s->in_bytes));
		}
	}
	rp_expo_family(e, "http_request_duration_highr_seconds", RP_EXPO_HISTOGRAM,
		       "First byte of a request read to the end of its response, by reqprobe.");
	rp_expo_hist(e, NULL, 0, &highr, &a->highr);
	rp_expo_family(
		e, "http_request_duration_seconds", RP_EXPO_HISTOGRAM,
		"First byte of a request read to the end of its response, by handler and method, by reqprobe.");
	for (size_t r = 0; r < ROUTES; r++)
		for (int m = 0; m < METHODS; m++)
			if (a->routes[r].duration[m])
				rp_expo_hist(e,
					     (struct rp_label[]){
						     { "handler", routes[r].handler ?
									  routes[r].handler :
									  routes[r].path },
						     { "method", methods[m] } },
					     2, &lowr, a->routes[r].duration[m]);
}

/* ---- the engine's state ---- */

/*
 * Of one figure: nobody behind this entry has it; one has it and can't tell it, not even
 * by an estimate: a sample of NaN, which a panel shows as a hole; or it is a number.
 */
enum known { ABSENT, UNKNOWN, KNOWN };

/* Sums over the engine processes behind one entry; a flag says what is known. */
struct state {
	bool begun;
	bool any; /* an engine that tells its steps, and the tokens of prompts with them */
	bool prefix_told, spec, cached, parts;
	enum known running_has, waiting_has, reasons_has, kv_has, preemptions_has;
	uint64_t running, waiting, deferred;
	double kv;
	uint64_t prompt, computed, cached_tokens, local, external, generation, preemptions;
	uint64_t queries, hits, drafts, draft_tokens, accepted;
	uint64_t accepted_at[RP_SPEC_POSITIONS];
	uint32_t positions;
};

static enum known known(bool is)
{
	return is ? KNOWN : ABSENT;
}

/* A sum of which a part is not known is not known. */
static void join(enum known *has, bool known)
{
	*has = !known || *has == UNKNOWN ? UNKNOWN : KNOWN;
}

static void add_core(struct state *s, const struct rp_core *c, const struct rp_engine_load *l)
{
	if (!s->begun)
		*s = (struct state){ .begun = true, .cached = true, .parts = true };
	s->any |= !c->calls;
	s->prompt += c->tokens_prompt;
	s->computed += c->tokens_computed;
	s->cached_tokens += c->tokens_cached;
	s->local += c->tokens_cached_local;
	s->external += c->tokens_cached_external;
	s->generation += c->tokens;
	s->cached &= c->cached_known;
	s->parts &= c->cached_known && c->cached_parts_known;
	s->preemptions += c->preemptions;
	join(&s->preemptions_has, rp_core_preemptions(c));
	if (rp_core_prefix(c)) {
		s->prefix_told = true;
		s->queries += c->prefix_queries;
		s->hits += c->prefix_hits;
	}
	if (c->spec) {
		s->spec = true;
		s->drafts += c->spec_drafts;
		s->draft_tokens += c->spec_draft_tokens;
		s->accepted += c->spec_accepted_tokens;
		for (uint32_t i = 0; i < c->spec_positions; i++)
			s->accepted_at[i] += c->spec_accepted_at[i];
		if (c->spec_positions > s->positions)
			s->positions = c->spec_positions;
	}
	if (c->gone)
		return;
	if (!c->stats) {
		s->running += l->running;
		s->waiting += l->waiting;
		join(&s->running_has, true);
		join(&s->waiting_has, l->waiting_known);
		join(&s->reasons_has, l->capacity_only);
	} else {
		s->running += c->running > 0 ? (uint64_t)c->running : 0;
		s->waiting += c->waiting > 0 ? (uint64_t)c->waiting : 0;
		s->deferred += c->deferred > 0 ? (uint64_t)c->deferred : 0;
		/* llama.cpp attached while it worked */
		join(&s->running_has, c->running >= 0);
		join(&s->waiting_has, c->waiting >= 0);
		/* told from vLLM 0.17 on */
		join(&s->reasons_has, c->waiting >= 0 && (c->deferred >= 0 || l->capacity_only));
	}
	join(&s->kv_has, c->kv_usage >= 0);
	if (c->kv_usage > s->kv)
		s->kv = c->kv_usage;
}

static void states(struct as_vllm *a, struct state st[MAX_ENTRIES])
{
	const struct rp_stats *s = rp_timeline_stats(a->tl);
	struct rp_engine_load load[RP_MAX_CORES];
	struct state *one;

	memset(st, 0, MAX_ENTRIES * sizeof(*st));
	if (s->n_cores) {
		rp_timeline_load(a->tl, load);
		for (unsigned i = 0; i < s->n_cores && i < RP_MAX_CORES; i++) {
			uint32_t e = core_entry(a, s->cores[i].pid, s->cores[i].index);

			if (e)
				add_core(&st[e], &s->cores[i], &load[i]);
		}
		return;
	}
	/* by our own count, for all models together: the first that was told */
	if (a->n < 2)
		return;
	one = &st[1];
	one->running_has = KNOWN;
	one->running = s->scheduler_known ? s->running : s->in_flight;
	one->waiting = s->waiting;
	one->waiting_has = known(s->scheduler_known); /* without hooks nothing tells who waits */
}

/* ---- writing ---- */

static void family(struct as_vllm *a, struct rp_expo *e, const char *prefix, const char *name,
		   enum rp_expo_type type, const char *help)
{
	snprintf(a->name, sizeof(a->name), "%s:%s", prefix, name);
	rp_expo_family(e, a->name, type, help);
}

struct labels {
	struct rp_label l[3];
	char index[24];
};

static void labels(struct labels *l, const struct entry *e, const char *key, const char *value)
{
	snprintf(l->index, sizeof(l->index), "%lld", (long long)e->index);
	l->l[0] = (struct rp_label){ "engine", l->index };
	l->l[1] = (struct rp_label){ "model_name", e->model };
	l->l[2] = (struct rp_label){ key, value };
}

/* One number of an entry. */
typedef enum known (*get_fn)(const struct entry *e, const struct state *s, uint64_t *v);

static enum known get_running(const struct entry *e, const struct state *s, uint64_t *v)
{
	(void)e;
	*v = s->running;
	return s->running_has;
}
static enum known get_waiting(const struct entry *e, const struct state *s, uint64_t *v)
{
	(void)e;
	*v = s->waiting + s->deferred;
	return s->waiting_has;
}
static enum known get_capacity(const struct entry *e, const struct state *s, uint64_t *v)
{
	(void)e;
	*v = s->waiting;
	return s->reasons_has;
}
static enum known get_deferred(const struct entry *e, const struct state *s, uint64_t *v)
{
	(void)e;
	*v = s->deferred;
	return s->reasons_has;
}
static enum known get_prompt(const struct entry *e, const struct state *s, uint64_t *v)
{
	*v = s->any ? s->prompt : e->prompt;
	return known(s->any || e->prompt_told);
}
static enum known get_generation(const struct entry *e, const struct state *s, uint64_t *v)
{
	*v = s->any ? s->generation : e->generation;
	return known(s->any || e->generation_told);
}
static enum known get_cached(const struct entry *e, const struct state *s, uint64_t *v)
{
	*v = s->any ? s->cached_tokens : e->cached;
	return known(s->any ? s->cached : e->cached_told);
}
static enum known get_computed(const struct entry *e, const struct state *s, uint64_t *v)
{
	*v = s->any ? s->computed : e->cached_of - e->cached;
	return known(s->any ? s->cached : e->cached_told);
}
/* An engine without a connector has one cache: its own. */
static enum known get_local(const struct entry *e, const struct state *s, uint64_t *v)
{
	*v = s->any ? s->local : e->cached;
	return known(s->any ? s->parts : e->cached_told);
}
static enum known get_external(const struct entry *e, const struct state *s, uint64_t *v)
{
	(void)e;
	*v = s->external;
	return known(s->any && s->parts);
}
/* Where the scheduler does not tell: each prompt is looked up once. */
static enum known get_queries(const struct entry *e, const struct state *s, uint64_t *v)
{
	*v = s->prefix_told ? s->queries : s->any ? s->computed + s->cached_tokens : e->cached_of;
	return known(s->prefix_told || (s->any ? s->cached : e->cached_told));
}
static enum known get_hits(const struct entry *e, const struct state *s, uint64_t *v)
{
	if (s->prefix_told) {
		*v = s->hits;
		return KNOWN;
	}
	return get_local(e, s, v);
}
static enum known get_preemptions(const struct entry *e, const struct state *s, uint64_t *v)
{
	(void)e;
	*v = s->preemptions;
	return s->preemptions_has;
}
static enum known get_drafts(const struct entry *e, const struct state *s, uint64_t *v)
{
	(void)e;
	*v = s->drafts;
	return known(s->spec);
}
static enum known get_draft_tokens(const struct entry *e, const struct state *s, uint64_t *v)
{
	(void)e;
	*v = s->draft_tokens;
	return known(s->spec);
}
static enum known get_accepted(const struct entry *e, const struct state *s, uint64_t *v)
{
	(void)e;
	*v = s->accepted;
	return known(s->spec);
}

#define COUNTER RP_EXPO_COUNTER
#define GAUGE RP_EXPO_GAUGE
static const struct {
	const char *name;
	enum rp_expo_type type;
	const char *help, *key, *value;
	get_fn get;
} numbers[] = {
	{ "num_requests_running", GAUGE, "Requests in the engine's batch, by reqprobe.", NULL, NULL,
	  get_running },
	{ "num_requests_waiting", GAUGE,
	  "Requests waiting in the engine; log stats off: without an output yet, or without one in the last step, and NaN where the messages that add them are not seen, by reqprobe.",
	  NULL, NULL, get_waiting },
	{ "num_requests_waiting_by_reason", GAUGE,
	  "Requests waiting in the engine: for capacity, or deferred; log stats off, or vLLM before 0.17: an estimate, NaN while one waits that asked for what can defer it, by reqprobe.",
	  "reason", "capacity", get_capacity },
	{ "num_requests_waiting_by_reason", GAUGE, "", "reason", "deferred", get_deferred },
	{ "prefix_cache_queries_total", COUNTER,
	  "Prompt tokens looked up in the prefix cache, by reqprobe.", NULL, NULL, get_queries },
	{ "prefix_cache_hits_total", COUNTER,
	  "Prompt tokens found in the prefix cache, by reqprobe.", NULL, NULL, get_hits },
	{ "num_preemptions_total", COUNTER,
	  "Preemptions; log stats off: an estimate, running requests left out of a step, NaN where other things do that, by reqprobe.",
	  NULL, NULL, get_preemptions },
	{ "prompt_tokens_total", COUNTER, "Prompt tokens, by reqprobe.", NULL, NULL, get_prompt },
	{ "prompt_tokens_by_source_total", COUNTER,
	  "Prompt tokens by where they came from, by reqprobe.", "source", "local_compute",
	  get_computed },
	{ "prompt_tokens_by_source_total", COUNTER, "", "source", "local_cache_hit", get_local },
	{ "prompt_tokens_by_source_total", COUNTER, "", "source", "external_kv_transfer",
	  get_external },
	{ "prompt_tokens_cached_total", COUNTER, "Prompt tokens that were cached, by reqprobe.",
	  NULL, NULL, get_cached },
	{ "generation_tokens_total", COUNTER, "Generated tokens, by reqprobe.", NULL, NULL,
	  get_generation },
	{ "spec_decode_num_drafts_total", COUNTER, "Drafts made, by reqprobe.", NULL, NULL,
	  get_drafts },
	{ "spec_decode_num_draft_tokens_total", COUNTER, "Tokens drafted, by reqprobe.", NULL, NULL,
	  get_draft_tokens },
	{ "spec_decode_num_accepted_tokens_total", COUNTER,
	  "Drafted tokens that were accepted, by reqprobe.", NULL, NULL, get_accepted },
};

/* A family is begun with its first sample: what nobody has is absent. */
static void put_numbers(struct as_vllm *a, struct rp_expo *e, const char *prefix,
			const struct state *st)
{
	const char *begun = "";
	struct labels l;

	for (size_t i = 0; i < N(numbers); i++) {
		for (uint32_t k = 0; k < a->n; k++) {
			enum known has;
			uint64_t v;

			has = a->entries[k] ? numbers[i].get(a->entries[k], &st[k], &v) : ABSENT;
			if (has == ABSENT)
				continue;
			if (strcmp(begun, numbers[i].name)) {
				begun = numbers[i].name;
				family(a, e, prefix, begun, numbers[i].type, numbers[i].help);
			}
			labels(&l, a->entries[k], numbers[i].key, numbers[i].value);
			if (has == KNOWN)
				rp_expo_u64(e, l.l, numbers[i].key ? 3 : 2, v);
			else
				rp_expo_double(e, l.l, numbers[i].key ? 3 : 2, NAN);
		}
	}
}

static void put_positions(struct as_vllm *a, struct rp_expo *e, const char *prefix,
			  const struct state *st)
{
	bool begun = false;
	struct labels l;
	char pos[12];

	for (uint32_t k = 1; k < a->n; k++) {
		for (uint32_t i = 0; i < st[k].positions; i++) {
			if (!begun)
				family(a, e, prefix,
				       "spec_decode_num_accepted_tokens_per_pos_total", COUNTER,
				       "Drafted tokens that were accepted, by position in the draft, by reqprobe.");
			begun = true;
			snprintf(pos, sizeof(pos), "%u", i);
			labels(&l, a->entries[k], "position", pos);
			rp_expo_u64(e, l.l, 3, st[k].accepted_at[i]);
		}
	}
}

static void put_engine(struct as_vllm *a, struct rp_expo *e, const char *prefix,
		       const struct state *st)
{
	bool begun = false;
	struct labels l;

	put_numbers(a, e, prefix, st);
	put_positions(a, e, prefix, st);
	for (uint32_t k = 1; k < a->n; k++) {
		if (st[k].kv_has == ABSENT)
			continue;
		if (!begun)
			family(a, e, prefix, "kv_cache_usage_perc", GAUGE,
			       "Part of the KV cache in use, 1 is all of it; vLLM with log stats off, llama.cpp: an estimate from the tokens of running requests, NaN where its size is not known (--kv-cache-tokens), by reqprobe.");
		begun = true;
		labels(&l, a->entries[k], NULL, NULL);
		rp_expo_double(e, l.l, 2, st[k].kv_has == KNOWN ? st[k].kv : NAN);
	}
	family(a, e, prefix, "request_success_total", COUNTER,
	       "Finished requests by why they ended, by reqprobe.");
	for (uint32_t k = 0; k < a->n; k++) {
		for (int f = 0; a->entries[k] && f < F_COUNT; f++) {
			labels(&l, a->entries[k], "finished_reason", finish_names[f]);
			rp_expo_u64(e, l.l, 3, a->entries[k]->success[f]);
		}
	}
	for (int h = 0; h < H_COUNT; h++) {
		family(a, e, prefix, hists[h].name, RP_EXPO_HISTOGRAM, hists[h].help);
		for (uint32_t k = 0; k < a->n; k++) {
			if (!a->entries[k])
				continue;
			labels(&l, a->entries[k], NULL, NULL);
			rp_expo_hist(e, l.l, 2, hists[h].scale, &a->entries[k]->h[h]);
		}
	}
}

static void metrics(void *state, struct rp_expo *e)
{
	static const char *const what[] = { "label_sets", "engine_requests", "exemplars" };
	struct state st[MAX_ENTRIES];
	struct as_vllm *a = state;
	const uint64_t hit[] = { a->no_entry, a->no_request, a->room.no_exemplar };

	states(a, st);
	if (a->vllm)
		put_engine(a, e, "vllm", st);
	if (a->aphrodite)
		put_engine(a, e, "aphrodite", st);
	put_http(a, e);
	rp_expo_family(e, "reqprobe_compat_limit_hits_total", COUNTER,
		       "Times a limit of the engines' names was hit, by what had no room.");
	for (size_t i = 0; i < N(what); i++)
		rp_expo_u64(e, &(struct rp_label){ "limit", what[i] }, 1, hit[i]);
}

/* ---- the output ---- */

static void shut(void *state)
{
	struct as_vllm *a = state;

	for (uint32_t i = 0; i < a->n; i++) {
		for (int h = 0; a->entries[i] && h < H_COUNT; h++)
			rp_hist_free(&a->entries[i]->h[h], &a->room);
		free(a->entries[i]);
	}
	for (unsigned i = 0; i < a->n_cores; i++)
		rp_hist_free(&a->cores[i].held, &a->room);
	for (size_t r = 0; r < ROUTES; r++)
		for (int m = 0; m < METHODS; m++)
			free(a->routes[r].duration[m]);
	free(a);
}

static int start(const struct rp_options *o, const struct rp_summary_info *info,
		 struct rp_timeline *tl, void **state, char *err, size_t errlen)
{
	struct rp_observer obs = {
		.record = on_record,
		.gap = on_gap,
		.step = on_step,
		.http = on_http,
	};
	struct as_vllm *a;
	int e;

	if (!(o->compat & (RP_COMPAT_VLLM | RP_COMPAT_APHRODITE)))
		return 0;
	a = calloc(1, sizeof(*a));
	if (!a) {
		snprintf(err, errlen, "no memory for --compat");
		return -ENOMEM;
	}
	a->tl = tl;
	a->info = info;
	a->n = 1;
	a->vllm = o->compat & RP_COMPAT_VLLM;
	a->aphrodite = o->compat & RP_COMPAT_APHRODITE;
	a->room.max_exemplars = MAX_EXEMPLARS;
	obs.ctx = a;
	e = rp_timeline_observe(tl, &obs);
	if (e) {
		shut(a);
		snprintf(err, errlen, "too many outputs for --compat");
		return e;
	}
	*state = a;
	return 0;
}

const struct rp_output rp_as_vllm_output = {
	.name = "compat",
	.open = start,
	.metrics = metrics,
	.close = shut,
};
