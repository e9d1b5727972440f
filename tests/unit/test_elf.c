// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* elf.c on small objects built here with cc, and on damaged files. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/proc.h"

extern char **environ;

static char dir[32];
static bool have_cc;

static bool run(const char *const argv[])
{
	int status;
	pid_t pid;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ))
		return false;
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

#define RUN(...) run((const char *const[]){ __VA_ARGS__, NULL })

static const char *in_dir(const char *name)
{
	static char path[4][64];
	static int i;

	i = (i + 1) % 4;
	snprintf(path[i], sizeof(path[i]), "%s/%s", dir, name);
	return path[i];
}

static void put(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	fclose(f);
}

static const char source[] =
	"int number = 11434; int zero; static int hidden = 7;\n"
	"int exported(int x) { return x + number + zero + hidden; }\n"
	"__attribute__((noinline)) static int local_one(int x) { return x * number; }\n"
	"int calls(int x) { return local_one(x) + exported(x); }\n"
	"int isra(int) __asm__(\"exported.isra.0\"); int isra(int x) { return x; }\n"
	"int cp(int) __asm__(\"exported.constprop.1\"); int cp(int x) { return x; }\n"
	"int pt(int) __asm__(\"exported.part.2\"); int pt(int x) { return x; }\n"
	"int co(int) __asm__(\"exported.cold\"); int co(int x) { return x; }\n"
	"int object_named = 1;\n"
	"int imported(void); int uses(void) { return imported(); }\n"
	"__asm__(\".globl sizeless\\n.type sizeless,@function\\nsizeless: ret\\n\");\n";

static int make(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/rp-test-elf-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	put(in_dir("a.c"), source, sizeof(source) - 1);
	have_cc = RUN("cc", "-O1", "-fPIC", "-shared", "-o", in_dir("a.so"), in_dir("a.c"));
	return 0;
}

static int drop(void **state)
{
	struct dirent *de;
	DIR *d = opendir(dir);

	(void)state;
	while (d && (de = readdir(d)))
		if (de->d_name[0] != '.')
			unlinkat(dirfd(d), de->d_name, 0);
	if (d)
		closedir(d);
	return rmdir(dir);
}

#define NEED(cond)                                             \
	do {                                                   \
		if (!(cond)) {                                 \
			print_message("SKIP: no %s\n", #cond); \
			skip();                                \
		}                                              \
	} while (0)

static int want_all(void *ctx, const char *name)
{
	const char *const *names = ctx;
	int i;

	for (i = 0; names[i]; i++)
		if (!strncmp(names[i], name, strlen(names[i])))
			return i;
	return -1;
}

static ssize_t find(const char *path, const char *const *names, struct rp_sym_hit **hits,
		    bool *symtab, bool *go)
{
	return rp_elf_find(path, want_all, (void *)names, hits, symtab, go);
}

static const char *const everything[] = { "exported",	  "calls",    "local_one", "imported",
					  "object_named", "sizeless", NULL };

static void test_functions(void **state)
{
	struct rp_sym_hit *hits;
	bool symtab, go, seen[3] = { 0 };
	ssize_t n, i;

	(void)state;
	NEED(have_cc);
	n = find(in_dir("a.so"), everything, &hits, &symtab, &go);
	/* no clone, no import, no object, nothing without a size; not twice either */
	assert_int_equal(n, 3);
	assert_true(symtab);
	assert_false(go);
	for (i = 0; i < n; i++) {
		assert_in_range(hits[i].idx, 0, 2);
		seen[hits[i].idx] = true;
		assert_string_equal(hits[i].sym.name, everything[hits[i].idx]);
		assert_true(hits[i].sym.size > 0);
		assert_true(hits[i].sym.file_off > 0);
	}
	assert_true(seen[0] && seen[1] && seen[2]);
	rp_elf_free(hits, n);
}

/* The offset leads to the function's bytes: compare with what objdump-like math on
 * a segment with vaddr != offset gives. */
static void test_offset_is_in_the_file(void **state)
{
	static const char marked[] =
		"__asm__(\".text\\n.globl marked\\n.type marked,@function\\nmarked:\\n"
		".byte 0xde,0xad,0xbe,0xef\\n.size marked,4\\n\");\n";
	static const uint8_t bytes[4] = { 0xde, 0xad, 0xbe, 0xef };
	static const char *const names[] = { "marked", NULL };
	struct rp_sym_hit *hits;
	uint8_t got[4];
	ssize_t n;
	int fd;

	(void)state;
	NEED(have_cc);
	put(in_dir("m.c"), marked, sizeof(marked) - 1);
	assert_true(RUN("cc", "-shared", "-fPIC", "-Wl,-Ttext-segment=0x400000", "-o",
			in_dir("m.so"), in_dir("m.c")));
	n = find(in_dir("m.so"), names, &hits, NULL, NULL);
	assert_int_equal(n, 1);
	fd = open(in_dir("m.so"), O_RDONLY);
	assert_int_equal(pread(fd, got, 4, hits[0].sym.file_off), 4);
	assert_memory_equal(got, bytes, 4);
	close(fd);
	rp_elf_free(hits, n);
}

static void test_stripped(void **state)
{
	struct rp_sym_hit *hits;
	bool symtab;
	ssize_t n;

	(void)state;
	NEED(have_cc);
	NEED(RUN("strip", "-s", "-o", in_dir("s.so"), in_dir("a.so")));
	n = find(in_dir("s.so"), everything, &hits, &symtab, NULL);
	assert_int_equal(n, 2); /* .dynsym stays, the local function goes */
	assert_false(symtab);
	rp_elf_free(hits, n);
}

static void test_go(void **state)
{
	struct rp_sym_hit *hits;
	bool go;

	(void)state;
	NEED(have_cc);
	NEED(RUN("objcopy", "--add-section", ".go.buildinfo=/dev/null", in_dir("a.so"),
		 in_dir("g.so")));
	assert_int_equal(find(in_dir("g.so"), everything, &hits, NULL, &go), 3);
	assert_true(go);
	rp_elf_free(hits, 3);
}

static void test_int(void **state)
{
	int32_t v = -1;
	int fd;

	(void)state;
	NEED(have_cc);
	fd = open(in_dir("a.so"), O_RDONLY);
	assert_int_equal(rp_elf_read_int(fd, "number", &v), 0);
	assert_int_equal(v, 11434);
	assert_int_equal(rp_elf_read_int(fd, "zero", &v), 0); /* .bss */
	assert_int_equal(v, 0);
	assert_int_equal(rp_elf_read_int(fd, "exported", &v), -ENOENT);
	assert_int_equal(rp_elf_read_int(fd, "nothing", &v), -ENOENT);
	close(fd);
}

static void test_no_elf(void **state)
{
	struct rp_sym_hit *hits;
	uint8_t ident[64] = { 0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, EV_CURRENT };

	(void)state;
	put(in_dir("text"), "hello", 5);
	assert_int_equal(find(in_dir("text"), everything, &hits, NULL, NULL), -ENOEXEC);
	put(in_dir("empty"), "", 0);
	assert_int_equal(find(in_dir("empty"), everything, &hits, NULL, NULL), -ENOEXEC);
	put(in_dir("small"), ident, sizeof(ident)); /* 32 bit: not our calling convention */
	assert_int_equal(find(in_dir("small"), everything, &hits, NULL, NULL), -ENOEXEC);
	assert_int_equal(find("/nonexistent", everything, &hits, NULL, NULL), -ENOENT);
	assert_int_equal(find("/dev/null", everything, &hits, NULL, NULL), -ENOEXEC);
	assert_int_equal(find(dir, everything, &hits, NULL, NULL), -ENOEXEC);
}

/* Cut at every size, and with bytes changed: no crash, no wild read (ASan tells). */
static void test_damaged(void **state)
{
	struct rp_sym_hit *hits;
	uint32_t seed = 12345;
	uint8_t *data, *copy;
	struct stat st;
	size_t len, i, j;
	ssize_t n;
	int32_t v;
	int fd;

	(void)state;
	NEED(have_cc);
	fd = open(in_dir("a.so"), O_RDONLY);
	assert_int_equal(fstat(fd, &st), 0);
	data = malloc(st.st_size);
	copy = malloc(st.st_size);
	assert_int_equal(read(fd, data, st.st_size), st.st_size);
	close(fd);
	for (i = 0; i < 600; i++) {
		memcpy(copy, data, st.st_size);
		len = st.st_size;
		if (i < 200) {
			len = len * i / 200;
		} else {
			for (j = 0; j < 20; j++) {
				seed = seed * 1664525 + 1013904223;
				/* headers and section table first: they steer the reader */
				copy[j % 2 ? seed % 1024 : len - 1 - seed % 2048] = seed >> 24;
			}
		}
		put(in_dir("bad.so"), copy, len);
		n = find(in_dir("bad.so"), everything, &hits, NULL, NULL);
		if (n > 0)
			rp_elf_free(hits, n);
		fd = open(in_dir("bad.so"), O_RDONLY);
		rp_elf_read_int(fd, "number", &v);
		close(fd);
	}
	free(data);
	free(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_functions), cmocka_unit_test(test_offset_is_in_the_file),
		cmocka_unit_test(test_stripped),  cmocka_unit_test(test_go),
		cmocka_unit_test(test_int),	  cmocka_unit_test(test_no_elf),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests_name("elf", tests, make, drop);
}
