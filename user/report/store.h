/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * store.h - the facts of many requests, small: columns of a thousand rows each, every
 * one as many bits wide as its values are apart, a column that stands still is nothing.
 * A million requests take some 90 MB, so that each percentile can be exact. Nothing
 * is rounded. Of facts, strings but error_where are not kept, nor metrics.* (m_...),
 * which no metric is made of.
 */
#ifndef REQPROBE_REPORT_STORE_H
#define REQPROBE_REPORT_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "metrics/facts.h"

#define RP_STORE_ROWS 1024  /* of a block */
#define RP_STORE_WHYS 32768 /* different sets of reasons */

struct rp_store;

/* NULL: no memory. */
struct rp_store *rp_store_new(void);
/* One more row. why: as rp_line_scan() has it; group: any number. -ENOMEM; -ENOSPC: more
 * different sets of reasons than there is room for, the row is not in it. */
int rp_store_add(struct rp_store *s, const struct rp_facts *f, const uint8_t why[RP_FIELD_COUNT],
		 uint32_t group);
size_t rp_store_rows(const struct rp_store *s);
size_t rp_store_bytes(const struct rp_store *s); /* of memory */
size_t rp_store_blocks(const struct rp_store *s);

/* What reads a store. Several may at a time, each in a thread of its own, while nothing
 * is added or dropped. */
struct rp_store_cursor;
struct rp_store_rows {
	const struct rp_facts *f; /* n of each, in the order they were added */
	const uint8_t *const *why;
	const uint32_t *group;
	size_t n;
};
/* NULL: no memory. */
struct rp_store_cursor *rp_store_cursor_new(const struct rp_store *s);
/* The rows of block b, good until the next call. Strings are "" but error_where, and
 * there are no gaps. */
void rp_store_block(struct rp_store_cursor *c, size_t b, struct rp_store_rows *rows);
void rp_store_cursor_free(struct rp_store_cursor *c);
/* Block b is needed no more. */
void rp_store_drop(struct rp_store *s, size_t b);
void rp_store_free(struct rp_store *s);

#endif
