/* Shared libraries that are written without a linker, of modules by hand: data, zeroes, pointers to functions outside,
 * which libraries of models lack or seldom have; and what is refused. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <llvm-c/IRReader.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/first_message.h"
#include "aot/elf_library.h"
#include "aot/elf_merge.h"
#include "codegen/codegen.h"
#include "target/relocations.h"
#include "target/target.h"

typedef struct Bench {
  Arena *arena;
  Diag diag;
} Bench;

static Bench bench_new(void) {
  Arena *arena = arena_create();
  return (Bench){.arena = arena, .diag = diag_new(arena)};
}

static Bytes object_of(Bench *bench, const char *ir) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMMemoryBufferRef text = LLVMCreateMemoryBufferWithMemoryRangeCopy(ir, strlen(ir), "by hand");
  LLVMModuleRef module = NULL;
  char *said = NULL;
  cr_assert_eq(LLVMParseIRInContext(context, text, &module, &said), 0, "%s", said);
  LLVMTargetMachineRef machine = target_machine(&bench->diag, target_find("x86-64"));
  LLVMMemoryBufferRef buffer = emit_object(&bench->diag, module, machine, false);
  cr_assert(buffer, "%s", first_message(&bench->diag));
  const size_t size = LLVMGetBufferSize(buffer);
  const Bytes object = {arena_copy(bench->arena, LLVMGetBufferStart(buffer), size), size};
  LLVMDisposeMemoryBuffer(buffer);
  LLVMDisposeTargetMachine(machine);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  return object;
}

static Bytes library_of(Bench *bench, const char *first, const char *second) {
  Bytes objects[2] = {object_of(bench, first)};
  if (second) objects[1] = object_of(bench, second);
  return elf_library(bench->arena, &bench->diag, "m", "libm.so", objects, second ? 2 : 1);
}

static void *opened(Bytes library) {
  char path[] = "/tmp/test_elf_library-XXXXXX";
  const int file = mkstemp(path);
  cr_assert(file >= 0 && write(file, library.data, library.size) == (ssize_t)library.size);
  close(file);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  cr_assert(handle, "%s", dlerror());
  return handle;
}

/* The result of a function without arguments. */
static uint64_t result(void *handle, const char *name) {
  uint64_t (*function)(void);
  *(void **)&function = dlsym(handle, name);
  cr_assert(function, "%s", dlerror());
  return function();
}

static const char first[] =
    "@table = hidden constant [3 x ptr] [ptr @free, ptr @m_count, ptr getelementptr (i8, ptr @zeroes, i64 8)]\n"
    "@counter = hidden global i64 5\n"
    "@zeroes = internal global [4 x i64] zeroinitializer\n"
    "@other = external hidden global i64\n"
    "declare ptr @memset(ptr, i32, i64)\n"
    "declare void @free(ptr)\n"
    "declare hidden i64 @helper()\n"
    "define i64 @m_count() { %a = load i64, ptr @counter %b = add i64 %a, 1 store i64 %b, ptr @counter ret i64 %b }\n"
    "define ptr @m_table() { ret ptr @table }\n"
    "define ptr @m_free() { ret ptr @free }\n"
    "define ptr @m_self() { ret ptr @m_count }\n"
    "define ptr @m_clear() { %a = call ptr @memset(ptr @zeroes, i32 7, i64 16) ret ptr %a }\n"
    "define i64 @m_helper() { %a = call i64 @helper() %b = load i64, ptr @other %c = add i64 %a, %b ret i64 %c }\n"
    "define i64 @elsewhere() { ret i64 1 }\n"
    "define hidden i64 @m_hidden() { ret i64 1 }\n";
static const char second[] =
    "@other = hidden global i64 30\n"
    "define hidden i64 @helper() { ret i64 12 }\n"
    "define hidden i64 @unused() { %a = call i64 @nobody() ret i64 %a }\n"
    "declare i64 @nobody()\n";

Test(elf_library, data_zeroes_and_functions_outside) {
  Bench bench = bench_new();
  /* All code of an object is one section here: what `unused` calls would be missing. */
  char *used = arena_strdup(bench.arena, second);
  *strstr(used, "define hidden i64 @unused") = '\0';
  const Bytes library = library_of(&bench, first, used);
  cr_assert(library.data, "%s", first_message(&bench.diag));
  void *handle = opened(library), *again = opened(library_of(&bench, first, used));
  cr_expect_eq(result(handle, "m_count"), 6);
  cr_expect_eq(result(handle, "m_count"), 7);
  cr_expect_eq(result(again, "m_count"), 6, "each has data of its own");
  cr_expect_eq(result(handle, "m_helper"), 42);
  void *const *table = (void *const *)result(handle, "m_table");
  void *outside = dlsym(RTLD_DEFAULT, "free");
  cr_expect_eq(table[0], outside);
  cr_expect_eq(table[1], dlsym(handle, "m_count"));
  cr_expect_eq(result(handle, "m_free"), (uint64_t)outside);
  cr_expect_eq(result(handle, "m_self"), (uint64_t)dlsym(handle, "m_count"));
  const uint64_t *zeroes = (const uint64_t *)result(handle, "m_clear");
  cr_expect_eq(table[2], (const void *)(zeroes + 1));
  cr_expect(zeroes[0] == 0x0707070707070707 && zeroes[1] == zeroes[0] && zeroes[2] == 0 && zeroes[3] == 0);
  cr_expect_null(dlsym(handle, "elsewhere"));
  cr_expect_null(dlsym(handle, "m_hidden"));
  cr_expect_null(dlsym(handle, "helper"));
  dlclose(handle);
  dlclose(again);
  arena_destroy(bench.arena);
}

/* Nothing has a version then, and loaders refuse an empty list of them. */
Test(elf_library, nothing_outside) {
  Bench bench = bench_new();
  void *handle = opened(library_of(&bench, "define i64 @m_one() { ret i64 1 }\n", NULL));
  cr_expect_eq(result(handle, "m_one"), 1);
  dlclose(handle);
  arena_destroy(bench.arena);
}

/* Constants of the same sections in both, at places that differ; calls and data from one to the other. */
static const char one_part[] =
    "declare hidden i64 @part_of(i64)\n"
    "@shared = external hidden constant i64\n"
    "@here = hidden constant ptr @one\n"
    "define i64 @one() { %a = call i64 @part_of(i64 3) %b = load i64, ptr @shared %c = add i64 %a, %b ret i64 %c }\n"
    "define i64 @big() { %a = fptosi double 1099511627776.0 to i64 ret i64 %a }\n"
    "define double @third(double %x) { %a = fmul double %x, 0x3FD5555555555555 ret double %a }\n"
    "define ptr @where() { %a = load ptr, ptr @here ret ptr %a }\n";
static const char other_part[] =
    "@own = internal constant [3 x i64] [i64 7, i64 8, i64 9]\n"
    "@shared = hidden constant i64 1000\n"
    "define i64 @part_of(i64 %n) { %a = sub i64 %n, 1 %p = getelementptr i64, ptr @own, i64 %a %b = load i64, ptr %p ret i64 %b }\n"
    "define double @tenth(double %x) { %a = fmul double %x, 0x3FB999999999999A ret double %a }\n";

static double double_of(void *handle, const char *name, double x) {
  double (*function)(double);
  *(void **)&function = dlsym(handle, name);
  cr_assert(function, "%s", dlerror());
  return function(x);
}

Test(elf_library, merged_objects) {
  Bench bench = bench_new();
  const Bytes parts[] = {object_of(&bench, one_part), object_of(&bench, other_part)};
  const Bytes merged = elf_merge(bench.arena, &bench.diag, (BytesList){parts, 2}, ".end");
  cr_assert(merged.data, "%s", first_message(&bench.diag));
  const Bytes objects[] = {
      merged, object_of(&bench, "declare hidden i64 @one.end()\ndeclare hidden ptr @where.end()\n"
                                "declare hidden double @third.end(double)\ndeclare hidden double @tenth.end(double)\n"
                                "define i64 @m_one() { %a = call i64 @one.end() ret i64 %a }\n"
                                "define ptr @m_where() { %a = call ptr @where.end() ret ptr %a }\n"
                                "define ptr @m_address() { ret ptr @one.end }\n"
                                "define double @m_third(double %x) { %a = call double @third.end(double %x) ret double %a }\n"
                                "define double @m_tenth(double %x) { %a = call double @tenth.end(double %x) ret double %a }\n")};
  void *handle = opened(elf_library(bench.arena, &bench.diag, "m", "libm.so", objects, 2));
  cr_expect_eq(result(handle, "m_one"), 1009);
  cr_expect_eq(result(handle, "m_where"), result(handle, "m_address"));
  cr_expect_eq(double_of(handle, "m_third", 3), 1.0);
  cr_expect_eq(double_of(handle, "m_tenth", 10), 1.0);
  dlclose(handle);
  arena_destroy(bench.arena);
}

Test(elf_library, merged_objects_are_of_one_machine) {
  Bench bench = bench_new();
  const Bytes part = object_of(&bench, other_part);
  char *copy = arena_copy(bench.arena, part.data, part.size);
  ((Elf64_Ehdr *)(void *)copy)->e_machine = EM_AARCH64;
  const Bytes parts[] = {part, {copy, part.size}};
  cr_expect_null(elf_merge(bench.arena, &bench.diag, (BytesList){parts, 2}, "").data);
  cr_expect_str_eq(first_message(&bench.diag), "code for another machine (183, not 62) needs a linker: give one with --cc");
  arena_destroy(bench.arena);
}

static void refused(const char *ir, const char *message) {
  Bench bench = bench_new();
  cr_expect_null(library_of(&bench, ir, NULL).data, "%s", ir);
  cr_assert_eq(bench.diag.n_errors, 1, "%s", ir);
  cr_expect_str_eq(first_message(&bench.diag), message);
  arena_destroy(bench.arena);
}

Test(elf_library, what_needs_a_linker_is_refused) {
  refused("declare i64 @nobody()\ndefine i64 @m_call() { %a = call i64 @nobody() ret i64 %a }\n",
          "nothing defines 'nobody', which the library needs: a linker may, with --cc");
  refused("@own = hidden thread_local global i64 1\ndefine i64 @m_own() { %a = load i64, ptr @own ret i64 %a }\n",
          "section .tdata needs a linker: give one with --cc");
  refused(
      "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 1, ptr @f, ptr null }]\n"
      "define internal void @f() { ret void }\ndefine i64 @m_one() { ret i64 1 }\n",
      "section .ctors.65534 needs a linker: give one with --cc");
  refused(
      "@far = hidden global [2147483647 x i8] zeroinitializer\n@end = hidden global i64 0\n"
      "@more = hidden global [2147483647 x i8] zeroinitializer\n@last = hidden global i64 0\n"
      "define i64 @m_far() { %a = load i64, ptr @last ret i64 %a }\n",
      "the library is larger than 2 GB: leave its weights in a file of their own");
}

/* Each row as the System V ABI says: an address or a distance, in its bytes; a value that they cannot hold is told. */
Test(elf_library, relocations_are_written_as_their_rows_say) {
  static const struct {
    uint32_t type;
    RelocationKind kind;
    uint64_t value, place, written;
    uint8_t width;
    bool fits;
  } cases[] = {{R_X86_64_64, RELOCATION_DIRECT, 0x123456789a, 0x1000, 0x123456789a, 8, true},
               {R_X86_64_PC64, RELOCATION_DIRECT, 0x1000, 0x123456789a, UINT64_C(0) - 0x123456689a, 8, true},
               {R_X86_64_PC32, RELOCATION_DIRECT, 0x1000, 0x1804, 0xfffff7fc, 4, true},
               {R_X86_64_PLT32, RELOCATION_DIRECT, 0x80000fff, 0x1000, 0x7fffffff, 4, true},
               {R_X86_64_PC32, RELOCATION_DIRECT, 0x80001000, 0x1000, 0x80000000, 4, false},
               {R_X86_64_GOTPCREL, RELOCATION_SLOT, 0x1000, 0x0ff0, 0x10, 4, true},
               {R_X86_64_GOTPCRELX, RELOCATION_SLOT, 0x1000, 0x0ff0, 0x10, 4, true},
               {R_X86_64_REX_GOTPCRELX, RELOCATION_SLOT, 0x1000, 0x0ff0, 0x10, 4, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t bytes = UINT64_C(0xa5a5a5a5a5a5a5a5);
    const uint64_t behind = cases[i].width == 8 ? 0 : bytes >> 32 << 32;
    const Relocation *row = relocation_find(TFM_FAMILY_X86_64, cases[i].type);
    cr_assert(row && row->kind == cases[i].kind && row->width == cases[i].width, "type %u", cases[i].type);
    cr_expect_eq(relocation_write(row, cases[i].value, cases[i].place, (char *)&bytes), cases[i].fits);
    cr_expect_eq(bytes, behind | cases[i].written, "type %u: %llx", cases[i].type, (unsigned long long)bytes);
  }
  cr_expect_null(relocation_find(TFM_FAMILY_X86_64, R_X86_64_TPOFF32));
  cr_expect_null(relocation_find(TFM_FAMILY_X86_64, R_AARCH64_CALL26));
  cr_expect_null(relocation_find(TFM_FAMILY_ANY, R_X86_64_64));
}

/* In fields of instructions: what assemblers of AArch64 make of the same distances. Bits beside the field stay, and
 * those in it are replaced. */
Test(elf_library, fields_of_instructions_are_written_as_their_rows_say) {
  static const struct {
    uint32_t type, instruction;
    uint64_t value, place;
    uint32_t written;
    bool fits;
  } cases[] = {
      {R_AARCH64_CALL26, 0x94000000, 0x1010, 0x1000, 0x94000004, true},          /* bl .+16 */
      {R_AARCH64_CALL26, 0x97ffffff, 0x0ff0, 0x1000, 0x97fffffc, true},          /* bl .-16 */
      {R_AARCH64_JUMP26, 0x14000000, 0x8000ffc, 0x1000, 0x15ffffff, true},       /* b, as far as it reaches */
      {R_AARCH64_CALL26, 0x94000000, 0x8001000, 0x1000, 0x96000000, false},      /* a step further */
      {R_AARCH64_CALL26, 0x94000000, 0x1012, 0x1000, 0x94000004, false},         /* within an instruction */
      {R_AARCH64_ADR_PREL_PG_HI21, 0x90000010, 0x5abc, 0x1fff, 0x90000030, true}, /* adrp x16, four pages on */
      {R_AARCH64_ADR_PREL_PG_HI21, 0x90000000, 0x0fff, 0x1000, 0xf0ffffe0, true}, /* adrp x0, the page before */
      {R_AARCH64_ADR_PREL_PG_HI21, 0x90000000, UINT64_C(1) << 32, 0, 0x90800000, false},
      {R_AARCH64_ADR_GOT_PAGE, 0x90000000, 0x3000, 0x1000, 0xd0000000, true},
      {R_AARCH64_ADD_ABS_LO12_NC, 0x913ffc20, 0x12abc, 0, 0x912af020, true},      /* add x0, x1, 0xabc */
      {R_AARCH64_LDST8_ABS_LO12_NC, 0x39400020, 0x12abd, 0, 0x396af420, true},    /* ldrb w0, [x1, 0xabd] */
      {R_AARCH64_LDST16_ABS_LO12_NC, 0x79400020, 0x12abe, 0, 0x79557c20, true},   /* ldrh w0, [x1, 0xabe] */
      {R_AARCH64_LDST32_ABS_LO12_NC, 0xb9400020, 0x12abc, 0, 0xb94abc20, true},   /* ldr w0, [x1, 0xabc] */
      {R_AARCH64_LDST64_ABS_LO12_NC, 0xf9400211, 0x12ab8, 0, 0xf9455e11, true},   /* ldr x17, [x16, 0xab8] */
      {R_AARCH64_LD64_GOT_LO12_NC, 0xf9400211, 0x12ab8, 0, 0xf9455e11, true},
      {R_AARCH64_LDST64_ABS_LO12_NC, 0xf9400211, 0x12abc, 0, 0xf9455e11, false},  /* not aligned */
      {R_AARCH64_LDST128_ABS_LO12_NC, 0x3dc00020, 0x12ab0, 0, 0x3dc2ac20, true},  /* ldr q0, [x1, 0xab0] */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint32_t words[2] = {cases[i].instruction, 0xa5a5a5a5};
    const Relocation *row = relocation_find(TFM_FAMILY_AARCH64, cases[i].type);
    cr_assert(row && row->width == 4, "type %u", cases[i].type);
    cr_expect_eq(relocation_write(row, cases[i].value, cases[i].place, (char *)words), cases[i].fits, "case %zu", i);
    cr_expect_eq(words[0], cases[i].written, "case %zu: %08x", i, words[0]);
    cr_expect_eq(words[1], 0xa5a5a5a5);
  }
}

/* The same for RISC-V, whose fields lie in several runs, in instructions of 2, 4 and 2 x 4 bytes. */
Test(elf_library, fields_in_several_runs) {
  static const struct {
    uint32_t type;
    uint64_t instruction, value, place, written;
    bool fits;
  } cases[] = {
      {R_RISCV_CALL_PLT, 0x000080e700000097, 0x1800, 0x1000, 0x800080e700001097, true}, /* auipc 1; jalr -2048 */
      {R_RISCV_CALL_PLT, 0x000080e700000097, 0x17fe, 0x1000, 0x7fe080e700000097, true}, /* auipc 0; jalr 2046 */
      {R_RISCV_CALL_PLT, 0x000080e700000097, 0x0ffe, 0x1000, 0xffe080e700000097, true}, /* back */
      {R_RISCV_CALL_PLT, 0x000080e700000097, 0x800007ff, 0x1000, 0x7ff080e77ffff097, true},
      {R_RISCV_CALL_PLT, 0x000080e700000097, 0x80000800, 0x1000, 0x800080e780000097, false},
      {R_RISCV_PCREL_HI20, 0x00000517, 0x12345fff, 0x1000, 0x12345517, true}, /* auipc a0 */
      {R_RISCV_PCREL_HI20, 0x00000517, 0x800, 0x1000, 0x00000517, true},
      {R_RISCV_PCREL_HI20, 0x00000517, 0x7ff, 0x1000, 0xfffff517, true},
      {R_RISCV_GOT_HI20, 0x00000517, 0x5000, 0x1000, 0x00004517, true},
      {R_RISCV_PCREL_LO12_I, 0x00053503, 0x12344fff, 0, 0xfff53503, true}, /* ld a0, -1(a0) */
      {R_RISCV_PCREL_LO12_S, 0x00a53023, 0x00000aa8, 0, 0xaaa53423, true}, /* sd a0, 0xaa8(a0) */
      {R_RISCV_BRANCH, 0x00b50063, 0x0ffe, 0x1000, 0xfeb50fe3, true},      /* beq a0, a1, .-2 */
      {R_RISCV_BRANCH, 0x00b50063, 0x1ffe, 0x1000, 0x7eb50fe3, true},      /* as far as it reaches */
      {R_RISCV_BRANCH, 0x00b50063, 0x2000, 0x1000, 0x80b50063, false},
      {R_RISCV_BRANCH, 0x00b50063, 0x1001, 0x1000, 0x00b50063, false}, /* within an instruction */
      {R_RISCV_JAL, 0x0000006f, 0x0ffe, 0x1000, 0xfffff06f, true},     /* j .-2 */
      {R_RISCV_JAL, 0x0000006f, 0x1800, 0x1000, 0x0010006f, true},     /* j .+0x800: bit 11 */
      {R_RISCV_JAL, 0x0000006f, 0x556aa, 0, 0x6aa5506f, true},
      {R_RISCV_JAL, 0x0000006f, 0x101000, 0x1000, 0x8000006f, false},
      {R_RISCV_RVC_BRANCH, 0xc101, 0x0ffe, 0x1000, 0xdd7d, true}, /* c.beqz a0, .-2 */
      {R_RISCV_RVC_BRANCH, 0xc101, 0x10aa, 0x1000, 0xc54d, true},
      {R_RISCV_RVC_BRANCH, 0xc101, 0x1100, 0x1000, 0xd101, false},
      {R_RISCV_RVC_JUMP, 0xa001, 0x0ffe, 0x1000, 0xbffd, true}, /* c.j .-2 */
      {R_RISCV_RVC_JUMP, 0xa001, 0x12aa, 0x1000, 0xa46d, true},
      {R_RISCV_RVC_JUMP, 0xa001, 0x1800, 0x1000, 0xb001, false},
      {R_RISCV_ADD32, 0x00000010, 0x123, 0x1000, 0x133, true}, /* differences: of what is there, in its bits alone */
      {R_RISCV_SUB32, 0x00000010, 0x11, 0x1000, 0xffffffff, true},
      {R_RISCV_SET6, 0x40, 0x7f, 0x1000, 0x7f, true},
      {R_RISCV_SUB6, 0x43, 0x44, 0x1000, 0x7f, true},
      {R_RISCV_SET8, 0x40, 0x1ff, 0x1000, 0xff, true},
      {R_RISCV_SUB8, 0x40, 0x41, 0x1000, 0xff, true},
      {R_RISCV_SET16, 0x40, 0x2ffff, 0x1000, 0xffff, true},
      {R_RISCV_SUB16, 0x40, 0x41, 0x1000, 0xffff, true},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Relocation *row = relocation_find(TFM_FAMILY_RISCV64, cases[i].type);
    cr_assert(row, "type %u", cases[i].type);
    const uint64_t behind = row->width == 8 ? 0 : UINT64_C(0xa5a5a5a5a5a5a5a5) >> 8 * row->width << 8 * row->width;
    uint64_t bytes = behind | cases[i].instruction;
    cr_expect_eq(relocation_write(row, cases[i].value, cases[i].place, (char *)&bytes), cases[i].fits, "case %zu", i);
    cr_expect_eq(bytes, behind | cases[i].written, "case %zu: %llx", i, (unsigned long long)bytes);
  }
}

Test(elf_library, code_for_another_machine_is_refused) {
  Bench bench = bench_new();
  Bytes object = object_of(&bench, "define i64 @m_one() { ret i64 1 }\n");
  ((Elf64_Ehdr *)object.data)->e_machine = EM_S390;
  cr_expect_null(elf_library(bench.arena, &bench.diag, "m", "libm.so", &object, 1).data);
  cr_assert_eq(bench.diag.n_errors, 1);
  cr_expect_str_eq(first_message(&bench.diag),
                   "libraries for machine 22 need a linker: give one with --cc");
  arena_destroy(bench.arena);
}
