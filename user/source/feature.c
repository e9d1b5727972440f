// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * feature.c - what this kernel lets us do, found out by doing it: each probe
 * loads a program of a few instructions, attaches it, makes it fire and looks.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "source/live.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/magic.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#define INSN(c, d, s, o, i) \
	((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define MOV_IMM(d, i) INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define MOV_REG(d, s) INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define STORE(d, s, o) INSN(BPF_STX | BPF_MEM | BPF_DW, d, s, o, 0)
#define CALL(f) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, f)
#define KCALL(id) INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_KFUNC_CALL, 0, id)
#define EXIT() INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
/* two instructions: the address of a value in a one-element array map */
#define MAP_VALUE(d, fd, off) \
	INSN(BPF_LD | BPF_DW | BPF_IMM, d, BPF_PSEUDO_MAP_VALUE, 0, fd), INSN(0, 0, 0, 0, off)

#define N_INSNS(a) (sizeof(a) / sizeof((a)[0]))

#define RP_COOKIE 0x5250

static const struct rp_feature table[RP_FEAT_COUNT] = {
	[RP_FEAT_BTF] = { .name = "BTF",
			  .since = "5.2",
			  .required = true,
			  .lost = "everything: programs cannot be fitted to this kernel" },
	[RP_FEAT_BPF] = { .name = "bpf(2)",
			  .since = "3.18",
			  .required = true,
			  .lost = "everything" },
	[RP_FEAT_RINGBUF] = { .name = "ring buffer",
			      .since = "5.8",
			      .required = true,
			      .lost = "everything: events cannot reach user space in order" },
	[RP_FEAT_TP_BTF] = { .name = "typed tracepoints",
			     .since = "5.5",
			     .lost = "nothing: raw tracepoints do the same at a little more cost" },
	[RP_FEAT_RAW_TP] = { .name = "raw tracepoints",
			     .since = "4.17",
			     .lost = "nothing while typed tracepoints work; one of the two is required" },
	[RP_FEAT_TRACEFS] = { .name = "tracefs",
			      .since = "4.1",
			      .lost = "nothing here: other tracers need it" },
	[RP_FEAT_UPROBE] = { .name = "uprobe links",
			     .since = "5.15",
			     .lost = "engine times: queue, prefill, decode, token counts" },
	[RP_FEAT_UPROBE_MULTI] = { .name = "uprobe_multi",
				   .since = "6.6",
				   .lost = "little: perf events hold the hooks, each thread switch of the machine costs more" },
	[RP_FEAT_PREEMPT_KFUNC] = { .name = "bpf_preempt_disable",
				    .since = "6.10",
				    .lost = "a guard that only kernels from 6.13 on need, and those have it" },
	[RP_FEAT_TASK_ITER] = { .name = "task iterator",
				.since = "5.8",
				.lost = "running inside a container's pid namespace" },
	[RP_FEAT_BPF_STATS] = { .name = "BPF run time",
				.since = "5.8",
				.lost = "reqprobe_bpf_run_seconds_total" },
	[RP_FEAT_SOCK_STATE] = { .name = "TCP state tracepoints",
				 .since = "4.16",
				 .required = true,
				 .lost = "handshake RTT, who closed a connection" },
	[RP_FEAT_SOCK_LENGTH] = { .name = "socket tracepoints",
				  .since = "6.3",
				  .lost = "little: system calls are followed, which costs an engine that spins (vLLM) more" },
};

static int quiet(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	(void)level;
	(void)fmt;
	(void)ap;
	return 0;
}

/* ---- small tools ---- */

static int map_new(void)
{
	LIBBPF_OPTS(bpf_map_create_opts, o);
	int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "rp_probe", 4, 16, 1, &o);

	return fd < 0 ? -errno : fd;
}

/* Word 0 or 1 of the map's only element. */
static uint64_t map_word(int map, int i)
{
	uint64_t v[2] = {};
	uint32_t key = 0;

	bpf_map_lookup_elem(map, &key, v);
	return v[i];
}

static int prog_new(enum bpf_prog_type type, uint32_t attach, uint32_t btf_id,
		    const struct bpf_insn *insns, size_t n)
{
	LIBBPF_OPTS(bpf_prog_load_opts, o, .expected_attach_type = attach, .attach_btf_id = btf_id);
	int fd = bpf_prog_load(type, "rp_probe", "GPL", insns, n, &o);

	return fd < 0 ? -errno : fd;
}

/* A program that stores 1 into word `word` of the map. */
static int prog_mark(enum bpf_prog_type type, uint32_t attach, uint32_t btf_id, int map, int word)
{
	const struct bpf_insn insns[] = {
		MAP_VALUE(1, map, word * 8), MOV_IMM(2, 1), STORE(1, 2, 0), MOV_IMM(0, 0), EXIT(),
	};

	return prog_new(type, attach, btf_id, insns, N_INSNS(insns));
}

static void shut(int fd)
{
	if (fd >= 0)
		close(fd);
}

static int vmlinux_id(const char *name, enum bpf_attach_type type)
{
	return libbpf_find_vmlinux_btf_id(name, type);
}

/* ---- the probes: 0 or a negative errno; -ENODATA: attached, never fired ---- */

static int probe_btf(char *note, size_t len)
{
	if (!access("/sys/kernel/btf/vmlinux", R_OK))
		return 0;
	snprintf(note, len, "/sys/kernel/btf/vmlinux: %s", strerror(errno));
	return errno == EACCES ? -EPERM : -errno;
}

static int probe_bpf(char *note, size_t len)
{
	const struct bpf_insn insns[] = { MOV_IMM(0, 0), EXIT() };
	int fd = prog_new(BPF_PROG_TYPE_SOCKET_FILTER, 0, 0, insns, N_INSNS(insns));

	if (fd == -EPERM)
		snprintf(note, len, "needs root, or CAP_BPF and CAP_PERFMON");
	shut(fd);
	return fd < 0 ? fd : 0;
}

static int probe_ringbuf(char *note, size_t len)
{
	LIBBPF_OPTS(bpf_map_create_opts, o);
	int fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "rp_probe", 0, 0, 65536, &o);

	(void)note;
	(void)len;
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* A program at a tracepoint that marks a word of the map. Both are the caller's to
 * close, whatever is returned. */
static int tracepoint_mark(const char *name, bool typed, int map, int word, int *prog, int *link)
{
	int id = 0;

	if (typed) {
		id = vmlinux_id(name, BPF_TRACE_RAW_TP);
		if (id < 0)
			return id;
	}
	*prog = typed ? prog_mark(BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP, (uint32_t)id, map,
				  word) :
			prog_mark(BPF_PROG_TYPE_RAW_TRACEPOINT, 0, 0, map, word);
	if (*prog < 0)
		return *prog;
	*link = bpf_raw_tracepoint_open(typed ? NULL : name, *prog);
	return *link < 0 ? -errno : 0;
}

static int probe_tracepoint(bool typed)
{
	int map = map_new(), prog = -1, link = -1, err;

	if (map < 0)
		return map;
	err = tracepoint_mark("sys_enter", typed, map, 0, &prog, &link);
	if (err)
		goto out;
	syscall(SYS_getppid);
	err = map_word(map, 0) ? 0 : -ENODATA;
out:
	shut(link);
	shut(prog);
	close(map);
	return err < 0 ? err : 0;
}

static int probe_tp_btf(char *note, size_t len)
{
	(void)note;
	(void)len;
	return probe_tracepoint(true);
}

static int probe_raw_tp(char *note, size_t len)
{
	(void)note;
	(void)len;
	return probe_tracepoint(false);
}

static int probe_tracefs(char *note, size_t len)
{
	static const char *const dirs[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };
	struct statfs fs;
	size_t i;

	for (i = 0; i < 2; i++) {
		if (statfs(dirs[i], &fs) || (unsigned long)fs.f_type != TRACEFS_MAGIC)
			continue;
		snprintf(note, len, "%s", dirs[i]);
		return 0;
	}
	if (!access(dirs[0], F_OK)) {
		snprintf(note, len, "not mounted: mount -t tracefs tracefs %s", dirs[0]);
		return 0;
	}
	return -ENOENT;
}

/* The function that gets probed; must stay a function. */
__attribute__((noinline, used)) static void target(void)
{
	__asm__ volatile("" ::: "memory");
}

/* Where a function of ours lies in our executable. */
static int file_offset(const void *addr, char *path, size_t len, uint64_t *off)
{
	unsigned long start, end, pgoff, a = (unsigned long)addr;
	FILE *f = fopen("/proc/self/maps", "re");
	int err = -ENOENT, c;

	if (!f)
		return -errno;
	/* only numbers are read: a path there can be of any length */
	while (fscanf(f, "%lx-%lx %*4s %lx", &start, &end, &pgoff) == 3) {
		if (a >= start && a < end) {
			*off = a - start + pgoff;
			snprintf(path, len, "/proc/self/exe");
			err = 0;
			break;
		}
		while ((c = fgetc(f)) != '\n' && c != EOF)
			;
	}
	fclose(f);
	return err;
}

static int perf_uprobe(const char *path, uint64_t off)
{
	struct perf_event_attr attr = { .size = sizeof(attr) };
	FILE *f = fopen("/sys/bus/event_source/devices/uprobe/type", "re");
	int type = 0, fd;

	if (!f)
		return -ENOTSUP;
	if (fscanf(f, "%d", &type) != 1)
		type = 0;
	fclose(f);
	if (!type)
		return -ENOTSUP;
	attr.type = (uint32_t)type;
	attr.config1 = (uint64_t)(uintptr_t)path;
	attr.config2 = off;
	fd = (int)syscall(SYS_perf_event_open, &attr, getpid(), -1, -1, PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? (errno == EACCES ? -EPERM : -errno) : fd;
}

static int prog_cookie(int map, uint32_t attach)
{
	const struct bpf_insn insns[] = {
		CALL(BPF_FUNC_get_attach_cookie),
		MAP_VALUE(1, map, 0),
		STORE(1, 0, 0),
		MOV_IMM(0, 0),
		EXIT(),
	};

	return prog_new(BPF_PROG_TYPE_KPROBE, attach, 0, insns, N_INSNS(insns));
}

static int probe_uprobe(char *note, size_t len)
{
	LIBBPF_OPTS(bpf_link_create_opts, o, .perf_event.bpf_cookie = RP_COOKIE);
	int map = map_new(), prog = -1, perf = -1, link = -1, err;
	char path[64];
	uint64_t off;

	if (map < 0)
		return map;
	err = file_offset((const void *)target, path, sizeof(path), &off);
	if (err)
		goto out;
	err = prog = prog_cookie(map, 0);
	if (prog < 0)
		goto out;
	err = perf = perf_uprobe(path, off);
	if (perf < 0) {
		if (perf == -EPERM)
			snprintf(note, len,
				 "perf_event_open refused: this kernel may want CAP_SYS_ADMIN");
		goto out;
	}
	link = bpf_link_create(prog, perf, BPF_PERF_EVENT, &o);
	if (link < 0) {
		err = -errno;
		goto out;
	}
	target();
	err = map_word(map, 0) == RP_COOKIE ? 0 : -ENODATA;
out:
	shut(link);
	shut(perf);
	shut(prog);
	close(map);
	return err < 0 ? err : 0;
}

int rp_uprobe_multi(int prog, uint32_t pid, const char *path, const uint64_t *offsets,
		    const uint64_t *cookies, uint32_t n)
{
	/* the part of union bpf_attr that older headers lack */
	const struct {
		uint32_t prog, target, type, flags;
		uint64_t path, offsets, ref, cookies;
		uint32_t cnt, uflags, pid, pad;
	} attr = {
		.prog = (uint32_t)prog,
		.type = RP_TRACE_UPROBE_MULTI,
		.path = (uint64_t)(uintptr_t)path,
		.offsets = (uint64_t)(uintptr_t)offsets,
		.cookies = (uint64_t)(uintptr_t)cookies,
		.cnt = n,
		.pid = pid,
	};
	int link = (int)syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));

	return link < 0 ? -errno : link;
}

static void *hit(void *arg)
{
	target();
	return arg;
}

int rp_uprobe_multi_probe(void)
{
	const uint64_t cookie = RP_COOKIE;
	int map = map_new(), prog = -1, link = -1, err;
	pthread_t other;
	char path[64];
	uint64_t off;

	if (map < 0)
		return map;
	err = file_offset((const void *)target, path, sizeof(path), &off);
	if (err)
		goto out;
	err = prog = prog_cookie(map, RP_TRACE_UPROBE_MULTI);
	if (prog < 0)
		goto out;
	err = link = rp_uprobe_multi(prog, (uint32_t)getpid(), path, &off, &cookie, 1);
	if (link < 0)
		goto out;
	err = -pthread_create(&other, NULL, hit, NULL);
	if (err)
		goto out;
	pthread_join(other, NULL);
	err = map_word(map, 0) == RP_COOKIE ? 0 : -ENODATA;
out:
	shut(link);
	shut(prog);
	close(map);
	return err < 0 ? err : 0;
}

static int probe_uprobe_multi(char *note, size_t len)
{
	int err = rp_uprobe_multi_probe();

	if (err == -ENODATA)
		snprintf(note, len, "attached, but it never fired in another thread");
	return err;
}

static int probe_preempt(char *note, size_t len)
{
	int off = vmlinux_id("bpf_preempt_disable", BPF_TRACE_FENTRY);
	int on = vmlinux_id("bpf_preempt_enable", BPF_TRACE_FENTRY), fd;

	(void)note;
	(void)len;
	if (off < 0 || on < 0)
		return off < 0 ? off : on;
	{
		const struct bpf_insn insns[] = {
			KCALL(off),
			KCALL(on),
			MOV_IMM(0, 0),
			EXIT(),
		};

		fd = prog_new(BPF_PROG_TYPE_KPROBE, 0, 0, insns, N_INSNS(insns));
	}
	shut(fd);
	return fd < 0 ? fd : 0;
}

static int probe_task_iter(char *note, size_t len)
{
	int map = map_new(), prog = -1, link = -1, fd = -1, id, err;
	char buf[64];

	(void)note;
	(void)len;
	if (map < 0)
		return map;
	err = id = vmlinux_id("task", BPF_TRACE_ITER);
	if (id < 0)
		goto out;
	err = prog = prog_mark(BPF_PROG_TYPE_TRACING, BPF_TRACE_ITER, (uint32_t)id, map, 0);
	if (prog < 0)
		goto out;
	link = bpf_link_create(prog, 0, BPF_TRACE_ITER, NULL);
	if (link < 0) {
		err = -errno;
		goto out;
	}
	fd = bpf_iter_create(link);
	if (fd < 0) {
		err = -errno;
		goto out;
	}
	while (read(fd, buf, sizeof(buf)) > 0)
		;
	err = map_word(map, 0) ? 0 : -ENODATA;
out:
	shut(fd);
	shut(link);
	shut(prog);
	close(map);
	return err < 0 ? err : 0;
}

static int probe_stats(char *note, size_t len)
{
	int stats, map, prog = -1, link = -1, err;
	struct bpf_prog_info info = {};
	uint32_t ilen = sizeof(info);

	(void)note;
	(void)len;
	stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
	if (stats < 0)
		return -errno;
	err = map = map_new();
	if (map < 0)
		goto out;
	err = prog = prog_mark(BPF_PROG_TYPE_RAW_TRACEPOINT, 0, 0, map, 0);
	if (prog < 0)
		goto out;
	link = bpf_raw_tracepoint_open("sys_enter", prog);
	if (link < 0) {
		err = -errno;
		goto out;
	}
	syscall(SYS_getppid);
	err = bpf_obj_get_info_by_fd(prog, &info, &ilen) ? -errno : 0;
	if (!err && !info.run_cnt)
		err = -ENODATA;
out:
	shut(link);
	shut(prog);
	shut(map);
	close(stats);
	return err < 0 ? err : 0;
}

/* A socket that listens and is closed passes both tracepoints. */
static int probe_sock_state(char *note, size_t len)
{
	static const char *const names[] = { "inet_sock_set_state", "tcp_destroy_sock" };
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int map = map_new(), prog[2] = { -1, -1 }, link[2] = { -1, -1 }, err = 0, s, i;

	if (map < 0)
		return map;
	for (i = 0; i < 2; i++) {
		err = tracepoint_mark(names[i], false, map, i, &prog[i], &link[i]);
		if (err) {
			snprintf(note, len, "%s", names[i]);
			goto out;
		}
	}
	err = 0;
	s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0 || bind(s, (void *)&a, sizeof(a)) || listen(s, 1))
		err = -errno;
	shut(s);
	for (i = 0; i < 2 && !err; i++) {
		if (map_word(map, i))
			continue;
		err = -ENODATA;
		snprintf(note, len, "%s never fired", names[i]);
	}
out:
	for (i = 0; i < 2; i++) {
		shut(link[i]);
		shut(prog[i]);
	}
	close(map);
	return err < 0 ? err : 0;
}

/* One byte through a pair of sockets passes both. */
static int probe_sock_length(char *note, size_t len)
{
	static const char *const names[] = { "sock_send_length", "sock_recv_length" };
	int map = map_new(), prog[2] = { -1, -1 }, link[2] = { -1, -1 }, err = 0, pair[2], i;
	char c = 0;

	if (map < 0)
		return map;
	for (i = 0; i < 2; i++) {
		err = tracepoint_mark(names[i], true, map, i, &prog[i], &link[i]);
		if (err)
			goto out;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
		err = -errno;
		goto out;
	}
	err = write(pair[0], &c, 1) == 1 && read(pair[1], &c, 1) == 1 && map_word(map, 0) &&
			      map_word(map, 1) ?
		      0 :
		      -ENODATA;
	shut(pair[0]);
	shut(pair[1]);
	if (!err)
		snprintf(note, len, "for vLLM and Aphrodite");
out:
	for (i = 0; i < 2; i++) {
		shut(link[i]);
		shut(prog[i]);
	}
	close(map);
	return err < 0 ? err : 0;
}

static int (*const probes[RP_FEAT_COUNT])(char *note, size_t len) = {
	[RP_FEAT_BTF] = probe_btf,
	[RP_FEAT_BPF] = probe_bpf,
	[RP_FEAT_RINGBUF] = probe_ringbuf,
	[RP_FEAT_TP_BTF] = probe_tp_btf,
	[RP_FEAT_RAW_TP] = probe_raw_tp,
	[RP_FEAT_TRACEFS] = probe_tracefs,
	[RP_FEAT_UPROBE] = probe_uprobe,
	[RP_FEAT_UPROBE_MULTI] = probe_uprobe_multi,
	[RP_FEAT_PREEMPT_KFUNC] = probe_preempt,
	[RP_FEAT_TASK_ITER] = probe_task_iter,
	[RP_FEAT_BPF_STATS] = probe_stats,
	[RP_FEAT_SOCK_STATE] = probe_sock_state,
	[RP_FEAT_SOCK_LENGTH] = probe_sock_length,
};

static bool yes(const struct rp_feature *f, enum rp_feature_id id)
{
	return f[id].state == RP_FEAT_YES;
}

/* The same choices as rp_live_open() makes. */
static void mark_used(struct rp_feature *f)
{
	struct stat st;
	bool other_ns = !stat("/proc/self/ns/pid", &st) && st.st_ino != 0xEFFFFFFCU;

	f[RP_FEAT_BTF].used = yes(f, RP_FEAT_BTF);
	f[RP_FEAT_BPF].used = yes(f, RP_FEAT_BPF);
	f[RP_FEAT_RINGBUF].used = yes(f, RP_FEAT_RINGBUF);
	f[RP_FEAT_TP_BTF].used = yes(f, RP_FEAT_TP_BTF);
	f[RP_FEAT_RAW_TP].used = yes(f, RP_FEAT_RAW_TP) && !yes(f, RP_FEAT_TP_BTF);
	f[RP_FEAT_UPROBE_MULTI].used = yes(f, RP_FEAT_UPROBE_MULTI);
	f[RP_FEAT_UPROBE].used = yes(f, RP_FEAT_UPROBE) && !yes(f, RP_FEAT_UPROBE_MULTI);
	if (yes(f, RP_FEAT_UPROBE_MULTI))
		f[RP_FEAT_UPROBE].lost = "nothing: uprobe_multi does the same";
	f[RP_FEAT_PREEMPT_KFUNC].used = yes(f, RP_FEAT_PREEMPT_KFUNC);
	f[RP_FEAT_TASK_ITER].used = yes(f, RP_FEAT_TASK_ITER) && other_ns;
	f[RP_FEAT_BPF_STATS].used = yes(f, RP_FEAT_BPF_STATS);
	f[RP_FEAT_SOCK_STATE].used = yes(f, RP_FEAT_SOCK_STATE);
	/* one of the two is enough, and one must be */
	f[RP_FEAT_TP_BTF].required = false;
	f[RP_FEAT_RAW_TP].required = !yes(f, RP_FEAT_TP_BTF);
}

void rp_feature_probe(struct rp_feature *f)
{
	libbpf_print_fn_t before = libbpf_set_print(quiet);
	int i, err;

	for (i = 0; i < RP_FEAT_COUNT; i++) {
		f[i] = table[i];
		err = probes[i](f[i].note, sizeof(f[i].note));
		f[i].err = err;
		f[i].state = !err ? RP_FEAT_YES : err == -EPERM ? RP_FEAT_DENIED : RP_FEAT_NO;
		if (err == -ENODATA && !f[i].note[0])
			snprintf(f[i].note, sizeof(f[i].note), "attached, but it never fired");
		/* a refusal here says nothing about the kernel */
		if (f[RP_FEAT_BPF].state == RP_FEAT_DENIED && i > RP_FEAT_BPF && err == -EACCES)
			f[i].state = RP_FEAT_DENIED;
	}
	mark_used(f);
	libbpf_set_print(before);
}
