/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* otlp.h - metrics and spans by OTLP over HTTP: an output (sink/output.h). */
#ifndef REQPROBE_OTLP_OTLP_H
#define REQPROBE_OTLP_OTLP_H

#include "sink/output.h"

extern const struct rp_output rp_otlp_output;

/* What the queue of spans takes of --memory, in bytes; 0 when there is none. */
size_t rp_otlp_memory(const struct rp_options *o);

#endif
