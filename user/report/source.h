/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * source.h - the logs that a person named, wherever they lie: files, directories,
 * standard input, s3://BUCKET/PREFIX. A reader of all of them, in this order. Objects
 * of a store are fetched one by one, each into a file without a name in TMPDIR.
 */
#ifndef REQPROBE_REPORT_SOURCE_H
#define REQPROBE_REPORT_SOURCE_H

#include "log/s3.h"
#include "report/reader.h"

struct rp_source;
/*
 * Lists the stores' objects that are logs. -errno and one line in err, -EINTR when
 * rp_stopped; what can't be had of single files later is said by rp_say(). o lives as
 * long. memory: as of the reader.
 */
int rp_source_open(const struct rp_s3_options *o, const char *const *paths, size_t n,
		   uint64_t memory, struct rp_source **out, char *err, size_t errlen);
struct rp_reader *rp_source_reader(struct rp_source *s);

/* True when a signal wants an end: also the reader's and the store's. */
extern volatile sig_atomic_t rp_stopped;
/* SIGINT, SIGTERM and SIGHUP set it; what is waited for then ends with EINTR, also when the
 * signal comes just before. */
void rp_source_on_signals(void);
void rp_source_close(struct rp_source *s);

#endif
