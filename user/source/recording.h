/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * recording.h - events in a file. Layout: struct rp_rec_header, then the events
 * of reqprobe/event.h one after the other, each as its `size` says, in the
 * order the timeline saw them. Host byte order; the other order is refused.
 */
#ifndef REQPROBE_RECORDING_H
#define REQPROBE_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reqprobe/event.h"
#include "source/live.h"

#define RP_REC_MAGIC "RQPROBE\n"
#define RP_REC_VERSION 2 /* 1: DATA without what TCP knows; read as well */
#define RP_REC_ORDER 0x01020304u
/* Largest event a reader accepts, bytes. */
#define RP_REC_EVENT_MAX (2u << 20)

struct rp_rec_header {
	char magic[8];
	uint32_t order;
	uint32_t version;
	uint32_t raw; /* 1: payload is as it was on the wire */
	uint32_t pad;
};

struct rp_rec;

/* Create `path` (0600: even filler tells lengths). A former recording there is renamed to
 * path.old, in place of any that has that name. err: one line. */
int rp_rec_open(const char *path, bool raw, struct rp_rec **out, char *err, size_t errlen);
/* A full disk ends the recording at the last whole event, says so once through
 * the return value (-ENOSPC, ...), and every later call is 0. */
int rp_rec_write(struct rp_rec *r, const struct rp_event_hdr *ev);
int rp_rec_flush(struct rp_rec *r);
/* Writes what is left; -errno as rp_rec_write. NULL is 0. */
int rp_rec_close(struct rp_rec *r);

/*
 * Feed every event of a recording to fn. 0; -errno with one line in err (a file
 * that ends in the middle of an event: -ENODATA, after all before it was fed).
 */
int rp_rec_replay(const char *path, rp_event_fn fn, void *ctx, char *err, size_t errlen);

#endif
