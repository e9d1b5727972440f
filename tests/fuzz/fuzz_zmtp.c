// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The first byte of each piece says how long it is, whether it begins a write, and
 * whether it is a hole. Cut otherwise, the same frames. */
#include <stdint.h>
#include <stdlib.h>

#include "protocol/zmtp.h"

#define MAX 4096

static uint64_t sum;

static void on_frame(void *ctx, const struct rp_zmtp_frame *f)
{
	(void)ctx;
	if (f->len > f->total || f->len > MAX)
		abort();
	sum = sum * 31 + f->flags + f->total;
	for (size_t i = 0; i < f->len; i++)
		sum = sum * 31 + f->body[i];
}

static uint64_t run(const uint8_t *d, size_t n, size_t step)
{
	struct rp_zmtp z;

	sum = 0;
	rp_zmtp_init(&z, MAX);
	while (n) {
		uint8_t c = *d++;
		size_t k = c >> 2;

		n--;
		if (c & 2) {
			rp_zmtp_gap(&z, (uint64_t)k << (c & 1 ? 10 : 0), on_frame, NULL);
			continue;
		}
		if (k > n)
			k = n;
		for (size_t i = 0; i < k; i += step)
			rp_zmtp_feed(&z, 1, (c & 1) && !i, d + i, k - i < step ? k - i : step,
				     on_frame, NULL);
		d += k;
		n -= k;
	}
	if (z.cap > MAX)
		abort();
	rp_zmtp_free(&z);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t a = run(data, size, 64);

	if (run(data, size, 1) != a || run(data, size, 7) != a)
		abort();
	return 0;
}
