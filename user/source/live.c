// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* live.c - see live.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "source/live.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "lib/clock.h"
#include "lib/map.h"
#include "protocol/zmtp.h"
#include "reqprobe/bpf_shared.h"
#include "reqprobe.skel.h"

#define RP_MAX_LINKS 4096
#define RP_CLOCK_STEP 1000000LL	      /* ns */
#define RP_WALK_REST 20		      /* times as long as the last walk took */
#define RP_SWEEP_EVERY 10000000000ULL /* ns */
#define RP_INIT_PID_NS 0xEFFFFFFCU

struct hook_link {
	uint32_t pid;
	int fd;
};

/* A LOSS report in preparation: see report_loss(). */
struct loss_report {
	bool pending;
	uint64_t pos;	     /* to be made when the consumer gets here */
	uint64_t first_new;  /* ids from here on were born after the walk */
	uint64_t not_before; /* walks of a large map may not eat a CPU */
	struct rp_ev_loss loss;
	struct rp_ev_conn_close *alive;
	size_t n, room;
};

/* Frames in fragments, one per thread at work: joined before anybody sees them. */
#define RP_JOINS 32
struct join {
	struct rp_ev_msg *m; /* NULL: free */
	size_t room;
	uint64_t age;
};

/* Run time, sampled: see rp_live_prog_stats() */
#define RP_ACCT_ON 1000000000ULL
struct acct {
	uint64_t ns, cnt;	  /* the kernel's figures when it was switched on */
	uint64_t sum_ns, sum_cnt; /* up to the end of the last sample */
};

struct rp_live {
	struct rp_live_opts o;
	struct reqprobe_bpf *skel;
	struct bpf_link *links[9];
	size_t nlinks;
	bool raw;
	bool socks; /* socket tracepoints instead of system calls */
	int stats_fd;
	pthread_mutex_t acct_lock;
	struct acct accts[RP_LIVE_PROGS];
	uint64_t acct_on, acct_to; /* switched on then; runs up to then are in the sums */
	int look_fd;		   /* program rp_tcp_look, -1 = not on this kernel */
	uint32_t ns_ino;	   /* our pid namespace; 0 = the initial one */
	uint32_t ns_level;	   /* and its depth */
	uint32_t tgid;		   /* this process, as the kernel knows it */

	/* ring buffer, mapped */
	size_t page, ring_size;
	int epoll;
	unsigned long *cons;
	const unsigned long *prod;
	const uint8_t *data;

	struct hook_link *hooks;
	size_t nhooks, hooks_room;
	bool multi;	 /* hooks are uprobe_multi links, not perf events */
	int uprobe_type; /* of perf events; -1 = not looked up yet */

	bool clock_sent;
	int64_t clock_last, clock_told;
	struct rp_ev_loss told; /* the last LOSS reported */
	struct loss_report report;

	bool sweep_due;
	uint64_t sweep_at;
	uint32_t sweep_gen;

	struct join joins[RP_JOINS];
	uint64_t joined;

	/* writes that wait for their acknowledgement */
	struct rp_map waits; /* connection -> struct wait */
	uint64_t looked_at;

	/* messages read from sockets */
	struct rp_map zprocs; /* pid -> struct zproc */
	struct rp_map zconns; /* connection -> struct zconn */
};

/* Looked at when nothing was written for a while, until all is acknowledged. */
#define RP_WAITS 4096
#define RP_WAIT_QUIET 20000000ULL /* ns since the last write, and between looks */
#define RP_WAIT_LOOKS 256	  /* at most, in one drain */
#define RP_WAIT_END 120000000000ULL
struct wait {
	uint64_t conn, since, next;
	uint32_t pid;
};

struct zproc {
	uint32_t pid, tgid;
	uint32_t hook, shortest;
};

struct zconn {
	struct rp_zmtp z;
	uint64_t conn, off;
	uint32_t hook, shortest;
	bool more;		 /* the last frame's message goes on */
	uint64_t frames, misses; /* read; starts that were none, with nothing lost */
	/* of the write at hand */
	const struct rp_ev_data *d;
	rp_event_fn fn;
	void *ctx;
	int err;
};
#define RP_ZCONNS 512
/* So many misses, and one more for so many frames, before it is taken for something else. */
#define RP_ZMTP_PATIENCE 16
#define RP_ZMTP_FRAMES 64

static int g_verbose;

static int rp_libbpf_print(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	if (g_verbose < 1 || (level == LIBBPF_DEBUG && g_verbose < 3))
		return 0;
	return vfprintf(stderr, fmt, ap);
}

__attribute__((format(printf, 3, 4))) static void rp_say(char *err, size_t len, const char *fmt,
							 ...)
{
	va_list ap;

	if (!err || !len)
		return;
	va_start(ap, fmt);
	vsnprintf(err, len, fmt, ap);
	va_end(ap);
}

void rp_live_defaults(struct rp_live_opts *o)
{
	memset(o, 0, sizeof(*o));
	o->ring_bytes = 8 << 20;
	o->payload_max = 256 << 10;
	o->max_conns = 65536;
	o->max_threads = 16384;
	o->max_procs = 4096;
	o->stats = true;
	o->stats_every = 20000000000ULL;
}

/* ---- open ---- */

static int rp_check_opts(const struct rp_live_opts *o, char *err, size_t len)
{
	if (o->ring_bytes < 65536 || (o->ring_bytes & (o->ring_bytes - 1))) {
		rp_say(err, len, "ring size %u is not a power of two of at least 65536",
		       o->ring_bytes);
		return -EINVAL;
	}
	if (!o->max_conns || !o->max_threads || !o->max_procs) {
		rp_say(err, len, "map sizes must not be 0");
		return -EINVAL;
	}
	return 0;
}

/* Old kernels charge maps against RLIMIT_MEMLOCK; new ones don't look. */
static void rp_raise_memlock(void)
{
	struct rlimit r = { RLIM_INFINITY, RLIM_INFINITY };

	setrlimit(RLIMIT_MEMLOCK, &r);
}

/* What the kernel must have at all, so that a refusal names it. */
static int rp_check_kernel(char *err, size_t len)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts);
	int fd, e;

	fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, NULL, 4, 4, 1, &opts);
	if (fd < 0) {
		e = -errno;
		if (e == -EPERM || e == -EACCES) {
			rp_say(err, len,
			       "not permitted to use bpf(2): run as root, or with "
			       "CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE");
			return -EPERM;
		}
		rp_say(err, len, "this kernel has no usable bpf(2): %s", strerror(-e));
		return e == -ENOMEM ? e : -ENOTSUP;
	}
	close(fd);
	fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, NULL, 0, 0, 65536, &opts);
	if (fd < 0) {
		e = -errno;
		rp_say(err, len, "this kernel has no BPF ring buffer (Linux 5.8 has): %s",
		       strerror(-e));
		return e == -EPERM ? e : -ENOTSUP;
	}
	close(fd);
	if (access("/sys/kernel/btf/vmlinux", R_OK)) {
		rp_say(err, len,
		       "this kernel does not describe its types "
		       "(/sys/kernel/btf/vmlinux: %s): it needs CONFIG_DEBUG_INFO_BTF",
		       strerror(errno));
		return -ENOTSUP;
	}
	return 0;
}

/* The seven programs that are attached for good, in both variants. */
static void rp_pairs(struct reqprobe_bpf *s, struct bpf_program *btf[7], struct bpf_program *raw[7])
{
	btf[0] = s->progs.rp_sys_exit;
	raw[0] = s->progs.rp_sys_exit_raw;
	btf[1] = s->progs.rp_sys_enter;
	raw[1] = s->progs.rp_sys_enter_raw;
	btf[2] = s->progs.rp_sock_state;
	raw[2] = s->progs.rp_sock_state_raw;
	btf[3] = s->progs.rp_sock_destroy;
	raw[3] = s->progs.rp_sock_destroy_raw;
	btf[4] = s->progs.rp_proc_fork;
	raw[4] = s->progs.rp_proc_fork_raw;
	btf[5] = s->progs.rp_proc_exec;
	raw[5] = s->progs.rp_proc_exec_raw;
	btf[6] = s->progs.rp_proc_exit;
	raw[6] = s->progs.rp_proc_exit_raw;
}

/* What stands for the first two of them; the last two are welcome, not needed. */
static void rp_sock_programs(struct reqprobe_bpf *s, struct bpf_program *p[4])
{
	p[0] = s->progs.rp_sock_recv;
	p[1] = s->progs.rp_sock_send;
	p[2] = s->progs.rp_sock_entry;
	p[3] = s->progs.rp_uring_create;
}

static void rp_detach(struct rp_live *l)
{
	while (l->nlinks)
		bpf_link__destroy(l->links[--l->nlinks]);
}

static void rp_unload(struct rp_live *l)
{
	rp_detach(l);
	reqprobe_bpf__destroy(l->skel);
	l->skel = NULL;
}

/* What is welcome, not needed: each is left out in turn where it does not load. */
enum { RP_OPT_SWEEP = 1, RP_OPT_LOOK = 2 };

static void rp_want_socks(struct rp_live *l, struct bpf_program *const p[4])
{
	struct btf *kernel = l->socks ? btf__load_vmlinux_btf() : NULL;
	char name[64];

	for (int i = 0; i < 4; i++) {
		bool known;

		snprintf(name, sizeof(name), "btf_trace_%s",
			 strchr(bpf_program__section_name(p[i]), '/') + 1);
		known = kernel && btf__find_by_name_kind(kernel, name, BTF_KIND_TYPEDEF) > 0;

		bpf_program__set_autoload(p[i], l->socks && (i < 2 || known));
	}
	btf__free(kernel);
}

static int rp_load(struct rp_live *l, bool raw, unsigned extras)
{
	struct bpf_program *btf_progs[7], *raw_progs[7], *sock_progs[4];
	struct reqprobe_bpf *s;
	int i, err;

	s = reqprobe_bpf__open();
	if (!s)
		return -errno;
	l->skel = s;
	l->raw = raw;
	bpf_map__set_max_entries(s->maps.ring, l->o.ring_bytes);
	bpf_map__set_max_entries(s->maps.conns, l->o.max_conns);
	bpf_map__set_max_entries(s->maps.threads, l->o.max_threads);
	bpf_map__set_max_entries(s->maps.watched, l->o.max_procs);
	s->rodata->payload_max = l->o.payload_max;
	s->rodata->pid_level = l->ns_level;
	rp_pairs(s, btf_progs, raw_progs);
	for (i = 0; i < 7; i++) {
		bpf_program__set_autoload(btf_progs[i], !raw);
		bpf_program__set_autoload(raw_progs[i], raw);
	}
	rp_sock_programs(s, sock_progs);
	rp_want_socks(l, sock_progs);
	for (i = 0; i < 2 && l->socks; i++)
		bpf_program__set_autoload(btf_progs[i], false);
	bpf_program__set_autoload(s->progs.rp_find_pid, false);
	bpf_program__set_autoload(s->progs.rp_sweep_unix, extras & RP_OPT_SWEEP);
	bpf_program__set_autoload(s->progs.rp_tcp_look, extras & RP_OPT_LOOK);
	bpf_map__set_max_entries(s->maps.conn_keys, l->o.max_conns / 4 + 1);
	if (l->multi)
		bpf_program__set_expected_attach_type(s->progs.rp_uprobe, RP_TRACE_UPROBE_MULTI);
	err = reqprobe_bpf__load(s);
	if (err)
		rp_unload(l);
	return err;
}

static int rp_attach_one(struct rp_live *l, const struct bpf_program *p)
{
	struct bpf_link *link = bpf_program__attach(p);

	if (!link)
		return -errno;
	l->links[l->nlinks++] = link;
	return 0;
}

/* Attached is not proof: see both ends of one call of ours. */
static int rp_selftest(struct rp_live *l)
{
	uint32_t seen;
	int pair[2];
	char c = 0;

	l->skel->bss->selftest_tgid = l->tgid;
	/* the programs of sockets leave others alone at once; it may stay */
	__atomic_fetch_or(&l->skel->bss->watch_bits[RP_WATCH_WORD(l->tgid)], RP_WATCH_BIT(l->tgid),
			  __ATOMIC_SEQ_CST);
	if (!l->socks) {
		shutdown(-1, SHUT_RD);
	} else {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
			return -errno;
		if (write(pair[0], &c, 1) == 1 && read(pair[1], &c, 1) != 1)
			errno = 0; /* the programs tell */
		close(pair[0]);
		close(pair[1]);
	}
	seen = __atomic_load_n(&l->skel->bss->selftest_seen, __ATOMIC_ACQUIRE);
	l->skel->bss->selftest_tgid = 0;
	return seen == (RP_SELFTEST_ENTER | RP_SELFTEST_EXIT) ? 0 : -ENOTSUP;
}

static int rp_attach(struct rp_live *l)
{
	struct bpf_program *btf_progs[7], *raw_progs[7], *sock_progs[4];
	int i, err = 0;

	rp_pairs(l->skel, btf_progs, raw_progs);
	rp_sock_programs(l->skel, sock_progs);
	for (i = 0; i < 4 && l->socks && !err; i++)
		if (bpf_program__autoload(sock_progs[i]))
			err = rp_attach_one(l, sock_progs[i]);
	for (i = l->socks ? 2 : 0; i < 7 && !err; i++)
		err = rp_attach_one(l, l->raw ? raw_progs[i] : btf_progs[i]);
	return err ? err : rp_selftest(l);
}

static int rp_map_ring(struct rp_live *l)
{
	int fd = bpf_map__fd(l->skel->maps.ring);
	struct epoll_event in = { .events = EPOLLIN | EPOLLET };
	void *p;

	l->page = (size_t)sysconf(_SC_PAGESIZE);
	l->ring_size = l->o.ring_bytes;
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll < 0 || epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &in))
		return -errno;
	p = mmap(NULL, l->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	l->cons = p;
	/* the data area appears twice, so that no record is ever split */
	p = mmap(NULL, l->page + 2 * l->ring_size, PROT_READ, MAP_SHARED, fd, (off_t)l->page);
	if (p == MAP_FAILED)
		return -errno;
	l->prod = p;
	l->data = (const uint8_t *)p + l->page;
	return 0;
}

/*
 * Run the task iterator for one pid of our namespace. It is an object of its
 * own each time, small and short-lived, so that pid_level can still be set
 * before the main one is loaded.
 */
static int rp_find_pid(struct rp_live *l, uint32_t pid, uint32_t *tgid, uint32_t *level)
{
	struct reqprobe_bpf *s = reqprobe_bpf__open();
	struct bpf_program *p;
	struct bpf_map *m;
	struct bpf_link *link;
	char buf[64];
	int fd, err;

	if (!s)
		return -errno;
	bpf_object__for_each_program(p, s->obj)
		bpf_program__set_autoload(p, p == s->progs.rp_find_pid);
	bpf_object__for_each_map(m, s->obj)
		if (!bpf_map__is_internal(m))
			bpf_map__set_max_entries(m,
						 m == s->maps.ring ? (uint32_t)getpagesize() : 1);
	s->bss->find_ns = l->ns_ino;
	s->bss->find_pid = pid;
	err = reqprobe_bpf__load(s);
	if (err)
		goto out;
	link = bpf_program__attach_iter(s->progs.rp_find_pid, NULL);
	if (!link) {
		err = -errno;
		goto out;
	}
	fd = bpf_iter_create(bpf_link__fd(link));
	if (fd < 0) {
		err = -errno;
	} else {
		while (read(fd, buf, sizeof(buf)) > 0)
			;
		close(fd);
		*tgid = s->bss->found_tgid;
		*level = s->bss->found_level;
		err = *tgid ? 0 : -ESRCH;
	}
	bpf_link__destroy(link);
out:
	reqprobe_bpf__destroy(s);
	return err;
}

/* Where we are: pids are translated only outside the initial namespace. */
static int rp_find_ns(struct rp_live *l)
{
	struct stat st;

	if (stat("/proc/self/ns/pid", &st))
		return -errno;
	l->tgid = (uint32_t)getpid();
	if (st.st_ino == RP_INIT_PID_NS)
		return 0;
	l->ns_ino = (uint32_t)st.st_ino;
	return rp_find_pid(l, (uint32_t)getpid(), &l->tgid, &l->ns_level);
}

static int rp_start(struct rp_live *l, bool raw)
{
	static const unsigned extras[] = { RP_OPT_SWEEP | RP_OPT_LOOK, RP_OPT_SWEEP, RP_OPT_LOOK,
					   0 };
	int err = -1;

	for (size_t i = 0; err && i < sizeof(extras) / sizeof(extras[0]); i++)
		err = rp_load(l, raw, extras[i]);
	if (err)
		return err;
	l->look_fd = bpf_program__fd(l->skel->progs.rp_tcp_look);
	err = rp_attach(l);
	if (err)
		rp_unload(l);
	return err;
}

int rp_live_open(const struct rp_live_opts *o, struct rp_live **out, char *errbuf, size_t errlen)
{
	struct rp_live *l;
	int err;

	if (errbuf && errlen)
		errbuf[0] = 0;
	*out = NULL;
	err = rp_check_opts(o, errbuf, errlen);
	if (err)
		return err;
	g_verbose = o->verbose;
	libbpf_set_print(rp_libbpf_print);
	rp_raise_memlock();
	err = rp_check_kernel(errbuf, errlen);
	if (err)
		return err;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->o = *o;
	if (l->o.payload_max > RP_PAYLOAD_LIMIT)
		l->o.payload_max = RP_PAYLOAD_LIMIT;
	l->stats_fd = l->look_fd = -1;
	pthread_mutex_init(&l->acct_lock, NULL);
	l->uprobe_type = -1;
	err = rp_find_ns(l);
	if (err) {
		rp_say(errbuf, errlen,
		       "cannot tell which pid namespace this is: %s (it takes /proc, "
		       "and BPF task iterators when it is not the first one)",
		       strerror(-err));
		goto fail;
	}
	l->multi = !o->no_uprobe_multi && !rp_uprobe_multi_probe();
	l->socks = o->spins && !o->no_tp_btf;
	err = o->no_tp_btf ? -ENOTSUP : rp_start(l, false);
	if (err && l->socks) { /* before 6.3 */
		l->socks = false;
		err = rp_start(l, false);
	}
	if (err)
		err = rp_start(l, true);
	if (err) {
		rp_say(errbuf, errlen,
		       err == -EPERM || err == -EACCES ?
			       "the kernel refused the BPF programs (%s): run as root, or with CAP_BPF "
			       "and CAP_PERFMON" :
			       "the BPF programs could not be loaded and attached (%s): see reqprobe doctor",
		       strerror(-err));
		err = err == -EPERM || err == -EACCES ? -EPERM :
		      err == -ENOMEM		      ? -ENOMEM :
							-ENOTSUP;
		goto fail;
	}
	err = rp_map_ring(l);
	if (err) {
		rp_say(errbuf, errlen, "the ring buffer could not be mapped: %s", strerror(-err));
		goto fail;
	}
	if (o->stats) {
		l->stats_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
		l->acct_on = l->acct_to = rp_now_ns();
	}
	*out = l;
	return 0;
fail:
	rp_live_close(l);
	return err;
}

static void rp_maps_close(struct rp_live *l)
{
	struct rp_map_slot *s;
	size_t i = 0;

	while ((s = rp_map_next(&l->zprocs, &i)))
		free(s->v);
	for (i = 0; (s = rp_map_next(&l->zconns, &i));) {
		rp_zmtp_free(&((struct zconn *)s->v)->z);
		free(s->v);
	}
	for (i = 0; (s = rp_map_next(&l->waits, &i));)
		free(s->v);
	rp_map_free(&l->waits);
	rp_map_free(&l->zprocs);
	rp_map_free(&l->zconns);
}

void rp_live_close(struct rp_live *l)
{
	if (!l)
		return;
	while (l->nhooks)
		close(l->hooks[--l->nhooks].fd);
	free(l->hooks);
	free(l->report.alive);
	for (size_t i = 0; i < RP_JOINS; i++)
		free(l->joins[i].m);
	rp_maps_close(l);
	if (l->cons)
		munmap(l->cons, l->page);
	if (l->prod)
		munmap((void *)l->prod, l->page + 2 * l->ring_size);
	if (l->stats_fd >= 0)
		close(l->stats_fd);
	if (l->epoll > 0)
		close(l->epoll);
	rp_unload(l);
	pthread_mutex_destroy(&l->acct_lock);
	free(l);
}

/* ---- what to watch ---- */

int rp_live_global_pid(struct rp_live *l, uint32_t pid, uint32_t *global)
{
	uint32_t level;

	if (!l->ns_ino) {
		*global = pid;
		return 0;
	}
	return rp_find_pid(l, pid, global, &level);
}

static bool rp_alive(uint32_t pid)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%u", pid);
	return !access(path, F_OK);
}

int rp_live_watch(struct rp_live *l, uint32_t pid)
{
	uint32_t tgid;
	int err;

	if (!pid || !rp_alive(pid))
		return -ESRCH;
	err = rp_live_global_pid(l, pid, &tgid);
	if (err)
		return err;
	__atomic_fetch_or(&l->skel->bss->watch_bits[RP_WATCH_WORD(tgid)], RP_WATCH_BIT(tgid),
			  __ATOMIC_SEQ_CST);
	if (bpf_map_update_elem(bpf_map__fd(l->skel->maps.watched), &tgid, &pid, BPF_ANY)) {
		err = -errno;
		if (err == -E2BIG)
			__atomic_fetch_add(&l->skel->bss->stats[0].map_full[RP_MAP_PROCS], 1,
					   __ATOMIC_RELAXED);
		return err;
	}
	/* its exit may have come between the look and the entry */
	if (!rp_alive(pid)) {
		bpf_map_delete_elem(bpf_map__fd(l->skel->maps.watched), &tgid);
		return -ESRCH;
	}
	return 0;
}

int rp_live_add_listener(struct rp_live *l, uint32_t netns_ino, uint16_t port)
{
	struct rp_listener_key key = { .netns = netns_ino, .port = port };
	struct rp_listener_val val = { .keep = 1 };
	int fd = bpf_map__fd(l->skel->maps.listeners);

	if (!port)
		return 0;
	/* one that was learned keeps its count */
	if (!bpf_map_lookup_elem(fd, &key, &val))
		val.keep = 1;
	if (!bpf_map_update_elem(fd, &key, &val, BPF_ANY))
		return 0;
	if (errno == E2BIG)
		__atomic_fetch_add(&l->skel->bss->stats[0].map_full[RP_MAP_LISTENERS], 1,
				   __ATOMIC_RELAXED);
	return -errno;
}

int rp_live_set_hooks(struct rp_live *l, const struct rp_hook_spec *specs, size_t n)
{
	int fd = bpf_map__fd(l->skel->maps.hooks);
	uint32_t i, j;

	if (n > RP_MAX_HOOKS)
		return -E2BIG;
	for (i = 0; i < n; i++) {
		for (j = 0; j < RP_HOOK_READS; j++) {
			const struct rp_hook_read *r = &specs[i].read[j];

			if (r->kind > RP_READ_BATCH || r->arg > 6 || r->depth > 3 ||
			    (r->kind == RP_READ_BATCH && j + 1 < RP_HOOK_READS) ||
			    (r->kind == RP_READ_MEM && !r->depth) ||
			    (r->kind == RP_READ_LIST && j + 1 < RP_HOOK_READS &&
			     specs[i].read[j + 1].kind != RP_READ_NONE) ||
			    ((r->kind == RP_READ_MEM || r->kind == RP_READ_LIST) && r->width != 1 &&
			     r->width != 2 && r->width != 4 && r->width != 8))
				return -EINVAL;
		}
		if (bpf_map_update_elem(fd, &i, &specs[i], BPF_ANY))
			return -errno;
	}
	return 0;
}

static int rp_uprobe_type(void)
{
	FILE *f = fopen("/sys/bus/event_source/devices/uprobe/type", "re");
	int type = -1;

	if (!f)
		return -ENOTSUP;
	if (fscanf(f, "%d", &type) != 1)
		type = -ENOTSUP;
	fclose(f);
	return type;
}

/*
 * A perf event held by a BPF link: both vanish with our last descriptor, so a
 * crash leaves nothing behind. Never through tracefs, whose probes stay. An event
 * of a task is dealt with at each of its thread switches, and each switch of the
 * machine looks whether there is one: only where there is no uprobe_multi.
 */
static int rp_uprobe_link(struct rp_live *l, uint32_t pid, const char *path, uint64_t offset,
			  uint32_t hook)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .perf_event.bpf_cookie = hook);
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.config1 = (uint64_t)(uintptr_t)path,
		.config2 = offset,
	};
	int perf, link, err;

	if (l->uprobe_type < 0)
		l->uprobe_type = rp_uprobe_type();
	if (l->uprobe_type < 0)
		return -ENOTSUP;
	attr.type = (uint32_t)l->uprobe_type;
	perf = (int)syscall(SYS_perf_event_open, &attr, (pid_t)pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (perf < 0)
		return -errno;
	link = bpf_link_create(bpf_program__fd(l->skel->progs.rp_uprobe), perf, BPF_PERF_EVENT,
			       &opts);
	err = link < 0 ? -errno : link;
	close(perf); /* the link holds it */
	return err;
}

int rp_live_attach_hooks(struct rp_live *l, uint32_t pid, const char *path,
			 const struct rp_live_hook *hooks, size_t n)
{
	uint64_t offsets[RP_MAX_HOOKS], cookies[RP_MAX_HOOKS];
	struct hook_link *p;
	size_t room;
	int fd;

	if (!pid || !n || n > RP_MAX_HOOKS)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		if (hooks[i].hook >= RP_MAX_HOOKS)
			return -EINVAL;
		offsets[i] = hooks[i].offset;
		cookies[i] = hooks[i].hook;
	}
	if (n > 1 && !l->multi)
		return -ENOTSUP;
	if (l->nhooks >= RP_MAX_LINKS)
		return -ENOSPC;
	if (l->nhooks == l->hooks_room) {
		room = l->hooks_room ? 2 * l->hooks_room : 32;
		p = realloc(l->hooks, room * sizeof(*p));
		if (!p)
			return -ENOMEM;
		l->hooks = p;
		l->hooks_room = room;
	}
	fd = l->multi ? rp_uprobe_multi(bpf_program__fd(l->skel->progs.rp_uprobe), pid, path,
					offsets, cookies, (uint32_t)n) :
			rp_uprobe_link(l, pid, path, offsets[0], hooks[0].hook);
	if (fd < 0)
		return fd;
	l->hooks[l->nhooks].pid = pid;
	l->hooks[l->nhooks++].fd = fd;
	return 0;
}

static void rp_zmtp_forget(struct rp_live *l, uint32_t pid);

void rp_live_detach_pid(struct rp_live *l, uint32_t pid)
{
	size_t i, n = 0;

	for (i = 0; i < l->nhooks; i++) {
		if (l->hooks[i].pid == pid)
			close(l->hooks[i].fd);
		else
			l->hooks[n++] = l->hooks[i];
	}
	l->nhooks = n;
	rp_zmtp_forget(l, pid);
}

/* ---- messages from sockets ---- */

static void rp_rejudge(struct rp_live *l, uint32_t pid);

static bool rp_is_hooked(const struct rp_live *l, uint32_t pid)
{
	for (size_t i = 0; i < l->nhooks; i++)
		if (l->hooks[i].pid == pid)
			return true;
	return false;
}

int rp_live_read_zmtp(struct rp_live *l, uint32_t pid, uint32_t hook, uint32_t shortest)
{
	struct zproc *p = rp_map_get(&l->zprocs, pid, 0);
	uint32_t one = 1;
	int err;

	if (p)
		return 0;
	if (l->zprocs.len >= RP_ZMTP_PROCS)
		return -ENOSPC;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->pid = pid;
	p->hook = hook;
	p->shortest = shortest;
	err = rp_live_global_pid(l, pid, &p->tgid);
	if (!err &&
	    bpf_map_update_elem(bpf_map__fd(l->skel->maps.zmtp_procs), &p->tgid, &one, BPF_ANY))
		err = -errno;
	if (!err)
		err = rp_map_put(&l->zprocs, pid, 0, p);
	if (err) {
		free(p);
		return err;
	}
	__atomic_fetch_add(&l->skel->bss->zmtp_count, 1, __ATOMIC_SEQ_CST);
	rp_rejudge(l, pid);
	return 0;
}

static void rp_zmtp_forget(struct rp_live *l, uint32_t pid)
{
	struct zproc *p = rp_map_del(&l->zprocs, pid, 0);

	if (!p)
		return;
	bpf_map_delete_elem(bpf_map__fd(l->skel->maps.zmtp_procs), &p->tgid);
	__atomic_fetch_sub(&l->skel->bss->zmtp_count, 1, __ATOMIC_SEQ_CST);
	free(p);
}

/* A frame was read whole, or its rest is missing: a MSG of its own. */
static void rp_zmtp_frame(void *arg, const struct rp_zmtp_frame *f)
{
	struct zconn *c = arg;
	size_t len = f->len < RP_PAYLOAD_LIMIT ? f->len : RP_PAYLOAD_LIMIT;
	size_t size = (sizeof(struct rp_ev_msg) + len + 7) & ~7UL;
	bool alone = !c->more && !(f->flags & RP_ZMTP_MORE);
	struct rp_ev_msg *m;
	int err;

	c->frames++;
	if (f->flags & RP_ZMTP_COMMAND)
		return;
	c->more = f->flags & RP_ZMTP_MORE;
	if (alone && f->total < c->shortest)
		return;
	m = calloc(1, size);
	if (!m)
		return;
	m->h = (struct rp_event_hdr){
		.size = (uint32_t)size,
		.type = RP_EV_MSG,
		.flags = RP_F_SYNTH | (len < f->total ? RP_F_CUT : 0),
		.ts = f->ts,
		.pid = c->d->h.pid,
		.tid = c->d->h.tid,
	};
	m->hook = (uint16_t)c->hook;
	m->send_flags = f->flags & RP_ZMTP_MORE ? RP_MSG_MORE : 0;
	m->sock = c->conn;
	m->total = (uint32_t)f->total;
	m->len = (uint32_t)len;
	m->missing = (uint32_t)(f->total - len);
	if (len)
		memcpy(m->payload, f->body, len);
	err = c->fn(c->ctx, &m->h);
	if (err < 0)
		c->err = err;
	free(m);
}

/* Its position was lost, and with it who knows what: the reader must know that. */
static void rp_zmtp_lost(struct zconn *c)
{
	struct rp_ev_msg m = {
		.h = { .size = sizeof(m),
		       .type = RP_EV_MSG,
		       .flags = RP_F_SYNTH | RP_F_CUT,
		       .ts = c->d->h.ts,
		       .pid = c->d->h.pid,
		       .tid = c->d->h.tid },
		.hook = (uint16_t)c->hook,
		.sock = c->conn,
		.total = 1,
		.missing = 1,
	};
	int e = c->fn(c->ctx, &m.h);

	c->more = false;
	if (e < 0)
		c->err = e;
}

/*
 * Events of connections that carry messages. True: it was one, and *err is the
 * reader's. The first byte of a process's own writes tells them; what was read
 * on them is what another process wrote.
 */
static bool rp_zmtp_event(struct rp_live *l, const struct rp_event_hdr *ev, rp_event_fn fn,
			  void *ctx, int *err)
{
	const struct rp_ev_data *d = (const void *)ev;
	struct zconn *c;
	struct zproc *p;
	uint64_t resyncs;

	*err = 0;
	if (ev->type == RP_EV_CONN_PROTO) {
		const struct rp_ev_conn_proto *e = (const void *)ev;
		struct rp_ev_conn_proto other = *e;

		if (e->proto != RP_PROTO_ZMTP)
			return false;
		other.proto = RP_PROTO_OTHER; /* to the reader: no HTTP */
		*err = fn(ctx, &other.h);
		p = rp_map_get(&l->zprocs, ev->pid, 0);
		if (!p || l->zconns.len >= RP_ZCONNS || rp_map_get(&l->zconns, e->conn, 0))
			return true;
		c = calloc(1, sizeof(*c));
		if (!c)
			return true;
		rp_zmtp_init(&c->z, l->o.payload_max);
		c->conn = e->conn;
		c->hook = p->hook;
		c->shortest = p->shortest;
		c->off = UINT64_MAX;
		if (rp_map_put(&l->zconns, e->conn, 0, c))
			free(c);
		return true;
	}
	if (ev->type != RP_EV_DATA && ev->type != RP_EV_CONN_CLOSE)
		return false;
	c = rp_map_get(&l->zconns, d->conn, 0);
	if (!c)
		return false;
	if (ev->type == RP_EV_CONN_CLOSE) {
		rp_map_del(&l->zconns, d->conn, 0);
		rp_zmtp_free(&c->z);
		free(c);
		return false;
	}
	if (ev->dir != RP_TX || rp_is_hooked(l, ev->pid) ||
	    c->misses > RP_ZMTP_PATIENCE + c->frames / RP_ZMTP_FRAMES)
		return true;
	resyncs = c->z.resyncs;
	c->d = d;
	c->fn = fn;
	c->ctx = ctx;
	c->err = 0;
	if (c->off != UINT64_MAX && d->off > c->off) {
		rp_zmtp_gap(&c->z, d->off - c->off, rp_zmtp_frame, c);
		/* before what came after it, or that would be measured across the gap */
		if (c->z.resyncs != resyncs)
			rp_zmtp_lost(c);
		resyncs = c->z.resyncs;
	}
	if (c->off == UINT64_MAX || d->off >= c->off) {
		rp_zmtp_feed(&c->z, ev->ts, !d->call_off, d->payload, d->len, rp_zmtp_frame, c);
		c->misses += c->z.resyncs != resyncs;
		if (d->missing)
			rp_zmtp_gap(&c->z, d->missing, rp_zmtp_frame, c);
		c->off = d->off + d->len + d->missing;
		if (c->z.resyncs != resyncs)
			rp_zmtp_lost(c);
	}
	*err = c->err;
	return true;
}

/* ---- writes and their acknowledgement ---- */

bool rp_live_looks(const struct rp_live *l)
{
	return l->look_fd >= 0;
}

static void rp_user_hdr(struct rp_event_hdr *h, size_t size, uint8_t type);

static void rp_wait_event(struct rp_live *l, const struct rp_event_hdr *ev)
{
	const struct rp_ev_data *d = (const void *)ev;
	struct wait *w;

	if (ev->type == RP_EV_CONN_CLOSE) {
		free(rp_map_del(&l->waits,
				((const struct rp_ev_conn_close *)(const void *)ev)->conn, 0));
		return;
	}
	if (ev->type != RP_EV_DATA || ev->dir != RP_TX || !(ev->flags & RP_F_TCP) || l->look_fd < 0)
		return;
	w = rp_map_get(&l->waits, d->conn, 0);
	if (!d->unacked) {
		if (w)
			free(rp_map_del(&l->waits, d->conn, 0));
		return;
	}
	if (!w) {
		if (l->waits.len >= RP_WAITS)
			return;
		w = calloc(1, sizeof(*w));
		if (!w)
			return;
		w->conn = d->conn;
		w->pid = ev->pid;
		if (rp_map_put(&l->waits, d->conn, 0, w)) {
			free(w);
			return;
		}
	}
	w->since = d->ret_ts;
	w->next = d->ret_ts + RP_WAIT_QUIET;
}

/* One look at one connection: an event, and whether to look again. */
static bool rp_wait_look(struct rp_live *l, struct wait *w, uint64_t now, rp_event_fn fn, void *ctx,
			 int *err)
{
	struct rp_look look = { .conn = w->conn };
	LIBBPF_OPTS(bpf_test_run_opts, opts, .ctx_in = &look, .ctx_size_in = sizeof(look));
	struct rp_ev_tcp e;

	*err = 0;
	if (bpf_prog_test_run_opts(l->look_fd, &opts) || !look.found)
		return false;
	w->next = now + RP_WAIT_QUIET;
	rp_user_hdr(&e.h, sizeof(e), RP_EV_TCP);
	e.h.pid = w->pid;
	e.conn = w->conn;
	e.unacked = look.unacked;
	e.notsent = look.notsent;
	e.srtt_us = look.srtt_us;
	e.min_rtt_us = look.min_rtt_us;
	e.retrans = look.retrans;
	if (!look.unacked)
		e.acked_ts = look.mstamp * 1000;
	*err = fn(ctx, &e.h);
	return look.unacked && now - w->since < RP_WAIT_END;
}

static int rp_wait_looks(struct rp_live *l, rp_event_fn fn, void *ctx)
{
	uint64_t now = rp_now_ns(), over[64];
	struct rp_map_slot *s;
	size_t i = 0, n = 0, looks = 0;
	int err = 0;

	if (!l->waits.len || now - l->looked_at < RP_WAIT_QUIET / 2)
		return 0;
	l->looked_at = now;
	while ((s = rp_map_next(&l->waits, &i)) && looks < RP_WAIT_LOOKS && n < 64 && err >= 0) {
		struct wait *w = s->v;

		if (w->next > now)
			continue;
		looks++;
		if (!rp_wait_look(l, w, now, fn, ctx, &err))
			over[n++] = w->conn;
	}
	for (i = 0; i < n; i++)
		free(rp_map_del(&l->waits, over[i], 0));
	return err < 0 ? err : (int)looks;
}

/* ---- counters ---- */

void rp_live_loss(struct rp_live *l, struct rp_ev_loss *out)
{
	size_t i, j;

	memset(out, 0, sizeof(*out));
	out->h.size = sizeof(*out);
	out->h.type = RP_EV_LOSS;
	out->h.ts = rp_now_ns();
	for (i = 0; i < RP_STAT_SLOTS; i++) {
		const struct rp_stat *s = (const void *)&l->skel->bss->stats[i];

		for (j = 0; j < RP_CLASS_COUNT; j++) {
			out->lost[j] += __atomic_load_n(&s->lost[j], __ATOMIC_RELAXED);
			out->seen[j] += __atomic_load_n(&s->seen[j], __ATOMIC_RELAXED);
		}
		for (j = 0; j < RP_MAP_COUNT; j++)
			out->map_full[j] += __atomic_load_n(&s->map_full[j], __ATOMIC_RELAXED);
	}
}

void rp_live_hook_counts(struct rp_live *l, uint64_t *counts, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		counts[i] = i < RP_MAX_HOOKS ?
				    __atomic_load_n(&l->skel->bss->hook_seq[i], __ATOMIC_RELAXED) :
				    0;
}

static void rp_prog_figures(const struct bpf_program *p, uint64_t *ns, uint64_t *cnt)
{
	struct bpf_prog_info info = {};
	uint32_t len = sizeof(info);

	if (bpf_obj_get_info_by_fd(bpf_program__fd(p), &info, &len))
		info.run_time_ns = info.run_cnt = 0;
	*ns = info.run_time_ns;
	*cnt = info.run_cnt;
}

static uint64_t rp_since(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

size_t rp_live_prog_stats(struct rp_live *l, struct rp_prog_stat *st, size_t n)
{
	struct bpf_program *p;
	size_t i = 0;

	pthread_mutex_lock(&l->acct_lock);
	bpf_object__for_each_program(p, l->skel->obj) {
		uint64_t ns, cnt;

		if (bpf_program__fd(p) < 0)
			continue;
		if (i < n && i < RP_LIVE_PROGS) {
			const struct acct *a = &l->accts[i];

			st[i] = (struct rp_prog_stat){ bpf_program__name(p), a->sum_ns,
						       a->sum_cnt };
			if (l->stats_fd >= 0) {
				rp_prog_figures(p, &ns, &cnt);
				st[i].run_ns += rp_since(ns, a->ns);
				st[i].run_cnt += rp_since(cnt, a->cnt);
			}
		}
		i++;
	}
	pthread_mutex_unlock(&l->acct_lock);
	return i < RP_LIVE_PROGS ? i : RP_LIVE_PROGS;
}

/* A sample ends, and stands for the time since the last one; or one begins. */
static void rp_acct_step(struct rp_live *l)
{
	uint64_t now = rp_now_ns(), ns, cnt;
	struct bpf_program *p;
	double share = 0;
	size_t i = 0;

	if (!l->o.stats || l->o.stats_every <= RP_ACCT_ON ||
	    now - l->acct_on < (l->stats_fd >= 0 ? RP_ACCT_ON : l->o.stats_every))
		return;
	pthread_mutex_lock(&l->acct_lock);
	if (l->stats_fd >= 0) {
		close(l->stats_fd);
		l->stats_fd = -1;
		share = (double)(now - l->acct_to) / (double)(now - l->acct_on);
		l->acct_to = now;
	} else {
		l->stats_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
		l->acct_on = now;
	}
	bpf_object__for_each_program(p, l->skel->obj) {
		struct acct *a;

		if (bpf_program__fd(p) < 0)
			continue;
		if (i == RP_LIVE_PROGS)
			break;
		a = &l->accts[i++];
		rp_prog_figures(p, &ns, &cnt);
		a->sum_ns += (uint64_t)((double)rp_since(ns, a->ns) * share);
		a->sum_cnt += (uint64_t)((double)rp_since(cnt, a->cnt) * share);
		a->ns = ns;
		a->cnt = cnt;
	}
	pthread_mutex_unlock(&l->acct_lock);
}

size_t rp_live_memory(const struct rp_live *l)
{
	const size_t elem = 56; /* struct htab_elem and its bucket, about */
	struct bpf_map *m;
	size_t sum = 0;

	bpf_object__for_each_map(m, l->skel->obj) {
		size_t k = bpf_map__key_size(m), v = bpf_map__value_size(m);
		size_t n = bpf_map__max_entries(m);

		if (bpf_map__type(m) == BPF_MAP_TYPE_RINGBUF)
			sum += n + 3 * l->page;
		else if (bpf_map__type(m) == BPF_MAP_TYPE_HASH)
			sum += n * (((k + 7) & ~7UL) + ((v + 7) & ~7UL) + elem);
		else
			sum += n * ((v + 7) & ~7UL);
	}
	return sum + sizeof(*l) + l->hooks_room * sizeof(*l->hooks) +
	       l->report.room * sizeof(*l->report.alive);
}

/* ---- drain ---- */

void rp_live_wait(struct rp_live *l, unsigned ms)
{
	struct epoll_event ev;

	/* Edge-triggered: only the wake-up of a ring half full ends it, not data as such. */
	epoll_wait(l->epoll, &ev, 1, (int)ms);
}

size_t rp_live_backlog(const struct rp_live *l)
{
	return __atomic_load_n(l->prod, __ATOMIC_ACQUIRE) - *l->cons;
}

static int64_t rp_wall_offset(void)
{
	struct timespec a, r, b;
	int64_t best = INT64_MAX, off = 0, width, mid;
	int i;

	for (i = 0; i < 3; i++) {
		clock_gettime(CLOCK_MONOTONIC, &a);
		clock_gettime(CLOCK_REALTIME, &r);
		clock_gettime(CLOCK_MONOTONIC, &b);
		width = (b.tv_sec - a.tv_sec) * 1000000000LL + b.tv_nsec - a.tv_nsec;
		if (width >= best)
			continue;
		best = width;
		mid = a.tv_sec * 1000000000LL + a.tv_nsec + width / 2;
		off = r.tv_sec * 1000000000LL + r.tv_nsec - mid;
	}
	return off;
}

static void rp_user_hdr(struct rp_event_hdr *h, size_t size, uint8_t type)
{
	memset(h, 0, size);
	h->size = (uint32_t)size;
	h->type = type;
	h->ts = rp_now_ns();
}

/* A clock that is slewed drifts away slowly: told too, but that is no step. */
static int rp_tell_clock(struct rp_live *l, rp_event_fn fn, void *ctx)
{
	struct rp_ev_clock e;
	int64_t off = rp_wall_offset(), step, drift;
	int err;

	step = llabs(off - l->clock_last);
	drift = llabs(off - l->clock_told);
	l->clock_last = off;
	if (l->clock_sent && drift <= RP_CLOCK_STEP)
		return 0;
	rp_user_hdr(&e.h, sizeof(e), RP_EV_CLOCK);
	e.offset = off;
	e.step = l->clock_sent && step > RP_CLOCK_STEP;
	l->clock_sent = true;
	l->clock_told = off;
	err = fn(ctx, &e.h);
	return err < 0 ? err : 1;
}

/* Every connection the kernel side knows: calls `f` for each. */
typedef void (*conn_fn)(struct rp_live *l, uint64_t key, const struct rp_conn *c, void *arg);

static void rp_walk_conns(struct rp_live *l, conn_fn f, void *arg)
{
	enum { BATCH = 1024 };
	LIBBPF_OPTS(bpf_map_batch_opts, opts);
	int fd = bpf_map__fd(l->skel->maps.conns), err;
	uint64_t *keys = malloc(BATCH * sizeof(*keys));
	struct rp_conn *vals = malloc(BATCH * sizeof(*vals));
	uint32_t in = 0, out = 0, n, i;
	bool first = true;

	while (keys && vals) {
		n = BATCH;
		err = bpf_map_lookup_batch(fd, first ? NULL : &in, &out, keys, vals, &n, &opts) ?
			      errno :
			      0;
		if (err && err != ENOENT)
			break;
		for (i = 0; i < n; i++)
			f(l, keys[i], &vals[i], arg);
		if (err)
			break;
		in = out;
		first = false;
	}
	free(keys);
	free(vals);
}

/* Connections of a process that were taken for nothing of interest. */
static void rp_look_again(struct rp_live *l, uint64_t key, const struct rp_conn *c, void *arg)
{
	struct rp_conn n = *c;

	if (c->pid != *(const uint32_t *)arg || c->proto != RP_PROTO_OTHER)
		return;
	/* rx must read as 0, or its next write is not looked at; a byte that moves
	 * meanwhile is lost to the count of a connection nobody counts */
	n.proto = RP_PROTO_UNKNOWN;
	n.have = 0;
	n.first = 0;
	n.rx = 0;
	bpf_map_update_elem(bpf_map__fd(l->skel->maps.conns), &key, &n, BPF_EXIST);
}

static void rp_rejudge(struct rp_live *l, uint32_t pid)
{
	rp_walk_conns(l, rp_look_again, &pid);
}

static struct rp_ev_conn_close *rp_alive_add(struct loss_report *r)
{
	struct rp_ev_conn_close *p;
	size_t room;

	if (r->n == r->room) {
		room = r->room ? 2 * r->room : 256;
		p = realloc(r->alive, room * sizeof(*p));
		if (!p)
			return NULL;
		r->alive = p;
		r->room = room;
	}
	p = &r->alive[r->n++];
	memset(p, 0, sizeof(*p));
	p->h.size = sizeof(*p);
	p->h.type = RP_EV_ALIVE;
	return p;
}

static void rp_note_alive(struct rp_live *l, uint64_t key, const struct rp_conn *c, void *arg)
{
	struct rp_ev_conn_close *e = rp_alive_add(&l->report);

	(void)key;
	(void)arg;
	if (!e)
		return;
	e->h.pid = c->pid;
	e->conn = c->id;
	e->rx = c->rx;
	e->tx = c->tx;
	e->retrans = c->retrans;
}

/*
 * Loss counters moved. Walk the connections now, and report when everything
 * that was in the ring at the end of the walk has been passed on: then the
 * totals are not ahead of the data, and connections born since the walk are
 * known from their CONN_OPEN on the way (rp_seen_open).
 */
static void rp_prepare_loss(struct rp_live *l)
{
	struct loss_report *r = &l->report;
	uint64_t start = rp_now_ns();
	struct rp_ev_loss now;

	if (r->pending || start < r->not_before)
		return;
	rp_live_loss(l, &now);
	if (!memcmp(now.lost, l->told.lost, sizeof(now.lost)) &&
	    !memcmp(now.map_full, l->told.map_full, sizeof(now.map_full)))
		return;
	r->loss = now;
	r->n = 0;
	r->first_new = __atomic_load_n(&l->skel->bss->last_conn, __ATOMIC_ACQUIRE) + 1;
	rp_walk_conns(l, rp_note_alive, NULL);
	r->pos = __atomic_load_n(l->prod, __ATOMIC_ACQUIRE);
	r->pending = true;
	now.h.ts = rp_now_ns();
	r->not_before = now.h.ts + RP_WALK_REST * (now.h.ts - start);
}

static void rp_seen_open(struct rp_live *l, const struct rp_ev_conn_open *e)
{
	struct rp_ev_conn_close *a;

	if (e->conn < l->report.first_new)
		return;
	a = rp_alive_add(&l->report);
	if (a)
		a->conn = e->conn;
}

static int rp_report_loss(struct rp_live *l, rp_event_fn fn, void *ctx)
{
	struct loss_report *r = &l->report;
	struct rp_event_hdr end;
	size_t i;
	int err;

	r->pending = false;
	l->told = r->loss;
	r->loss.h.ts = rp_now_ns();
	err = fn(ctx, &r->loss.h);
	for (i = 0; i < r->n && err >= 0; i++) {
		r->alive[i].h.ts = rp_now_ns();
		err = fn(ctx, &r->alive[i].h);
	}
	if (err < 0)
		return err;
	rp_user_hdr(&end, sizeof(end), RP_EV_ALIVE_END);
	err = fn(ctx, &end);
	return err < 0 ? err : (int)r->n + 2;
}

/* ---- Unix sockets that ended without a close(2) of their own ---- */

struct sweep {
	uint64_t last_id;
	struct rp_ev_conn_close *gone;
	uint64_t *keys;
	size_t n, room;
};

static void rp_note_swept(struct rp_live *l, uint64_t key, const struct rp_conn *c, void *arg)
{
	struct sweep *s = arg;
	struct rp_ev_conn_close *e;

	if (!(c->flags & RP_CONN_UNIX) || c->id > s->last_id ||
	    c->sweep == (uint16_t)l->sweep_gen || s->n == s->room)
		return;
	s->keys[s->n] = key;
	e = &s->gone[s->n++];
	rp_user_hdr(&e->h, sizeof(*e), RP_EV_CONN_CLOSE);
	e->h.flags = RP_F_SYNTH | RP_F_UNIX;
	e->h.pid = c->pid;
	e->conn = c->id;
	e->rx = c->rx;
	e->tx = c->tx;
}

static int rp_run_sweep(struct rp_live *l)
{
	struct bpf_link *link;
	char buf[64];
	int fd;

	link = bpf_program__attach_iter(l->skel->progs.rp_sweep_unix, NULL);
	if (!link)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(link));
	if (fd >= 0) {
		while (read(fd, buf, sizeof(buf)) > 0)
			;
		close(fd);
	}
	bpf_link__destroy(link);
	return fd < 0 ? -errno : 0;
}

/*
 * A Unix socket closed by the exit of its process, by dup2 or while another
 * thread was inside it passes no close(2) with a single reference. After an
 * exit, and now and then, look which are still open anywhere.
 */
static int rp_sweep(struct rp_live *l, rp_event_fn fn, void *ctx)
{
	struct reqprobe_bpf *s = l->skel;
	struct sweep sw = {};
	int n = 0, err, fd = bpf_map__fd(s->maps.conns);
	uint32_t count = __atomic_load_n(&s->bss->unix_conns, __ATOMIC_RELAXED);
	uint64_t now = rp_now_ns();
	size_t i;

	if (!count || bpf_program__fd(s->progs.rp_sweep_unix) < 0 ||
	    (!l->sweep_due && now < l->sweep_at))
		return 0;
	l->sweep_due = false;
	l->sweep_at = now + RP_SWEEP_EVERY;
	if (!(uint16_t)++l->sweep_gen)
		l->sweep_gen++;
	s->bss->sweep_gen = l->sweep_gen;
	sw.last_id = __atomic_load_n(&s->bss->last_conn, __ATOMIC_ACQUIRE);
	sw.room = count + 64;
	sw.gone = calloc(sw.room, sizeof(*sw.gone));
	sw.keys = calloc(sw.room, sizeof(*sw.keys));
	if (sw.gone && sw.keys && !rp_run_sweep(l))
		rp_walk_conns(l, rp_note_swept, &sw);
	for (i = 0; i < sw.n; i++) {
		if (bpf_map_delete_elem(fd, &sw.keys[i]))
			continue;
		__atomic_fetch_sub(&s->bss->unix_conns, 1, __ATOMIC_RELAXED);
		n++;
		err = fn(ctx, &sw.gone[i].h);
		if (err < 0) {
			n = err;
			break;
		}
	}
	free(sw.gone);
	free(sw.keys);
	return n;
}

/* What there is of a frame; the rest, if any, was lost. */
static int rp_join_end(struct join *j, rp_event_fn fn, void *ctx)
{
	struct rp_ev_msg *m = j->m;
	int err;

	m->missing = m->total - m->len;
	m->h.flags = m->missing ? RP_F_CUT : 0;
	m->h.size = (uint32_t)((sizeof(*m) + m->len + 7) & ~7UL);
	memset(m->payload + m->len, 0, m->h.size - sizeof(*m) - m->len);
	j->m = NULL;
	err = fn(ctx, &m->h);
	free(m);
	return err;
}

static int rp_join_start(struct rp_live *l, const struct rp_ev_msg *f, rp_event_fn fn, void *ctx,
			 struct join **out)
{
	struct join *j = &l->joins[0];
	int err = 0;
	size_t room;

	for (size_t i = 0; i < RP_JOINS; i++) {
		if (!l->joins[i].m) {
			j = &l->joins[i];
			break;
		}
		if (l->joins[i].age < j->age)
			j = &l->joins[i];
	}
	if (j->m) /* its end was lost long ago */
		err = rp_join_end(j, fn, ctx);
	room = f->total < RP_PAYLOAD_LIMIT ? f->total : RP_PAYLOAD_LIMIT;
	*out = NULL;
	j->m = malloc(sizeof(*j->m) + room + 8);
	if (!j->m)
		return err;
	j->room = room;
	j->age = l->joined++;
	*j->m = *f;
	j->m->len = 0;
	*out = j;
	return err;
}

static int rp_join(struct rp_live *l, const struct rp_ev_msg *f, rp_event_fn fn, void *ctx)
{
	struct join *j = NULL;
	bool more = f->h.flags & RP_F_MORE;
	int err = 0, e;

	for (size_t i = 0; i < RP_JOINS && !j; i++)
		if (l->joins[i].m && l->joins[i].m->h.tid == f->h.tid)
			j = &l->joins[i];
	/* the end of its last frame was lost: not to be told behind this one */
	if (j && (!f->off || j->m->seq != f->seq || j->m->hook != f->hook)) {
		err = rp_join_end(j, fn, ctx);
		j = NULL;
	}
	if (!more && !f->off) {
		e = fn(ctx, &f->h);
		return err < 0 ? err : e;
	}
	if (!j && !f->off) {
		e = rp_join_start(l, f, fn, ctx, &j);
		if (e < 0)
			err = e;
	}
	/* without its beginning, or behind a gap, a fragment says nothing */
	if (!j)
		return err;
	if (f->off == j->m->len && f->len <= j->room - j->m->len) {
		memcpy(j->m->payload + j->m->len, f->payload, f->len);
		j->m->len += f->len;
	}
	if (!more) {
		e = rp_join_end(j, fn, ctx);
		if (e < 0)
			err = e;
	}
	return err;
}

int rp_live_drain(struct rp_live *l, rp_event_fn fn, void *ctx, size_t budget)
{
	const size_t mask = l->ring_size - 1;
	unsigned long cons = *l->cons, prod;
	const struct rp_event_hdr *ev;
	struct rp_ev_tick tick;
	size_t drained = 0;
	int n = 0, err;
	uint32_t len;

	if (!l->clock_sent) {
		err = rp_tell_clock(l, fn, ctx);
		if (err < 0)
			return err;
		n += err;
	}
	rp_acct_step(l);
	rp_prepare_loss(l);
	prod = __atomic_load_n(l->prod, __ATOMIC_ACQUIRE);
	while (!budget || drained < budget) {
		if (l->report.pending && cons >= l->report.pos) {
			err = rp_report_loss(l, fn, ctx);
			if (err < 0)
				return err;
			n += err;
		}
		/* one look at the end per call: a fast producer must not hold us here */
		if (cons >= prod)
			break;
		len = __atomic_load_n((const uint32_t *)(l->data + (cons & mask)),
				      __ATOMIC_ACQUIRE);
		if (len & BPF_RINGBUF_BUSY_BIT)
			break;
		ev = (const void *)(l->data + (cons & mask) + BPF_RINGBUF_HDR_SZ);
		err = 0;
		if (!(len & BPF_RINGBUF_DISCARD_BIT)) {
			if (ev->type == RP_EV_CONN_OPEN && l->report.pending)
				rp_seen_open(l, (const void *)ev);
			if (ev->type == RP_EV_PROC)
				l->sweep_due = true;
			rp_wait_event(l, ev);
			if (ev->type == RP_EV_MSG)
				err = rp_join(l, (const void *)ev, fn, ctx);
			else if (!l->zprocs.len || !rp_zmtp_event(l, ev, fn, ctx, &err))
				err = fn(ctx, ev);
			n++;
		}
		len &= ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
		cons += (len + BPF_RINGBUF_HDR_SZ + 7) & ~7UL;
		__atomic_store_n(l->cons, cons, __ATOMIC_RELEASE);
		drained++;
		if (err < 0)
			return err;
	}
	err = rp_sweep(l, fn, ctx);
	if (err < 0)
		return err;
	n += err;
	err = rp_wait_looks(l, fn, ctx);
	if (err < 0)
		return err;
	n += err;
	err = rp_tell_clock(l, fn, ctx);
	if (err < 0)
		return err;
	n += err;
	rp_user_hdr(&tick.h, sizeof(tick), RP_EV_TICK);
	err = fn(ctx, &tick.h);
	return err < 0 ? err : n + 1;
}
