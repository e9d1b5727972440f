// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "sink/name.h"

#include <string.h>

#include "sink/sink.h"

static const char none[] = "\xef\xbf\xbd"; /* U+FFFD */

void rp_name_canonical(char *to, size_t size, const char *from)
{
	const unsigned char *s = (const unsigned char *)from;
	size_t at = 0;

	for (;;) {
		const char *put;
		size_t plain = 0, n;
		int len;

		/* nearly all of them are ASCII, and each token of a stream brings one here */
		while (s[plain] >= 0x20 && s[plain] < 0x7f && at + plain + 1 < size)
			plain++;
		memcpy(to + at, s, plain);
		at += plain;
		s += plain;
		if (!*s)
			break;
		len = rp_utf8_len(s);
		n = (size_t)(len < 0 ? -len : len);
		put = (const char *)s;
		s += n;
		if (len < 0 || *put == 0x7f || (unsigned char)*put < 0x20 ||
		    ((unsigned char)*put == 0xc2 && (unsigned char)put[1] < 0xa0)) {
			put = none;
			n = sizeof(none) - 1;
		}
		if (at + n + 1 > size)
			break;
		memcpy(to + at, put, n);
		at += n;
	}
	to[at] = '\0';
}

void rp_name_label(char *to, size_t size, const char *from)
{
	const char *s = from;

	if (!from || !*from) {
		rp_name_canonical(to, size, RP_NAME_UNKNOWN);
		return;
	}
	while (*s == '_')
		s++;
	if (size > 1 && (!strcmp(s, RP_NAME_OTHER) || !strcmp(s, RP_NAME_UNKNOWN))) {
		*to++ = '_';
		size--;
	}
	rp_name_canonical(to, size, from);
}
