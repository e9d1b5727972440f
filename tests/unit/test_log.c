// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <zlib.h>
#include <zstd.h>

#include "log/internal.h"
#include "options.h"
#include "request.h"
#include "sink/expo.h"
#include "sink/output.h"
#include "timeline/internal.h"

static char dir_name[64];
static int dir;

static int setup(void **st)
{
	(void)st;
	/* many small files are synced: in memory, if there is such a place */
	strcpy(dir_name, access("/dev/shm", W_OK) ? "/tmp/reqprobe-test-XXXXXX" :
						    "/dev/shm/reqprobe-test-XXXXXX");
	if (!mkdtemp(dir_name))
		return -1;
	dir = open(dir_name, O_RDONLY | O_DIRECTORY);
	return dir < 0;
}

static int teardown(void **st)
{
	DIR *d = opendir(dir_name);
	struct dirent *e;

	(void)st;
	while ((e = readdir(d)))
		if (unlinkat(dir, e->d_name, 0))
			unlinkat(dir, e->d_name, AT_REMOVEDIR);
	closedir(d);
	close(dir);
	return rmdir(dir_name);
}

/* ---- names ---- */

static void names(void **st)
{
	struct rp_log_name n;
	char a[RP_LOG_NAME_MAX], b[RP_LOG_NAME_MAX], key[256];
	int64_t wall = 1764475200123456789LL; /* 2025-11-30 04:00:00.123 */

	(void)st;
	rp_log_name(a, "gpu-7.example", wall, 42, RP_LOG_ZSTD);
	assert_string_equal(a, "reqprobe-gpu-7.example-20251130T040000.123Z-000042.jsonl.zst");
	assert_true(rp_log_name_parse(a, &n));
	assert_string_equal(n.date, "20251130");
	assert_true(n.ms == 20251130040000123LL);
	assert_int_equal(n.seq, 42);
	assert_int_equal(n.compress, RP_LOG_ZSTD);
	assert_true(rp_log_key("p/q/", a, key, sizeof(key)));
	assert_string_equal(key, "p/q/2025/11/30/"
				 "reqprobe-gpu-7.example-20251130T040000.123Z-000042.jsonl.zst");
	assert_false(rp_log_key("p/q/", a, key, 60));
	assert_false(rp_log_key("", "x", key, sizeof(key)));

	/* a host that would be a path, and one that looks like the rest of a name */
	rp_log_name(a, "../e\xc3\xa9 il", wall, 1, RP_LOG_NONE);
	assert_string_equal(a, "reqprobe-.._e___il-20251130T040000.123Z-000001.jsonl");
	assert_true(rp_log_name_parse(a, &n));
	rp_log_name(a, "h-20200101T000000.000Z-000009.jsonl", wall, 1234567, RP_LOG_GZIP);
	assert_true(rp_log_name_parse(a, &n));
	assert_true(n.ms == 20251130040000123LL && n.seq == 1234567);
	rp_log_name(a, "", wall, 1, RP_LOG_NONE);
	assert_true(rp_log_name_parse(a, NULL));

	/* names sort as the files were begun */
	for (int i = 0; i < 1000; i++) {
		rp_log_name(a, "h", wall + i * 7777777777LL, (uint64_t)i, RP_LOG_NONE);
		rp_log_name(b, "h", wall + (i + 1) * 7777777777LL, (uint64_t)i + 1, RP_LOG_NONE);
		assert_true(strcmp(a, b) < 0);
	}
	assert_true(
		rp_log_name_partial(".reqprobe-h-20251130T040000.123Z-000001.jsonl.gz.partial", a));
	assert_string_equal(a, "reqprobe-h-20251130T040000.123Z-000001.jsonl.gz");
}

static void foreign_names(void **st)
{
	static const char *const others[] = {
		"",
		"reqprobe-",
		".jsonl",
		"reqprobe-h-20251130T040000.123Z-000001.jsonl.bz2",
		"reqprobe-h-20251130T040000.123Z-000001.json",
		"reqprobe-h-20251130T040000.123Z-00001.jsonl",
		"reqprobe-h-20251130T040000.123Z-0000000000000000001.jsonl",
		"reqprobe-h-20251130T04000.123Z-000001.jsonl",
		"reqprobe-h-2025113xT040000.123Z-000001.jsonl",
		"reqprobe-20251130T040000.123Z-000001.jsonl",
		"reqprobe--20251130T040000.123Z-000001.jsonl",
		"reqprobe-h-20251130T040000.123Z-000001.jsonl.partial",
		"reqprobe-h/x-20251130T040000.123Z-000001.jsonl",
		"requests-h-20251130T040000.123Z-000001.jsonl",
	};
	char a[RP_LOG_NAME_MAX];

	(void)st;
	for (size_t i = 0; i < COUNT_OF(others); i++)
		if (rp_log_name_parse(others[i], NULL))
			fail_msg("%s", others[i]);
	assert_false(rp_log_name_partial(".partial", a));
	assert_false(rp_log_name_partial("..partial", a));
	assert_false(rp_log_name_partial("reqprobe-h-20251130T040000.123Z-000001.jsonl", a));
}

/* ---- what has to go ---- */

static struct rp_log_entry entry(uint64_t size, int64_t age_s, bool uploaded)
{
	return (struct rp_log_entry){ .size = size,
				      .modified = -age_s * 1000000000LL,
				      .uploaded = uploaded };
}

static void pick(const struct rp_log_entry *e, size_t n, const struct rp_log_options *o,
		 uint64_t open_bytes, const char *want)
{
	enum rp_log_why why[16];
	char got[17] = "";

	rp_log_pick(e, n, o, open_bytes, 0, why);
	for (size_t i = 0; i < n; i++)
		got[i] = ".fas"[why[i]];
	assert_string_equal(got, want);
}

static void keeping(void **st)
{
	struct rp_log_entry e[] = {
		entry(100, 50, false), entry(100, 40, false), entry(100, 30, false),
		entry(100, 60, true),  entry(100, 45, true),
	};
	struct rp_log_options o;

	(void)st;
	rp_log_defaults(&o);
	pick(e, 5, &o, 1000, ".....");
	o.keep_bytes = 500;
	pick(e, 5, &o, 0, ".....");
	pick(e, 5, &o, 1, "...s."); /* the open one counts; uploaded ones go first */
	o.keep_bytes = 250;
	pick(e, 5, &o, 0, "s..ss");
	o.keep_bytes = 0;
	pick(e, 5, &o, 0, "sssss");
	e[0].busy = true; /* it is being uploaded: the next one in its stead */
	o.keep_bytes = 250;
	pick(e, 5, &o, 0, ".s.ss");
	e[0].busy = false;
	rp_log_defaults(&o);
	o.keep_files = 3;
	pick(e, 5, &o, 0, "...ff");
	pick(e, 5, &o, 1, "f..ff");
	o.keep_files = 5;
	pick(e, 5, &o, 0, ".....");
	rp_log_defaults(&o);
	o.keep_ns = 44 * 1000000000LL;
	pick(e, 5, &o, 0, "a..aa");
	e[0].busy = true;
	pick(e, 5, &o, 0, "...aa");
	e[0].busy = false;
	o.keep_bytes = 100; /* what is too old no longer counts */
	pick(e, 5, &o, 0, "as.aa");
	pick(e, 0, &o, 0, "");
}

static void touch(const char *name)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_true(fd >= 0 && write(fd, "x\n", 2) == 2);
	close(fd);
}

static void scanning(void **st)
{
	struct rp_log_entry *e;
	char *partial;
	size_t n;

	(void)st;
	touch("reqprobe-h-20251130T040000.123Z-000010.jsonl");
	touch("reqprobe-h-20251130T040000.123Z-000009.jsonl.gz");
	touch("reqprobe-b-20251130T035959.999Z-000077.jsonl.zst");
	touch(".reqprobe-h-20251130T040000.123Z-000011.jsonl.zst.partial");
	touch(".reqprobe-h-20251130T040000.123Z-000012.jsonl.recovered");
	touch("notes.txt");
	assert_int_equal(mkdirat(dir, "reqprobe-h-20251130T040000.123Z-000001.jsonl", 0700), 0);
	assert_int_equal(
		symlinkat("notes.txt", dir, "reqprobe-h-20251130T040000.123Z-000002.jsonl"), 0);
	assert_int_equal(rp_log_scan(dir, -1, &e, &n), 0);
	assert_int_equal(n, 3);
	assert_string_equal(e[0].name, "reqprobe-b-20251130T035959.999Z-000077.jsonl.zst");
	assert_string_equal(e[1].name, "reqprobe-h-20251130T040000.123Z-000009.jsonl.gz");
	assert_string_equal(e[2].name, "reqprobe-h-20251130T040000.123Z-000010.jsonl");
	assert_int_equal(e[2].size, 2);
	assert_true(e[2].modified > 0);
	free(e);
	assert_int_equal(rp_log_scan_partial(dir, &partial, &n), 0);
	assert_int_equal(n, 1);
	assert_string_equal(partial, "reqprobe-h-20251130T040000.123Z-000011.jsonl.zst");
	assert_int_equal(partial[strlen(partial) + 1], 0);
	free(partial);
}

/* ---- writing ---- */

static const char *const file_names[] = {
	[RP_LOG_NONE] = "reqprobe-h-20251130T040000.123Z-000001.jsonl",
	[RP_LOG_GZIP] = "reqprobe-h-20251130T040000.123Z-000001.jsonl.gz",
	[RP_LOG_ZSTD] = "reqprobe-h-20251130T040000.123Z-000001.jsonl.zst",
};

static char *slurp(const char *name, size_t *n)
{
	int fd = openat(dir, name, O_RDONLY);
	struct stat s;
	char *p;

	if (fd < 0)
		return NULL;
	assert_int_equal(fstat(fd, &s), 0);
	p = malloc((size_t)s.st_size + 1);
	*n = (size_t)read(fd, p, (size_t)s.st_size);
	close(fd);
	return p;
}

/* The text of a whole file; NULL: there is none. Fails when it isn't whole. */
static char *text_of(enum rp_log_compress c, size_t *n)
{
	size_t len, cap = 1 << 20;
	char *raw = slurp(file_names[c], &len), *p;
	ZSTD_DCtx *d;
	ZSTD_inBuffer in;
	ZSTD_outBuffer out;

	if (!raw || c == RP_LOG_NONE) {
		*n = raw ? len : 0;
		return raw;
	}
	p = malloc(cap);
	if (c == RP_LOG_GZIP) {
		z_stream z = { .next_in = (Bytef *)raw,
			       .avail_in = (uInt)len,
			       .next_out = (Bytef *)p,
			       .avail_out = (uInt)cap };

		assert_int_equal(inflateInit2(&z, 31), Z_OK);
		assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
		assert_int_equal(z.avail_in, 0);
		*n = z.total_out;
		inflateEnd(&z);
	} else {
		d = ZSTD_createDCtx();
		in = (ZSTD_inBuffer){ .src = raw, .size = len };
		out = (ZSTD_outBuffer){ .dst = p, .size = cap };
		assert_int_equal(ZSTD_decompressStream(d, &out, &in), 0);
		assert_int_equal(in.pos, len);
		*n = out.pos;
		ZSTD_freeDCtx(d);
	}
	free(raw);
	return p;
}

static size_t line(char *p, size_t size, int i)
{
	return (size_t)snprintf(p, size, "{\"n\":%d,\"x\":%d,\"s\":\"%.*s\"}\n", i, i * 7919 % 1000,
				i % 40, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnop");
}

static void writing(void **st)
{
	struct rp_log_file f = { .fd = -1 };
	struct rp_log_closed closed;
	char l[128], *want, *got;
	size_t n, m;

	(void)st;
	want = malloc(1 << 20);
	for (int c = RP_LOG_NONE; c <= RP_LOG_ZSTD; c++) {
		m = 0;
		assert_int_equal(rp_log_file_open(&f, dir, file_names[c], false,
						  (enum rp_log_compress)c, 0),
				 0);
		/* the same name is nobody else's */
		{
			struct rp_log_file g = { .fd = -1 };

			assert_int_equal(rp_log_file_open(&g, dir, file_names[c], false,
							  (enum rp_log_compress)c, 0),
					 -EEXIST);
			free(g.out.p);
		}
		for (int i = 0; i < 5000; i++) {
			n = line(l, sizeof(l), i);
			memcpy(want + m, l, n);
			m += n;
			assert_int_equal(rp_log_file_put(&f, l, n, 1), 0);
			if (i % 100 == 0)
				assert_int_equal(rp_log_file_flush(&f), 0);
			if (i % 70 == 0) {
				assert_int_equal(rp_log_file_write(&f), 0);
				assert_true(f.dirty || !f.unsafe);
			}
		}
		assert_int_equal(rp_log_file_end(&f), 0);
		assert_int_equal(rp_log_file_end(&f), 0);
		assert_int_equal(rp_log_file_write(&f), 0);
		assert_int_equal(f.unsafe, 0);
		assert_int_equal(f.records, 5000);
		assert_int_equal(f.raw, m);
		assert_null(slurp(file_names[c], &n)); /* no such name before it is whole */
		rp_log_file_close(&f, &closed);
		assert_int_equal(rp_log_publish(&closed, true), 0);
		got = text_of((enum rp_log_compress)c, &n);
		assert_int_equal(n, m);
		assert_memory_equal(got, want, m);
		free(got);
		unlinkat(dir, file_names[c], 0);
	}
	free(f.out.p);
	free(want);
}

/* A file that may not grow stands for a full disk: nothing is lost, nothing is twice. */
static void full(void **st)
{
	struct rlimit small = { 3000, RLIM_INFINITY }, old;
	struct rp_log_closed closed;
	struct rp_log_file f = { .fd = -1 };
	char l[128], *want, *got;
	size_t n, m;

	(void)st;
	want = malloc(1 << 20);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	for (int c = RP_LOG_NONE; c <= RP_LOG_ZSTD; c++) {
		int failed = 0;

		m = 0;
		assert_int_equal(rp_log_file_open(&f, dir, file_names[c], false,
						  (enum rp_log_compress)c, 0),
				 0);
		small.rlim_cur = 3001;
		setrlimit(RLIMIT_FSIZE, &small);
		for (int i = 0; i < 2000; i++) {
			n = line(l, sizeof(l), i);
			memcpy(want + m, l, n);
			m += n;
			assert_int_equal(rp_log_file_put(&f, l, n, 1), 0);
			assert_int_equal(rp_log_file_flush(&f), 0);
			if (rp_log_file_write(&f)) {
				assert_true(f.unsafe > 0);
				failed++;
			}
			if (i % 300 == 299) { /* some space returns */
				small.rlim_cur += 3001;
				setrlimit(RLIMIT_FSIZE, &small);
			}
		}
		setrlimit(RLIMIT_FSIZE, &old);
		assert_true(failed > 10);
		assert_int_equal(rp_log_file_end(&f), 0);
		assert_int_equal(rp_log_file_write(&f), 0);
		rp_log_file_close(&f, &closed);
		assert_int_equal(rp_log_publish(&closed, false), 0);
		got = text_of((enum rp_log_compress)c, &n);
		assert_int_equal(n, m);
		assert_memory_equal(got, want, m);
		free(got);
		unlinkat(dir, file_names[c], 0);
	}
	free(f.out.p);
	free(want);
}

/* ---- what a kill leaves ---- */

static void put_partial(enum rp_log_compress c, const char *p, size_t n)
{
	char name[RP_LOG_NAME_MAX + 12];
	int fd;

	snprintf(name, sizeof(name), ".%s.partial", file_names[c]);
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0 && write(fd, p, n) == (ssize_t)n);
	close(fd);
}

static size_t files_in_dir(void)
{
	DIR *d = opendir(dir_name);
	size_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

/* Cut at every byte: whole lines, a prefix of what was put, and never less than what
 * had been flushed and written before. */
static void torn(void **st)
{
	struct rp_log_file f = { .fd = -1 };
	char l[128], *raw, *got, name[RP_LOG_NAME_MAX + 12];
	char *want = malloc(1 << 20);
	size_t n, m, len, flushed_at[64], flushed_text[64], k;
	uint64_t lines;

	(void)st;
	for (int c = RP_LOG_NONE; c <= RP_LOG_ZSTD; c++) {
		m = k = 0;
		assert_int_equal(rp_log_file_open(&f, dir, file_names[c], false,
						  (enum rp_log_compress)c, 0),
				 0);
		for (int i = 0; i < 60; i++) {
			n = line(l, sizeof(l), i);
			memcpy(want + m, l, n);
			m += n;
			assert_int_equal(rp_log_file_put(&f, l, n, 1), 0);
			if (i % 15 == 9) {
				assert_int_equal(rp_log_file_flush(&f), 0);
				assert_int_equal(rp_log_file_write(&f), 0);
				flushed_at[k] = f.bytes;
				flushed_text[k++] = m;
			}
		}
		assert_int_equal(rp_log_file_end(&f), 0);
		assert_int_equal(rp_log_file_write(&f), 0);
		flushed_at[k] = f.bytes;
		flushed_text[k++] = m;
		snprintf(name, sizeof(name), "%s", f.partial);
		rp_log_file_abandon(&f);
		raw = slurp(name, &len);
		for (size_t cut = 0; cut <= len; cut++) {
			size_t least = 0;

			for (size_t i = 0; i < k; i++)
				if (flushed_at[i] <= cut)
					least = flushed_text[i];
			put_partial((enum rp_log_compress)c, raw, cut);
			assert_int_equal(rp_log_recover(dir, file_names[c], &lines), 0);
			got = text_of((enum rp_log_compress)c, &n);
			assert_true(n >= least && n <= m);
			assert_true(!n || (got[n - 1] == '\n' && !memcmp(got, want, n)));
			for (size_t i = 0; i < n; i++)
				lines -= got[i] == '\n';
			assert_int_equal(lines, 0);
			/* no empty file, and nothing beside it */
			assert_int_equal(files_in_dir(), n ? 1 : 0);
			free(got);
			unlinkat(dir, file_names[c], 0);
		}
		free(raw);
	}
	free(f.out.p);
	free(want);
}

/* What a power cut or a bug may leave: zeros, half lines, bits turned. */
static void spoilt(void **st)
{
	static const char zeros[] = "{\"a\":1}\n{\"a\":2}\n\0\0\0\0\n{\"a\":3}\n";
	struct rp_log_file f = { .fd = -1 };
	char l[128], *raw, *got, name[RP_LOG_NAME_MAX + 12];
	unsigned seed = 1;
	uint64_t lines;
	size_t n, len;

	(void)st;
	put_partial(RP_LOG_NONE, zeros, sizeof(zeros) - 1);
	assert_int_equal(rp_log_recover(dir, file_names[RP_LOG_NONE], &lines), 0);
	assert_int_equal(lines, 2);
	got = text_of(RP_LOG_NONE, &n);
	assert_int_equal(n, 16);
	free(got);
	unlinkat(dir, file_names[RP_LOG_NONE], 0);
	for (int c = RP_LOG_GZIP; c <= RP_LOG_ZSTD; c++) {
		assert_int_equal(rp_log_file_open(&f, dir, file_names[c], false,
						  (enum rp_log_compress)c, 0),
				 0);
		for (int i = 0; i < 200; i++) {
			n = line(l, sizeof(l), i);
			assert_int_equal(rp_log_file_put(&f, l, n, 1), 0);
		}
		rp_log_file_end(&f);
		rp_log_file_write(&f);
		snprintf(name, sizeof(name), "%s", f.partial);
		rp_log_file_abandon(&f);
		raw = slurp(name, &len);
		for (int i = 0; i < 300; i++) {
			size_t at = (size_t)rand_r(&seed) % len;
			char old = raw[at];

			raw[at] = (char)(raw[at] ^ (1 << (rand_r(&seed) % 8)));
			put_partial((enum rp_log_compress)c, raw, len);
			assert_int_equal(rp_log_recover(dir, file_names[c], &lines), 0);
			got = text_of((enum rp_log_compress)c, &n);
			for (char *p = got; n; p = memchr(p, '\n', (size_t)(got + n - p)) + 1) {
				if (p == got + n)
					break;
				assert_int_equal(*p, '{');
			}
			free(got);
			unlinkat(dir, file_names[c], 0);
			raw[at] = old;
		}
		free(raw);
	}
	free(f.out.p);
	assert_int_equal(rp_log_recover(dir, "passwd", &lines), -EINVAL);
	assert_int_equal(rp_log_recover(dir, file_names[0], &lines), -ENOENT);
}

/* A recovery that was killed itself: its own partial result is in nobody's way. */
static void recovered_twice(void **st)
{
	struct rp_log_file f = { .fd = -1 };
	uint64_t lines;
	size_t n;

	(void)st;
	assert_int_equal(rp_log_file_open(&f, dir, file_names[RP_LOG_GZIP], false, RP_LOG_GZIP, 0),
			 0);
	rp_log_file_put(&f, "{\"a\":1}\n", 8, 1);
	rp_log_file_flush(&f);
	rp_log_file_write(&f);
	rp_log_file_abandon(&f);
	touch(".reqprobe-h-20251130T040000.123Z-000001.jsonl.gz.recovered");
	touch("reqprobe-h-20251130T040000.123Z-000001.jsonl.gz");
	assert_int_equal(rp_log_recover(dir, file_names[RP_LOG_GZIP], &lines), 0);
	assert_int_equal(lines, 1);
	free(text_of(RP_LOG_GZIP, &n));
	assert_int_equal(n, 8);
	assert_int_equal(files_in_dir(), 1);
	free(f.out.p);
}

/* ---- the output ---- */

static uint64_t metric(void *state, const char *name)
{
	struct rp_buf b = { 0 };
	struct rp_expo e = { .b = &b };
	char line[128];
	const char *p;
	uint64_t v;

	rp_log_output.metrics(state, &e);
	rp_buf_put(&b, "", 1);
	snprintf(line, sizeof(line), "\n%s ", name);
	p = strstr(b.p, line);
	if (!p)
		fail_msg("%s is not in\n%s", name, b.p);
	v = strtoull(p + strlen(line), NULL, 10);
	free(b.p);
	return v;
}

static void wait_metric(void *state, const char *name, uint64_t want)
{
	for (int i = 0; metric(state, name) != want; i++) {
		if (i == 1000)
			fail_msg("%s is %d", name, (int)metric(state, name));
		usleep(10000);
	}
}

#define RECORDS "reqprobe_log_records_total"
#define LOST "reqprobe_log_records_lost_total{reason=\"disk\"}"

/* The file is removed while it is written: what was in it is lost, and no counter goes back. */
static void removed(void **st)
{
	struct rp_options o = { .quiet = true, .memory = 64 << 20 };
	struct rp_summary_info info = { 0 };
	struct rp_timeline_opts to;
	struct rp_timeline *tl;
	struct rp_record r = a_record();
	uint64_t raw, bytes;
	void *state = NULL;
	struct dirent *e;
	char err[256];
	DIR *d;

	(void)st;
	rp_log_defaults(&o.log);
	o.log.dir = dir_name;
	o.log.compress = RP_LOG_NONE;
	rp_timeline_defaults(&to);
	tl = rp_timeline_new(&to);
	assert_non_null(tl);
	assert_int_equal(rp_log_output.open(&o, &info, tl, &state, err, sizeof(err)), 0);
	for (int i = 0; i < 3; i++)
		tl->obs->record(tl->obs->ctx, &r);
	rp_log_output.tick(state);
	wait_metric(state, RECORDS, 3);
	raw = metric(state, "reqprobe_log_bytes_total");
	bytes = metric(state, "reqprobe_log_disk_bytes_total");
	assert_int_equal(raw, bytes);
	d = opendir(dir_name);
	while ((e = readdir(d)))
		if (strstr(e->d_name, ".partial"))
			assert_int_equal(unlinkat(dir, e->d_name, 0), 0);
	closedir(d);
	wait_metric(state, LOST, 3);
	assert_int_equal(metric(state, RECORDS), 3);
	assert_int_equal(metric(state, "reqprobe_log_bytes_total"), raw);
	assert_int_equal(metric(state, "reqprobe_log_disk_bytes_total"), bytes);
	/* what comes after it goes to another file */
	tl->obs->record(tl->obs->ctx, &r);
	rp_log_output.tick(state);
	wait_metric(state, RECORDS, 4);
	assert_true(metric(state, "reqprobe_log_bytes_total") > raw);
	assert_int_equal(rp_log_output.finish(state), -EIO);
	assert_int_equal(metric(state, RECORDS), 4);
	assert_int_equal(metric(state, LOST), 3);
	assert_int_equal(metric(state, "reqprobe_log_files_total"), 1);
	assert_int_equal(metric(state, "reqprobe_log_queue_bytes"), 0);
	rp_log_output.close(state);
	rp_timeline_free(tl);
}

#define IN_DIR(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(foreign_names),
		cmocka_unit_test(keeping),
		IN_DIR(scanning),
		IN_DIR(writing),
		IN_DIR(full),
		IN_DIR(torn),
		IN_DIR(spoilt),
		IN_DIR(recovered_twice),
		IN_DIR(removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
