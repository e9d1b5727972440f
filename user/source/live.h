/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * live.h - the kernel as a source of events: loads the BPF objects, attaches
 * them, drains the ring buffer. Knows nothing of requests.
 * Errors are negative errno; `err` of rp_live_open() gets one line in plain
 * words (what failed, why, what to do), NUL-terminated.
 */
#ifndef REQPROBE_LIVE_H
#define REQPROBE_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reqprobe/event.h"

struct rp_live;

struct rp_live_opts {
	uint32_t ring_bytes;  /* power of two, >= 64 KiB; default 8 MiB */
	uint32_t payload_max; /* bytes of one call copied to user space; default 256 KiB */
	uint32_t max_conns, max_threads, max_procs; /* BPF map sizes; defaults 65536, 16384, 4096 */
	bool stats;	      /* sample BPF run time (bpf_enable_stats); default on */
	uint64_t stats_every; /* a second in so many, ns; default 20 s; 1 s: always, which costs */
	int verbose;
	/* engines that make very many calls of no interest: follow sockets, not
	 * system calls, where the kernel can */
	bool spins;
	bool no_tp_btf;	      /* tests: pretend the kernel refuses tp_btf */
	bool no_uprobe_multi; /* no hooks will come; or, in tests: hold them by perf events */
};
void rp_live_defaults(struct rp_live_opts *o);

/* BPF_TRACE_UPROBE_MULTI, which older headers than those of 6.6 lack */
#define RP_TRACE_UPROBE_MULTI 48

/* Every kernel feature in use. `rp_feature_probe` tests behaviour (loads, attaches
 * and, where possible, sees it fire), never a version number. */
enum rp_feature_id {
	RP_FEAT_BTF, /* /sys/kernel/btf/vmlinux */
	RP_FEAT_BPF, /* bpf() allowed: a trivial program loads */
	RP_FEAT_RINGBUF,
	RP_FEAT_TP_BTF,	 /* typed tracepoints attach and fire */
	RP_FEAT_RAW_TP,	 /* raw tracepoints attach and fire (fallback) */
	RP_FEAT_TRACEFS, /* mounted or mountable; only bpftrace-like tools need it: informative */
	RP_FEAT_UPROBE,	 /* perf uprobe link with cookie attaches and fires */
	RP_FEAT_UPROBE_MULTI,
	RP_FEAT_PREEMPT_KFUNC, /* bpf_preempt_disable() */
	RP_FEAT_TASK_ITER,     /* bpf_iter over tasks: pid namespaces */
	RP_FEAT_BPF_STATS,     /* run time accounting */
	RP_FEAT_SOCK_STATE,    /* inet_sock_set_state, tcp_destroy_sock */
	RP_FEAT_SOCK_LENGTH,   /* sock_send_length, sock_recv_length */
	RP_FEAT_COUNT,
};
enum rp_feature_state { RP_FEAT_YES, RP_FEAT_NO, RP_FEAT_DENIED, RP_FEAT_UNKNOWN };
struct rp_feature {
	const char *name;  /* short */
	const char *since; /* kernel it came with, for the reader only */
	const char *lost;  /* what is lost without it */
	bool required;
	enum rp_feature_state state;
	int err;   /* negative errno of the probe */
	bool used; /* chosen by rp_live_open on this kernel */
	char note[96];
};
/* Fills all RP_FEAT_COUNT entries. Never fails as a whole. */
void rp_feature_probe(struct rp_feature *f);
/*
 * Do uprobe_multi links work, limited to a process, in each of its threads? Before
 * 6.10 they fired in the main thread alone. 0: yes; -errno, -ENODATA: never fired.
 */
int rp_uprobe_multi_probe(void);
/*
 * A link that runs program `prog` at each of n offsets in a file, in process pid.
 * Returns its descriptor. Layout: include/uapi/linux/bpf.h, link_create.uprobe_multi.
 */
int rp_uprobe_multi(int prog, uint32_t pid, const char *path, const uint64_t *offsets,
		    const uint64_t *cookies, uint32_t n);

/*
 * Open, size, load and attach everything that is not tied to a process:
 * syscalls, sockets, process events. Nothing is reported until rp_live_watch().
 * -EPERM: not permitted; -ENOTSUP: the kernel lacks what is needed.
 */
int rp_live_open(const struct rp_live_opts *o, struct rp_live **out, char *err, size_t errlen);

/* Watch process `pid` (thread group, as this process sees it) and, in the
 * kernel, all that it forks from now on. Existing children are the caller's
 * to name. -ESRCH if it is gone. */
int rp_live_watch(struct rp_live *l, uint32_t pid);
/* Global (initial namespace) pid for a pid as we see it; same if we are there. */
int rp_live_global_pid(struct rp_live *l, uint32_t pid, uint32_t *global);

/* Server-side connections to this port are attributed to the tree from their
 * handshake on. Learned by itself for sockets that start to listen later. */
int rp_live_add_listener(struct rp_live *l, uint32_t netns_ino, uint16_t port);

/* The engine's hook table, indexed by hook number. Before any attach. */
int rp_live_set_hooks(struct rp_live *l, const struct rp_hook_spec *specs, size_t n);
struct rp_live_hook {
	uint32_t hook;	 /* its number in the table */
	uint64_t offset; /* of a function's first instruction in the file, bytes */
};

/*
 * Attach entry uprobes in the file `path` (e.g. /proc/PID/map_files/... or
 * /proc/PID/root/...), for process `pid` only, 1 to RP_MAX_HOOKS of them: all or
 * none. Held by a link: gone when this process is gone, however it ends. -ENOTSUP
 * for more than one where the kernel has no uprobe_multi links (6.6): one by one,
 * then. -ENOSPC beyond 4096 links.
 */
int rp_live_attach_hooks(struct rp_live *l, uint32_t pid, const char *path,
			 const struct rp_live_hook *hooks, size_t n);
/* Does it make TCP events? */
bool rp_live_looks(const struct rp_live *l);

/* Close the links of a process that is gone. */
void rp_live_detach_pid(struct rp_live *l, uint32_t pid);
/*
 * Read the messages that a process sends (ZMTP) from its sockets' system calls,
 * where no function that sends them can be hooked. They come as MSG events of
 * `hook`, flagged RP_F_SYNTH, until a hook is attached in that process. Messages
 * of one frame shorter than `shortest` make none. -ENOSPC beyond RP_ZMTP_PROCS
 * processes.
 */
int rp_live_read_zmtp(struct rp_live *l, uint32_t pid, uint32_t hook, uint32_t shortest);

typedef int (*rp_event_fn)(void *ctx, const struct rp_event_hdr *ev);
/*
 * Drain what is in the ring now, in order, then make the user-space events
 * that are due: TICK (every call), CLOCK (when the wall clock stepped by more
 * than 1 ms), LOSS (when a loss counter moved; then one ALIVE for each
 * connection still in the kernel's map and an ALIVE_END). Returns the number
 * of events, or the first negative value fn returned. Never blocks. At most
 * `budget` ring records are drained (0 = all).
 */
int rp_live_drain(struct rp_live *l, rp_event_fn fn, void *ctx, size_t budget);
/* Sleep for at most this long; less when the ring is filling up or a signal comes. */
void rp_live_wait(struct rp_live *l, unsigned ms);
/* Bytes waiting in the ring now. */
size_t rp_live_backlog(const struct rp_live *l);

struct rp_prog_stat {
	const char *name;
	uint64_t run_ns, run_cnt; /* 0 when off; never fall */
};
#define RP_LIVE_PROGS 32 /* at most */
/*
 * Loaded programs. Returns their number; fills at most n. The kernel's accounting
 * costs each run (two clocks, a line of memory), so it is on for 1 s of stats_every, and
 * what it says then stands for all that time: an estimate, unless it is always on.
 */
size_t rp_live_prog_stats(struct rp_live *l, struct rp_prog_stat *s, size_t n);
/* Totals: seen = submitted + lost. */
void rp_live_loss(struct rp_live *l, struct rp_ev_loss *out);
/* Entries per hook, to tell an attached hook that never fires. */
void rp_live_hook_counts(struct rp_live *l, uint64_t *counts, size_t n);
/* Memory this source holds in the kernel and mapped here, bytes (estimate from
 * map sizes). */
size_t rp_live_memory(const struct rp_live *l);

void rp_live_close(struct rp_live *l);

#endif
