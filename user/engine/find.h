/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* find.h - engines that run on this machine. */
#ifndef REQPROBE_FIND_H
#define REQPROBE_FIND_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/engine.h"

#define RP_FIND_PROCS_MAX 65536 /* looked at; what is beyond is not found */

struct rp_found {
	uint32_t pid; /* the topmost process of its tree that is this engine's: for --pid */
	const struct rp_engine *engine;
	char version[64]; /* "" unknown */
};

/*
 * Fills at most max, by pid; returns the number there are, or a negative errno. What others
 * run may tell less without root: then an engine is known by its command line, or is not.
 */
ssize_t rp_find_engines(struct rp_found *out, size_t max);

/*
 * A process of an engine is given (its EngineCore, as nvidia-smi(1) shows it): the topmost
 * one of that engine above it, whose tree serves. Else pid itself.
 */
uint32_t rp_find_top(uint32_t pid);

#endif
