// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "sink/expo.h"

#include <string.h>

#include "sink/put.h"

void rp_expo_family(struct rp_expo *e, const char *name, enum rp_expo_type type, const char *help)
{
	static const char *const types[] = { "counter", "gauge", "histogram" };

	e->name = name;
	LIT(e->b, "# HELP ");
	rp_buf_str(e->b, name);
	LIT(e->b, " ");
	rp_buf_str(e->b, help);
	LIT(e->b, "\n# TYPE ");
	rp_buf_str(e->b, name);
	LIT(e->b, " ");
	rp_buf_str(e->b, types[type]);
	LIT(e->b, "\n");
}

/* UTF-8 with \, " and LF escaped; anything else that is a control or no UTF-8
 * becomes U+FFFD. */
static void value(struct rp_buf *b, const char *str)
{
	const unsigned char *s = (const unsigned char *)str;

	while (*s) {
		int n = rp_utf8_len(s);

		if (*s == '\\' || *s == '"') {
			LIT(b, "\\");
			rp_buf_put(b, (const char *)s, 1);
		} else if (*s == '\n') {
			LIT(b, "\\n");
		} else if (n < 0 || *s < 0x20 || *s == 0x7f) {
			LIT(b, "\xef\xbf\xbd");
		} else {
			rp_buf_put(b, (const char *)s, (size_t)n);
		}
		s += n < 0 ? -n : n;
	}
}

static void sample(struct rp_expo *e, const struct rp_label *l, size_t n)
{
	rp_buf_str(e->b, e->name);
	for (size_t i = 0; i < n; i++) {
		rp_buf_str(e->b, i ? "," : "{");
		rp_buf_str(e->b, l[i].key);
		LIT(e->b, "=\"");
		value(e->b, l[i].value);
		LIT(e->b, "\"");
	}
	rp_buf_str(e->b, n ? "} " : " ");
}

void rp_expo_u64(struct rp_expo *e, const struct rp_label *l, size_t n, uint64_t v)
{
	sample(e, l, n);
	rp_buf_u64(e->b, v);
	LIT(e->b, "\n");
}

void rp_expo_double(struct rp_expo *e, const struct rp_label *l, size_t n, double v)
{
	sample(e, l, n);
	rp_buf_double(e->b, v);
	LIT(e->b, "\n");
}
