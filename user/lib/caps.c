// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "lib/caps.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int rp_caps_keep(const int *keep, size_t n)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { { 0 }, { 0 } }, k[2] = { { 0 }, { 0 } };
	int err = 0;

	if (n && syscall(SYS_capget, &h, d))
		return -errno;
	for (size_t i = 0; i < n; i++)
		k[keep[i] / 32].permitted |= 1u << (keep[i] % 32);
	for (int i = 0; i < 2; i++) {
		k[i].permitted &= d[i].permitted;
		k[i].effective = k[i].permitted & d[i].effective;
	}
	if (syscall(SYS_capset, &h, k))
		err = -errno;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return err;
}

bool rp_caps_have(int cap)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { { 0 }, { 0 } };

	return !syscall(SYS_capget, &h, d) && d[cap / 32].effective >> (cap % 32) & 1;
}

void rp_thread_begin(const int *keep, size_t n)
{
	rp_caps_keep(keep, n);
	if (getpriority(PRIO_PROCESS, 0) < 0)
		setpriority(PRIO_PROCESS, 0, 0);
}
