// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * elf.c - function symbols of an ELF file, with libelf. The file belongs to the
 * watched process and may be anything, so it is read, never mapped: a file that
 * shrinks must not kill us.
 */
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/proc.h"

#define TABLE_MAX (512ULL << 20) /* bytes of one symbol table */
#define HITS_MAX 4096
#define SECTIONS_MAX 65536

static const char *const clones[] = {
	".isra.", ".constprop.", ".part.", ".cold", ".clone.", ".llvm.", "@", NULL,
};

/* A clone's arguments may sit elsewhere: never probe one. */
static bool is_clone(const char *name)
{
	size_t i;

	for (i = 0; clones[i]; i++)
		if (strstr(name, clones[i]))
			return true;
	return false;
}

static Elf *elf_of(int fd)
{
	struct stat st;
	Elf *elf;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || elf_version(EV_CURRENT) == EV_NONE)
		return NULL;
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf)
		return NULL;
	if (elf_kind(elf) == ELF_K_ELF && gelf_getclass(elf) == ELFCLASS64)
		return elf;
	elf_end(elf);
	return NULL;
}

/* vaddr range -> file offset, when one loaded segment's file part covers it. */
static bool file_offset(Elf *elf, size_t phnum, uint32_t flags, uint64_t vaddr, uint64_t size,
			uint64_t *off)
{
	GElf_Phdr ph;
	size_t i;

	for (i = 0; i < phnum; i++) {
		if (!gelf_getphdr(elf, i, &ph) || ph.p_type != PT_LOAD ||
		    (ph.p_flags & flags) != flags)
			continue;
		if (vaddr < ph.p_vaddr || vaddr - ph.p_vaddr >= ph.p_filesz ||
		    size > ph.p_filesz - (vaddr - ph.p_vaddr))
			continue;
		*off = ph.p_offset + (vaddr - ph.p_vaddr);
		return true;
	}
	return false;
}

struct finder {
	Elf *elf;
	size_t phnum;
	int (*want)(void *ctx, const char *name);
	void *ctx;
	struct rp_sym_hit *hits;
	size_t n, cap;
};

static int add_hit(struct finder *f, int idx, const char *name, uint64_t off, uint64_t size)
{
	struct rp_sym_hit *bigger;
	size_t i;

	for (i = 0; i < f->n; i++) /* .dynsym repeats .symtab */
		if (f->hits[i].idx == idx && f->hits[i].sym.file_off == off)
			return 0;
	if (f->n >= HITS_MAX)
		return 0;
	if (f->n == f->cap) {
		f->cap = f->cap ? f->cap * 2 : 16;
		bigger = realloc(f->hits, f->cap * sizeof(*bigger));
		if (!bigger)
			return -ENOMEM;
		f->hits = bigger;
	}
	f->hits[f->n].idx = idx;
	f->hits[f->n].sym.file_off = off;
	f->hits[f->n].sym.size = size;
	f->hits[f->n].sym.name = strdup(name);
	if (!f->hits[f->n].sym.name)
		return -ENOMEM;
	f->n++;
	return 0;
}

static Elf_Data *table_of(Elf_Scn *scn, const GElf_Shdr *sh)
{
	if (sh->sh_entsize != sizeof(Elf64_Sym) || sh->sh_size > TABLE_MAX)
		return NULL;
	return elf_getdata(scn, NULL);
}

static int scan_table(struct finder *f, Elf_Scn *scn, const GElf_Shdr *sh)
{
	Elf_Data *data = table_of(scn, sh);
	const char *name;
	uint64_t off;
	GElf_Sym sym;
	size_t i, n;
	int idx, err;

	if (!data)
		return 0;
	n = data->d_size / sizeof(Elf64_Sym);
	for (i = 0; i < n; i++) {
		if (!gelf_getsym(data, i, &sym) || GELF_ST_TYPE(sym.st_info) != STT_FUNC ||
		    sym.st_shndx == SHN_UNDEF || !sym.st_size)
			continue;
		name = elf_strptr(f->elf, sh->sh_link, sym.st_name);
		if (!name || !*name || is_clone(name))
			continue;
		idx = f->want(f->ctx, name);
		if (idx < 0 ||
		    !file_offset(f->elf, f->phnum, PF_X, sym.st_value, sym.st_size, &off))
			continue;
		err = add_hit(f, idx, name, off, sym.st_size);
		if (err)
			return err;
	}
	return 0;
}

ssize_t rp_elf_find_fd(int fd, int (*want)(void *ctx, const char *name), void *ctx,
		       struct rp_sym_hit **out, bool *has_symtab, bool *is_go)
{
	struct finder f = { .want = want, .ctx = ctx };
	size_t shstr = 0, sections = 0;
	Elf_Scn *scn = NULL;
	const char *name;
	GElf_Shdr sh;
	int err = 0;

	if (out)
		*out = NULL;
	if (has_symtab)
		*has_symtab = false;
	if (is_go)
		*is_go = false;
	f.elf = elf_of(fd);
	if (!f.elf)
		return -ENOEXEC;
	if (elf_getphdrnum(f.elf, &f.phnum))
		f.phnum = 0;
	if (elf_getshdrstrndx(f.elf, &shstr))
		shstr = 0;
	while (!err && sections++ < SECTIONS_MAX && (scn = elf_nextscn(f.elf, scn))) {
		if (!gelf_getshdr(scn, &sh))
			continue;
		name = elf_strptr(f.elf, shstr, sh.sh_name);
		if (is_go && name &&
		    (!strcmp(name, ".go.buildinfo") || !strcmp(name, ".note.go.buildid") ||
		     !strcmp(name, ".gopclntab")))
			*is_go = true;
		if (sh.sh_type != SHT_SYMTAB && sh.sh_type != SHT_DYNSYM)
			continue;
		if (has_symtab && sh.sh_type == SHT_SYMTAB && sh.sh_size > sizeof(Elf64_Sym))
			*has_symtab = true;
		if (want)
			err = scan_table(&f, scn, &sh);
	}
	elf_end(f.elf);
	if (err || !out) {
		rp_elf_free(f.hits, f.n);
		return err ? err : (ssize_t)f.n;
	}
	*out = f.hits;
	return f.n;
}

ssize_t rp_elf_find(const char *open_path, int (*want)(void *ctx, const char *name), void *ctx,
		    struct rp_sym_hit **out, bool *has_symtab, bool *is_go)
{
	ssize_t n;
	int fd;

	if (out)
		*out = NULL;
	fd = open(open_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	n = rp_elf_find_fd(fd, want, ctx, out, has_symtab, is_go);
	close(fd);
	return n;
}

void rp_elf_free(struct rp_sym_hit *hits, ssize_t n)
{
	ssize_t i;

	for (i = 0; i < n; i++)
		free(hits[i].sym.name);
	free(hits);
}

/* -ENOENT: not in this table. */
static int int_in_table(Elf *elf, size_t phnum, Elf_Scn *scn, const GElf_Shdr *sh, int fd,
			const char *want, int32_t *v)
{
	Elf_Data *data = table_of(scn, sh);
	const char *name;
	uint64_t off;
	GElf_Sym sym;
	size_t i, n;

	if (!data)
		return -ENOENT;
	n = data->d_size / sizeof(Elf64_Sym);
	for (i = 0; i < n; i++) {
		if (!gelf_getsym(data, i, &sym) || GELF_ST_TYPE(sym.st_info) != STT_OBJECT ||
		    sym.st_shndx == SHN_UNDEF || sym.st_size != sizeof(*v))
			continue;
		name = elf_strptr(elf, sh->sh_link, sym.st_name);
		if (!name || strcmp(name, want))
			continue;
		*v = 0; /* in .bss */
		if (file_offset(elf, phnum, PF_R, sym.st_value, sizeof(*v), &off) &&
		    pread(fd, v, sizeof(*v), off) != sizeof(*v))
			return -ENOENT;
		return 0;
	}
	return -ENOENT;
}

int rp_elf_read_int(int fd, const char *name, int32_t *v)
{
	size_t phnum = 0, sections = 0;
	Elf_Scn *scn = NULL;
	int err = -ENOENT;
	GElf_Shdr sh;
	Elf *elf;

	*v = 0;
	elf = elf_of(fd);
	if (!elf)
		return -ENOEXEC;
	if (elf_getphdrnum(elf, &phnum))
		phnum = 0;
	while (err && sections++ < SECTIONS_MAX && (scn = elf_nextscn(elf, scn)))
		if (gelf_getshdr(scn, &sh) &&
		    (sh.sh_type == SHT_SYMTAB || sh.sh_type == SHT_DYNSYM))
			err = int_in_table(elf, phnum, scn, &sh, fd, name, v);
	elf_end(elf);
	return err;
}
