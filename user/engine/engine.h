/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * engine.h - what reqprobe knows of an engine family: how to recognise it,
 * which functions to hook, what their entries mean. One file per family.
 * A new engine is a table here, not new BPF code.
 */
#ifndef REQPROBE_ENGINE_H
#define REQPROBE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reqprobe/event.h"

/* What a hook's entry says about a request. Values by position in val[]. */
/* clang-format off */
enum rp_role {
	RP_ROLE_NONE,
	RP_ROLE_QUEUED,		/* val[0..n-1] = task ids, on the thread that read the request;
				 * told more than once, the last before SCHEDULED counts */
	RP_ROLE_SCHEDULED,	/* val[0] = slot key, val[1] = task id, val[2] = slot number, which
				 * is the sequence in batches (recordings since STEP) */
	RP_ROLE_TOKEN,		/* val[0] = slot key: one generated token */
	RP_ROLE_FINAL,		/* val[0] = slot key: the task is answered */
	RP_ROLE_RELEASED,	/* val[0] = slot key: the slot is free (also when idle) */
	RP_ROLE_DEFERRED,	/* val[0] = task id: no free slot, it waits */
	RP_ROLE_VLLM,		/* MSG: what user/protocol/vllm.h decodes, in both directions */
	RP_ROLE_STEP,		/* val[0] = context, val[1] = its first members (see llamacpp.c),
				 * val[2] = tokens, then as RP_READ_BATCH: a batch is computed */
	RP_ROLE_COUNT
};
/* clang-format on */

struct rp_engine_hook {
	const char *function; /* plain name, for people: "server_queue::post" */
	const char *symbol;   /* mangled name, exact; a trailing '*' matches a prefix */
	enum rp_role role;
	uint8_t fallback;  /* rank: attached only when no hook of this role with a
				 * lower rank is found; 0 always */
	const char *gives; /* what is lost without it: "queue time" */
	struct rp_hook_spec spec;
};

enum rp_object_kind {
	RP_OBJECT_NONE,
	RP_OBJECT_SERVER, /* the one to name when something is missing */
	RP_OBJECT_LIBRARY /* has some of the functions */
};

struct rp_proc; /* user/engine/proc.h */

struct rp_engine {
	const char *name;  /* "llamacpp" */
	const char *title; /* "llama.cpp" */
	const struct rp_engine_hook *hooks;
	size_t n_hooks; /* <= RP_MAX_HOOKS */
	bool spins;	/* its processes wait in sched_yield(2), not asleep */
	/* Is this process one of ours? 0..100, 0 = no. Looks at files and
	 * command line only; never at the process's memory. */
	int (*recognise)(const struct rp_proc *p);
	/* Version as the engine tells it from outside (file names, package
	 * metadata); "" when unknown. */
	void (*version)(const struct rp_proc *p, char *buf, size_t len);
	/* What its command line says of its configuration; NULL: nothing is looked for.
	 * Fills members of *e that are still 0. */
	void (*configuration)(const struct rp_proc *p, struct rp_ev_engine *e);
	/* Which mapped file may hold the hooked functions? The program itself
	 * is always searched. */
	enum rp_object_kind (*hook_object)(const char *path);
	/* Optional. A process of the engine that has the hooked functions and never calls
	 * them with what is read here: each call would cost it a trap for nothing. Its name
	 * may say so only some time after its start. */
	bool (*bystander)(const struct rp_proc *p);
};

extern const struct rp_engine rp_engine_llamacpp;
extern const struct rp_engine rp_engine_vllm;
extern const struct rp_engine rp_engine_aphrodite;
extern const struct rp_engine rp_engine_generic;

/* NULL-terminated, most specific first, generic last. */
extern const struct rp_engine *const rp_engines[];
const struct rp_engine *rp_engine_by_name(const char *name);

#endif
