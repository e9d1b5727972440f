/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* caps.h - capabilities, which in Linux are a thread's (capset(2)) and go on to the
 * threads that it starts. */
#ifndef REQPROBE_CAPS_H
#define REQPROBE_CAPS_H

#include <stdbool.h>
#include <stddef.h>

/* By number: older headers lack them. */
enum { RP_CAP_PERFMON = 38, RP_CAP_BPF = 39, RP_CAP_CHECKPOINT_RESTORE = 40 };

/*
 * The calling thread keeps, of what it has, the n capabilities in keep; and it can gain
 * no others (PR_SET_NO_NEW_PRIVS). Negative errno when it could not drop them.
 */
int rp_caps_keep(const int *keep, size_t n);

/* Does the calling thread have it, in effect? */
bool rp_caps_have(int cap);

/* What a helper thread begins with, for it is started while the daemon still has all it
 * needs for the attach: the same, and no haste. */
void rp_thread_begin(const int *keep, size_t n);

#endif
