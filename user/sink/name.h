/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * name.h - names that clients and servers choose, as values of labels and attributes.
 * They are made canonical where they enter a set of series: two that would be written
 * alike are one there, or a scrape would have the same series twice and be refused.
 */
#ifndef REQPROBE_SINK_NAME_H
#define REQPROBE_SINK_NAME_H

#include <stddef.h>

/*
 * Valid UTF-8 without control characters: what is none, and each control character
 * (C0, DEL, C1), becomes U+FFFD. Cut to less than size bytes at the end of a character.
 * Canonical names stay as they are. to and from may not overlap; size > 0.
 */
void rp_name_canonical(char *to, size_t size, const char *from);

/*
 * The same for a label that has values of our own: "other", all that found no place in
 * a table, and "unknown", for NULL or "". A model of such a name gets an underscore in
 * front, as does one that looks as if it had got one already: no two models share one.
 */
void rp_name_label(char *to, size_t size, const char *from);
#define RP_NAME_OTHER "other"
#define RP_NAME_UNKNOWN "unknown"

#endif
