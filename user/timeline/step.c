// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* step.c - engine hooks to tasks, and tasks to requests. */
#include <stdlib.h>
#include <string.h>

#include "timeline/internal.h"

void rp_tl_task_free(struct rp_timeline *t, struct task *k)
{
	if (k->has_slot && rp_map_get(&t->slots, k->pid, k->slot) == k)
		rp_map_del(&t->slots, k->pid, k->slot);
	if (rp_map_get(&t->tasks, k->pid, (uint64_t)k->id) == k)
		rp_map_del(&t->tasks, k->pid, (uint64_t)k->id);
	rp_tl_task_name_free(t, k);
	rp_tl_free(t, k, sizeof(*k));
}

/* The engine no longer works on it. */
void rp_tl_task_over(struct rp_timeline *t, struct task *k, int64_t ts)
{
	if (k->t_released != RP_NONE)
		return;
	k->t_released = ts;
	if (k->name) { /* its engine says itself how many wait and run */
		rp_tl_msgs_release(t, k);
		if (k->req)
			k->req->n_open--;
		return;
	}
	if (k->t_scheduled != RP_NONE)
		t->st.running--;
	else
		t->st.waiting--;
	rp_tl_decode_over(t, k);
	if (k->has_slot && rp_map_get(&t->slots, k->pid, k->slot) == k)
		rp_map_del(&t->slots, k->pid, k->slot);
	k->has_slot = false;
	if (k->req)
		k->req->n_open--;
	else
		rp_tl_task_free(t, k);
}

/* Its request has its record. A task still at work lives on until it is over. */
void rp_tl_tasks_detach(struct rp_timeline *t, struct request *q)
{
	struct task *k = q->tasks, *next;

	for (; k; k = next) {
		next = k->next_of_req;
		k->next_of_req = NULL;
		if (k->retired) {
			rp_tl_task_over(t, k, t->now);
			k->req = NULL;
			rp_tl_task_free(t, k);
			continue;
		}
		if (k->name) {
			rp_tl_task_over(t, k, t->now);
			k->req = NULL;
			k->dead = true;
			k->t_dead = t->now;
			continue;
		}
		k->req = NULL;
		if (k->t_released != RP_NONE)
			rp_tl_task_free(t, k);
		else if (!q->s->has_role[RP_ROLE_RELEASED] || k->t_scheduled == RP_NONE ||
			 (q->r.end == RP_END_ERROR && !k->tokens))
			rp_tl_task_over(
				t, k,
				t->now); /* nobody will tell: a refused one is never released */
	}
	q->tasks = NULL;
}

/* The request this thread is serving: the newest whose last byte it has read. */
static struct request *serving(struct rp_timeline *t, uint32_t tid)
{
	struct conn *c = rp_map_get(&t->threads, tid, 0);
	struct request *q, *best = NULL;

	if (!c || !c->h)
		return NULL;
	for (q = c->h->head; q; q = q->next)
		if (q->rx_done && !q->resp_seen) {
			best = q;
			break;
		}
	return best && best->recorded ? best : NULL;
}

static void queued(struct rp_timeline *t, const struct rp_ev_hook *e)
{
	struct request *q = serving(t, e->h.tid);

	if (!q)
		return; /* a task of the engine's own, or of a path that is no inference */
	for (unsigned i = 0; i < e->n && i < RP_HOOK_VALUES; i++) {
		int64_t id = (int64_t)e->val[i];
		struct task *k;

		if (!(e->ok >> i & 1) || id < 0)
			continue;
		k = rp_map_get(&t->tasks, e->h.pid, (uint64_t)id);
		if (k && k->req == q) {
			/* Registered before, posted now: what it waits from is the post. */
			for (k = q->tasks; k; k = k->next_of_req)
				if (k->t_scheduled == RP_NONE)
					k->t_queued = (int64_t)e->h.ts;
			continue;
		}
		if (k)
			rp_tl_task_over(t, k, (int64_t)e->h.ts);
		if (t->tasks.len >= t->o.max_tasks) {
			t->st.limit_tasks++;
			q->r.flags |= RP_FLAG_LIMIT;
			continue;
		}
		k = rp_tl_alloc(t, sizeof(*k));
		if (!k) {
			q->r.flags |= RP_FLAG_LIMIT;
			continue;
		}
		k->pid = e->h.pid;
		k->id = id;
		k->t_queued = (int64_t)e->h.ts;
		k->t_scheduled = k->t_first = k->t_last = k->t_released = RP_NONE;
		k->prev_token = RP_NONE;
		if (rp_map_put(&t->tasks, k->pid, (uint64_t)id, k)) {
			rp_tl_free(t, k, sizeof(*k));
			continue;
		}
		k->req = q;
		/* by id, which is the order of the choices: sets are told in any order */
		struct task **p = &q->tasks;

		while (*p && (*p)->id < id)
			p = &(*p)->next_of_req;
		k->next_of_req = *p;
		*p = k;
		q->n_tasks++;
		q->n_open++;
		t->st.waiting++;
		rp_tl_decode_queued(t, k);
	}
	if (e->h.flags & RP_F_CUT) {
		q->tasks_cut = true;
		q->r.flags |= RP_FLAG_LIMIT;
	}
	uint32_t choice = 0;

	for (struct task *k = q->tasks; k; k = k->next_of_req)
		k->choice = choice++;
}

static void scheduled(struct rp_timeline *t, const struct rp_ev_hook *e)
{
	struct task *k, *old = rp_map_get(&t->slots, e->h.pid, e->val[0]);

	if ((e->ok & 3) != 3)
		return;
	k = rp_map_get(&t->tasks, e->h.pid, (uint64_t)(int64_t)e->val[1]);
	if (old && old != k)
		rp_tl_task_over(t, old, (int64_t)e->h.ts); /* its end was not seen */
	if (!k || k->t_released != RP_NONE)
		return;
	if (k->t_scheduled == RP_NONE) {
		k->t_scheduled = (int64_t)e->h.ts;
		t->st.waiting--;
		t->st.running++;
		rp_tl_decode_scheduled(t, k,
				       e->n > 2 && e->ok & 4 ? (int64_t)(int32_t)e->val[2] : -1);
	}
	k->slot = e->val[0];
	k->has_slot = !rp_map_put(&t->slots, k->pid, k->slot, k);
}

void rp_tl_count_tokens(struct rp_timeline *t, uint64_t n)
{
	uint64_t again = n < t->tokens_owed ? n : t->tokens_owed;

	t->tokens_owed -= again;
	t->st.tokens_completion += n - again;
}

static void token(struct rp_timeline *t, struct task *k, int64_t ts)
{
	struct request *q = k->req;

	k->tokens++;
	if (k->t_first == RP_NONE)
		k->t_first = ts;
	k->t_last = ts;
	k->no_last = false;
	if (q) {
		rp_tl_count_tokens(t, 1);
		if (k->prev_token != RP_NONE)
			rp_tl_gap(t, q, false, ts - k->prev_token, 1, ts - k->prev_token);
		rp_tl_mark(t, q, &q->eng, ts, 1, k->choice);
		rp_tl_tokens(t, q, true, ts, 1, k->choice);
	}
	k->prev_token = ts;
}

void rp_tl_tasks_release(struct rp_timeline *t, struct request *q)
{
	for (struct task *k = q->tasks, *next; k; k = next) {
		next = k->next_of_req;
		k->next_of_req = NULL;
		k->req = NULL;
		k->prev_token = RP_NONE;
		t->tokens_owed += k->tokens; /* most are soon another request's */
		if (k->retired)
			rp_tl_task_free(t, k);
	}
	q->tasks = NULL;
	q->n_tasks = q->n_open = 0;
}

void rp_tl_task_lost(struct task *k)
{
	k->prev_token = RP_NONE;
	k->marks.n = 0; /* a gap across a loss is none */
	k->lost = k->no_last = true;
	k->no_first |= k->t_first == RP_NONE;
	k->token_msg = 0; /* nor is a step in which it was not seen one without it */
	if (k->req)
		k->req->r.flags |= RP_FLAG_LOST_EVENTS;
}

void rp_tl_hook_loss(struct rp_timeline *t)
{
	struct rp_map_slot *slot;
	size_t i = 0;

	while ((slot = rp_map_next(&t->tasks, &i)))
		rp_tl_task_lost(slot->v);
	rp_tl_msgs_loss(t);
	rp_tl_decode_loss(t);
	for (i = 0; (slot = rp_map_next(&t->conns, &i));) {
		struct conn *c = slot->v;

		for (struct request *q = c->h ? c->h->head : NULL; q; q = q->next)
			if (q->s->hook_reason == RP_HOOKS_OK)
				q->r.flags |= RP_FLAG_LOST_EVENTS;
	}
}

/*
 * A hook entered by one thread counts without holes. Entries from several
 * threads may change places on their way into the ring, by a few.
 */
void rp_tl_hook_seq(struct rp_timeline *t, unsigned h, uint32_t seq, uint32_t tid)
{
	int32_t jump = (int32_t)(seq - t->hook_seq[h]);

	if (t->hook_seen[h] && t->hook_tid[h] != tid)
		t->hook_multi[h] = true;
	if (t->hook_seen[h] && jump > (t->hook_multi[h] ? 64 : 1))
		rp_tl_hook_loss(t);
	if (!t->hook_seen[h] || jump > 0)
		t->hook_seq[h] = seq;
	t->hook_seen[h] = true;
	t->hook_tid[h] = tid;
}

void rp_tl_hook(struct rp_timeline *t, const struct rp_ev_hook *e)
{
	struct session *s = rp_tl_session(t, e->h.pid);
	int64_t ts = (int64_t)e->h.ts;
	struct task *k;

	if (e->hook >= RP_MAX_HOOKS)
		return;
	rp_tl_hook_seq(t, e->hook, e->seq, e->h.tid);
	t->st.hook_hits[e->hook]++;
	s->hits++;

	switch (s->roles[e->hook]) {
	case RP_ROLE_QUEUED:
		queued(t, e);
		break;
	case RP_ROLE_SCHEDULED:
		scheduled(t, e);
		break;
	case RP_ROLE_TOKEN:
	case RP_ROLE_FINAL:
	case RP_ROLE_RELEASED:
		k = e->ok & 1 ? rp_map_get(&t->slots, e->h.pid, e->val[0]) : NULL;
		if (s->roles[e->hook] == RP_ROLE_TOKEN && e->ok & 1)
			rp_tl_decode_token(t, e->h.pid, e->val[0], k, ts);
		else if (s->roles[e->hook] != RP_ROLE_TOKEN)
			rp_tl_decode_slot_free(t, e->h.pid, ts);
		if (!k)
			break;
		if (s->roles[e->hook] == RP_ROLE_TOKEN) {
			token(t, k, ts);
		} else if (s->roles[e->hook] == RP_ROLE_FINAL) {
			if (!s->has_role[RP_ROLE_RELEASED])
				rp_tl_task_over(t, k, ts);
		} else {
			struct request *q = k->req;

			rp_tl_task_over(t, k, ts);
			if (q && !q->conn)
				rp_tl_pending(t, false);
		}
		break;
	case RP_ROLE_STEP:
		rp_tl_decode(t, e);
		break;
	default:
		break;
	}
}

void rp_tl_proc_exit(struct rp_timeline *t, uint32_t pid)
{
	struct rp_map_slot *slot;
	struct task **gone;
	size_t i = 0, n = 0;

	gone = calloc(t->tasks.len + 1, sizeof(struct task *));
	if (!gone)
		return;
	while ((slot = rp_map_next(&t->tasks, &i))) {
		struct task *k = slot->v;

		if (k->pid == pid || (k->name && k->core_pid == pid))
			gone[n++] = k;
	}
	for (i = 0; i < n; i++)
		rp_tl_task_over(t, gone[i], t->now);
	free(gone);
	rp_tl_decode_exit(t, pid);
	rp_tl_msgs_exit(t, pid);
}

void rp_tl_tasks_free(struct rp_timeline *t)
{
	struct rp_map_slot *slot;
	size_t i = 0;

	while ((slot = rp_map_next(&t->tasks, &i))) {
		struct task *k = slot->v;

		free(k->marks.m);
		free(k->name);
		free(k);
	}
}
