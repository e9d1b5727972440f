/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* metrics.h - the table in print, and objectives while requests are watched. */
#ifndef REQPROBE_METRICS_METRICS_H
#define REQPROBE_METRICS_METRICS_H

#include <stdio.h>

enum rp_metrics_format { RP_METRICS_TEXT, RP_METRICS_JSON, RP_METRICS_MARKDOWN };

/* The whole table. Errors are the stream's. */
void rp_metrics_print(FILE *out, enum rp_metrics_format format);

/* reqprobe metrics [--json | --markdown]; argv[0] is the verb. An exit status. */
int rp_metrics(int argc, char **argv);

#endif
