// SPDX-License-Identifier: GPL-2.0-only
/*
 * process.bpf.c - the watched tree as it grows and shrinks, and two iterators
 * that are run on demand: pids of other namespaces, and which Unix sockets are
 * still open.
 */
#include "maps.h"
#include "ring.h"
#include "task.h"
#include "sock.h"

static __always_inline u32 rp_pid_at(struct task_struct *task, u32 level)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	u32 nr = 0;

	if (!pid || level > BPF_CORE_READ(pid, level))
		return 0;
	bpf_core_read(&nr, sizeof(nr), &pid->numbers[level & 31].nr);
	return nr;
}

static __always_inline void rp_emit_proc(u32 what, u32 pid, u32 tid, u32 ppid, u32 gpid)
{
	struct rp_ev_proc *e = rp_reserve(RP_CLASS_PROC, sizeof(*e));

	if (!e)
		return;
	rp_hdr(&e->h, sizeof(*e), RP_EV_PROC, bpf_ktime_get_ns(), pid, tid);
	e->what = what;
	e->ppid = ppid;
	e->gpid = gpid;
	e->pad = 0;
	__builtin_memset(e->comm, 0, sizeof(e->comm));
	bpf_get_current_comm(e->comm, sizeof(e->comm));
	rp_submit(e);
}

static __always_inline int rp_fork(struct task_struct *parent, struct task_struct *child)
{
	u32 ptgid = BPF_CORE_READ(parent, tgid), pid, *ppid;
	u32 tgid = BPF_CORE_READ(child, tgid);

	ppid = rp_watched(ptgid);
	if (!ppid || tgid == ptgid) /* a thread */
		return 0;
	pid = pid_level ? rp_pid_at(child, pid_level) : tgid;
	if (bpf_map_update_elem(&watched, &tgid, &pid, BPF_ANY)) {
		rp_map_full(RP_MAP_PROCS);
		return 0;
	}
	__sync_fetch_and_or(&watch_bits[RP_WATCH_WORD(tgid)], RP_WATCH_BIT(tgid));
	rp_emit_proc(RP_PROC_FORK, pid, tgid, *ppid, tgid);
	return 0;
}

static __always_inline int rp_exec(u32 old_tid)
{
	u64 id = bpf_get_current_pid_tgid(), old = id >> 32 << 32 | old_tid;
	u32 *pid = rp_watched(id >> 32);

	if (!pid)
		return 0;
	/* a thread other than the first one takes over the leader's id */
	if (old != id)
		bpf_map_delete_elem(&threads, &old);
	rp_emit_proc(RP_PROC_EXEC, *pid, id, 0, id >> 32);
	return 0;
}

static __always_inline int rp_task_exit(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 id = bpf_get_current_pid_tgid();
	u32 tgid = id >> 32, tid = id, *pid;

	pid = rp_watched(tgid);
	if (!pid)
		return 0;
	bpf_map_delete_elem(&threads, &id);
	if (task->signal->live.counter)
		return 0;
	rp_emit_proc(RP_PROC_EXIT, *pid, tid, 0, tgid);
	bpf_map_delete_elem(&watched, &tgid);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(rp_proc_fork, struct task_struct *parent, struct task_struct *child)
{
	return rp_fork(parent, child);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(rp_proc_exec, struct task_struct *task, pid_t old_pid)
{
	return rp_exec(old_pid);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(rp_proc_exit, struct task_struct *task)
{
	return rp_task_exit();
}

SEC("raw_tp/sched_process_fork")
int rp_proc_fork_raw(struct bpf_raw_tracepoint_args *ctx)
{
	return rp_fork((struct task_struct *)ctx->args[0], (struct task_struct *)ctx->args[1]);
}

SEC("raw_tp/sched_process_exec")
int rp_proc_exec_raw(struct bpf_raw_tracepoint_args *ctx)
{
	return rp_exec(ctx->args[1]);
}

SEC("raw_tp/sched_process_exit")
int rp_proc_exit_raw(struct bpf_raw_tracepoint_args *ctx)
{
	return rp_task_exit();
}

/* in: pid and pid namespace of the caller; out: its depth, the global pid */
__u32 find_ns = 0;
__u32 find_pid = 0;
__u32 found_tgid = 0;
__u32 found_level = 0;

SEC("iter/task")
int rp_find_pid(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct pid_namespace *ns = NULL;
	struct pid *pid;
	u32 i, level;

	if (!task || found_tgid || task->pid != task->tgid)
		return 0;
	pid = task->thread_pid;
	level = BPF_CORE_READ(pid, level);
	for (i = 0; i < 32; i++) {
		if (i > level)
			break;
		bpf_core_read(&ns, sizeof(ns), &pid->numbers[i].ns);
		if (BPF_CORE_READ(ns, ns.inum) != find_ns)
			continue;
		if (rp_pid_at(task, i) == find_pid) {
			found_tgid = task->tgid;
			found_level = i;
		}
		break;
	}
	return 0;
}

/* Mark the Unix connections that some process still has open. */
__u32 sweep_gen = 0;

SEC("iter/task_file")
int rp_sweep_unix(struct bpf_iter__task_file *ctx)
{
	struct file *file = ctx->file;
	struct rp_conn *c;
	u64 key;

	if (!file || (file->f_inode->i_mode & 0170000) != 0140000)
		return 0;
	key = (u64)BPF_CORE_READ((struct socket *)file->private_data, sk);
	c = bpf_map_lookup_elem(&conns, &key);
	if (c && c->flags & RP_CONN_UNIX && c->ino == file->f_inode->i_ino)
		c->sweep = sweep_gen;
	return 0;
}

char LICENSE[] SEC("license")
= "GPL";
