// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * message.c - what an engine's processes tell each other (vLLM, Aphrodite): the
 * scheduler's steps, and engine requests that find their HTTP request by its id.
 *
 * An engine request is a struct task with a name. It is born with its ADD (sent
 * by the front end, where that is seen) or with its first output. The response
 * says its id later, at the end when it does not stream: until then the task is
 * kept unclaimed, its token instants with it. After its end it stays for a while
 * as a tombstone, since outputs may still come that nobody waits for.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/vllm.h"
#include "timeline/internal.h"

#define TOMBSTONE_NS 10000000000LL /* a step that was under way, and slow */
#define UNCLAIMED_NS 60000000000LL /* its response is not written yet, or never */
#define SILENT_NS (600 * 1000000000LL)
#define REAP_NS 1000000000LL
#define MAX_STREAMS 4096
/* The engine's clock is ours unless it lives in another time namespace. */
#define CLOCK_EARLY_NS 1000000LL
#define CLOCK_LATE_NS 60000000000LL
/* Messages of one step to several front ends are made in a row. */
#define ONE_STEP_NS 2000000LL
#define EVENT_AGE_NS (7 * 86400 * 1000000000LL) /* an older event is no event */
#define STEP_SOCKETS 64
#define ROUNDS 2 /* so many later at most is a socket's next message in the next step */
#define RECENT_STEPS 256
#define CHOICES_MAX 1024   /* tasks of one request: finding them takes their square */
#define BLOCK_SIZE 16	   /* tokens; the default of most platforms, where nobody tells */
#define KV_MAX (1LL << 40) /* tokens: a count beyond is none */
#define PREFIXES 256	   /* of as many lengths is told which are shared; a power of two */

struct stream {		    /* one zmq socket: a multipart message arrives frame by frame */
	int type;	    /* the request type that was the last frame, or -1 */
	bool aux;	    /* the frames to come belong to a message that was read */
	bool outputs;	    /* it carries outputs: no frame in it is a request's type */
	double last_step;   /* timestamp of the last outputs, against repeats */
	uint64_t last_hash; /* of the last one without a timestamp */
};

/*
 * An engine's socket to one front end. Nothing in a message names its step, and each part
 * of a step has a timestamp of its own, a little later than the one before (EngineCoreOutputs
 * in vllm/v1/engine/__init__.py): what is said of left out requests and of the KV cache
 * must not hang on whether the parts were put together right.
 */
struct outlet {
	uint64_t sock;
	uint64_t step;	/* the last that it was in */
	uint64_t msgs;	/* so far, with a token in them */
	uint64_t round; /* of the last of them */
	/* what the requests in it that go on hold of the KV cache; some were not seen */
	int64_t held;
	bool unknown;
	uint64_t unknown_round;
};

/* The public part is st.cores[i]; these go with it. */
struct core {
	struct session *s;
	bool open;	       /* a step is being put together */
	struct outlet *outlet; /* STEP_SOCKETS of them */
	unsigned n_outlets;
	bool too_many; /* there are more */
	/* Messages with tokens in a row, none of a socket twice: so there are never more
	 * rounds than steps, and those of two steps in a row lie in three at most. */
	uint64_t round;
	struct {
		uint64_t tokens : 48, outlet : 16; /* as sane(); below STEP_SOCKETS */
		uint64_t msg;
	} prefix[PREFIXES]; /* cached ones that somebody in this message has, by a hash */
	struct rp_step_info step;
	bool busy; /* the last step left requests at work */
	int64_t recent[RECENT_STEPS];
	uint64_t n_recent;
};

/* What an engine process has said of itself, often before its first step. */
struct said {
	uint32_t pid;
	int64_t blocks, block, tokens; /* RP_VLLM_UNKNOWN */
	bool pipeline;
};

struct messages {
	struct said said[RP_MAX_CORES]; /* the newest takes the oldest's place */
	unsigned n_said;
	struct rp_map streams; /* (pid, sock) -> struct stream */
	struct rp_map names;   /* (root pid, hash) -> struct task_name, chained */
	struct rp_map ids;     /* (root pid, hash of a response id) -> struct request, chained */
	struct core core[RP_MAX_CORES];
	int64_t reaped;
	size_t marks_bytes; /* of tasks that nobody claimed yet */
	uint64_t count;	    /* messages, to tell whom one named */
};

/* One message on its way through the decoder. */
struct ctx {
	struct rp_timeline *t;
	struct session *s;
	const struct rp_ev_msg *e;
	struct stream *st;
	struct core *c;
	struct rp_core *pub;
	struct outlet *out; /* NULL: one too many */
	bool has_tokens;
	int64_t ts;    /* the step's instant, ns of our clock */
	int64_t shift; /* ours minus the engine's, when they differ */
	double stamp;  /* the step's timestamp; NAN when cut */
	bool repeated;
};

static uint64_t hash_bytes(const char *p, size_t n)
{
	uint64_t h = 0xcbf29ce484222325ULL; /* FNV-1a */

	for (size_t i = 0; i < n; i++)
		h = (h ^ (uint8_t)p[i]) * 0x100000001b3ULL;
	return h >> 1; /* task ids are signed */
}

static struct messages *get(struct rp_timeline *t)
{
	if (!t->msgs)
		t->msgs = rp_tl_alloc(t, sizeof(*t->msgs));
	return t->msgs;
}

/* ---- names ---- */

static void names_add(struct rp_timeline *t, struct task *k)
{
	size_t start, len[RP_TASK_NAMES];
	int n = rp_vllm_names(k->name, k->name_len, &start, &k->choice, len);

	for (int i = 0; i < n; i++) {
		struct task_name *r = &k->names[i], *first;
		uint64_t h = hash_bytes(k->name + start, len[i]);

		r->task = k;
		r->start = (uint16_t)start;
		r->len = (uint16_t)len[i];
		r->hash = h;
		first = rp_map_get(&t->msgs->names, k->pid, h);
		r->next = first;
		if (rp_map_put(&t->msgs->names, k->pid, h, r))
			return;
		k->n_names = (uint8_t)(i + 1);
	}
}

static void names_del(struct rp_timeline *t, struct task *k)
{
	for (unsigned i = 0; i < k->n_names; i++) {
		struct task_name *r = &k->names[i];
		struct task_name *first = rp_map_get(&t->msgs->names, k->pid, r->hash);

		if (first == r) {
			if (r->next)
				rp_map_put(&t->msgs->names, k->pid, r->hash, r->next);
			else
				rp_map_del(&t->msgs->names, k->pid, r->hash);
			continue;
		}
		while (first && first->next != r)
			first = first->next;
		if (first)
			first->next = r->next;
	}
	k->n_names = 0;
}

/* ---- tasks ---- */

static struct task *task_find(struct rp_timeline *t, const struct session *s, const char *id,
			      size_t len)
{
	struct task *k = rp_map_get(&t->tasks, s->root_pid, hash_bytes(id, len));

	return k && k->name && k->name_len == len && !memcmp(k->name, id, len) ? k : NULL;
}

static void reap(struct rp_timeline *t, int64_t tombstone);

static struct task *task_new(struct ctx *x, const char *id, size_t len)
{
	struct rp_timeline *t = x->t;
	uint64_t h = hash_bytes(id, len);
	struct task *k;

	if (t->tasks.len >= t->o.max_tasks && t->now - t->msgs->reaped >= REAP_NS / 10) {
		t->msgs->reaped = t->now;
		reap(t, REAP_NS);
	}
	if (t->tasks.len >= t->o.max_tasks || rp_map_get(&t->tasks, x->s->root_pid, h)) {
		t->st.limit_tasks++;
		return NULL;
	}
	k = rp_tl_alloc(t, sizeof(*k));
	if (!k)
		return NULL;
	k->name = rp_tl_alloc(t, len + 1);
	if (!k->name) {
		rp_tl_free(t, k, sizeof(*k));
		return NULL;
	}
	memcpy(k->name, id, len);
	k->name_len = (uint16_t)len;
	k->pid = x->s->root_pid;
	k->id = (int64_t)h;
	k->s = x->s;
	k->t_seen = k->t_active = (int64_t)x->e->h.ts;
	k->t_queued = k->t_scheduled = k->t_first = k->t_last = k->t_released = RP_NONE;
	k->t_added = k->t_abort = k->prev_token = RP_NONE;
	k->e_queued = k->e_scheduled = k->e_first = k->e_last = NAN;
	k->prompt = k->cached = RP_NONE;
	k->finish = RP_VLLM_RUNNING;
	if (rp_map_put(&t->tasks, k->pid, h, k)) {
		rp_tl_free(t, k->name, len + 1);
		rp_tl_free(t, k, sizeof(*k));
		return NULL;
	}
	names_add(t, k);
	return k;
}

static void marks_drop(struct rp_timeline *t, struct task *k)
{
	size_t n = k->marks.cap * sizeof(struct rp_mark);

	t->st.memory -= n;
	t->msgs->marks_bytes -= n;
	free(k->marks.m);
	k->marks = (struct marks){ 0 };
}

void rp_tl_task_name_free(struct rp_timeline *t, struct task *k)
{
	if (!k->name)
		return;
	names_del(t, k);
	marks_drop(t, k);
	rp_tl_free(t, k->name, (size_t)k->name_len + 1);
	k->name = NULL;
}

/* ---- claims: which HTTP request is it? ---- */

/* Behind the response id stand "-<i>" for completions, and 8 random hex digits. */
static bool random_tail(const struct task *k)
{
	const char *p = k->name + k->name_len;

	if (k->name_len < 10 || p[-9] != '-')
		return false;
	for (int i = 1; i <= 8; i++)
		if (!strchr("0123456789abcdef", p[-i]))
			return false;
	return true;
}

/* How far is this name of a task from the one that q's kind of response has? */
static int distance(const struct request *q, const struct task_name *r)
{
	const struct task *k = r->task;
	bool numbered = (q->r.operation == RP_OP_COMPLETION && q->s->numbered != NUMBERED_NO) ||
			!rp_generative(q->r.operation);

	if (!numbered && r->start + r->len == k->name_len)
		return -1; /* its whole name */
	return abs((int)(r - k->names) - (numbered + random_tail(k)));
}

/*
 * Front ends in Python put the prompt's number behind the id of a completion,
 * those in Rust do not: learned from the first that can be only one.
 */
static void learn_numbered(const struct request *q, const struct task_name *r)
{
	int parts = (int)(r - r->task->names) - random_tail(r->task);

	if (q->r.operation == RP_OP_COMPLETION && q->r.choices == 1 && (parts == 0 || parts == 1))
		q->s->numbered = parts ? NUMBERED_YES : NUMBERED_NO;
}

/* Not yet learned, and there are others whose names are cut elsewhere. */
static bool guesses(const struct request *q, unsigned all, unsigned nearest)
{
	return all > nearest && q->r.operation == RP_OP_COMPLETION &&
	       q->s->numbered == NUMBERED_UNKNOWN;
}

static bool wants_more(const struct request *q)
{
	if (q->n_tasks >= CHOICES_MAX)
		return false;
	if (!rp_generative(q->r.operation))
		return q->n_tasks < RP_CHOICES_TOLD;
	return q->n_tasks < (unsigned)q->r.choices;
}

static void join(struct rp_timeline *t, struct request *q, struct task *k)
{
	struct task **p = &q->tasks;

	k->req = q;
	q->twin |= k->twin;
	/* completions put the prompt's number at the end, n > 1 its choice in front */
	while (*p && ((*p)->choice < k->choice ||
		      ((*p)->choice == k->choice && (*p)->t_seen <= k->t_seen)))
		p = &(*p)->next_of_req;
	k->next_of_req = *p;
	*p = k;
	q->n_tasks++;
	if (k->t_released == RP_NONE)
		q->n_open++;
	rp_tl_count_tokens(t, k->tokens);
	q->r.core_pid = k->core_pid;
	q->r.engine_index = (int)k->index;
	/* what it did before it was known whose it is */
	for (size_t i = 0; i < k->marks.n; i++) {
		const struct rp_mark *m = &k->marks.m[i];

		rp_tl_step_tokens(t, q, k, m->ts, m->tokens);
	}
	marks_drop(t, k);
	if (k->marks_lost) { /* what comes next follows no token that is known */
		k->prev_token = RP_NONE;
		q->r.flags |= RP_FLAG_LIMIT;
	}
}

static bool fits(const struct request *q, const struct task *k)
{
	return !k->req && !k->dead && k->t_seen >= q->r.t_start;
}

/* The response's id is known: its tasks, the likeliest and oldest first. */
static void claim(struct rp_timeline *t, struct request *q, uint64_t h)
{
	const char *id = q->id_key;
	size_t len = strlen(id);

	while (wants_more(q)) {
		struct task_name *all = rp_map_get(&t->msgs->names, q->s->root_pid, h);
		struct task_name *name = NULL;
		struct task *best = NULL;
		unsigned n = 0, seen = 0;
		int off = 0;

		for (struct task_name *r = all; r; r = r->next) {
			struct task *k = r->task;
			int d;

			if (r->len != len || memcmp(k->name + r->start, id, len) || !fits(q, k))
				continue;
			d = distance(q, r);
			seen++;
			n = best && d > off ? n : best && d == off ? n + 1 : 1;
			if (!best || d < off || (d == off && k->t_seen < best->t_seen)) {
				name = r;
				best = k;
				off = d;
			}
		}
		if (!best)
			return;
		if (seen == 1)
			learn_numbered(q, name);
		q->twin |= guesses(q, seen, n);
		/* more than it can have: some are another's, who sent the same id */
		q->twin |= q->n_tasks + n > (unsigned)q->r.choices && rp_generative(q->r.operation);
		for (struct task_name *r = all; q->twin && r; r = r->next)
			r->task->twin = true;
		join(t, q, best);
	}
}

/* The same from the other side: a task turned up after its request's id. */
static void claim_for(struct rp_timeline *t, struct task *k)
{
	struct request *best = NULL;
	struct task_name *name = NULL;
	unsigned n = 0, seen = 0;
	int off = 0;

	for (unsigned i = 0; i < k->n_names; i++) {
		struct task_name *r = &k->names[i];
		struct request *q = rp_map_get(&t->msgs->ids, k->pid, r->hash);

		for (; q; q = q->id_next) {
			int d = distance(q, r);

			if (strlen(q->id_key) != r->len ||
			    memcmp(q->id_key, k->name + r->start, r->len) || !wants_more(q) ||
			    !fits(q, k))
				continue;
			seen++;
			n = best && d > off ? n : best && d == off ? n + 1 : 1;
			if (!best || d < off || (d == off && q->r.t_start < best->r.t_start)) {
				name = r;
				best = q;
				off = d;
			}
		}
	}
	if (!best)
		return;
	if (seen == 1)
		learn_numbered(best, name);
	best->twin |= guesses(best, seen, n);
	if (n > 1) {
		struct request *q = rp_map_get(&t->msgs->ids, k->pid, best->id_hash);

		for (; q; q = q->id_next)
			q->twin |= !strcmp(q->id_key, best->id_key) && wants_more(q) && fits(q, k);
	}
	join(t, best, k);
}

/*
 * Several requests with one id at once: the oldest got the oldest, which is a
 * guess. It stands if the response's counts are those of this one and no other.
 */
void rp_tl_twin_check(struct rp_timeline *t, struct request *q)
{
	struct task *k = q->tasks;
	bool sure;

	q->twin &= k != NULL;
	if (!q->twin)
		return;
	sure = q->n_tasks == 1 && q->r.choices == 1 && q->r.end == RP_END_COMPLETE &&
	       q->r.tok_prompt == k->prompt && q->r.tok_completion_usage == (int64_t)k->tokens;
	for (unsigned i = 0; sure && i < k->n_names; i++) {
		struct task_name *r = rp_map_get(&t->msgs->names, k->pid, k->names[i].hash);

		for (; sure && r; r = r->next)
			sure = r->task == k || r->task->prompt != k->prompt ||
			       r->task->tokens != k->tokens;
	}
	if (sure)
		return;
	rp_tl_tasks_detach(t, q);
	q->n_tasks = 0;
	q->eng.n = 0;
	q->r.core_pid = 0;
	q->r.engine_index = 0;
}

static void ids_del(struct rp_timeline *t, struct request *q)
{
	struct request *first;

	if (!q->id_key[0] || !t->msgs)
		return;
	first = rp_map_get(&t->msgs->ids, q->s->root_pid, q->id_hash);
	if (first == q) {
		if (q->id_next)
			rp_map_put(&t->msgs->ids, q->s->root_pid, q->id_hash, q->id_next);
		else
			rp_map_del(&t->msgs->ids, q->s->root_pid, q->id_hash);
	} else {
		while (first && first->id_next != q)
			first = first->id_next;
		if (first)
			first->id_next = q->id_next;
	}
	q->id_key[0] = '\0';
	q->id_next = NULL;
}

void rp_tl_id_known(struct rp_timeline *t, struct request *q, const char *id)
{
	if (!q->s->has_role[RP_ROLE_VLLM] || !q->recorded || !strcmp(q->id_key, id) || !get(t))
		return;
	if (q->id_key[0])
		rp_tl_tasks_release(t, q); /* another id was expected, and they were its */
	ids_del(t, q);
	snprintf(q->id_key, sizeof(q->id_key), "%s", id);
	q->id_hash = hash_bytes(id, strlen(q->id_key));
	q->id_next = rp_map_get(&t->msgs->ids, q->s->root_pid, q->id_hash);
	if (rp_map_put(&t->msgs->ids, q->s->root_pid, q->id_hash, q)) {
		q->id_key[0] = '\0';
		q->id_next = NULL;
		return;
	}
	claim(t, q, q->id_hash);
}

/*
 * The front ends take the client's X-Request-Id for the random part of the id:
 * such a request is known to the engine before its response begins.
 * (vllm/entrypoints/openai/serving_engine.py, _base_request_id)
 */
void rp_tl_id_expected(struct rp_timeline *t, struct request *q)
{
	static const char *const prefix[RP_OP_COUNT] = {
		[RP_OP_CHAT] = "chatcmpl",
		[RP_OP_COMPLETION] = "cmpl",
		[RP_OP_EMBEDDINGS] = "embd",
	};
	char id[RP_ID_MAX];
	const char *p = prefix[q->r.operation];
	int n;

	if (!p || !q->r.x_request_id[0] || !q->s->has_role[RP_ROLE_VLLM])
		return;
	n = snprintf(id, sizeof(id), "%s-%s", p, q->r.x_request_id);
	if (n > 0 && (size_t)n < sizeof(id))
		rp_tl_id_known(t, q, id);
}

void rp_tl_id_again(struct rp_timeline *t, struct request *q)
{
	if (q->id_key[0])
		claim(t, q, q->id_hash);
}

void rp_tl_id_forget(struct rp_timeline *t, struct request *q)
{
	ids_del(t, q);
}

/*
 * A client went away before its response said an id. The front end then aborts
 * the engine request: the only one nobody claims, of the only such client.
 */
static void claim_abandoned(struct rp_timeline *t, struct task *k, uint32_t pid)
{
	struct request *only = NULL;
	struct rp_map_slot *slot;
	size_t i = 0;

	if (k->req || k->t_added == RP_NONE)
		return;
	for (struct request *q = t->pending; q; q = q->next) {
		if (q->r.end != RP_END_CLIENT_DISCONNECT || q->n_tasks || q->r.id[0] ||
		    q->r.pid != pid || q->s != k->s || q->r.t_request_end == RP_NONE ||
		    q->r.t_request_end > k->t_added)
			continue;
		if (only)
			return;
		only = q;
	}
	/* others who wait without an id may own it just as well */
	while (only && (slot = rp_map_next(&t->conns, &i))) {
		struct conn *c = slot->v;

		for (struct request *q = c->h && c->pid == pid ? c->h->head : NULL; q; q = q->next)
			if (q->recorded && !q->n_tasks && !q->r.id[0] &&
			    q->r.t_request_end != RP_NONE && q->r.t_request_end <= k->t_added)
				return;
	}
	if (only)
		join(t, only, k);
}

/* ---- tokens ---- */

static void keep_mark(struct rp_timeline *t, struct task *k, int64_t ts, uint32_t tokens)
{
	struct marks *m = &k->marks;

	if (m->n == m->cap) {
		size_t cap = m->cap ? m->cap * 2 : 16, more = (cap - m->cap) * sizeof(*m->m);
		struct rp_mark *p = NULL;

		if (cap <= t->o.max_marks && t->st.memory + more <= t->o.memory_max &&
		    t->msgs->marks_bytes + more <= t->o.memory_max / 4)
			p = realloc(m->m, cap * sizeof(*p));
		if (!p) {
			t->st.limit_marks++;
			k->marks_lost = true;
			return;
		}
		t->st.memory += more;
		t->msgs->marks_bytes += more;
		m->m = p;
		m->cap = cap;
	}
	m->m[m->n++] = (struct rp_mark){ .ts = ts, .tokens = tokens };
}

void rp_tl_step_tokens(struct rp_timeline *t, struct request *q, struct task *k, int64_t ts,
		       uint32_t tokens)
{
	if (!tokens)
		return;
	if (k->prev_token != RP_NONE)
		rp_tl_gap(t, q, false, (ts - k->prev_token) / tokens, tokens, ts - k->prev_token);
	else if (tokens > 1 && k->gaps_from_start)
		rp_tl_gap(t, q, false, 0, tokens - 1, RP_NONE);
	rp_tl_mark(t, q, &q->eng, ts, tokens, k->choice);
	rp_tl_tokens(t, q, true, ts, tokens, k->choice);
	k->prev_token = ts;
}

/* ---- the KV cache, and who is left out of a step: engines without log stats ---- */

/* RP_VLLM_UNKNOWN is not, either */
static bool sane(int64_t tokens)
{
	return tokens >= 0 && tokens <= KV_MAX;
}

static int64_t bounded(int64_t tokens)
{
	return tokens > 0 && tokens <= KV_MAX ? tokens : RP_NONE;
}

/*
 * How many tokens its KV cache holds: as the process has said, else as its command line
 * or the user does. One block of it is never given to a request (block_pool.py: the null
 * block, which the engine's own gauge leaves out, too).
 */
static void configure(struct rp_timeline *t, unsigned i)
{
	struct rp_core *p = &t->st.cores[i];
	const struct session *s = t->msgs->core[i].s;
	const struct said *m = NULL;
	int64_t block = bounded(s->kv_block), blocks = bounded(s->kv_blocks), tokens = RP_NONE;
	int64_t user = bounded(s->kv_tokens ? s->kv_tokens : t->o.kv_tokens);

	for (unsigned k = 0; k < t->msgs->n_said && k < RP_MAX_CORES; k++)
		if (t->msgs->said[k].pid == p->pid)
			m = &t->msgs->said[k];
	if (m) {
		block = bounded(m->block) != RP_NONE ? m->block : block;
		blocks = bounded(m->blocks) != RP_NONE ? m->blocks : blocks;
		tokens = bounded(m->tokens);
		p->gaps_unknown |= m->pipeline;
	}
	if (tokens == RP_NONE && blocks != RP_NONE && block != RP_NONE && blocks <= KV_MAX / block)
		tokens = blocks * block;
	if (tokens == RP_NONE)
		tokens = user;
	p->kv_block = block != RP_NONE ? block : BLOCK_SIZE;
	p->kv_capacity = tokens > p->kv_block ? tokens - p->kv_block : RP_NONE;
	/* other causes of a step without a running request: micro-batches in turn, and a
	 * transfer that failed and is done again */
	p->gaps_unknown |= s->pipeline || s->transfer;
}

void rp_tl_msgs_configure(struct rp_timeline *t)
{
	for (unsigned i = 0; t->msgs && i < t->st.n_cores; i++)
		if (!t->st.cores[i].gone && t->msgs->core[i].s)
			configure(t, i);
}

static void core_reset(struct rp_timeline *t, struct core *c, struct session *s)
{
	if (c->outlet)
		rp_tl_free(t, c->outlet, STEP_SOCKETS * sizeof(*c->outlet));
	*c = (struct core){ .s = s };
}

void rp_tl_msgs_core_taken(struct rp_timeline *t, int i)
{
	if (t->msgs)
		core_reset(t, &t->msgs->core[i], NULL);
}

/* Has it been in one of the last steps, as far as rounds tell? */
static bool lately(const struct core *c, const struct outlet *o)
{
	return o->msgs && c->round - o->round <= ROUNDS;
}

static int64_t held(const struct core *c)
{
	int64_t n = 0;

	if (c->too_many)
		return RP_NONE;
	for (unsigned i = 0; i < c->n_outlets; i++) {
		const struct outlet *o = &c->outlet[i];

		if (o->unknown && c->round - o->unknown_round <= ROUNDS)
			return RP_NONE;
		if (lately(c, o) && __builtin_add_overflow(n, o->held, &n))
			return RP_NONE;
	}
	return n;
}

static void unknown(const struct core *c, struct outlet *o)
{
	o->unknown = true;
	o->unknown_round = c->round;
}

static void kv_usage(struct core *c, struct rp_core *p)
{
	p->kv_held = held(c);
	p->kv_usage = NAN;
	if (p->kv_held == RP_NONE || p->kv_capacity == RP_NONE)
		return;
	/* some of those that they share may be counted for each of them */
	p->kv_usage = p->kv_held < p->kv_capacity ? (double)p->kv_held / (double)p->kv_capacity : 1;
}

/*
 * A running request is in each step of its engine: one that has tokens already, was left
 * out of a step in which others got some, and goes on, was preempted. Its wait is that
 * of the queue's estimate: to the start of the step that brings its next token.
 */
static void gap(struct ctx *x, struct task *k)
{
	struct core *c = x->c;
	int64_t until = RP_NONE;

	if (k->resumable) { /* it may have waited for its client */
		x->pub->gaps_unknown = true;
		return;
	}
	k->preemptions++;
	x->pub->preemptions++;
	c->step.preempted++;
	if (c->n_recent > 1)
		until = c->recent[(c->n_recent - 2) % RECENT_STEPS];
	if (until > k->t_last)
		k->preempted_ns += until - k->t_last;
	/* that often it is how this engine works */
	if (x->pub->preemptions * 4 > x->pub->outputs + 64)
		x->pub->gaps_unknown = true;
}

/* Is it an engine without log stats? */
static bool quiet(const struct ctx *x)
{
	return x->c && x->pub && !x->pub->log_stats && !x->s->log_stats;
}

/*
 * An output of a request: before its tokens are counted. It was left out if its front end
 * was sent tokens of others, or if more was sent to others than two steps can hold. So one
 * that is the only one of its front end must be left out three times to be seen.
 */
static void in_step(struct ctx *x, struct task *k, const struct rp_vllm_output *o)
{
	struct core *c = x->c;
	struct outlet *out = x->out;
	unsigned core = (unsigned)(c - x->t->msgs->core), outlet;

	if (!o->tokens || !out)
		return;
	outlet = (unsigned)(out - c->outlet);
	if (!x->has_tokens) {
		x->has_tokens = true;
		c->round += out->round == c->round;
		out->round = c->round;
		out->msgs++;
		out->held = 0;
		out->unknown = false;
	}
	/* released: it ran in a process that is no more, whose place this one has */
	if (k->token_msg && k->core == core && k->outlet == outlet && k->t_released == RP_NONE &&
	    (out->msgs - k->token_msg > 1 || c->round - k->token_round > ROUNDS))
		gap(x, k);
	k->token_msg = out->msgs;
	k->token_round = c->round;
	k->core = core;
	k->outlet = outlet;
}

/*
 * Of what it holds, the tokens that are counted for another in this step already. Which
 * blocks they share is not told; but how much of a prompt was found in the prefix cache
 * is, and those of which it is the same number have one prompt in common as a rule: a
 * system prompt, a choice of several.
 */
static int64_t shared(struct core *c, const struct outlet *out, const struct task *k)
{
	unsigned i = (unsigned)(((uint64_t)k->cached * 0x9e3779b97f4a7c15ULL) >> 32) % PREFIXES;
	const struct outlet *by = &c->outlet[c->prefix[i].outlet];

	if (k->cached <= 0 || k->cached > k->prompt)
		return 0;
	if (c->prefix[i].tokens && c->prefix[i].msg == by->msgs && lately(c, by))
		return c->prefix[i].tokens == (uint64_t)k->cached ? k->cached : 0;
	c->prefix[i].tokens = (uint64_t)k->cached;
	c->prefix[i].outlet = (unsigned)(out - c->outlet);
	c->prefix[i].msg = out->msgs;
	return 0;
}

/* And after: the blocks that it holds when it goes on. */
static void hold(struct ctx *x, struct task *k, const struct rp_vllm_output *o)
{
	int64_t n = k->prompt + (int64_t)k->tokens, block = x->pub->kv_block;

	if (!o->tokens || !x->out)
		return;
	k->holds = false;
	/* after an abort it only finishes the step that was under way */
	if (o->finish != RP_VLLM_RUNNING || k->t_released != RP_NONE)
		return;
	if (!sane(k->prompt) || k->tokens > KV_MAX) {
		unknown(x->c, x->out);
		return;
	}
	if (n > k->room)
		k->room = (n + block - 1) / block * block;
	k->holds = true;
	k->held = k->room - shared(x->c, x->out, k);
	x->out->held += k->held; /* a message has room for fewer than would overflow it */
}

void rp_tl_msgs_release(struct rp_timeline *t, struct task *k)
{
	struct rp_core *p;
	struct core *c;
	struct outlet *out;

	if (!k->holds || !k->token_msg || !t->msgs)
		return;
	k->holds = false;
	p = &t->st.cores[k->core];
	c = &t->msgs->core[k->core];
	if (p->gone || p->pid != k->core_pid || k->outlet >= c->n_outlets)
		return;
	out = &c->outlet[k->outlet];
	if (k->token_msg != out->msgs)
		return;
	out->held -= k->held;
	if (!c->open)
		kv_usage(c, p);
}

static const struct core *core_of_task(const struct rp_timeline *t, const struct task *k)
{
	const struct rp_core *p = &t->st.cores[k->core];
	const struct core *c = &t->msgs->core[k->core];

	return k->token_msg && p->pid == k->core_pid && p->index == k->index &&
			       k->outlet < c->n_outlets ?
		       c :
		       NULL;
}

/* Is it in the engine's batch, as far as outputs tell? */
static bool runs(const struct rp_timeline *t, const struct task *k)
{
	const struct core *c;

	if (!k->steps)
		return false;
	c = core_of_task(t, k);
	if (!c || t->st.cores[k->core].gaps_unknown)
		return true;
	return k->token_msg == c->outlet[k->outlet].msgs && lately(c, &c->outlet[k->outlet]);
}

void rp_timeline_load(const struct rp_timeline *t, struct rp_engine_load load[RP_MAX_CORES])
{
	const struct core *core = t->msgs ? t->msgs->core : NULL;
	struct rp_map_slot *slot;
	size_t i = 0;

	memset(load, 0, RP_MAX_CORES * sizeof(*load));
	for (unsigned c = 0; core && c < t->st.n_cores; c++)
		load[c].waiting_known = load[c].capacity_only = core[c].s &&
								core[c].s->adds == ADDS_SEEN;
	while (core && (slot = rp_map_next(&t->tasks, &i))) {
		const struct task *k = slot->v;
		unsigned c = 0;

		if (!k->name || !k->s || k->dead || k->t_released != RP_NONE)
			continue;
		while (c < t->st.n_cores && (t->st.cores[c].gone ||
					     (k->steps ? t->st.cores[c].pid != k->core_pid ||
								 t->st.cores[c].index != k->index :
							 core[c].s != k->s)))
			c++;
		if (c == t->st.n_cores)
			continue;
		if (runs(t, k)) {
			load[c].running++;
			continue;
		}
		load[c].waiting++;
		/* one that was taken off, too, waits for blocks, or for what it asked for */
		if (k->s->transfer || k->may_defer)
			load[c].capacity_only = false;
	}
}

bool rp_tl_msgs_gaps(const struct rp_timeline *t, const struct task *k)
{
	return core_of_task(t, k) && !t->st.cores[k->core].gaps_unknown && !k->lost &&
	       !k->no_first && !k->resumable && k->preemptions * 4 <= k->steps + 4;
}

/* ---- steps ---- */

static struct core *core_of(struct ctx *x, int64_t index)
{
	struct rp_timeline *t = x->t;
	unsigned i;

	for (i = 0; i < t->st.n_cores; i++)
		if (t->st.cores[i].pid == x->e->h.pid && t->st.cores[i].index == index &&
		    !t->st.cores[i].gone)
			break;
	if (i == t->st.n_cores) {
		int made;

		if (rp_tl_exited(t, x->e->h.pid))
			return NULL; /* its last message, told late */
		made = rp_tl_core_new(t, x->e->h.pid, index);
		if (made < 0) {
			t->st.limit_cores++;
			return NULL;
		}
		i = (unsigned)made;
		core_reset(t, &t->msgs->core[i], x->s);
		t->msgs->core[i].outlet = rp_tl_alloc(t, STEP_SOCKETS * sizeof(struct outlet));
		configure(t, i);
	}
	x->pub = &t->st.cores[i];
	return &t->msgs->core[i];
}

static void step_end(struct rp_timeline *t, struct core *c)
{
	struct rp_core *p = &t->st.cores[c - t->msgs->core];

	if (!c->open)
		return;
	c->open = false;
	c->step.preempted_known = rp_core_preemptions(p);
	if (!p->log_stats) {
		if (c->round)
			kv_usage(c, p);
		c->step.kv_usage = p->kv_usage;
		c->step.estimated = true;
	}
	c->busy = c->step.requests > c->step.finished;
	for (unsigned i = 0; i < t->n_obs; i++)
		if (t->obs[i].step)
			t->obs[i].step(t->obs[i].ctx, &c->step);
}

static void add_count(int64_t *to, int64_t n)
{
	if (n < 0 || __builtin_add_overflow(*to == RP_NONE ? 0 : *to, n, to))
		return; /* not told, or absurd */
}

static struct outlet *outlet_of(struct ctx *x)
{
	struct core *c = x->c;
	unsigned i = 0;

	while (i < c->n_outlets && c->outlet[i].sock != x->e->sock)
		i++;
	if (!c->outlet || i == STEP_SOCKETS) { /* nothing is known of where its requests are */
		c->too_many = x->pub->gaps_unknown = true;
		return NULL;
	}
	if (i == c->n_outlets)
		c->outlet[c->n_outlets++] = (struct outlet){ .sock = x->e->sock };
	return &c->outlet[i];
}

static void step_begin(struct ctx *x)
{
	struct rp_step_info *s = &x->c->step;
	struct core *c = x->c;

	x->out = outlet_of(x);
	if (c->open && (!x->out || x->out->step == s->seq || x->ts - s->ts > ONE_STEP_NS))
		step_end(x->t, c);
	if (!c->open) {
		*s = (struct rp_step_info){
			.engine = x->s->engine,
			.version = x->s->version,
			.pid = x->pub->pid,
			.index = x->pub->index,
			.seq = ++x->pub->steps,
			.ts = x->ts,
			.sent = (int64_t)x->e->h.ts,
			.step_ns = RP_NONE,
			.wall_offset = x->t->wall_offset,
			.running = RP_NONE,
			.waiting = RP_NONE,
			.kv_usage = NAN,
			.prefix_queries = RP_NONE,
			.prefix_hits = RP_NONE,
			.spec_drafts = RP_NONE,
			.spec_draft_tokens = RP_NONE,
			.spec_accepted_tokens = RP_NONE,
		};
		if (c->busy && x->pub->last_step != RP_NONE && x->ts >= x->pub->last_step)
			s->step_ns = x->ts - x->pub->last_step;
		x->pub->last_step = x->ts;
		c->recent[c->n_recent++ % RECENT_STEPS] = x->ts;
		c->open = true;
	}
	if (x->out)
		x->out->step = s->seq;
}

static void take_stats(struct ctx *x, const struct rp_vllm_stats *v)
{
	struct rp_stats *st = &x->t->st;
	struct rp_step_info *s = &x->c->step;
	struct rp_core *p = x->pub;

	if (v->running != RP_VLLM_UNKNOWN && v->waiting != RP_VLLM_UNKNOWN) {
		if (p->stats) {
			st->running -= (uint64_t)p->running;
			st->waiting -= (uint64_t)p->waiting;
		}
		p->running = s->running = v->running < 0 ? 0 : v->running;
		p->waiting = s->waiting = v->waiting < 0 ? 0 : v->waiting;
		st->running += (uint64_t)p->running;
		st->waiting += (uint64_t)p->waiting;
		st->scheduler_known = true;
		p->stats = true;
	}
	p->log_stats = true;
	s->has_stats = true;
	p->deferred = v->deferred == RP_VLLM_UNKNOWN ? RP_NONE : v->deferred;
	p->kv_usage = s->kv_usage = v->kv_usage;
	add_count(&s->prefix_queries, v->prefix_queries);
	add_count(&s->prefix_hits, v->prefix_hits);
	if (v->prefix_queries > 0)
		p->prefix_queries += (uint64_t)v->prefix_queries;
	if (v->prefix_hits > 0)
		p->prefix_hits += (uint64_t)v->prefix_hits;
	add_count(&s->spec_drafts, v->spec_drafts);
	add_count(&s->spec_draft_tokens, v->spec_draft_tokens);
	add_count(&s->spec_accepted_tokens, v->spec_accepted_tokens);
	if (v->spec_drafts == RP_VLLM_UNKNOWN)
		return;
	p->spec = true;
	p->spec_drafts += v->spec_drafts > 0 ? (uint64_t)v->spec_drafts : 0;
	p->spec_draft_tokens += v->spec_draft_tokens > 0 ? (uint64_t)v->spec_draft_tokens : 0;
	for (uint32_t i = 0; i < v->spec_positions && i < RP_SPEC_POSITIONS; i++)
		p->spec_accepted_at[i] += (uint64_t)v->spec_accepted_at[i];
	if (v->spec_positions > p->spec_positions)
		p->spec_positions = v->spec_positions;
	p->spec_accepted_tokens += v->spec_accepted_tokens > 0 ? (uint64_t)v->spec_accepted_tokens :
								 0;
}

static int64_t to_ns(double s)
{
	return s > -1e9 && s < 1e9 ? (int64_t)llround(s * 1e9) : RP_NONE;
}

static void on_step(void *ctx, const struct rp_vllm_step *v)
{
	struct ctx *x = ctx;
	int64_t sent = (int64_t)x->e->h.ts, ns = to_ns(v->timestamp);

	x->stamp = ns == RP_NONE ? NAN : v->timestamp;
	x->ts = sent;
	/* pyzmq tries again after a full queue or a signal: one and the same message */
	if (isnan(v->timestamp)) {
		uint64_t h = hash_bytes((const char *)x->e->payload, x->e->len) ^ x->e->total;

		x->repeated = h == x->st->last_hash;
		x->st->last_hash = h;
	} else {
		x->repeated = v->timestamp == x->st->last_step;
		x->st->last_step = v->timestamp;
	}
	if (x->repeated) {
		x->t->st.messages_repeated++;
		return;
	}
	if (!v->n_outputs && (v->has_utility ? !v->has_stats : x->t->o.hide_events))
		return; /* an answer to a call, between steps; or never sent without log stats */
	if (ns != RP_NONE) {
		if (ns > sent + CLOCK_EARLY_NS || sent - ns > CLOCK_LATE_NS)
			x->shift = sent - ns;
		x->ts = ns + x->shift;
	}
	x->c = core_of(x, v->engine_index > 0 ? v->engine_index : 0);
	if (!x->c)
		return;
	step_begin(x);
	x->c->step.cut |= isnan(v->timestamp);
	if (v->has_stats && !x->t->o.hide_events) {
		x->s->log_stats = true;
		take_stats(x, &v->stats);
	}
}

static int64_t ours(const struct ctx *x, double s)
{
	int64_t ns = to_ns(s);

	return ns == RP_NONE ? RP_NONE : ns + x->shift;
}

static void on_event(struct ctx *x, struct task *k, const struct rp_vllm_event *v)
{
	int64_t ns = ours(x, v->ts);

	if (ns == RP_NONE || ns > (int64_t)x->e->h.ts || (int64_t)x->e->h.ts - ns > EVENT_AGE_NS) {
		x->t->st.invalid_order++;
		return;
	}
	switch (v->type) {
	case RP_VLLM_QUEUED:
		if (isnan(k->e_queued)) {
			k->e_queued = v->ts;
			k->t_queued = ns;
		} else {
			k->requeues++;
			k->wait_from = ns;
			k->wait = &k->requeue_ns;
		}
		break;
	case RP_VLLM_SCHEDULED:
		if (isnan(k->e_scheduled)) {
			k->e_scheduled = v->ts;
			k->t_scheduled = ns;
		} else if (k->wait) {
			*k->wait += ns > k->wait_from ? ns - k->wait_from : 0;
			k->wait = NULL;
		}
		break;
	case RP_VLLM_PREEMPTED:
		k->preemptions++;
		k->wait_from = ns;
		k->wait = &k->preempted_ns;
		if (x->c && x->pub) {
			x->pub->preemptions++;
			x->c->step.preempted++;
		}
		break;
	default:
		break;
	}
	k->told = true;
}

/*
 * No events (--disable-log-stats): a request is first scheduled at the start of
 * the step that brings its first token, at the earliest; that start is the end
 * of the step before. It was queued at the first look into the mailbox after its
 * ADD was sent: at once in an idle engine, else at the end of the step under way.
 */
static void estimate(struct ctx *x, struct task *k)
{
	struct core *c = x->c;
	uint64_t n, i, oldest;
	int64_t queued, start = RP_NONE;

	if (k->t_added == RP_NONE || !c || !c->n_recent)
		return;
	n = c->n_recent - 1; /* this step */
	oldest = n > RECENT_STEPS - 1 ? n - (RECENT_STEPS - 1) : 0;
	if (n > oldest)
		start = c->recent[(n - 1) % RECENT_STEPS];
	queued = k->t_added;
	for (i = n; i > oldest && c->recent[(i - 1) % RECENT_STEPS] >= k->t_added; i--)
		queued = c->recent[(i - 1) % RECENT_STEPS];
	if (i == oldest && oldest) /* it waited for more steps than are kept: one is little then */
		queued = k->t_added;
	k->t_queued = queued;
	k->t_scheduled = start != RP_NONE && start > queued ? start : queued;
	k->estimate = RP_EST_STEPS;
}

/* The engine's own counts of prompts: when a prefill is over. */
static void count_prompt(struct ctx *x, const struct task *k, const struct rp_vllm_output *o)
{
	struct rp_core *p = x->pub;
	int64_t *computed = &x->c->step.computed;
	bool parts = sane(o->cached_local) && sane(o->cached_external);

	if (k->prompt < 0) {
		*computed = RP_NONE;
		return;
	}
	p->tokens_prompt += (uint64_t)k->prompt;
	if (k->cached < 0 || k->cached > k->prompt) {
		p->cached_known = false;
		*computed = RP_NONE;
		return;
	}
	p->tokens_cached += (uint64_t)k->cached;
	p->tokens_computed += (uint64_t)(k->prompt - k->cached);
	p->cached_parts_known &= parts;
	if (parts) {
		p->tokens_cached_local += (uint64_t)o->cached_local;
		p->tokens_cached_external += (uint64_t)o->cached_external;
	}
	if (*computed != RP_NONE)
		*computed += k->prompt - k->cached;
}

static void first_output(struct ctx *x, struct task *k, const struct rp_vllm_output *o)
{
	bool queued = false;

	for (uint32_t i = 0; i < o->n_events; i++)
		queued |= o->events[i].type == RP_VLLM_QUEUED;
	/* Without any sign of a beginning it is one that ran before we came: to the
	 * engine, that is, whose outputs may be seen later than what it is sent. Prefill
	 * stats come again after a preemption, which events would tell. */
	if (!queued && (o->n_events || x->s->log_stats ||
			(k->t_added == RP_NONE && o->prompt_tokens == RP_VLLM_UNKNOWN)))
		k->no_first = true;
	if ((!o->n_events || x->t->o.hide_events) && !x->s->log_stats && !k->no_first)
		estimate(x, k);
	k->gaps_from_start = !k->no_first;
	if (k->t_added != RP_NONE)
		x->s->adds = ADDS_SEEN;
	else if (!k->no_first)
		x->s->adds = ADDS_MISSED;
	if (sane(o->prompt_tokens))
		k->prompt = o->prompt_tokens;
	if (sane(o->cached_tokens))
		k->cached = o->cached_tokens;
	if (x->c && !k->no_first)
		count_prompt(x, k, o);
}

static void on_output(void *ctx, const struct rp_vllm_output *o)
{
	struct ctx *x = ctx;
	struct rp_timeline *t = x->t;
	struct request *q;
	struct task *k;
	bool first;

	if (x->repeated)
		return;
	if (x->c) {
		struct rp_step_info *s = &x->c->step;

		s->requests++;
		s->tokens += o->tokens;
		s->finished += o->finish != RP_VLLM_RUNNING;
		if (o->tokens > s->max_tokens)
			s->max_tokens = o->tokens;
		x->pub->tokens += o->tokens;
		x->pub->outputs++;
	}
	k = task_find(t, x->s, o->id, o->id_len);
	if (k && k->dead)
		return;
	if (!k) {
		k = task_new(x, o->id, o->id_len);
		if (!k)
			return;
		claim_for(t, k);
	}
	first = !k->steps++;
	k->told_in = t->msgs->count;
	k->t_active = (int64_t)x->e->h.ts;
	k->core_pid = x->e->h.pid;
	k->index = x->pub ? x->pub->index : 0;
	if (k->req) {
		k->req->r.core_pid = k->core_pid;
		k->req->r.engine_index = (int)k->index;
	}
	for (uint32_t i = 0; i < o->n_events && !t->o.hide_events; i++)
		on_event(x, k, &o->events[i]);
	if (first)
		first_output(x, k, o);
	if (first && x->c)
		x->c->step.first_tokens += o->tokens > 0;
	if (quiet(x))
		in_step(x, k, o);
	if (!o->pooled) { /* a result that is no token has no instant of one */
		if (k->t_first == RP_NONE) {
			k->t_first = x->ts;
			k->e_first = x->stamp;
		}
		k->t_last = x->ts;
		k->e_last = x->stamp;
		k->no_last = false;
	}
	k->tokens += o->tokens;
	if (quiet(x))
		hold(x, k, o);
	k->last[k->n_last++ % RP_TASK_LAST] = (struct task_output){
		.sent = (int64_t)x->e->h.ts, .ts = x->ts, .stamp = x->stamp, .tokens = k->tokens
	};
	q = k->req;
	if (q) {
		rp_tl_count_tokens(t, o->tokens);
		rp_tl_step_tokens(t, q, k, x->ts, o->tokens);
	} else if (o->tokens && !k->marks_lost) {
		keep_mark(t, k, x->ts, o->tokens);
	}
	if (o->finish == RP_VLLM_RUNNING)
		return;
	k->finish = o->finish;
	rp_tl_task_over(t, k, x->ts);
	if (q && !q->conn)
		rp_tl_pending(t, false);
}

/*
 * Outputs were sent and not seen. Whose they were is unknown: all that the engine
 * works on and that this message did not name may have had one.
 */
static void outputs_missing(struct rp_timeline *t, struct session *s, uint32_t pid, uint64_t told)
{
	struct rp_map_slot *slot;
	size_t i = 0;

	while ((slot = rp_map_next(&t->tasks, &i))) {
		struct task *k = slot->v;

		if (!k->name || k->s != s || k->dead || k->t_released != RP_NONE ||
		    (k->core_pid && k->core_pid != pid) || (told && k->told_in == told))
			continue;
		rp_tl_task_lost(k);
	}
}

/* After a step that was not seen no step is known to follow another, nor who is in the
 * KV cache; pid 0: any. */
static void step_missing(struct rp_timeline *t, uint32_t pid)
{
	for (unsigned i = 0; i < t->st.n_cores; i++) {
		struct core *c = &t->msgs->core[i];

		if (t->st.cores[i].gone || (pid && t->st.cores[i].pid != pid))
			continue;
		step_end(t, c);
		for (unsigned k = 0; k < c->n_outlets; k++)
			unknown(c, &c->outlet[k]);
		if (c->round && !t->st.cores[i].log_stats)
			kv_usage(c, &t->st.cores[i]);
		c->busy = false;
	}
}

void rp_tl_msgs_loss(struct rp_timeline *t)
{
	if (t->msgs)
		step_missing(t, 0);
}

/* ---- what the front end sends ---- */

/* The same id asked for anew (ids without a random part): the old one keeps its
 * request, and loses its name. */
static void retire(struct rp_timeline *t, struct task *k)
{
	rp_tl_task_over(t, k, t->now);
	if (!k->req) {
		t->st.tasks_unclaimed += !k->dead;
		rp_tl_task_free(t, k);
		return;
	}
	names_del(t, k);
	if (rp_map_get(&t->tasks, k->pid, (uint64_t)k->id) == k)
		rp_map_del(&t->tasks, k->pid, (uint64_t)k->id);
	k->retired = true;
}

static void on_add(void *ctx, const struct rp_vllm_request *r)
{
	struct ctx *x = ctx;
	struct task *k = task_find(x->t, x->s, r->id, r->id_len);

	if (k && !k->dead && !k->steps && k->t_released == RP_NONE)
		return; /* handed over again */
	if (k)
		retire(x->t, k);
	k = task_new(x, r->id, r->id_len);
	if (!k)
		return;
	k->t_added = (int64_t)x->e->h.ts;
	k->may_defer = r->may_defer;
	k->resumable = r->resumable == 1;
	k->queued_once = !r->resumable;
	if (x->s->adds == ADDS_UNKNOWN)
		x->s->adds = ADDS_SEEN;
	if (sane(r->prompt_tokens))
		k->prompt = r->prompt_tokens;
	claim_for(x->t, k);
}

static void on_abort(void *ctx, const char *id, size_t len)
{
	struct ctx *x = ctx;
	struct task *k = task_find(x->t, x->s, id, len);
	struct request *q;

	if (!k || k->dead || k->t_released != RP_NONE)
		return;
	k->t_abort = (int64_t)x->e->h.ts;
	claim_abandoned(x->t, k, x->e->h.pid);
	q = k->req;
	rp_tl_task_over(x->t, k, k->t_abort);
	if (q && !q->conn)
		rp_tl_pending(x->t, false);
}

static void on_ready(void *ctx, const struct rp_vllm_ready *r)
{
	struct ctx *x = ctx;
	struct messages *m = x->t->msgs;
	struct said *it = NULL;

	if (!x->s->version[0] && r->version_len && r->version_len < sizeof(x->s->version)) {
		memcpy(x->s->version, r->version, r->version_len);
		x->s->version[r->version_len] = '\0';
	}
	for (unsigned i = 0; i < m->n_said && i < RP_MAX_CORES; i++)
		if (m->said[i].pid == x->e->h.pid)
			it = &m->said[i];
	if (!it) { /* the hand-shake names the blocks, and not what is in one */
		it = &m->said[m->n_said++ % RP_MAX_CORES];
		*it = (struct said){ x->e->h.pid, RP_VLLM_UNKNOWN, RP_VLLM_UNKNOWN, RP_VLLM_UNKNOWN,
				     false };
	}
	if (r->blocks != RP_VLLM_UNKNOWN)
		it->blocks = r->blocks;
	if (r->block_size != RP_VLLM_UNKNOWN)
		it->block = r->block_size;
	if (r->kv_tokens != RP_VLLM_UNKNOWN)
		it->tokens = r->kv_tokens;
	it->pipeline |= r->pipeline > 1;
	rp_tl_msgs_configure(x->t);
}

void rp_tl_msg(struct rp_timeline *t, const struct rp_ev_msg *e, uint8_t *keep)
{
	struct ctx x = { .t = t, .s = rp_tl_session(t, e->h.pid), .e = e, .stamp = NAN };
	const struct rp_vllm_sink sink = {
		.ctx = &x,
		.step = on_step,
		.output = on_output,
		.add = on_add,
		.abort = on_abort,
		.ready = on_ready,
	};
	enum rp_vllm_kind kind = RP_VLLM_KIND_OTHER;
	bool more = e->send_flags & RP_MSG_MORE;
	struct stream *st;
	int type = -1, err;

	if (e->hook >= RP_MAX_HOOKS)
		return;
	if (!(e->h.flags & RP_F_SYNTH))
		rp_tl_hook_seq(t, e->hook, e->seq, e->h.tid);
	t->st.hook_hits[e->hook]++;
	if (x.s->roles[e->hook] != RP_ROLE_VLLM || !get(t))
		return;
	st = rp_map_get(&t->msgs->streams, e->h.pid, e->sock);
	if (!st) {
		if (t->msgs->streams.len >= MAX_STREAMS)
			return;
		st = rp_tl_alloc(t, sizeof(*st));
		if (!st)
			return;
		st->type = -1;
		st->last_step = NAN;
		if (rp_map_put(&t->msgs->streams, e->h.pid, e->sock, st)) {
			rp_tl_free(t, st, sizeof(*st));
			return;
		}
	}
	x.st = st;
	/* a write was lost on the way here, with what it carried */
	if (!e->len && e->missing && (e->h.flags & RP_F_SYNTH)) {
		st->type = -1;
		st->aux = false;
		outputs_missing(t, x.s, e->h.pid, 0);
		step_missing(t, e->h.pid);
		return;
	}
	/*
	 * Front end to engine: [identity of 2 bytes] [type of 1] [request] [aux...];
	 * engine to front end: [outputs] [aux...]. What stands in a frame of 1 or 2
	 * bytes may be kept: it is an engine's number, or the type.
	 */
	if (e->total <= 2 && more && !st->outputs) {
		st->type = e->total == 1 && e->len == 1 ? e->payload[0] : -1;
		st->aux = false;
		if (keep)
			memcpy(keep, e->payload, e->len);
		return;
	}
	if (st->type < 0 && st->aux) {
		st->aux = more;
		return;
	}
	type = st->type;
	st->type = -1;
	st->aux = more;
	/* pickle, protocol 2 to 5: msgpack would be an empty map with bytes behind */
	if (type < 0 && e->len > 2 && e->payload[0] == 0x80 && e->payload[1] >= 2 &&
	    e->payload[1] <= 5) {
		rp_tl_notice(
			t, SAY_PICKLE,
			"the engine's processes speak pickle (vLLM's V0 engine): queue, prefill and decode times are null");
		x.s->silent_said = true;
		if (keep)
			memcpy(keep, e->payload, 2);
		return;
	}
	t->msgs->count++;
	err = rp_vllm_decode(type, e->payload, e->len, e->missing > 0, keep, &sink, &kind);
	if (e->missing) {
		t->st.messages_cut++;
		rp_tl_notice(
			t, SAY_CUT,
			"a message of the engine is longer than --payload (%u bytes): what lies behind is not seen",
			e->total);
	}
	if (kind == RP_VLLM_KIND_OUTPUTS) {
		st->outputs = true;
		if (err && !x.repeated)
			outputs_missing(t, x.s, e->h.pid, t->msgs->count);
		if (x.out && (err || e->missing))
			unknown(x.c, x.out);
		else if (!x.c && !x.repeated && (err || e->missing))
			step_missing(t, e->h.pid);
	}
	if (kind == RP_VLLM_KIND_DEAD)
		rp_tl_notice(t, SAY_DEAD, "the engine core (pid %u) reports that it died",
			     e->h.pid);
	if (!err || err == -ENODATA) {
		t->st.messages++;
		if (kind == RP_VLLM_KIND_OUTPUTS && x.c)
			x.s->hits++;
	} else {
		t->st.messages_bad++;
	}
}

/* ---- time, and the end ---- */

static int64_t oldest_start(struct rp_timeline *t)
{
	struct rp_map_slot *slot;
	int64_t oldest = INT64_MAX;
	size_t i = 0;

	while ((slot = rp_map_next(&t->conns, &i))) {
		struct conn *c = slot->v;

		for (struct request *q = c->h ? c->h->head : NULL; q; q = q->next)
			if (q->recorded && q->r.t_start < oldest)
				oldest = q->r.t_start;
	}
	return oldest;
}

static void reap(struct rp_timeline *t, int64_t tombstone)
{
	struct rp_map_slot *slot;
	struct task **gone;
	int64_t oldest = RP_NONE;
	size_t i = 0, n = 0;

	gone = calloc(t->tasks.len + 1, sizeof(struct task *));
	if (!gone)
		return;
	while ((slot = rp_map_next(&t->tasks, &i))) {
		struct task *k = slot->v;

		if (!k->name || k->req)
			continue;
		/* its end was not seen: one that is silent for so long, and that no
		 * request in flight can be, is over */
		if (k->t_released == RP_NONE && t->now - k->t_active > SILENT_NS) {
			if (oldest == RP_NONE)
				oldest = oldest_start(t);
			if (k->t_seen < oldest)
				rp_tl_task_over(t, k, k->t_active);
		}
		if (k->t_released == RP_NONE)
			continue;
		if (k->dead) {
			if (t->now - k->t_dead > tombstone)
				gone[n++] = k;
			continue;
		}
		if (t->now - k->t_released < UNCLAIMED_NS)
			continue;
		if (oldest == RP_NONE)
			oldest = oldest_start(t);
		if (k->t_seen < oldest) {
			t->st.tasks_unclaimed++;
			gone[n++] = k;
		}
	}
	for (i = 0; i < n; i++)
		rp_tl_task_free(t, gone[i]);
	free(gone);
}

void rp_tl_msgs_tick(struct rp_timeline *t)
{
	if (!t->msgs)
		return;
	for (unsigned i = 0; i < t->st.n_cores; i++)
		if (t->now - t->msgs->core[i].step.sent > ONE_STEP_NS)
			step_end(t, &t->msgs->core[i]); /* else a part of it may be yet to come */
	if (t->now - t->msgs->reaped < REAP_NS)
		return;
	t->msgs->reaped = t->now;
	reap(t, TOMBSTONE_NS);
}

void rp_tl_msgs_exit(struct rp_timeline *t, uint32_t pid)
{
	struct rp_map_slot *slot;
	size_t i = 0;

	if (!t->msgs)
		return;
	while ((slot = rp_map_next(&t->msgs->streams, &i))) {
		if (slot->a != pid)
			continue;
		rp_tl_free(t, slot->v, sizeof(struct stream));
		rp_map_del(&t->msgs->streams, slot->a, slot->b);
		i = 0; /* deleting moves entries */
	}
	for (unsigned i = 0; i < t->msgs->n_said && i < RP_MAX_CORES; i++)
		if (t->msgs->said[i].pid == pid)
			t->msgs->said[i].pid = 0; /* another may get it */
	for (unsigned c = 0; c < t->st.n_cores; c++) {
		struct rp_core *p = &t->st.cores[c];

		if (p->pid != pid || p->gone)
			continue;
		step_end(t, &t->msgs->core[c]);
		p->gone = true;
		if (p->stats) {
			t->st.running -= (uint64_t)p->running;
			t->st.waiting -= (uint64_t)p->waiting;
			p->running = p->waiting = 0;
		}
		p->stats = false;
	}
}

void rp_tl_msgs_finish(struct rp_timeline *t)
{
	struct rp_map_slot *slot;
	size_t i = 0;

	if (!t->msgs)
		return;
	for (unsigned c = 0; c < t->st.n_cores; c++)
		step_end(t, &t->msgs->core[c]);
	while ((slot = rp_map_next(&t->tasks, &i))) {
		struct task *k = slot->v;

		if (k->name && !k->req && !k->dead)
			t->st.tasks_unclaimed++;
	}
}

void rp_tl_msgs_free(struct rp_timeline *t)
{
	struct rp_map_slot *slot;
	size_t i = 0;

	if (!t->msgs)
		return;
	while ((slot = rp_map_next(&t->msgs->streams, &i)))
		free(slot->v);
	for (i = 0; i < RP_MAX_CORES; i++)
		core_reset(t, &t->msgs->core[i], NULL);
	rp_map_free(&t->msgs->streams);
	rp_map_free(&t->msgs->names);
	rp_map_free(&t->msgs->ids);
	free(t->msgs);
}
