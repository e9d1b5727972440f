// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * decode.c - the scheduler of an engine that has no messages, by its functions: each
 * batch that it hands to the model is a step (RP_ROLE_STEP, llama.cpp).
 *
 * A step begins at the entry of that function and lasts until the next one; tokens that
 * come in between are its output. What else calls the function is no step:
 * - warm-up, and whatever is done while no request has a slot;
 * - a draft model, which has a context of its own. The model's own context is the one
 *   of the first call after a launch while no request generates: drafts are made of
 *   requests that generate. Attached in the middle, it is the one that was called alone
 *   between two tokens; until that is seen no call is taken for a step.
 *
 * KV cache: positions of the requests that have a slot, as far as they were seen in
 * batches, over the context's size. A hook tells some of a batch's tokens, in turns: of a
 * handful of requests all are known at every step, of more each after some steps.
 *
 * A request whose launch was not seen (it began before the attach) shows by its tokens
 * and positions. When it ends is not told, nor who else came before us: while there is
 * such a one, who runs and waits and what they hold is not known.
 */
#include <math.h>

#include "timeline/internal.h"

#define SEQS 256 /* LLAMA_MAX_SEQ */
/* Tokens of a request that nobody knows (begun before the attach): it generates. */
#define FOREIGN_NS (1000 * 1000000LL)
/* So many steps without a sign of such a one: it is over. One that generates is in each
 * step; of so many tokens at most, for a prompt of others may leave no room for its own. */
#define FOREIGN_STEPS 16
#define FOREIGN_BATCH 64
/* llama.cpp rounds a context up to 256 cells, until 2025 to 32. */
#define CONTEXT_UNIT 32
#define CONTEXT_MAX (1u << 28)

struct decoder {
	uint32_t pid;
	struct session *s;
	struct rp_core *pub;
	uint64_t ctx;
	bool sure;	     /* ctx is the model's own */
	bool fresh;	     /* a launch while nothing generated: the next call shows it */
	bool between, other; /* since a token; called with another than `alone` since */
	uint64_t alone;
	bool open, idled, lost;
	struct rp_step_info step;
	uint64_t last_slot, burst; /* whose token was the last, and how many in a row */
	int64_t foreign;
	bool strange;	 /* somebody whose launch was not seen has a slot */
	unsigned absent; /* steps since it was seen */
	int64_t rests;	 /* since when no call has come: its main thread is at rest; RP_NONE */
	int64_t running, waiting;
	uint32_t unnumbered; /* of those that run: their sequence could not be read */
	uint32_t n_ctx, n_seqs;
	bool distrust; /* what was read as the context's size is something else */
	bool live[SEQS];
	uint32_t kv[SEQS];
};

static struct decoder *find(struct rp_timeline *t, uint32_t pid)
{
	for (unsigned i = 0; i < t->n_decoders; i++)
		if (t->decoders[i]->pid == pid)
			return t->decoders[i];
	return NULL;
}

/* NULL: its steps are not seen, it is no more, or there is no room. */
static struct decoder *get(struct rp_timeline *t, uint32_t pid)
{
	struct decoder *d = find(t, pid);
	struct session *s;
	int core;

	if (d)
		return d;
	s = rp_tl_session(t, pid);
	if (!s->has_role[RP_ROLE_STEP] || rp_tl_exited(t, pid))
		return NULL;
	core = t->n_decoders < RP_MAX_CORES ? rp_tl_core_new(t, pid, 0) : -1;
	if (core < 0) {
		t->st.limit_cores++;
		return NULL;
	}
	d = rp_tl_alloc(t, sizeof(*d));
	if (!d) {
		t->st.cores[core].gone = true;
		return NULL;
	}
	rp_tl_msgs_core_taken(t, core);
	d->pid = pid;
	d->s = s;
	d->pub = &t->st.cores[core];
	d->pub->calls = d->pub->stats = d->pub->log_stats = true;
	d->pub->deferred = 0; /* a request waits for a slot, and for nothing else */
	d->foreign = d->rests = RP_NONE;
	t->decoders[t->n_decoders++] = d;
	return d;
}

/* ---- gauges ---- */

static void publish(const struct rp_timeline *t, struct decoder *d)
{
	int64_t user = d->s->kv_tokens ? d->s->kv_tokens : t->o.kv_tokens;
	uint64_t size = d->n_ctx, sum = 0;

	if (!d->n_ctx || d->distrust)
		size = user > 0 ? (uint64_t)user : 0;
	d->pub->running = d->strange ? RP_NONE : d->running;
	d->pub->waiting = d->strange ? RP_NONE : d->waiting;
	if (!size || d->strange || d->unnumbered) {
		d->pub->kv_usage = NAN;
		return;
	}
	for (uint32_t i = 0; i < d->n_seqs; i++)
		sum += d->live[i] ? d->kv[i] : 0;
	/* requests of one parent share their prompt's cells */
	d->pub->kv_usage = sum < size ? (double)sum / (double)size : 1;
}

/* n_ctx, then n_ctx_seq or n_batch, neither of which is more: or it is another layout. */
static void take_size(struct decoder *d, uint64_t members)
{
	uint32_t n_ctx = (uint32_t)members, next = (uint32_t)(members >> 32);

	d->n_ctx = n_ctx && n_ctx <= CONTEXT_MAX && n_ctx % CONTEXT_UNIT == 0 && next &&
				   next <= n_ctx && next % CONTEXT_UNIT == 0 ?
			   n_ctx :
			   0;
}

static void stranger(struct decoder *d)
{
	d->strange = true;
	d->absent = 0;
}

static void take_positions(struct decoder *d, const struct rp_ev_hook *e)
{
	for (unsigned i = 3; i < e->n && i < RP_HOOK_VALUES; i++) {
		uint32_t seq = (uint32_t)(e->val[i] >> 32), pos = (uint32_t)e->val[i];

		if (!(e->ok >> i & 1) || seq >= SEQS || pos > INT32_MAX)
			continue;
		d->distrust |= d->n_ctx && pos >= d->n_ctx;
		if (d->live[seq])
			d->kv[seq] = pos + 1;
		else
			stranger(d);
	}
}

/* ---- steps ---- */

/* next: when the one after it began, or RP_NONE */
static void step_end(struct rp_timeline *t, struct decoder *d, int64_t next)
{
	struct rp_step_info *s = &d->step;

	if (!d->open)
		return;
	d->open = false;
	if (next != RP_NONE && !d->idled && !d->lost && next >= s->ts)
		s->step_ns = next - s->ts;
	s->running = d->pub->running;
	s->waiting = d->pub->waiting;
	s->kv_usage = d->pub->kv_usage;
	s->cut |= d->lost;
	for (unsigned i = 0; i < t->n_obs; i++)
		if (t->obs[i].step)
			t->obs[i].step(t->obs[i].ctx, s);
}

static void is_model(struct decoder *d, uint64_t ctx)
{
	if (ctx != d->ctx) {
		d->n_ctx = 0;
		d->distrust = false;
	}
	d->ctx = ctx;
	d->sure = true;
}

/* Is this call a step of the model itself? */
static bool is_step(struct decoder *d, uint64_t ctx, int64_t ts)
{
	if (!d->running && (d->foreign == RP_NONE || ts - d->foreign > FOREIGN_NS))
		return false;
	if (d->fresh) {
		is_model(d, ctx);
		d->fresh = false;
	} else if (!d->sure) {
		d->other |= d->alone && d->alone != ctx;
		d->alone = ctx;
	}
	return d->sure && ctx == d->ctx;
}

void rp_tl_decode(struct rp_timeline *t, const struct rp_ev_hook *e)
{
	struct decoder *d = get(t, e->h.pid);
	int64_t ts = (int64_t)e->h.ts;

	if (d)
		d->rests = RP_NONE;
	if (!d || !(e->ok & 1) || (e->n > 2 && e->ok & 4 && !(uint32_t)e->val[2]) ||
	    !is_step(d, e->val[0], ts))
		return;
	step_end(t, d, ts);
	d->step = (struct rp_step_info){
		.engine = d->s->engine,
		.version = d->s->version,
		.pid = d->pid,
		.seq = ++d->pub->steps,
		.ts = ts,
		.sent = RP_NONE,
		.step_ns = RP_NONE,
		.wall_offset = t->wall_offset,
		.batch = e->n > 2 && e->ok & 4 ? (int64_t)(uint32_t)e->val[2] : 0,
		.computed = RP_NONE,
		.has_stats = true,
		.preempted_known = true,
		.positions = true,
		.prefix_queries = RP_NONE,
		.prefix_hits = RP_NONE,
		.spec_drafts = RP_NONE,
		.spec_draft_tokens = RP_NONE,
		.spec_accepted_tokens = RP_NONE,
	};
	d->open = true;
	d->idled = d->lost = false;
	d->last_slot = d->burst = 0;
	d->pub->last_step = ts;
	if (!d->n_ctx && e->n > 1 && e->ok & 2)
		take_size(d, e->val[1]);
	if (d->step.batch <= FOREIGN_BATCH && d->absent++ == FOREIGN_STEPS)
		d->strange = false;
	take_positions(d, e);
	publish(t, d);
}

/* ---- requests ---- */

void rp_tl_decode_queued(struct rp_timeline *t, struct task *k)
{
	struct decoder *d = get(t, k->pid);

	k->seq = -1;
	k->decoded = d != NULL;
	if (!d)
		return;
	d->waiting++;
	publish(t, d);
}

static bool generates(const struct rp_timeline *t, const struct decoder *d, int64_t ts)
{
	struct rp_map_slot *slot;
	size_t i = 0;

	if (d->foreign != RP_NONE && ts - d->foreign <= FOREIGN_NS)
		return true;
	while ((slot = rp_map_next(&t->slots, &i))) {
		const struct task *k = slot->v;

		if (k->pid == d->pid && k->tokens)
			return true;
	}
	return false;
}

void rp_tl_decode_scheduled(struct rp_timeline *t, struct task *k, int64_t seq)
{
	struct decoder *d = k->decoded ? find(t, k->pid) : NULL;

	if (!d)
		return;
	d->waiting--;
	d->running++;
	k->seq = seq >= 0 && seq < SEQS ? (int32_t)seq : -1;
	if (k->seq >= 0) {
		d->live[k->seq] = true;
		d->kv[k->seq] = 0; /* what its slot kept counts with its first batch */
		if ((uint32_t)k->seq >= d->n_seqs)
			d->n_seqs = (uint32_t)k->seq + 1;
	} else {
		d->unnumbered++;
	}
	publish(t, d);
	d->fresh |= !generates(t, d, k->t_scheduled);
}

void rp_tl_decode_over(struct rp_timeline *t, const struct task *k)
{
	struct decoder *d = k->decoded ? find(t, k->pid) : NULL;

	if (!d)
		return;
	if (k->t_scheduled == RP_NONE) {
		d->waiting--;
		publish(t, d);
		return;
	}
	d->running--;
	d->idled |= !d->running && !d->waiting;
	d->step.finished += d->open;
	if (k->seq >= 0)
		d->live[k->seq] = false;
	else
		d->unnumbered--;
	publish(t, d);
}

void rp_tl_decode_token(struct rp_timeline *t, uint32_t pid, uint64_t key, struct task *k,
			int64_t ts)
{
	struct decoder *d = get(t, pid);
	struct rp_step_info *s;

	if (!d)
		return;
	d->fresh = false;
	d->rests = ts;
	if (!k) {
		d->foreign = ts;
		stranger(d);
		publish(t, d);
	}
	if (!d->sure) {
		if (d->between && d->alone && !d->other)
			is_model(d, d->alone);
		d->between = true;
		d->other = false;
		d->alone = 0;
	}
	if (!d->open) {
		if (k)
			k->no_steps = true;
		return;
	}
	s = &d->step;
	s->tokens++;
	d->pub->tokens++;
	/* tokens of one request come in a row */
	if (!s->requests || d->last_slot != key) {
		s->requests++;
		d->pub->outputs++;
		s->first_tokens += k && !k->tokens;
		d->last_slot = key;
		d->burst = 0;
		if (k)
			k->steps++;
	}
	if ((int64_t)++d->burst > s->max_tokens)
		s->max_tokens = (int64_t)d->burst;
}

/* ---- ends ---- */

void rp_tl_decode_slot_free(struct rp_timeline *t, uint32_t pid, int64_t ts)
{
	struct decoder *d = find(t, pid);

	if (d)
		d->rests = ts;
}

void rp_tl_decode_loss(struct rp_timeline *t)
{
	for (unsigned i = 0; i < t->n_decoders; i++) {
		t->decoders[i]->lost = true;
		t->decoders[i]->fresh = false;
	}
}

void rp_tl_decode_tick(struct rp_timeline *t)
{
	for (unsigned i = 0; i < t->n_decoders; i++) {
		struct decoder *d = t->decoders[i];

		if (!d->running)
			step_end(t, d, RP_NONE);
		/* the next batch follows a token or a release at once, if anybody has a slot */
		if (d->strange && d->rests != RP_NONE && t->now - d->rests > FOREIGN_NS) {
			d->strange = false;
			publish(t, d);
		}
	}
}

void rp_tl_decode_exit(struct rp_timeline *t, uint32_t pid)
{
	for (unsigned i = 0; i < t->n_decoders; i++) {
		struct decoder *d = t->decoders[i];

		if (d->pid != pid)
			continue;
		step_end(t, d, RP_NONE);
		d->pub->gone = true;
		d->pub->running = d->pub->waiting = 0;
		rp_tl_free(t, d, sizeof(*d));
		t->decoders[i] = t->decoders[--t->n_decoders];
		return;
	}
}

void rp_tl_decode_finish(struct rp_timeline *t)
{
	for (unsigned i = 0; i < t->n_decoders; i++)
		step_end(t, t->decoders[i], RP_NONE);
}

void rp_tl_decode_free(struct rp_timeline *t)
{
	while (t->n_decoders)
		rp_tl_free(t, t->decoders[--t->n_decoders], sizeof(struct decoder));
}
