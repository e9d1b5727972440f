// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * scan.c - the scanner. Keys are looked for from the one that the last match makes
 * likely, so that a line in the writer's own order costs one comparison a key. Every
 * loop ends at the line's terminator, which is part of no token.
 */
#include "report/scan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sink/sink.h"

#define DEPTH_MAX 32 /* of what is passed over */

static const struct leaf {
	const char *group, *name;
	uint8_t len, type, group_len;
} leaves[RP_LEAF_COUNT] = {
#define X(id, g, n, t) [RP_LEAF_##id] = { g, n, sizeof(n) - 1, RP_LEAF_##t, sizeof(g) - 1 },
	RP_LEAVES(X)
#undef X
#define X(id, n) [RP_LEAF_USAGES + RP_USAGE_##id] = { "usage", n, sizeof(n) - 1, RP_LEAF_I, 5 },
		RP_USAGES(X)
#undef X
#define RP_LEAF_NS RP_LEAF_D
#define RP_LEAF_US RP_LEAF_D
#define RP_LEAF_N RP_LEAF_I
#define RP_LEAF_MS RP_LEAF_D
#define RP_LEAF_R RP_LEAF_D
#define X(id, g, n, t) \
	[RP_LEAF_FIELDS + RP_FIELD_##id] = { g, n, sizeof(n) - 1, RP_LEAF_##t, sizeof(g) - 1 },
			RP_FIELDS(X)
#undef X
};

const char *rp_leaf_group(unsigned leaf)
{
	return leaves[leaf].group;
}

const char *rp_leaf_name(unsigned leaf)
{
	return leaves[leaf].name;
}

enum rp_leaf_type rp_leaf_type(unsigned leaf)
{
	return leaves[leaf].type;
}

/* The leaves of one group in the order of the writer, found once. */
#define GROUPS_MAX 24
static struct group {
	const char *name;
	uint8_t len, n;
	uint8_t leaf[RP_LEAF_COUNT];
} groups[GROUPS_MAX];
static unsigned n_groups; /* groups[0] is the top */
_Static_assert(RP_LEAF_COUNT < 255, "a leaf is a byte here");

static void sort_out(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < RP_LEAF_COUNT; i++) {
		unsigned g = 0;

		while (g < n && strcmp(groups[g].name, leaves[i].group) != 0)
			g++;
		if (g == n) {
			if (n == GROUPS_MAX)
				abort(); /* a table of ours that has outgrown this file */
			groups[n].name = leaves[i].group;
			groups[n++].len = (uint8_t)strlen(leaves[i].group);
		}
		groups[g].leaf[groups[g].n++] = (uint8_t)i;
	}
	n_groups = n;
}

/* ---- syntax ---- */

struct scan {
	const char *end;
	struct rp_line *l;
};

/* Stops at the terminator, for no line has one inside. */
static inline const char *blanks(const char *p)
{
	while (*p == ' ' || *p == '\t' || *p == '\r')
		p++;
	return p;
}

/* 1: nothing special inside a string */
static const uint8_t plain[256] = { [0x20 ... 0x21] = 1, [0x23 ... 0x5b] = 1, [0x5d ... 0x7f] = 1 };

static int hex4(const char *p)
{
	int v = 0;

	for (int i = 0; i < 4; i++) {
		char c = p[i];

		if (c >= '0' && c <= '9')
			v = v << 4 | (c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			v = v << 4 | ((c | 0x20) - 'a' + 10);
		else
			return -1;
	}
	return v;
}

/* The escape at the backslash p: its end, or NULL. The code point in *cp. */
static const char *escape_end(const char *p, uint32_t *cp)
{
	int a, b;

	switch (p[1]) {
	case '"':
	case '\\':
	case '/':
		*cp = (unsigned char)p[1];
		return p + 2;
	case 'b':
		*cp = '\b';
		return p + 2;
	case 'f':
		*cp = '\f';
		return p + 2;
	case 'n':
		*cp = '\n';
		return p + 2;
	case 'r':
		*cp = '\r';
		return p + 2;
	case 't':
		*cp = '\t';
		return p + 2;
	case 'u':
		a = hex4(p + 2);
		if (a <= 0 || (a >= 0xdc00 && a <= 0xdfff))
			return NULL;
		*cp = (uint32_t)a;
		if (a < 0xd800 || a > 0xdbff)
			return p + 6;
		if (p[6] != '\\' || p[7] != 'u')
			return NULL;
		b = hex4(p + 8);
		if (b < 0xdc00 || b > 0xdfff)
			return NULL;
		*cp = 0x10000 + ((uint32_t)(a - 0xd800) << 10) + (uint32_t)(b - 0xdc00);
		return p + 12;
	default:
		return NULL;
	}
}

/* From the opening quote to behind the closing one, or NULL. */
static const char *string_end(const char *p, bool *escaped)
{
	uint32_t cp;
	int n;

	for (p++;;) {
		unsigned char c = (unsigned char)*p;

		if (plain[c]) {
			p++;
		} else if (c == '"') {
			return p + 1;
		} else if (c == '\\') {
			*escaped = true;
			p = escape_end(p, &cp);
			if (!p)
				return NULL;
		} else if (c >= 0x80) {
			n = rp_utf8_len((const unsigned char *)p);
			if (n < 0)
				return NULL;
			p += n;
		} else {
			return NULL; /* a control character, or the end of the line */
		}
	}
}

static inline bool digit(char c)
{
	return c >= '0' && c <= '9';
}

struct number {
	bool integer;
	bool odd; /* negative, with an exponent, or with more digits than a duration has */
};

static const char *number_end(const char *p, struct number *k)
{
	const char *digits;

	*k = (struct number){ true, *p == '-' };
	if (*p == '-')
		p++;
	digits = p;
	if (*p == '0')
		p++;
	else if (digit(*p))
		while (digit(*p))
			p++;
	else
		return NULL;
	k->odd |= p - digits > 11; /* RP_LINE_MS_MAX */
	if (*p == '.') {
		k->integer = false;
		if (!digit(*++p))
			return NULL;
		while (digit(*p))
			p++;
	}
	if (*p == 'e' || *p == 'E') {
		k->integer = false;
		k->odd = true;
		p++;
		if (*p == '+' || *p == '-')
			p++;
		if (!digit(*p))
			return NULL;
		while (digit(*p))
			p++;
	}
	return p;
}

/* Behind the word; a line's terminator is no letter of one. */
static const char *word_end(const char *p, const char *word, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != word[i])
			return NULL;
	return p + n;
}

/* Behind a value of any kind, or NULL. Not recursive: depth is a bit for each level. */
static const char *value_end(const char *p)
{
	uint64_t object = 0; /* bit d: level d is an object */
	unsigned depth = 0;
	struct number k;
	bool b;

	for (;;) {
		/* a value begins */
		p = blanks(p);
		if (*p == '{' || *p == '[') {
			bool obj = *p == '{';

			if (depth == DEPTH_MAX)
				return NULL;
			p = blanks(p + 1);
			if (*p == (obj ? '}' : ']')) {
				p++;
			} else {
				object = obj ? object | 1ULL << depth : object & ~(1ULL << depth);
				depth++;
				if (!obj)
					continue;
				goto key;
			}
		} else if (*p == '"') {
			p = string_end(p, &b);
		} else if (*p == 't') {
			p = word_end(p, "true", 4);
		} else if (*p == 'f') {
			p = word_end(p, "false", 5);
		} else if (*p == 'n') {
			p = word_end(p, "null", 4);
		} else {
			p = number_end(p, &k);
		}
		if (!p)
			return NULL;
		/* a value has ended */
		for (;;) {
			bool obj;

			if (!depth)
				return p;
			obj = object >> (depth - 1) & 1;
			p = blanks(p);
			if (*p == ',') {
				p++;
				if (obj)
					goto key;
				break;
			}
			if (*p != (obj ? '}' : ']'))
				return NULL;
			p++;
			depth--;
		}
		continue;
key:
		p = blanks(p);
		if (*p != '"')
			return NULL;
		p = string_end(p, &b);
		if (!p)
			return NULL;
		p = blanks(p);
		if (*p++ != ':')
			return NULL;
	}
}

/* ---- members ---- */

static bool whole(const char *p, const char *end, const struct number *k)
{
	return k->integer && *p != '-' && end - p <= RP_LINE_DIGITS;
}

/* p: a number and what follows it in JSON. */
static bool real(const char *p, const struct number *k, bool duration)
{
	double d;

	if (!k->odd)
		return true;
	d = strtod(p, NULL);
	return duration ? d >= 0 && d < RP_LINE_MS_MAX : fabs(d) < RP_LINE_REAL_MAX;
}

static const char *array_end(const char *p, enum rp_leaf_type type)
{
	bool b;

	p = blanks(p + 1);
	if (*p == ']')
		return p + 1;
	for (unsigned n = 0; n < RP_LINE_LIST_MAX; n++) {
		const char *start;
		struct number k;

		p = start = blanks(p);
		if (type == RP_LEAF_AS)
			p = *p == '"' ? string_end(p, &b) : NULL;
		else
			p = number_end(p, &k);
		if (!p || (type == RP_LEAF_AI && !whole(start, p, &k)) ||
		    (type == RP_LEAF_AD && !real(start, &k, true)))
			return NULL;
		p = blanks(p);
		if (*p == ']')
			return p + 1;
		if (*p++ != ',')
			return NULL;
	}
	return NULL;
}

static bool is_duration(unsigned leaf)
{
	enum rp_field_type t;

	if (leaf < RP_LEAF_FIELDS)
		return false;
	t = rp_field_defs[leaf - RP_LEAF_FIELDS].type;
	return t == RP_T_NS || t == RP_T_US;
}

static const char *leaf_value(struct scan *s, unsigned i, const char *p)
{
	struct rp_slice *v = &s->l->v[i];
	const char *end = NULL;
	struct number k;

	v->p = NULL;
	v->escaped = false;
	if (*p == 'n')
		return word_end(p, "null", 4);
	switch (leaves[i].type) {
	case RP_LEAF_S:
		if (*p == '"')
			end = string_end(p, &v->escaped);
		break;
	case RP_LEAF_I:
		end = number_end(p, &k);
		if (end && !whole(p, end, &k))
			return NULL;
		break;
	case RP_LEAF_D:
		end = number_end(p, &k);
		if (end && !real(p, &k, is_duration(i)))
			return NULL;
		break;
	case RP_LEAF_B:
		end = *p == 't' ? word_end(p, "true", 4) : word_end(p, "false", 5);
		break;
	default:
		if (*p == '[')
			end = array_end(p, leaves[i].type);
		break;
	}
	if (!end)
		return NULL;
	v->p = p;
	v->n = (uint32_t)(end - p);
	return end;
}

/* The key at the quote p: *key, *n without quotes; behind its colon, or NULL. */
static inline const char *key_end(const char *p, const char **key, size_t *n)
{
	bool escaped = false;

	p = blanks(p);
	if (*p != '"')
		return NULL;
	*key = p + 1;
	p = string_end(p, &escaped);
	if (!p)
		return NULL;
	*n = escaped ? 0 : (size_t)(p - 1 - *key); /* none of ours has an escape */
	p = blanks(p);
	if (*p != ':')
		return NULL;
	return blanks(p + 1);
}

/* Is this very key next? Behind its colon, or NULL; nothing is read beyond the line. */
static inline const char *this_key(const struct scan *s, const char *p, const struct leaf *f)
{
	size_t n = f->len;

	if ((size_t)(s->end - p) < n + 3 || *p != '"' || p[n + 1] != '"' || p[n + 2] != ':' ||
	    memcmp(p + 1, f->name, n) != 0)
		return NULL;
	return blanks(p + n + 3);
}

/* After a member: behind the comma (more = true) or the closing brace, or NULL. */
static inline const char *member_end(const char *p, bool *more)
{
	p = blanks(p);
	*more = *p == ',';
	return *p == ',' || *p == '}' ? p + 1 : NULL;
}

/* Where a group's search for its next key starts. */
static int find(const struct group *g, unsigned *next, const char *key, size_t n)
{
	unsigned at = *next;

	for (unsigned k = 0; k < g->n; k++, at++) {
		const struct leaf *f;

		if (at >= g->n)
			at = 0;
		f = &leaves[g->leaf[at]];
		if (f->len == n && !memcmp(f->name, key, n)) {
			*next = at + 1;
			return g->leaf[at];
		}
	}
	return -1;
}

static const char *group_members(struct scan *s, const struct group *g, const char *p)
{
	unsigned next = 0;
	bool more;

	if (*p == 'n')
		return word_end(p, "null", 4);
	if (*p != '{')
		return NULL;
	p = blanks(p + 1);
	if (*p == '}')
		return p + 1;
	for (more = true; more;) {
		const char *key, *q = NULL;
		size_t n;
		int i;

		if (next < g->n)
			q = this_key(s, p, &leaves[g->leaf[next]]);
		if (q) {
			p = leaf_value(s, g->leaf[next++], q);
		} else {
			p = key_end(p, &key, &n);
			if (!p)
				return NULL;
			i = find(g, &next, key, n);
			p = i >= 0 ? leaf_value(s, (unsigned)i, p) : value_end(p);
		}
		if (!p || !(p = member_end(p, &more)))
			return NULL;
	}
	return p;
}

static int reason(const char *p, size_t n, int likely)
{
	static const uint8_t len[RP_WHY_COUNT] = {
#define X(id, s) [RP_WHY_##id] = sizeof(s) - 1,
		RP_REASONS(X)
#undef X
	};

	if (len[likely] == n && !memcmp(rp_reason_names[likely], p, n))
		return likely;
	for (int i = 1; i < RP_WHY_COUNT; i++)
		if (len[i] == n && !memcmp(rp_reason_names[i], p, n))
			return i;
	return RP_WHY_NOT_REPORTED; /* of a newer version */
}

/* "group.name" or "group" of `missing`; *next: where to look first. */
static void why(struct rp_line *l, const char *key, size_t n, int r, unsigned *next)
{
	const char *dot = memchr(key, '.', n);
	size_t g = dot ? (size_t)(dot - key) : n;
	unsigned f = *next;

	for (unsigned k = 0; k < RP_FIELD_COUNT; k++, f++) {
		const struct leaf *leaf;

		if (f >= RP_FIELD_COUNT)
			f = 0;
		leaf = &leaves[RP_LEAF_FIELDS + f];
		if (dot && (leaf->len != n - g - 1 || memcmp(leaf->name, dot + 1, leaf->len) != 0))
			continue;
		if (leaf->group_len != g || memcmp(leaf->group, key, g) != 0)
			continue;
		l->why[f] = (uint8_t)r;
		*next = f + 1;
		if (dot)
			return;
	}
}

static const char *missing(struct scan *s, const char *p)
{
	const char *start = p;
	unsigned next = 0;
	int last = 1;
	bool more;

	memset(s->l->why, 0, sizeof(s->l->why));
	s->l->missing.p = NULL;
	if (*p == 'n')
		return word_end(p, "null", 4);
	if (*p != '{')
		return NULL;
	p = blanks(p + 1);
	if (*p == '}')
		p++;
	else
		for (more = true; more;) {
			const char *key, *value;
			bool escaped = false;
			size_t n;

			p = key_end(p, &key, &n);
			if (!p || *p != '"')
				return NULL;
			value = p + 1;
			p = string_end(p, &escaped);
			if (!p)
				return NULL;
			last = reason(value, (size_t)(p - 1 - value), last);
			why(s->l, key, n, last, &next);
			p = member_end(p, &more);
			if (!p)
				return NULL;
		}
	s->l->missing.p = start;
	s->l->missing.n = (uint32_t)(p - start);
	return p;
}

static const struct group *group_of(const char *key, size_t n, unsigned *next)
{
	unsigned at = *next;

	for (unsigned k = 1; k < n_groups; k++, at++) {
		if (at >= n_groups)
			at = 1;
		if (groups[at].len == n && !memcmp(groups[at].name, key, n)) {
			*next = at + 1;
			return &groups[at];
		}
	}
	return NULL;
}

static bool is_missing(const char *key, size_t n)
{
	return n == 7 && !memcmp(key, "missing", 7);
}

static const char *top(struct scan *s, const char *p)
{
	unsigned next = 0, next_group = 1;
	bool more;

	if (*p != '{')
		return NULL;
	p = blanks(p + 1);
	if (*p == '}')
		return p + 1;
	for (more = true; more;) {
		const struct group *g;
		const char *key;
		size_t n;
		int i;

		p = key_end(p, &key, &n);
		if (!p)
			return NULL;
		if (*p == '{' || *p == 'n') {
			g = group_of(key, n, &next_group);
			if (g) {
				if (*p == '{' && !strcmp(g->name, "error"))
					s->l->has_error = true;
				p = group_members(s, g, p);
			} else if (is_missing(key, n)) {
				p = missing(s, p);
			} else {
				goto leaf;
			}
		} else {
leaf:
			i = find(&groups[0], &next, key, n);
			if (i >= 0)
				p = leaf_value(s, (unsigned)i, p);
			else if (is_missing(key, n) || group_of(key, n, &next_group))
				p = NULL; /* these are objects */
			else
				p = value_end(p);
		}
		if (!p || !(p = member_end(p, &more)))
			return NULL;
	}
	return p;
}

int rp_line_scan(const char *p, size_t n, struct rp_line *l)
{
	struct scan s = { p + n, l };
	const char *end;
	bool ours;

	if (!n_groups)
		sort_out();
	memset(l, 0, sizeof(*l));
	if (memchr(p, 0, n))
		return -EBADMSG;
	end = top(&s, blanks(p));
	ours = rp_slice_is(&l->v[RP_LEAF_SCHEMA], "reqprobe.request/1");
	/* members of another schema have types of their own: any JSON will do */
	if (!end && l->v[RP_LEAF_SCHEMA].p && !ours)
		end = value_end(blanks(p));
	if (!end || blanks(end) != s.end)
		return -EBADMSG;
	return ours ? 0 : -ENOMSG;
}

/* ---- values ---- */

bool rp_slice_is(const struct rp_slice *s, const char *text)
{
	size_t n = strlen(text);

	return s->p && !s->escaped && s->n == n + 2 && !memcmp(s->p + 1, text, n);
}

static size_t utf8_put(char *b, uint32_t cp)
{
	if (cp < 0x80) {
		b[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		b[0] = (char)(0xc0 | cp >> 6);
		b[1] = (char)(0x80 | (cp & 63));
		return 2;
	}
	if (cp < 0x10000) {
		b[0] = (char)(0xe0 | cp >> 12);
		b[1] = (char)(0x80 | (cp >> 6 & 63));
		b[2] = (char)(0x80 | (cp & 63));
		return 3;
	}
	b[0] = (char)(0xf0 | cp >> 18);
	b[1] = (char)(0x80 | (cp >> 12 & 63));
	b[2] = (char)(0x80 | (cp >> 6 & 63));
	b[3] = (char)(0x80 | (cp & 63));
	return 4;
}

size_t rp_slice_text(const struct rp_slice *s, char *buf, size_t size)
{
	const char *p = s->p ? s->p + 1 : "", *end = s->p ? s->p + s->n - 1 : p;
	size_t n = 0;

	if (!s->escaped && (size_t)(end - p) < size) {
		n = (size_t)(end - p);
		memcpy(buf, p, n);
		buf[n] = 0;
		return n;
	}
	while (p < end) {
		char c[4];
		size_t k = 1;

		if (*p == '\\') {
			uint32_t cp = 0;

			p = escape_end(p, &cp);
			if (!p)
				break; /* the scanner has seen to it that there is none */
			k = utf8_put(c, cp);
		} else {
			int u = rp_utf8_len((const unsigned char *)p);

			k = u > 0 ? (size_t)u : 1;
			memcpy(c, p, k);
			p += k;
		}
		if (n + k >= size)
			break;
		memcpy(buf + n, c, k);
		n += k;
	}
	buf[n] = 0;
	return n;
}

bool rp_slice_int(const struct rp_slice *s, int64_t *v)
{
	const char *p = s->p, *end;
	uint64_t u = 0;
	bool neg;

	if (!p)
		return false;
	end = p + s->n;
	neg = *p == '-';
	if (end - p - neg > 18)
		return false; /* no count of ours comes near it */
	for (p += neg; p < end; p++) {
		if (!digit(*p))
			return false;
		u = u * 10 + (uint64_t)(*p - '0');
	}
	*v = neg ? -(int64_t)u : (int64_t)u;
	return true;
}

bool rp_slice_double(const struct rp_slice *s, double *v)
{
	static const double p10[] = { 1e0,  1e1,  1e2,	1e3,  1e4,  1e5,  1e6,	1e7,
				      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
				      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
	const char *p = s->p, *end;
	uint64_t m = 0;
	int scale = 0;
	bool dot = false;

	if (!p)
		return false;
	end = p + s->n;
	/* a mantissa and a power of ten that are both exact: one rounding */
	for (p += *p == '-'; p < end && m < 1000000000000000ULL; p++) {
		if (*p == '.') {
			dot = true;
			continue;
		}
		if (!digit(*p))
			break;
		m = m * 10 + (uint64_t)(*p - '0');
		scale += dot;
	}
	if (p == end && m <= 1ULL << 53 && scale <= 22) {
		*v = (double)m / p10[scale];
		if (*s->p == '-')
			*v = -*v;
		return true;
	}
	/* ends at what follows a number in JSON */
	*v = strtod(s->p, NULL);
	return isfinite(*v);
}

/* A number at p, of at most n bytes, in units of 10^-decimals. */
static bool fixed(const char *p, size_t n, unsigned decimals, int64_t *v)
{
	static const double p10[] = { 1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9 };
	const char *start = p, *end = p + n;
	uint64_t u = 0;
	unsigned k = 0;
	double d;

	for (; p < end && digit(*p) && u < 100000000000000000ULL; p++)
		u = u * 10 + (uint64_t)(*p - '0');
	if (p < end && *p == '.')
		for (p++; p < end && digit(*p) && k < decimals && u < 100000000000000000ULL;
		     p++, k++)
			u = u * 10 + (uint64_t)(*p - '0');
	if (p == end && u < 100000000000000000ULL) {
		for (; k < decimals; k++) {
			if (u > INT64_MAX / 10)
				return false;
			u *= 10;
		}
		*v = (int64_t)u;
		return true;
	}
	d = strtod(start, NULL) * p10[decimals];
	if (!(d >= 0 && d < 9e18))
		return false;
	*v = (int64_t)(d + 0.5);
	return true;
}

bool rp_slice_fixed(const struct rp_slice *s, unsigned decimals, int64_t *v)
{
	return s->p && fixed(s->p, s->n, decimals, v);
}

bool rp_slice_each_ns(const struct rp_slice *s, void (*fn)(void *ctx, int64_t ns), void *ctx)
{
	const char *p = s->p, *end;
	struct number k;
	int64_t v;
	bool ok = true;

	if (!p)
		return false;
	end = p + s->n;
	for (p = blanks(p + 1); p < end - 1;) {
		const char *e = number_end(p, &k);

		if (!e)
			return false;
		if (fixed(p, (size_t)(e - p), 6, &v))
			fn(ctx, v);
		else
			ok = false;
		p = blanks(e);
		if (*p == ',')
			p = blanks(p + 1);
	}
	return ok;
}

static bool two(const char *p, int *v)
{
	if (!digit(p[0]) || !digit(p[1]))
		return false;
	*v = (p[0] - '0') * 10 + (p[1] - '0');
	return true;
}

bool rp_time_parse(const char *p, size_t n, int64_t *ns)
{
	static const uint8_t month_days[] = { 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	int c, y, mo, d, h, mi, sec;
	int64_t frac = 0, days, era, yoe, doy, doe;
	unsigned k = 0;

	if (n < 20 || !two(p, &c) || !two(p + 2, &y) || p[4] != '-' || !two(p + 5, &mo) ||
	    p[7] != '-' || !two(p + 8, &d) || p[10] != 'T' || !two(p + 11, &h) || p[13] != ':' ||
	    !two(p + 14, &mi) || p[16] != ':' || !two(p + 17, &sec) || p[n - 1] != 'Z')
		return false;
	y += c * 100;
	if (y < 1970 || y > 2199 || mo < 1 || mo > 12 || d < 1 || d > month_days[mo - 1] ||
	    h > 23 || mi > 59 || sec > 60)
		return false;
	if (n > 20) {
		if (p[19] != '.' || n < 22 || n > 30)
			return false;
		for (k = 0; k < n - 21; k++) {
			if (!digit(p[20 + k]))
				return false;
			frac = frac * 10 + (p[20 + k] - '0');
		}
	}
	for (; k < 9; k++)
		frac *= 10;
	/* days from the civil date, proleptic Gregorian; the year begins in March */
	y -= mo <= 2;
	era = y / 400;
	yoe = y - era * 400;
	doy = (153 * (mo + (mo > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
	days = era * 146097 + doe - 719468;
	*ns = ((days * 24 + h) * 60 + mi) * 60000000000LL + sec * 1000000000LL + frac;
	return true;
}

bool rp_slice_time(const struct rp_slice *s, int64_t *ns)
{
	return s->p && !s->escaped && rp_time_parse(s->p + 1, s->n - 2, ns);
}
