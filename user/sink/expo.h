/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * expo.h - writes Prometheus families, in whichever format the scraper asked for.
 * A family is begun once, its samples follow; families never interleave. Numbers
 * are given exactly. Takes no lock, allocates only what the buffer needs; a full
 * memory shows as oom of the buffer.
 */
#ifndef REQPROBE_SINK_EXPO_H
#define REQPROBE_SINK_EXPO_H

#include <stddef.h>
#include <stdint.h>

#include "sink/sink.h"

enum rp_expo_type { RP_EXPO_COUNTER, RP_EXPO_GAUGE, RP_EXPO_HISTOGRAM };

struct rp_label {
	const char *key, *value; /* value: any bytes, escaped when written */
};

struct rp_expo {
	struct rp_buf *b;
	const char *name; /* of the family that was begun */
};

/* name as in text format 0.0.4: a counter's with its _total. It must live until
 * the next family. help: one line. */
void rp_expo_family(struct rp_expo *e, const char *name, enum rp_expo_type type, const char *help);
/* One sample of the family; at most 16 labels, written in the order given. */
void rp_expo_u64(struct rp_expo *e, const struct rp_label *l, size_t n, uint64_t v);
void rp_expo_double(struct rp_expo *e, const struct rp_label *l, size_t n, double v);

#endif
