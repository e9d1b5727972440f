/* SPDX-License-Identifier: GPL-2.0-only */
/* task.h - which tasks are watched, and under which pid. */
#ifndef RP_TASK_H
#define RP_TASK_H

#include "maps.h"
#include "ring.h"

static __always_inline bool rp_maybe_watched(u32 tgid)
{
	return watch_bits[RP_WATCH_WORD(tgid)] & RP_WATCH_BIT(tgid);
}

/* The pid user space knows the process by; NULL = not watched. */
static __always_inline u32 *rp_watched(u32 tgid)
{
	if (!rp_maybe_watched(tgid))
		return NULL;
	return bpf_map_lookup_elem(&watched, &tgid);
}

struct rp_who {
	u32 tgid, tid, pid;
	struct rp_thread *thread; /* NULL when the map is full */
};

/* Not yet said: whether it is watched, and its pid where the engine has its own. */
static __always_inline u64 rp_who_ids(struct rp_who *w)
{
	u64 id = bpf_get_current_pid_tgid();

	w->tgid = id >> 32;
	w->tid = id;
	w->pid = w->tgid;
	w->thread = NULL;
	return id;
}

/* One lookup for a thread seen before, where pids are global ones. */
static __always_inline bool rp_who(struct rp_who *w)
{
	u64 id = rp_who_ids(w);
	struct rp_thread fresh = {};
	u32 *pid;

	if (!rp_maybe_watched(w->tgid))
		return false;
	w->thread = bpf_map_lookup_elem(&threads, &id);
	if (w->thread && !pid_level)
		return true;
	pid = bpf_map_lookup_elem(&watched, &w->tgid);
	if (!pid)
		return false;
	w->pid = *pid;
	if (w->thread)
		return true;
	if (bpf_map_update_elem(&threads, &id, &fresh, BPF_ANY))
		rp_map_full(RP_MAP_THREADS);
	w->thread = bpf_map_lookup_elem(&threads, &id);
	return true;
}

#endif
