/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * proc.h - a process and its files as seen through /proc. Everything is bounded
 * and tolerates paths of any length, deleted files and processes that go away
 * in the middle (then -ESRCH). The target's files are opened through
 * /proc/PID/map_files or /proc/PID/root, never by the path alone.
 */
#ifndef REQPROBE_PROC_H
#define REQPROBE_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RP_TREE_MAX 4096

struct rp_object {		    /* one mapped ELF file (executable mapping) */
	uint64_t start, end, pgoff; /* of its executable mapping */
	dev_t dev;
	ino_t ino;
	char *path;	    /* as in maps, unescaped, " (deleted)" removed; owned */
	char open_path[64]; /* /proc/PID/map_files/START-END */
	bool deleted;
};

struct rp_proc {
	uint32_t pid, ppid;
	uint64_t start_time; /* clock ticks since boot: tells reuse of a pid */
	char comm[16];
	char *cmdline; /* NUL separated, owned */
	size_t cmdline_len;
	char *exe; /* readlink of exe, owned, may be NULL */
	struct rp_object *objects;
	size_t n_objects;
	bool is_go;  /* executable has a Go build id or .go.buildinfo */
	int seccomp; /* Seccomp: line of status, -1 unknown */
};

/*
 * Reads all of it. 0, -ESRCH (gone, a zombie, or a thread of another group),
 * -ENOMEM. -EACCES: not ours to read; *p holds what could be read (comm, command
 * line). Free with rp_proc_free() in every case.
 */
int rp_proc_read(uint32_t pid, struct rp_proc *p);
void rp_proc_free(struct rp_proc *p);
/* Read-only descriptor of a mapped file, through map_files, or by its name when
 * that is not permitted and the name still leads to the same inode. Or -errno. */
int rp_object_open(const struct rp_proc *p, const struct rp_object *o);
/* Opens a regular file or a folder by the name it has in the process's own file system,
 * where links lead no further. A descriptor or -errno. */
int rp_proc_open(uint32_t pid, const char *path, int flags);
/* What follows the last slash. */
const char *rp_path_base(const char *path);
bool rp_starts(const char *s, const char *prefix);
/* The n-th argument of its command line, "" behind the last. */
const char *rp_proc_arg(const struct rp_proc *p, int n);
/* The value of a command line's option, `--name VALUE` or `--name=VALUE`, with - and _
 * taken for each other; names end with NULL. "" when it has none of them. The last counts. */
const char *rp_proc_option(const struct rp_proc *p, const char *const *names);
/* Does it have one of these `--name`s or its beginning, with whatever value, or with a part of
 * its value (`--name.key VALUE`)? */
bool rp_proc_given(const struct rp_proc *p, const char *const *names);
/* 0 when the process exists (not a zombie), -ESRCH else. */
int rp_proc_alive(uint32_t pid);

/* io_uring instances among the open files, 0 when they can't be looked at. */
size_t rp_proc_io_urings(uint32_t pid);

/* pid and all its descendants now. *out is malloc'd; returns their number or
 * -errno. A pid that is a thread id of another group is -ESRCH. */
ssize_t rp_proc_tree(uint32_t pid, uint32_t **out);

struct rp_listener {
	int family; /* AF_INET, AF_INET6, AF_UNIX */
	uint16_t port;
	uint8_t addr[16]; /* network order */
	uint32_t netns;
	uint32_t pid; /* a process of the tree that holds it */
	char path[112];
};
/* Listening stream sockets held by these processes (from /proc/PID/fd and
 * /proc/PID/net/{tcp,tcp6,unix}, each network namespace read once).
 * *out is malloc'd; returns their number or -errno: -ESRCH when none of the processes is
 * there, -EACCES when none is found and not all may be looked into. */
ssize_t rp_proc_listeners(const uint32_t *pids, size_t n, struct rp_listener **out);

/* ---- elf.c ---- */
struct rp_sym {
	uint64_t file_off; /* offset of the function's first byte in the file */
	uint64_t size;
	char *name; /* owned */
};
/*
 * Find function symbols (STT_FUNC, size > 0, defined, in an executable PT_LOAD)
 * in .symtab and .dynsym. `want(ctx, name)` >= 0 picks; its result is stored in
 * idx. Clones (".isra.", ".constprop.", ".part.", ".cold", "@plt") are never
 * offered. *has_symtab tells a stripped file. Returns the number found in
 * *out (malloc'd) or -errno (-ENOEXEC: no ELF).
 */
struct rp_sym_hit {
	int idx;
	struct rp_sym sym;
};
ssize_t rp_elf_find(const char *open_path, int (*want)(void *ctx, const char *name), void *ctx,
		    struct rp_sym_hit **out, bool *has_symtab, bool *is_go);
/* The same on an open file. want, out, has_symtab and is_go may be NULL. */
ssize_t rp_elf_find_fd(int fd, int (*want)(void *ctx, const char *name), void *ctx,
		       struct rp_sym_hit **out, bool *has_symtab, bool *is_go);
void rp_elf_free(struct rp_sym_hit *hits, ssize_t n);
/* The initial value of a global int, as the file has it. 0 or -ENOENT, -ENOEXEC. */
int rp_elf_read_int(int fd, const char *name, int32_t *v);

/* ---- match.c ---- */
struct rp_hook_place { /* one hook to attach */
	uint32_t hook; /* index in the engine's table */
	uint64_t offset;
	char open_path[64];
	char *path; /* for people; owned */
};
struct rp_match {
	const struct rp_engine *engine;
	uint32_t pid; /* the process recognised */
	char version[64];
	struct rp_hook_place *places;
	size_t n_places;
	uint64_t missing; /* bit i: no hook of hook i's role was found */
	int reason;	  /* enum rp_hook_reason: about QUEUED, SCHEDULED, TOKEN and VLLM; the
				 * other roles are a bonus. places may be partly filled */
	char why[256];	  /* one line for people when something is missing: names file
				 * and functions; "" when all is there */
};
/* Find the hooks of `engine` in one process. Refuses Go binaries for anything
 * but entry probes (all of ours are). Always fills *m; 0 or -errno. */
int rp_match_hooks(const struct rp_engine *engine, const struct rp_proc *p, struct rp_match *m);
void rp_match_free(struct rp_match *m);
/* Whose process is it, by the highest score of rp_engine's recognise(), the first of
 * equals; NULL and a score of 0: of none that is known. */
const struct rp_engine *rp_recognise(const struct rp_proc *p, int *score);
/* Best engine for a process tree; NULL-safe: generic when nothing better. */
const struct rp_engine *rp_match_engine(const uint32_t *pids, size_t n, uint32_t *pid);

#endif
