# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
#   make                 build/reqprobe
#   make install         into PREFIX (/usr/local), under DESTDIR if given
#   make check           every test; its parts: check-unit check-replay
#                        check-tools check-live check-engines
#   make lint            style, static analysis, rules for BPF code
#   make fuzz            each fuzz target for FUZZ_SECONDS
#   make bench           what it costs
#   make demo            see it work on a real llama-server
#
# V=1 shows the commands. Everything that is made lies under build/.

.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

ARCH ?= $(patsubst arm64,aarch64,$(shell uname -m))
BPF_ARCH_x86_64 := x86
BPF_ARCH_aarch64 := arm64
BPF_ARCH := $(BPF_ARCH_$(ARCH))
ifeq ($(BPF_ARCH),)
$(error no support for ARCH=$(ARCH): x86_64 and aarch64 only)
endif

ifeq ($(origin CC),default)
CC := $(if $(shell command -v gcc),gcc,clang)
endif
CLANG ?= clang
CLANG_FORMAT ?= clang-format
CLANG_TIDY ?= clang-tidy
PKG_CONFIG ?= pkg-config
INSTALL ?= install
# sbin is not in everybody's PATH
BPFTOOL ?= $(or $(shell PATH="$$PATH:/usr/sbin:/sbin" command -v bpftool),bpftool)

PREFIX ?= /usr/local
SBINDIR ?= $(PREFIX)/sbin
MANDIR ?= $(PREFIX)/share/man
DOCDIR ?= $(PREFIX)/share/doc/reqprobe
UNITDIR ?= $(PREFIX)/lib/systemd/system
DESTDIR ?=

FUZZ_SECONDS ?= 60

B := build

ifeq ($(V),1)
Q :=
say = @:
else
Q := @
say = @printf '  %-7s %s\n' '$(1)' '$(2)'
MAKEFLAGS += --no-print-directory
endif

# ---- sources ---------------------------------------------------------------

USER_SRC := $(sort $(wildcard user/*.c user/*/*.c))
LIB_SRC := $(filter-out user/main.c,$(USER_SRC))
UNIT_SRC := $(sort $(wildcard tests/unit/test_*.c))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))

# Each bpf/*.bpf.c is an object of its own, and they are linked into one. A
# bpf/reqprobe.bpf.c that includes the others stands for them all. probe.bpf.c
# is what feature tests load: it has its own skeleton.
BPF_ALL := $(sort $(wildcard bpf/*.bpf.c))
ifneq ($(shell grep -ls '^.include "[^"]*\.bpf\.c"' bpf/reqprobe.bpf.c),)
BPF_SRC := bpf/reqprobe.bpf.c
else
BPF_SRC := $(filter-out bpf/probe.bpf.c,$(BPF_ALL))
endif
PROBE_SRC := $(filter bpf/probe.bpf.c,$(BPF_ALL))
BPF_OBJ := $(BPF_SRC:bpf/%.bpf.c=$B/bpf/%.o)
SKELS := $B/reqprobe.skel.h $(if $(PROBE_SRC),$B/probe.skel.h)

USER_OBJ := $(USER_SRC:%.c=$B/obj/%.o)
SAN_LIB_OBJ := $(LIB_SRC:%.c=$B/san/%.o)
FUZZ_LIB_OBJ := $(LIB_SRC:%.c=$B/fuzzobj/%.o)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$B/san/tests/unit/%)
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=$B/fuzzobj/tests/fuzz/%)

# ---- flags -----------------------------------------------------------------

PKGS := libbpf libelf zlib libmicrohttpd jansson libpcap libcurl libzstd libcrypto
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS) 2>/dev/null)
PKG_LIBS := $(or $(shell $(PKG_CONFIG) --libs $(PKGS) 2>/dev/null),-lbpf -lelf -lz -lmicrohttpd -ljansson -lpcap -lcurl -lzstd -lcrypto)
LIBS := $(PKG_LIBS) -lm -lpthread
UNIT_LIBS := $(or $(shell $(PKG_CONFIG) --libs cmocka 2>/dev/null),-lcmocka)

CFLAGS ?= -O2 -g
HARDEN_x86_64 := -fcf-protection
HARDEN_aarch64 := -mbranch-protection=standard
HARDEN := -fPIE -fstack-protector-strong -fstack-clash-protection \
	-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 $(HARDEN_$(ARCH))
HARDEN_LD := -pie -Wl,-z,relro,-z,now -Wl,-z,noexecstack

INCLUDES := -Iinclude -Iuser -I$B
BASE_CFLAGS := -std=gnu11 -D_GNU_SOURCE= -ffp-contract=off -Wall -Wextra -Werror $(INCLUDES) $(PKG_CFLAGS)
ALL_CFLAGS := $(BASE_CFLAGS) $(HARDEN) $(CPPFLAGS) $(CFLAGS)
ALL_LDFLAGS := $(HARDEN_LD) $(LDFLAGS)

SAN := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
# gcc's sanitizers make these warn of what can't be
SAN_QUIET := $(if $(findstring clang,$(shell $(CC) --version 2>/dev/null)),,\
	-Wno-format-truncation -Wno-stringop-truncation -Wno-maybe-uninitialized)
SAN_CFLAGS := $(BASE_CFLAGS) $(SAN_QUIET) -O1 -g $(SAN) -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=0

FUZZ_SAN := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FUZZ_CFLAGS := $(BASE_CFLAGS) -O1 -g $(FUZZ_SAN) -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=0

BPF_CFLAGS := -g -O2 -mcpu=v3 -target bpf -D__TARGET_ARCH_$(BPF_ARCH) \
	-Ivmlinux/$(ARCH) -Iinclude -Ibpf -Wall -Werror

# ---- build -----------------------------------------------------------------

.PHONY: all
all: $B/reqprobe

# What else decides about the outputs: a change of compiler, flags or the list
# of files makes them anew. Written only when it differs.
define stamp
$(1): FORCE
	@mkdir -p $$(@D)
	@printf '%s\n' '$$(subst ','\'',$(2))' | cmp -s - $$@ || \
		printf '%s\n' '$$(subst ','\'',$(2))' > $$@
endef
$(eval $(call stamp,$B/.flags,$$(CC) $$(ALL_CFLAGS) $$(ALL_LDFLAGS) $$(LIBS)))
$(eval $(call stamp,$B/.san-flags,$$(CC) $$(SAN_CFLAGS) $$(LIBS)))
$(eval $(call stamp,$B/.fuzz-flags,$$(CLANG) $$(FUZZ_CFLAGS) $$(LIBS)))
$(eval $(call stamp,$B/.bpf-flags,$$(CLANG) $$(BPFTOOL) $$(BPF_CFLAGS)))
$(eval $(call stamp,$B/.user-files,$$(USER_SRC)))
$(eval $(call stamp,$B/.bpf-files,$$(BPF_SRC)))

.PHONY: FORCE
FORCE:

$B/bpf/%.o: bpf/%.bpf.c $B/.bpf-flags
	$(call say,CLANG,$@)
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_CFLAGS) -MMD -MP -MT $@ -MF $(@:.o=.d) -c $< -o $@

$B/bpf/reqprobe.bpf.o: $(BPF_OBJ) $B/.bpf-files
	$(if $(BPF_OBJ),,$(error no bpf/*.bpf.c))
	$(call say,BPFLINK,$@)
	$(Q)$(BPFTOOL) gen object $@ $(BPF_OBJ)

$B/bpf/probe.bpf.o: $B/bpf/probe.o
	$(call say,BPFLINK,$@)
	$(Q)$(BPFTOOL) gen object $@ $<

$B/%.skel.h: $B/bpf/%.bpf.o
	$(call say,SKEL,$@)
	$(Q){ echo '/* NOLINTBEGIN */' && $(BPFTOOL) gen skeleton $< name $*_bpf && \
		echo '/* NOLINTEND */'; } > $@

# gcc and clang write the list of headers while they compile; only the skeletons
# must be there before the first time.
$B/obj/%.o: %.c $B/.flags | $(SKELS)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -MT $@ -MF $(@:.o=.d) -c $< -o $@

$B/reqprobe: $(USER_OBJ) $B/.user-files
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(USER_OBJ) $(LIBS) -o $@

# ---- install ---------------------------------------------------------------

MAN_PAGES := $(wildcard docs/man/*.[1-9])
SCHEMAS := $(wildcard docs/schema/*.json)
DOCS := $(wildcard README.md CHANGELOG.md LICENSE docs/*.md)
UNITS := $(wildcard contrib/*.service)
CONTRIB := $(filter-out $(UNITS),$(wildcard contrib/*))

.PHONY: install uninstall
install: $B/reqprobe
	$(call say,INSTALL,$(DESTDIR)$(SBINDIR)/reqprobe)
	$(Q)$(INSTALL) -d '$(DESTDIR)$(SBINDIR)' '$(DESTDIR)$(DOCDIR)/schema' \
		'$(DESTDIR)$(DOCDIR)/contrib' '$(DESTDIR)$(UNITDIR)'
	$(Q)$(INSTALL) -m 755 $B/reqprobe '$(DESTDIR)$(SBINDIR)/reqprobe'
	$(Q)set -e; for m in $(MAN_PAGES); do \
		d='$(DESTDIR)$(MANDIR)'/man$${m##*.}; \
		$(INSTALL) -d "$$d"; $(INSTALL) -m 644 $$m "$$d"; done
	$(Q)set -e; for s in $(SCHEMAS); do \
		$(INSTALL) -m 644 $$s '$(DESTDIR)$(DOCDIR)/schema'; done
	$(Q)set -e; for d in $(DOCS); do \
		$(INSTALL) -m 644 $$d '$(DESTDIR)$(DOCDIR)'; done
	$(Q)set -e; for c in $(CONTRIB); do \
		$(INSTALL) -m 644 $$c '$(DESTDIR)$(DOCDIR)/contrib'; done
	$(Q)set -e; for u in $(UNITS); do \
		sed 's|/usr/local/sbin/|$(SBINDIR)/|' $$u > $B/unit && \
		$(INSTALL) -m 644 $B/unit '$(DESTDIR)$(UNITDIR)/'$${u##*/}; done

uninstall:
	$(call say,REMOVE,$(DESTDIR)$(SBINDIR)/reqprobe)
	$(Q)rm -f '$(DESTDIR)$(SBINDIR)/reqprobe'
	$(Q)set -e; for m in $(notdir $(MAN_PAGES)); do \
		rm -f '$(DESTDIR)$(MANDIR)'/man$${m##*.}/$$m; done
	$(Q)set -e; for u in $(notdir $(UNITS)); do \
		rm -f '$(DESTDIR)$(UNITDIR)'/$$u; done
	$(Q)rm -rf '$(DESTDIR)$(DOCDIR)'

# ---- tests -----------------------------------------------------------------
# scripts/tally runs tests/PART/run for each part and adds up their last lines.

$B/san/%.o: %.c $B/.san-flags | $(SKELS)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SAN_CFLAGS) -MMD -MP -MT $@ -MF $(@:.o=.d) -c $< -o $@

$B/san/libreqprobe.a: $(SAN_LIB_OBJ) $B/.user-files
	$(call say,AR,$@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $(SAN_LIB_OBJ)

$B/san/tests/unit/%: $B/san/tests/unit/%.o $B/san/libreqprobe.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(SAN) $< $B/san/libreqprobe.a $(UNIT_LIBS) $(LIBS) -o $@

.SECONDARY: $(UNIT_SRC:%.c=$B/san/%.o) $(FUZZ_SRC:%.c=$B/fuzzobj/%.o)

.PHONY: check check-unit check-replay check-tools check-live check-engines unit-tests
unit-tests: $(UNIT_BIN)

check: $B/reqprobe $B/genlog $B/page $(UNIT_BIN)
	@UNIT_BIN='$(UNIT_BIN)' scripts/tally unit replay tools live engines

check-unit: $(UNIT_BIN)
	@UNIT_BIN='$(UNIT_BIN)' scripts/tally unit

# what tests/live/t_lrm.py compares a package with
$B/lrm_drive: $B/obj/tests/lrm/drive.o $(filter-out $B/obj/user/main.o,$(USER_OBJ)) $B/.user-files
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $< $(filter-out $B/obj/user/main.o,$(USER_OBJ)) $(LIBS) -o $@

check-live: $B/lrm_drive

check-replay check-live check-engines: check-%: $B/reqprobe
	@scripts/tally $*

check-tools: $B/reqprobe $B/genlog $B/page
	@scripts/tally tools

# Logs as large as a test wants them, by the daemon's own writer; /metrics of a recording.
$B/genlog $B/page: $B/%: $B/obj/tests/tools/%.o $(filter-out $B/obj/user/main.o,$(USER_OBJ)) $B/.user-files
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(filter %.o,$^) $(LIBS) -o $@

# ---- fuzz ------------------------------------------------------------------

$B/fuzzobj/%.o: %.c $B/.fuzz-flags | $(SKELS)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(FUZZ_CFLAGS) -fsanitize=fuzzer-no-link -MMD -MP -MT $@ -MF $(@:.o=.d) -c $< -o $@

$B/fuzzobj/libreqprobe.a: $(FUZZ_LIB_OBJ) $B/.user-files
	$(call say,AR,$@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $(FUZZ_LIB_OBJ)

$B/fuzzobj/tests/fuzz/%: $B/fuzzobj/tests/fuzz/%.o $B/fuzzobj/libreqprobe.a
	$(call say,LINK,$@)
	$(Q)$(CLANG) $(FUZZ_SAN) -fsanitize=fuzzer $< $B/fuzzobj/libreqprobe.a $(LIBS) -o $@

.PHONY: fuzz fuzz-targets
fuzz-targets: $(FUZZ_BIN)

# New inputs go to build/fuzz/NAME, crashes to build/fuzz/NAME-crash-*.
FUZZ_RUNS := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=fuzz-run-%)
.PHONY: $(FUZZ_RUNS)
fuzz: $(FUZZ_RUNS)
	$(if $(FUZZ_RUNS),,$(error no tests/fuzz/fuzz_*.c))
$(FUZZ_RUNS): fuzz-run-%: $(FUZZ_BIN)
	$(call say,FUZZ,$*, $(FUZZ_SECONDS) s)
	@mkdir -p $B/fuzz/$*
	$(Q)$B/fuzzobj/tests/fuzz/fuzz_$* -max_total_time=$(FUZZ_SECONDS) -timeout=10 \
		-rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 \
		-artifact_prefix=$B/fuzz/$*- $B/fuzz/$* $(wildcard tests/fuzz/corpus/$*) \
		> $B/fuzz/$*.log 2>&1 || { tail -n 60 $B/fuzz/$*.log; exit 1; }
	@sed -n 's/^stat::number_of_executed_units: */          $*: runs /p' $B/fuzz/$*.log

# ---- the rest --------------------------------------------------------------

# Drivers of benchmarks that want the program's own parts; tests/live/bench.py runs them.
$B/bench_%: tests/bench/%.c $(filter-out $B/obj/user/main.o,$(USER_OBJ)) $B/.flags
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $< $(filter-out $B/obj/user/main.o,$(USER_OBJ)) $(LIBS) -o $@

.PHONY: bench demo
bench: $B/reqprobe
	@tests/live/bench.py $(BENCH_ARGS)

demo: $B/reqprobe
	@scripts/demo $(DEMO_ARGS)

C_FILES := $(sort $(wildcard bpf/*.[ch] include/*/*.h user/*.[ch] user/*/*.[ch] \
	tests/*/*.[ch]))
SH_FILES := $(sort $(shell grep -lE '^\#!.*\b(ba)?sh\b' scripts/* tests/*/run .ci/run 2>/dev/null))

.PHONY: lint lint-bpf lint-format lint-tidy lint-shell
lint: lint-bpf lint-format lint-tidy lint-shell

lint-bpf:
	$(call say,LINT,bpf)
	$(Q)scripts/lint-bpf

lint-format:
	$(call say,FORMAT,$(words $(C_FILES)) files)
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(C_FILES)

# clang-tidy counts hidden warnings on stderr; what it finds is on stdout.
lint-tidy: $(SKELS)
	$(call say,TIDY,$(words $(USER_SRC)) files)
	@mkdir -p $B
	$(Q)printf '%s\n' $(USER_SRC) | xargs -P "$$(nproc)" -I{} sh -c \
		'$(CLANG_TIDY) --quiet "$$1" -- $(BASE_CFLAGS) 2>$B/tidy-$$$$.log || \
		{ grep -v "warnings generated" $B/tidy-$$$$.log; rm -f $B/tidy-$$$$.log; exit 1; }; \
		rm -f $B/tidy-$$$$.log' sh {}

lint-shell:
	@if command -v shellcheck >/dev/null; then \
		printf '  %-7s %s\n' SHELL '$(words $(SH_FILES)) files'; shellcheck $(SH_FILES); \
	else echo '  SKIP    shell scripts: shellcheck is not installed'; fi

.PHONY: clean
clean:
	$(call say,CLEAN,$B)
	$(Q)rm -rf $B

-include $(BPF_OBJ:.o=.d) $(PROBE_SRC:bpf/%.bpf.c=$B/bpf/%.d) \
	$(USER_OBJ:.o=.d) $(SAN_LIB_OBJ:.o=.d) $(FUZZ_LIB_OBJ:.o=.d) \
	$(UNIT_SRC:%.c=$B/san/%.d) $(FUZZ_SRC:%.c=$B/fuzzobj/%.d) $B/obj/tests/tools/genlog.d $B/obj/tests/tools/page.d
