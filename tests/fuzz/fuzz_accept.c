// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* An Accept header chooses a format that there is, whatever it says. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sink/expo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *s = malloc(size + 1);

	if (!s)
		return 0;
	memcpy(s, data, size);
	s[size] = '\0';
	if (rp_expo_negotiate(s) >= RP_EXPO_FORMATS)
		abort();
	free(s);
	return 0;
}
