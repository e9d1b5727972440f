// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* generic.c - any server that speaks HTTP: its sockets tell the rest. */
#include "engine/engine.h"
#include "engine/proc.h"

static int recognise(const struct rp_proc *p)
{
	(void)p;
	return 1;
}

static void version(const struct rp_proc *p, char *buf, size_t len)
{
	(void)p;
	if (len)
		buf[0] = '\0';
}

const struct rp_engine rp_engine_generic = {
	.name = "generic",
	.title = "HTTP server",
	.recognise = recognise,
	.version = version,
};
