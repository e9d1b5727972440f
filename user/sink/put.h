/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* put.h - what the writers of JSON lines share (in jsonl.c). */
#ifndef REQPROBE_SINK_PUT_H
#define REQPROBE_SINK_PUT_H

#include "sink/sink.h"

/* A literal, its length known to the compiler. */
#define LIT(b, s) rp_buf_put(b, s, sizeof(s) - 1)

void rp_put_i64(struct rp_buf *b, int64_t v);
void rp_put_bool(struct rp_buf *b, bool v);
void rp_put_pid(struct rp_buf *b, uint32_t pid);	     /* 0 is null */
void rp_put_string_or_null(struct rp_buf *b, const char *s); /* NULL and "" are null */
void rp_put_record(struct rp_buf *b,
		   const struct rp_record *r);	/* reqprobe.request/1, no newline */
void rp_put_time(struct rp_buf *b, int64_t ns); /* RFC 3339 with nine digits */

/* The text, NUL-terminated, to be freed by the caller. NULL: no memory. */
char *rp_buf_own(struct rp_buf *b, size_t *len);

/* One line of whatever put() writes, with the promises of rp_jsonl_record(). */
typedef void (*rp_put_fn)(struct rp_buf *b, const void *what);
int rp_jsonl_line(struct rp_jsonl *j, rp_put_fn put, const void *what);

#endif
