/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * output.h - where records go beside JSONL, the terminal and /metrics. An output
 * brings its own options, watches the timeline as one more observer, and is driven
 * by run.c. It never blocks the thread that drains the ring: what can be slow (a
 * disk, a network) is done in a thread of its own behind a bounded queue, and what
 * a full queue turns away is counted.
 */
#ifndef REQPROBE_SINK_OUTPUT_H
#define REQPROBE_SINK_OUTPUT_H

#include <argp.h>
#include <stddef.h>

#include "options.h"
#include "sink/expo.h"
#include "sink/sink.h"
#include "timeline/timeline.h"

struct rp_output {
	const char *name;
	/*
	 * *state stays NULL when no option asks for it: then none of the others is
	 * called. Observes tl (rp_timeline_observe()). info lives as long as the
	 * output; its members are known from the first event on. -errno and one line
	 * in err. Threads it starts block all signals.
	 */
	int (*open)(const struct rp_options *o, const struct rp_summary_info *info,
		    struct rp_timeline *tl, void **state, char *err, size_t errlen);
	/* The rest may be NULL. After each drain of the ring, some 20 times a second: */
	void (*tick)(void *state);
	void (*reopen)(void *state); /* SIGHUP */
	/* Its own families on /metrics, rendered in another thread while the lock of
	 * the timeline is held, as in all observer calls. */
	void (*metrics)(void *state, struct rp_expo *e);
	/* All records were told; what is queued is handed on, for a bounded time.
	 * -errno when something was lost; said on stderr by the output. */
	int (*finish)(void *state);
	void (*close)(void *state);
};

#define RP_MAX_OUTPUTS 7			   /* observers of a timeline, less run.c's own */
extern const struct rp_output *const rp_outputs[]; /* ends with NULL */
/* Their options: parsers whose input is the struct rp_options. */
extern const struct argp_child rp_output_options[];
#define RP_MAX_OUTPUT_OPTIONS 8

#endif
