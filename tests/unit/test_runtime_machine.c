/* How many processors control groups allow, read from files that a test writes: both versions, quotas of the group
 * itself and of those above it, and what does not limit. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "machine/processors.h"
#include "temporary.h"

enum { ALL = 16 };

static const char *const folders[] = {"a", "a/b", "cpu", "cpu/a"}; /* of the root, outer ones first */
static const char *const files[] = {"list", "cpu.max", "a/cpu.max", "a/b/cpu.max", "cpu/cpu.cfs_quota_us",
                                    "cpu/cpu.cfs_period_us", "cpu/a/cpu.cfs_quota_us", "cpu/a/cpu.cfs_period_us"};
enum { N_FOLDERS = sizeof folders / sizeof *folders, N_FILES = sizeof files / sizeof *files };

static char root[TEMPORARY_BYTES];

static const char *path_of(const char *name) {
  static char path[TEMPORARY_BYTES + 64];
  snprintf(path, sizeof path, "%s/%s", root, name);
  return path;
}

static void setup(void) {
  cr_assert(mkdtemp(temporary_name(root, "tfm-groups")));
  for (int i = 0; i < N_FOLDERS; i++) cr_assert_eq(mkdir(path_of(folders[i]), 0700), 0);
}

static void teardown(void) {
  for (int i = 0; i < N_FILES; i++) unlink(path_of(files[i]));
  for (int i = N_FOLDERS; i-- > 0;) rmdir(path_of(folders[i]));
  rmdir(root);
}

TestSuite(machine, .init = setup, .fini = teardown);

static void write_text(const char *name, const char *text) {
  FILE *file = fopen(path_of(name), "w");
  cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0, "%s", name);
}

static int32_t cpus_with(const char *list) {
  char path[TEMPORARY_BYTES + 64];
  write_text("list", list);
  snprintf(path, sizeof path, "%s/list", root);
  return cpus_of_control_groups(path, root, ALL);
}

Test(machine, nothing_to_read_does_not_limit) {
  cr_expect_eq(cpus_of_control_groups("/nowhere/at/all", root, ALL), ALL);
  cr_expect_eq(cpus_with(""), ALL);
  cr_expect_eq(cpus_with("no colon\n0::/\n4:cpu:/\n4:cpu,cpuacct:/a\n0::/a/b\n"), ALL);
}

Test(machine, version_2_takes_the_least_quota_up_to_the_root) {
  write_text("a/b/cpu.max", "max 100000\n");
  cr_expect_eq(cpus_with("0::/a/b\n"), ALL);
  write_text("a/cpu.max", "450000 100000\n");
  cr_expect_eq(cpus_with("0::/a/b\n"), 5, "a half counts as one more");
  write_text("a/b/cpu.max", "700000 100000\n");
  cr_expect_eq(cpus_with("0::/a/b\n"), 5);
  write_text("cpu.max", "100 100000\n");
  cr_expect_eq(cpus_with("0::/a/b\n"), 1);
  cr_expect_eq(cpus_with("0::/\n"), 1);
  write_text("cpu.max", "1600000000 100\n");
  cr_expect_eq(cpus_with("0::/\n"), ALL, "never more than there are");
}

Test(machine, version_1_takes_the_quota_of_its_cpu_group) {
  write_text("cpu/a/cpu.cfs_quota_us", "250000\n");
  write_text("cpu/a/cpu.cfs_period_us", "100000\n");
  cr_expect_eq(cpus_with("4:cpu:/a\n"), 3);
  cr_expect_eq(cpus_with("11:memory:/a\n4:cpu,cpuacct:/a\n3:cpuset:/\n"), 3);
  cr_expect_eq(cpus_with("4:cpuacct,cpu:/a\n"), 3);
  cr_expect_eq(cpus_with("4:memory:/a\n5:cpuacct:/a\n1:name=systemd:/a\n"), ALL, "groups of other things");
  cr_expect_eq(cpus_with("4:cpu:/\n"), ALL);
  write_text("cpu/cpu.cfs_period_us", "100000\n");
  write_text("cpu/cpu.cfs_quota_us", "-1\n");
  cr_expect_eq(cpus_with("4:cpu:/a\n"), 3);
  write_text("cpu/cpu.cfs_quota_us", "200000\n");
  cr_expect_eq(cpus_with("4:cpu:/a\n"), 2, "the mount itself");
}
